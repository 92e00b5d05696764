"""Q3 against the same computation written again, and by hand."""

from collections import Counter, defaultdict, deque

import pytest

from streaming_core.apps import registry
from streaming_core.generator import bigbench
from tests.streaming_core.apps.shop import best, click, of_category
from tests.support import by_hand


@pytest.mark.parametrize(
    "params",
    [
        {"items": 40, "users": 30, "limit": 4},
        {"items": 40, "users": 30, "last": 1, "window": 100, "mode": "kit"},
        {"items": 40, "users": 30, "last": 12, "given": 38, "wanted_categories": "1,2,3,4,5,6,7,8,9"},
        {"items": 4, "users": 1, "invalid_ratio": 0.1, "null_ratio": 0.1},
    ],
)
def test_q3_ranks_views_before_purchases(params):
    events, result = by_hand.run_generated("q3", params, events=3000)
    bound = result.params
    category, wanted = bigbench.categories(bound), set(map(int, bound["wanted_categories"].split(",")))
    recent, counts, expected = defaultdict(lambda: deque(maxlen=bound["last"])), defaultdict(Counter), []
    for e in events:
        item, user = e["item_sk"], e["user_sk"]
        if item <= 0 or user < 0:
            continue
        if e["sales_sk"] >= 0 and bound["given"] in (0, item):
            views = [
                c["item_sk"]
                for c in recent[user]
                if e["ts"] - bound["window"] <= c["ts"] <= e["ts"] and category[c["item_sk"]] in wanted
            ]
            counts[item].update(views)
            if views:
                listed = best(counts[item], bound["limit"])
                expected += [(e["seq"], rank, item, rank, viewed, n) for rank, (viewed, n) in enumerate(listed)]
        recent[user].append(e)
    assert result.columns("seq", "sub", "bought", "rank", "viewed", "n") == expected
    assert expected
    assert result.dropped == sum(e["item_sk"] == 0 for e in events)


def test_q3_matches_an_example_by_hand():
    params = {"items": 60, "last": 3}
    a, b, c = of_category(registry.load("q3").bind(params), 2, 3)[:3]
    other = of_category(registry.load("q3").bind(params), 1, 4, 5, 6, 7, 8, 9)[0]
    days = 864_000
    result = by_hand.run_rows(
        "q3",
        params,
        [
            click(0, 1, a),
            click(1, 1, other),
            click(days, 1, b, sales=5),  # a was viewed just ten days ago
            click(days, 1, b, sales=5),  # the purchase before is a view now; a has still its place among the last three
            click(days + 1, 1, c, sales=6),  # b twice; other is not wanted and not replaced by an older one
            click(days + 1, 2, c, sales=7),  # nothing viewed before: no list
            click(2 * days + 2, 2, c, sales=8),  # too long ago: no list
        ],
    )
    assert result.columns("seq", "sub", "bought", "viewed", "n") == [
        (2, 0, b, a, 1),
        (3, 0, b, a, 2),
        (3, 1, b, b, 1),
        (4, 0, c, b, 2),
    ]
