"""Cells of a regression: the ways that a request expands to, and their names."""

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming_core.errors import BadInput
from streaming_core.regression import matrix
from streaming_core.regression.fleet import Queue, SparkQueue, is_on_spark
from streaming_core.regression.home import Home
from streaming_core.regression.request import RegressionSpec
from streaming_core.run.way import (
    AXES,
    EXECUTORS,
    QUEUES_WITH_PARTITIONING,
    SCHEMES_WITH_POOL,
    SHARED_POOLS,
    Morsel,
    Pooled,
    RunSpec,
    Transactional,
)
from streaming_core.storage import write_json

RUN_ID = "20260101T000000Z-00000000"
KINDS = {"sl": "transaction", "wc": "dataflow"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pools": ["puddle"]}, "pools: unknown pool 'puddle'; known: shared_nothing, "),
        ({"pools": []}, "pools must have at least 1 item"),
        ({"schemes": []}, "schemes must have at least 1 item"),
        ({"heuristics": ["hunch"]}, "heuristics: unknown heuristic 'hunch'; known: affinity, ct, lp, et, qst"),
        ({"queues": ["line"]}, "queues: unknown queue 'line'; known: lanes, hybrid, partitioned, shared"),
        ({"reorders": ["non_blocking", "shelf"]}, "reorders: unknown reorder 'shelf'; known: non_blocking, lock"),
        ({"parallelisms": ["none"]}, "parallelisms: unknown parallelism 'none'; known: vsn, vsn_esg, sn"),
        (
            {"channels": ["pipe"]},
            "channels: unknown channel 'pipe'; known: gate, scalegate, merge_sort, shared_ring, pair_queue",
        ),
        ({"channels": []}, "channels must have at least 1 item"),
        ({"orders": ["alphabetical"]}, "orders: unknown order 'alphabetical'; known: total, none"),
        ({"batches": [0]}, "each number must be between 1 and 65536, got 0"),
        ({"batches": [70_000]}, "each number must be between 1 and 65536, got 70000"),
        ({"batches": []}, "batches must have at least 1 item"),
        ({"stealing": True}, "stealing needs a shared pool"),
        ({"reconfigurations": -1}, "reconfigurations must be between 0 and 1000, got -1"),
        ({"reconfigurations": 1001}, "reconfigurations must be between 0 and 1000, got 1001"),
        ({"schedule": []}, "unknown field 'schedule'"),
    ],
)
def test_an_invalid_request_is_refused_in_one_line(fields, message):
    with pytest.raises(BadInput, match=message) as refused:
        RegressionSpec.parse(fields)
    assert "\n" not in str(refused.value)


def test_by_default_an_executor_has_one_way_and_transactional_the_published_scheme_too():
    strategies = [(cell.executor, cell.strategy) for cell in RegressionSpec(applications=["sl", "wc"]).cells(KINDS)]
    ways = [("transactional", "owners"), ("transactional", "tstream"), ("pooled", "affinity"), ("pinned", "gate")]
    assert strategies == [way for way in ways for _ in (1, 2)]


def some(values):
    """Some of the values in any order, possibly with repeats."""
    return st.lists(st.sampled_from(values), min_size=1, max_size=4)


REQUESTS = st.fixed_dictionaries(
    {
        "applications": some(list(KINDS)),
        "executors": st.permutations(list(EXECUTORS)),
        "stealing": st.booleans(),
        "threads": some([1, 2, 8, 1024]),
        "batches": some([1, 7, 256, 65_536]),
        "checkpoint": st.sampled_from(["0", "10s", "3"]),
        "plans": some(["auto", "replicated"]),
        **{f"{axis}s": some(strategies) for axis, strategies in AXES.items()},
    }
)


@given(REQUESTS)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_a_matrix_holds_every_way_once_as_a_valid_spec(request):
    request["stealing"] &= bool(SHARED_POOLS.intersection(request["pools"]))
    cells = RegressionSpec.parse(request).cells(KINDS)
    assert [RunSpec.parse(cell.model_dump_json()) for cell in cells] == cells
    assert len({cell.cell for cell in cells}) == len(cells)
    assert len({(cell.app, cell.executor, cell.strategy, cell.threads) for cell in cells}) == len(cells)
    shape = {name: len(set(values)) for name, values in request.items() if isinstance(values, list)}
    each = shape["threads"] * shape["batches"]
    count = Counter((cell.app, cell.executor) for cell in cells)
    if "wc" in request["applications"]:
        parted = len(QUEUES_WITH_PARTITIONING.intersection(request["queues"]))
        queues = parted * shape["partitionings"] + shape["queues"] - parted
        assert count["wc", "pooled"] == shape["heuristics"] * queues * shape["reorders"] * each
        plans = shape["plans"] * shape["threads"] - (shape["plans"] - 1) * (1 in request["threads"])
        pinned = shape["channels"] * shape["parallelisms"] * shape["controllers"] * shape["batches"]
        assert count["wc", "pinned"] == plans * pinned
        assert count["wc", "morsel"] == shape["orders"] * each
    if "sl" in request["applications"]:
        chains = shape["pools"] + request["stealing"] * len(SHARED_POOLS.intersection(request["pools"]))
        chained = len(SCHEMES_WITH_POOL.intersection(request["schemes"]))
        assert count["sl", "transactional"] == (chained * chains + shape["schemes"] - chained) * each


def test_unsupported_ways_are_left_out_and_listed():
    request = RegressionSpec(applications=["wc", "q1", "tp"], schemes=["serial", "no_lock"], channels=["shared_ring"])
    cells, left_out = matrix.cells(request)
    ways = [(cell.app, cell.strategy, cell.order) for cell in cells if cell.threads == 1]
    assert ways == [
        ("wc", "affinity", "total"),
        ("wc", "shared_ring", "none"),
        ("q1", "affinity", "total"),
        ("tp", "serial", "total"),
        ("tp", "no_lock", "total"),
    ]
    assert [[name.rpartition(".")[0] for name in reason["cells"]] for reason in left_out] == [
        ["q1.pinned.shared_ring.t1", "q1.pinned.shared_ring.t2"]
    ]
    assert matrix.omissions({"left_out": left_out}) == [
        "application q1 runs in total order only: it does not say what agrees without order (2 cells)"
    ]
    assert matrix.omissions({}) == []  # a run without its plan


def test_cells_on_spark_belong_to_the_connection_of_the_run(tmp_path):
    home = Home(tmp_path)
    fields = {
        "applications": ["wc", "hashtag"],
        "executors": ["spark", "pinned"],
        "threads": [2],
        "plans": ["replicated"],
    }
    for placement, hosts in (("any", [None, None]), ("every", ["a", "b", "a", "b"])):
        request = RegressionSpec(**fields, hosts=["a", "b"], placement=placement, reconfigurations=1)
        cells = matrix.draft(request, home, RUN_ID, spark="cluster")["cells"]
        on_spark = [cell for cell in cells if is_on_spark(cell)]
        assert [(cell["cell"].split(".")[0], cell["host"]) for cell in on_spark] == [
            ("wc", "cluster"),
            ("hashtag", "cluster"),
        ]
        others = [cell.get("host") for cell in cells if not is_on_spark(cell) and not cell["spec"]["schedule"]]
        assert others == hosts
        write_json(home.run(RUN_ID) / "plan.json", {"cells": cells})
        names = {cell["cell"] for cell in on_spark}
        assert SparkQueue(home, RUN_ID, "cluster").cells.keys() == names
        assert not names & Queue(home, RUN_ID, "a").cells.keys()
        assert SparkQueue(home, RUN_ID, "another").is_over
    with pytest.raises(BadInput, match="give the connection a name of up to 60 characters"):
        matrix.draft(request, home, RUN_ID, spark="c" * 61)


def test_transactions_are_refused_on_spark_because_their_state_is_shared():
    reason = r"executors transactional, but the request has spark \(transactions share state, and tasks of Spark share"
    with pytest.raises(BadInput, match=reason):
        matrix.cells(RegressionSpec(applications=["sl"], executors=["spark"]))
    cells, _ = matrix.cells(RegressionSpec(applications=["sl", "wc"], executors=["all"], threads=[1]))
    assert {cell.app for cell in cells if cell.executor == "spark"} == {"wc"}


def test_parallelism_varies_for_windowed_applications_only():
    fields = {
        "applications": ["wc", "wordcount"],
        "executors": ["pinned"],
        "parallelisms": ["vsn", "sn"],
        "plans": ["replicated"],
        "threads": [2],
    }
    cells, left_out = matrix.cells(RegressionSpec(**fields))
    assert [(cell.app, cell.strategy) for cell in cells] == [
        ("wc", "gate"), ("wordcount", "gate"), ("wordcount", "gate-sn"),
    ]  # fmt: skip
    assert [omission["reason"] for omission in left_out] == ["application wc has no windows: parallelism sn needs them"]
    cells, left_out = matrix.cells(RegressionSpec(**fields | {"applications": ["wordcount"], "plans": ["auto"]}))
    assert [cell.strategy for cell in cells] == ["gate-planned"]
    assert [omission["reason"] for omission in left_out] == [
        "a plan is found for parallelism vsn, not sn: give one, or none"
    ]


@pytest.mark.parametrize("events", [1, 5, 1000])
def test_windowed_applications_run_with_and_without_reconfigurations(events):
    fields = {
        "applications": ["wc", "hashtag", "wordcount"],
        "executors": ["pinned"],
        "threads": [1, 2, 3],
        "plans": ["all"],
    }
    without, _ = matrix.cells(RegressionSpec(**fields, events=events))
    cells, left_out = matrix.cells(RegressionSpec(**fields, events=events, reconfigurations=7))
    assert not left_out
    assert [cell for cell in cells if not cell.schedule] == without
    assert len({cell.cell for cell in cells}) == len(cells)
    changed = [cell for cell in cells if cell.schedule]
    # Before a plan is computed, its reconfigurable operators are unknown.
    assert {cell.plan == "auto" for cell in without if cell.threads > 1} == {True, False}
    assert [(cell.app, cell.threads) for cell in changed] == [
        (a, t) for a in fields["applications"][1:] for t in (2, 3)
    ]  # on one thread nothing can move
    for cell in changed:
        assert cell.strategy == "gate-reconfigured7"
        plain = next(c for c in without if (c.app, c.threads, c.plan) == (cell.app, cell.threads, {}))
        assert cell.model_copy(update={"schedule": []}) == plain
        at = [change.event for change in cell.schedule]
        assert at == sorted(at)
        assert all(0 <= event < max(events, 1) for event in at)
        assert len({*at}) == (7 if events > 7 else max(events, 1))
    (name,) = changed[0].schedule[0].owners
    assert name == "longer"
    shares = [change.owners[name] for change in changed[1].schedule]
    assert shares[:4] == [[0, 1], [2], [0, 1, 2], [0, 1]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"applications": ["q1", "q2"], "executors": ["pinned"], "channels": ["shared_ring"]},
            "the request has no cell that can run: application q1 runs in total order only: it does not say what "
            "agrees without order; application q2 runs in total order only",
        ),
        ({"applications": ["wc"], "params": {"wc": {"nosuch": 1}}}, "app wc: unknown parameter 'nosuch'"),
        ({"applications": ["wc"], "threads": [*range(1, 600)]}, "a run can have at most 1024 cells, got 1198"),
    ],
)
def test_an_empty_or_oversized_matrix_is_refused_in_one_line(fields, message):
    with pytest.raises(BadInput, match=re.escape(message)) as refused:
        matrix.cells(RegressionSpec.parse(fields))
    assert "\n" not in str(refused.value)


def test_a_strategy_names_only_differences_from_the_defaults():
    def strategy(**choices) -> str:
        return Transactional(app="sl", **choices).strategy

    assert strategy() == "owners"
    assert strategy(scheme="serial") == "serial"
    assert strategy(scheme="tstream", pool="shared_per_socket") == "tstream-shared_per_socket"
    assert strategy(scheme="tstream", pool="shared_everything", stealing=True) == "tstream-shared_everything-stealing"
    assert strategy(batch=7) == "owners-batch7"
    assert Pooled(app="wc").strategy == "affinity"
    assert Pooled(app="wc", heuristic="lp", reorder="lock").strategy == "lp-lock"
    assert Morsel(app="wc", batch=7).strategy == "morsel-batch7"
    assert Morsel(app="wc", order="none").strategy == "morsel-none"
