"""Cells of a regression: which ways of executing a request comes to, and how they are named."""

from collections import Counter

import pytest

from streaming_core.errors import BadInput
from streaming_core.runspec import RegressionSpec, RunSpec

KINDS = {"sl": "transaction", "wc": "dataflow"}


def ways(**request) -> list[tuple]:
    cells = RegressionSpec(applications=["sl"], threads=[2], **request).cells(KINDS)
    return [(cell.scheme, cell.pool, cell.stealing) for cell in cells]


def test_pools_are_for_schemes_that_take_chains_from_one():
    assert ways(schemes=["tstream", "serial", "auto"]) == [
        ("tstream", "shared_nothing", False),
        ("serial", None, False),
        ("auto", "shared_nothing", False),
    ]
    assert ways(schemes=["serial", "tstream"], pools=["shared_per_socket", "shared_nothing"]) == [
        ("serial", None, False),
        ("tstream", "shared_per_socket", False),
        ("tstream", "shared_nothing", False),
    ]
    wc = RegressionSpec(applications=["wc"], threads=[1], pools=["shared_everything"], stealing=True).cells(KINDS)
    assert {cell.pool for cell in wc} == {None}


def test_stealing_is_tried_beside_its_absence_where_a_pool_is_shared():
    pools = ["shared_nothing", "shared_everything", "shared_nothing", "shared_per_socket"]
    assert ways(schemes=["tstream", "lock"], pools=pools, stealing=True) == [
        ("tstream", "shared_nothing", False),
        ("tstream", "shared_everything", False),
        ("tstream", "shared_per_socket", False),
        ("tstream", "shared_everything", True),
        ("tstream", "shared_per_socket", True),
        ("lock", None, False),
    ]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"pools": ["puddle"]}, "pools: unknown pool 'puddle'; known: shared_nothing, "),
        ({"pools": []}, "pools: "),
        ({"stealing": True}, "stealing needs a shared pool"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(asked, said):
    with pytest.raises(BadInput, match=said) as refused:
        RegressionSpec.parse(asked)
    assert "\n" not in str(refused.value)


def test_every_way_of_a_regression_has_a_strategy_of_its_own():
    pools = ["shared_nothing", "shared_everything", "shared_per_socket"]
    cells = RegressionSpec(applications=["sl", "wc"], threads=[1, 2], pools=pools, stealing=True).cells(KINDS)
    assert set(Counter((cell.app, cell.executor, cell.strategy, cell.threads) for cell in cells).values()) == {1}
    assert len({cell.cell for cell in cells}) == len(cells)


def test_a_strategy_names_what_differs_from_the_defaults():
    def strategy(**choices) -> str:
        return RunSpec(app="sl", executor="transactional", **choices).strategy

    assert strategy() == "tstream"
    assert strategy(scheme="serial") == "serial"
    assert strategy(scheme="auto", pool="shared_per_socket") == "auto-shared_per_socket"
    assert strategy(pool="shared_everything", stealing=True) == "tstream-shared_everything-stealing"
    assert RunSpec(app="wc", executor="pooled").strategy == "ct"
