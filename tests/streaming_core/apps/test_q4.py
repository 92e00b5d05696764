"""Q4 against the same computation written again, and by hand."""

from fractions import Fraction

import pytest

from streaming_core.apps import q4, registry
from streaming_core.generator import bigbench
from tests.streaming_core.apps.shop import click, sessions_of
from tests.support import by_hand


@pytest.mark.parametrize(
    "params",
    [
        {"users": 30},
        {"users": 30, "mode": "kit", "timeout": 10_000, "null_ratio": 0.1, "invalid_ratio": 0.1},
        {"users": 1, "pages": 20, "timeout": 0, "events_per_day": 2_000},
    ],
)
def test_q4_averages_abandoned_sessions(params):
    events, result = by_hand.run_generated("q4", params, events=3000)
    bound, types = result.params, bigbench.page_types(result.params)
    n = total = 0
    expected = []

    def keep(e):
        return min(e["user_sk"], e["web_page_sk"]) >= 0 and e["sales_sk"] < 0 and e["item_sk"] != 0

    for cause, clicks in sessions_of(events, bound["timeout"], keep):
        names = [bigbench.PAGE_TYPES[types[c["web_page_sk"]]] for c in clicks]
        rows = {name: max((i for i, at in enumerate(names, 1) if at == name), default=-1) for name in names}
        if rows.get("dynamic", -1) > rows.get("order", -1):
            n, total = n + 1, total + len(names)
            expected.append((cause, n, total, int(Fraction(10 * total, n) + Fraction(1, 2))))
    assert result.columns("seq", "n", "total", "tenths") == expected
    assert result.dropped == sum(e["item_sk"] == 0 for e in events)
    assert n > 5


def test_q4_matches_an_example_by_hand():
    params = {"pages": 60}
    types = bigbench.page_types(registry.load("q4").bind(params)).tolist()
    page = {name: types.index(i, 1) for i, name in enumerate(bigbench.PAGE_TYPES)}
    order, dynamic, review = page["order"], page["dynamic"], page["review"]
    result = by_hand.run_rows(
        "q4",
        params,
        [
            click(0, 1, 1, page=dynamic),
            click(1, 1, 1, page=order),
            click(2, 1, 1, sales=3, page=dynamic),  # a purchase is no page
            click(2, 1, 1, page=-1),
            click(2, -1, 1, page=dynamic),
            click(3602, 1, 1, page=dynamic),  # 3601 s after the last page: order came last, nothing was abandoned
            click(3603, 1, 1, page=review),
            click(3604, 2, 1, page=review),  # no page of either kind: not abandoned
            click(3604, 3, 1, page=dynamic),
            click(3604, 3, 1, page=61),
            click(7204, 3, 1, page=order),  # an hour, and no more
            click(9000, 3, 1, page=dynamic),
        ],
    )
    # By user: 2 pages of user 1, 3 of user 3; 25 tenths.
    assert result.outputs == [
        {"seq": 12, "sub": 0, "n": 1, "total": 2, "tenths": 20},
        {"seq": 12, "sub": 1, "n": 2, "total": 5, "tenths": 25},
    ]
    assert result.dropped == 1
    assert by_hand.run_rows("q4", params, [click(0, 1, 1, page=order)]).outputs == []


def test_q4_rounds_half_up():
    app = registry.load("q4")
    with by_hand.bound(app, app.bind()):
        state, out = by_hand.fresh(q4.Sum.resolve({})), by_hand.Out()
        for pages in (1, 0, 0, 0, 2):
            q4.average(by_hand.SimpleNamespace(pages=pages), state, out)
    assert [row["tenths"] for row in out.rows] == [10, 5, 3, 3, 6]  # 10, 5, 3.3, 2.5, 6
