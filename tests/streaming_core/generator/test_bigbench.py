"""The streams of TPCx-BB follow their distributions, whatever slices a caller requests."""

from itertools import pairwise

import numpy as np
import pytest

from streaming_core.generator import bigbench
from streaming_core.generator.bigbench import (
    CLICKS,
    DAY,
    SALES,
    sales,
    store_sales,
    web_clickstreams,
    web_clickstreams_by_type,
)

N = 120_000


def defaults(declared, **params):
    return {name: p.default for name, p in declared.items()} | params


def rows(columns, *names):
    return list(zip(*(columns[name].tolist() for name in names), strict=True))


@pytest.mark.parametrize("declared", [SALES, CLICKS])
def test_a_day_has_the_declared_number_of_events_on_average(declared):
    generator = store_sales if declared is SALES else web_clickstreams
    columns = generator(defaults(declared, events_per_day=4_000), 2, 0, N)
    days = (columns["ts"][-1] - columns["ts"][0]) / DAY
    assert abs(N / days / 4_000 - 1) < 0.02


@pytest.mark.parametrize("mode", ["stream", "kit"])
def test_tickets_hold_one_to_fourteen_lines(mode):
    columns = store_sales(defaults(SALES, mode=mode), 1, 0, N)
    whole = columns["ticket"] != columns["ticket"][-1]
    ticket, size = np.unique(columns["ticket"][whole], return_counts=True)
    assert set(size.tolist()) == set(range(1, 15))
    assert abs(size.mean() - 7.5) < 0.1
    for name in ("ts", "customer_sk", "store_sk"):  # equal within a ticket, except for NULL
        known = whole & (columns[name] >= 0)
        assert len(set(rows({n: columns[n][known] for n in ("ticket", name)}, "ticket", name))) <= len(ticket)
    if mode == "kit":
        order = rows(columns, "ts", "ticket")
        assert order == sorted(order)
        items = [row for row in rows(columns, "ts", "ticket", "item_sk") if row[2] >= 0]
        assert items == sorted(items)
    else:
        # Tickets of one second alternate line by line, the lower one first.
        at = columns["ts"].tolist()
        turn, turns, seen = None, [], {}
        for ts, number in zip(at, columns["ticket"].tolist(), strict=True):
            seen[number] = seen.get(number, 0) + 1
            turns.append((ts, seen[number], number))
            turn = turn or turns[-1]
        assert turns == sorted(turns)
        assert len({ts for ts, line, _ in turns if line == 1}) < len(ticket)  # some share a second


def test_ticket_lines_follow_their_distributions():
    params = defaults(SALES)
    columns = store_sales(params, 1, 0, N)
    item = columns["item_sk"]
    assert abs((columns["net_paid"] == 0).mean()) < 0.01
    assert columns["net_paid"].min() >= 0
    assert columns["net_paid"].max() < 3_000_000
    assert (set(columns["quantity"]), set(columns["store_sk"])) == (set(range(1, 101)), {-1, *range(1, 13)})
    popular = ((item >= 10_000) & (item <= 10_003)).mean()
    middle = (np.abs(item - 9_000.5) < 180).mean()
    assert abs(popular - 0.05) < 0.005
    assert abs(middle - (0.40 + 0.55 * 360 / 18_000)) < 0.01
    assert (item.min(), item.max()) == (1, 18_000)
    for name in ("customer_sk", "store_sk", "date_sk"):
        assert 0 < (columns[name] == -1).mean() < 0.001


def test_sales_of_odd_categories_decline():
    params = defaults(SALES, events_per_day=40_000, trend_days=4)
    category, paid = bigbench.categories(params), []
    for day in (0, 4, 9):
        columns = sales(params, 1, day)
        of = category[columns["item_sk"]]
        paid.append([columns["net_paid"][of == c].mean() for c in range(1, 10)])
    for c in range(1, 10):
        before, after, later = (day[c - 1] for day in paid)
        assert abs(after / before - 1 - bigbench.TREND[c - 1] / 10) < 0.15
        assert abs(later / after - 1) < 0.2  # and then stay
    assert all((bigbench.TREND[c - 1] < 0) == (c % 2 == 1) for c in range(1, 11))


def visits(columns):
    """Clicks of each known user, by user and second."""
    known = columns["user_sk"] >= 0
    clicks_by_user = {}
    for ts, user, sale, item in rows({n: v[known] for n, v in columns.items()}, "ts", "user_sk", "sales_sk", "item_sk"):
        clicks_by_user.setdefault(user, []).append((ts, sale, item))
    return clicks_by_user


def test_a_visit_forms_one_session():
    columns = web_clickstreams(defaults(CLICKS, users=1_000_000, null_ratio=0.0), 1, 0, N)
    sizes, gaps, days = [], [], set()
    for clicks in visits(columns).values():
        if len(clicks) > 21 or any(sale >= 0 for _, sale, _ in clicks):
            continue  # a buyer, or more than one visit of that user
        sizes.append(len(clicks))
        gaps += [b[0] - a[0] for a, b in pairwise(clicks)]
        days.add((clicks[0][0] // DAY, clicks[-1][0] // DAY))
    assert max(gaps) <= 3_000
    assert abs(np.mean(gaps) - 59.5) < 1.5
    assert any(first < last for first, last in days)  # over midnight
    assert np.mean(np.array(sizes) < 11) < 0.01  # visits that the end of the stream cuts off
    assert set(range(11, 22)) <= set(sizes)
    bought = columns["sales_sk"] >= 0
    assert abs(bought.mean() - 0.2 * 7.5 / 15.2) < 0.005
    assert (columns["user_sk"] == -1)[~bought].mean() == pytest.approx(0.8 * 16 * 0.5 / (15.2 - 1.5), abs=0.01)
    orders = np.unique(columns["sales_sk"][bought], return_counts=True)[1]
    assert orders.max() == 14
    assert set(columns["web_page_sk"].tolist()) == set(range(1, 61))


def test_a_buyer_views_items_before_buying():
    columns = web_clickstreams(defaults(CLICKS, users=1_000_000, null_ratio=0.0), 1, 0, 20_000)
    looks = []
    for clicks in visits(columns).values():
        sales = {sale for _, sale, _ in clicks if sale >= 0}
        if len(sales) == 1 and clicks[-1][1] >= 0 and clicks[0][0] // DAY == 2_452_155:
            first = next(i for i, click in enumerate(clicks) if click[1] >= 0)
            if all(sale >= 0 for _, sale, _ in clicks[first:]):
                looks.append(first)
    assert len(looks) > 50
    assert set(looks) == {3, 4, 5, 6}


def test_clicks_of_one_second_are_sorted():
    params = defaults(CLICKS, users=3, null_ratio=0.05)
    columns = web_clickstreams(params, 1, 0, 40_000)
    order = [
        (ts, user, sale >= 0, item) for ts, user, sale, item in rows(columns, "ts", "user_sk", "sales_sk", "item_sk")
    ]
    assert order == sorted(order)
    columns = web_clickstreams_by_type(params, 1, 0, 40_000)
    kind = bigbench.page_types(params).tolist()
    name = [bigbench.PAGE_TYPES[kind[page]] if page > 0 else "" for page in columns["web_page_sk"].tolist()]
    order = list(zip(columns["ts"].tolist(), columns["user_sk"].tolist(), name, strict=True))
    assert order == sorted(order)
    assert len(set(order)) < len(order)


def test_clicks_of_the_kit_spread_over_the_day():
    columns = bigbench.clicks(defaults(CLICKS, mode="kit"), 1, 3)
    assert abs(columns["time_sk"].mean() - DAY / 2) < 500
    gaps = [b[0] - a[0] for clicks in visits(columns).values() for a, b in pairwise(clicks)]
    assert np.mean(np.array(gaps) > 3_600) > 0.3


def test_invalid_and_null_values_occur_in_the_declared_ratios():
    for declared, generator in ((SALES, store_sales), (CLICKS, web_clickstreams)):
        columns = generator(defaults(declared, invalid_ratio=0.2, null_ratio=0.1), 1, 0, 30_000)
        assert abs((columns["item_sk"] == 0).mean() - 0.2) < 0.01
        other = "store_sk" if declared is SALES else "web_page_sk"
        assert abs((columns[other] == -1).mean() - 0.1) < 0.01
        assert not (generator(defaults(declared), 1, 0, 30_000)["item_sk"] == 0).any()


def test_categories_and_page_types_cover_their_ranges():
    params = defaults(SALES, items=200_000)
    category = bigbench.categories(params)
    assert len(category) == 200_001
    assert (category[0], set(category.tolist())) == (-1, {-1, *range(1, 10)})
    share = np.bincount(category[category > 0], minlength=10)[1:] / 200_000
    assert np.allclose(share, np.array(bigbench.CATEGORIES[:9]) / sum(bigbench.CATEGORIES[:9]), atol=0.004)
    assert set(bigbench.categories({**params, "categories": 10}).tolist()) == {-1, *range(1, 11)}
    assert set(bigbench.page_types(defaults(CLICKS, pages=500)).tolist()) == set(range(8))
    assert list(bigbench.PAGE_TYPES) == sorted(bigbench.PAGE_TYPES)
