"""Q1 against the same computation written again, and by hand."""

from collections import Counter, defaultdict

import pytest

from streaming_core.apps import registry
from streaming_core.errors import BadInput
from streaming_core.generator import bigbench
from streaming_core.kernels.program import compile_app
from tests.streaming_core.apps.shop import best, of_category
from tests.support import by_hand


@pytest.mark.parametrize(
    "params",
    [
        {"items": 40, "threshold": 1, "events_per_day": 20_000, "limit": 7},
        {"items": 40, "threshold": 0, "mode": "kit", "null_ratio": 0.1, "wanted_stores": "1,2,3,4",
         "events_per_day": 20_000},
        {"items": 100, "threshold": 2, "categories": 10, "wanted_categories": "3", "invalid_ratio": 0.1,
         "events_per_day": 10_000},
        {"items": 4, "threshold": 1_000, "wanted_stores": "7,99", "events_per_day": 5_000},
    ],
)  # fmt: skip
def test_q1_ranks_pairs_of_an_hour(params):
    events, result = by_hand.run_generated("q1", params, events=3000)
    bound = result.params
    category = bigbench.categories(bound).tolist()
    stores, wanted = (set(map(int, bound[name].split(","))) for name in ("wanted_stores", "wanted_categories"))
    baskets, hours, cause, dropped = defaultdict(list), defaultdict(Counter), {}, 0
    for e in events:
        if e["item_sk"] == 0:
            dropped += 1
            continue
        if min(e["date_sk"], e["item_sk"], e["store_sk"]) < 0 or e["store_sk"] not in stores:
            continue
        if category[e["item_sk"]] not in wanted or e["item_sk"] in baskets[e["ticket"]]:
            continue
        for other in baskets[e["ticket"]]:
            hour = e["ts"] // 3600
            if hour not in hours:
                cause.update(dict.fromkeys((h for h in hours if h not in cause), e["seq"]))
            hours[hour][min(other, e["item_sk"]), max(other, e["item_sk"])] += 1
        baskets[e["ticket"]].append(e["item_sk"])
    expected = []
    for hour, counts in hours.items():
        listed = best({pair: n for pair, n in counts.items() if n > bound["threshold"]}, bound["limit"])
        for rank, ((a, b), n) in enumerate(listed):
            expected.append((cause.get(hour, len(events)), rank, hour, rank, a, b, n))
        if not listed:
            expected.append((cause.get(hour, len(events)), 0, hour, -1, -1, -1, 0))
    assert result.columns("seq", "sub", "window", "rank", "a", "b", "n") == expected
    assert result.dropped == dropped
    assert len(hours) > 2


def sale(ts, ticket, item, **fields):
    return {"ts": ts, "ticket": ticket, "item_sk": item, "store_sk": 1, **fields}


def test_q1_matches_an_example_by_hand():
    params = {"items": 60, "threshold": 1, "limit": 2}
    app = registry.load("q1")
    a, b, c, d = of_category(app.bind(params), 1, 2, 3)[:4]
    other = of_category(app.bind(params), 4, 5, 6, 7, 8, 9)[0]
    hour = 3600
    result = by_hand.run_rows(
        "q1",
        params,
        [
            sale(10, 1, a),
            sale(10, 1, b),
            sale(10, 1, a),  # twice on a ticket is once
            sale(10, 1, other),
            sale(20, 2, b),
            sale(20, 2, a),  # the second a-b
            sale(30, 3, d, store_sk=2),  # another store
            sale(30, 3, c, date_sk=-1),
            sale(30, 3, -1),
            sale(30, 3, b, store_sk=-1),
            sale(30, 3, 0),  # no such item: invalid
            sale(30, 3, c, store_sk=13),  # no such store
            sale(hour - 1, 4, c),
            sale(hour, 4, d),  # a pair belongs to the hour of its later line; this one closes the first hour
            sale(2 * hour, 4, a),  # an hour after the one before: the basket still holds c and d
            sale(3 * hour + 1, 4, b),  # more than an hour: it is a new basket, and there is no pair
            sale(3 * hour + 1, 4, c),
        ],
    )
    assert result.dropped == 2
    assert result.columns("seq", "window", "rank", "a", "b", "n") == [
        (13, 0, 0, a, b, 2),
        (14, 1, -1, -1, -1, 0),  # c-d once, and that is not more than once
        (16, 2, -1, -1, -1, 0),
        (17, 3, -1, -1, -1, 0),
    ]


def test_q1_breaks_ties_by_the_items_and_cuts_the_list():
    params = {"items": 60, "threshold": 0, "limit": 4}
    a, b, c = of_category(registry.load("q1").bind(params), 1, 2, 3)[:3]
    result = by_hand.run_rows(
        "q1", params, [sale(1, 1, c), sale(1, 1, b), sale(1, 2, c), sale(1, 2, a), sale(1, 3, b), sale(1, 3, a)]
    )
    assert result.columns("rank", "a", "b", "n") == [(0, a, b, 1), (1, a, c, 1), (2, b, c, 1)]
    result = by_hand.run_rows(
        "q1",
        {**params, "limit": 2},
        [sale(1, t, i) for t, i in ((1, a), (1, b), (2, a), (2, c), (3, c), (3, b), (4, c), (4, b))],
    )
    assert result.columns("rank", "a", "b", "n") == [(0, b, c, 2), (1, a, b, 1)]


def test_stores_and_categories_are_lists_of_numbers():
    assert bigbench.chosen("1, 3,9", 4).tolist() == [0, 1, 0, 1, 0]
    for wrong in ("", "1,,2", "one", "1;2", "-1", "1.5"):
        with pytest.raises(BadInput, match="a list must be numbers separated by commas, such as 1,2,3"):
            bigbench.chosen(wrong, 9)
    app = registry.load("q1")
    with pytest.raises(BadInput, match="such as 1,2,3; got 'ten'"):
        compile_app(app, app.bind({"wanted_stores": "ten"}))
