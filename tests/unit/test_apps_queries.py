"""The queries of TPCx-BB and the matrix operators against the same computation written again, straight from their
specification, and by hand where it has corners."""

from collections import Counter, defaultdict, deque
from fractions import Fraction
from itertools import combinations

import pyarrow as pa
import pytest

from streaming_core import bigbench, workload
from streaming_core.api import App, i64, record
from streaming_core.api.kernels import compile_app
from streaming_core.apps import matrix, q15, registry
from streaming_core.apps.q15 import evaluate
from streaming_core.errors import BadInput
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from tests.differential.kernel import Kernel
from tests.unit import by_hand

N = 3000
MASK = (1 << 32) - 1


def run(name, params, events=N, seed=3):
    app = registry.load(name)
    table = workload.generate_chunk(app, params, events, seed, 0, events)
    return table.to_pylist(), by_hand.run(app, params, table)


def run_events(name, params, rows):
    """Rows with the columns that matter; the others are zero."""
    app = registry.load(name)
    schema = workload.schema(app, params)
    empty = dict.fromkeys(schema.names, 0)
    return by_hand.run(
        app, params, pa.Table.from_pylist([{**empty, **row, "seq": i} for i, row in enumerate(rows)], schema)
    )


def outputs(result, *columns):
    return [tuple(row[c] for c in columns) for row in result.outputs]


def best(counts, limit):
    """((a, b), n): most frequent first, then by the pair."""
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]


# --- Q1 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {"items": 40, "threshold": 1, "events_per_day": 20_000, "limit": 7},
        {
            "items": 40,
            "threshold": 0,
            "mode": "kit",
            "null_ratio": 0.1,
            "wanted_stores": "1,2,3,4",
            "events_per_day": 20_000,
        },
        {
            "items": 100,
            "threshold": 2,
            "categories": 10,
            "wanted_categories": "3",
            "invalid_ratio": 0.1,
            "events_per_day": 10_000,
        },
        {"items": 4, "threshold": 1_000, "wanted_stores": "7,99", "events_per_day": 5_000},
    ],
)
def test_q1_ranks_pairs_of_an_hour(params):
    events, result = run("q1", params)
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
            expected.append((cause.get(hour, N), rank, hour, rank, a, b, n))
        if not listed:
            expected.append((cause.get(hour, N), 0, hour, -1, -1, -1, 0))
    assert outputs(result, "seq", "sub", "window", "rank", "a", "b", "n") == expected
    assert result.dropped == dropped
    assert len(hours) > 2


def sale(ts, ticket, item, **fields):
    return {"ts": ts, "ticket": ticket, "item_sk": item, "store_sk": 1, **fields}


def of_category(params, *numbers):
    """Items of these categories, the first ones."""
    found = bigbench.categories(params).tolist()
    return [item for item in range(1, len(found)) if found[item] in numbers]


def test_q1_by_hand():
    params = {"items": 60, "threshold": 1, "limit": 2}
    app = registry.load("q1")
    a, b, c, d = of_category(app.bind(params), 1, 2, 3)[:4]
    other = of_category(app.bind(params), 4, 5, 6, 7, 8, 9)[0]
    hour = 3600
    result = run_events(
        "q1",
        params,
        [
            sale(10, 1, a),
            sale(10, 1, b),
            sale(10, 1, a),  # twice on a ticket is once
            sale(10, 1, other),
            sale(20, 2, b),
            sale(20, 2, a),  # the second a-b
            sale(30, 3, d, store_sk=2),  # of a store that is not looked at
            sale(30, 3, c, date_sk=-1),
            sale(30, 3, -1),
            sale(30, 3, b, store_sk=-1),
            sale(30, 3, 0),  # no such item: invalid
            sale(30, 3, c, store_sk=13),  # no such store
            sale(hour - 1, 4, c),
            sale(hour, 4, d),  # a pair belongs to the hour of its later line; closes the first hour, whose list it is
            sale(2 * hour, 4, a),  # an hour after the one before: the basket still holds c and d
            sale(3 * hour + 1, 4, b),  # more than an hour: it is a new basket, and there is no pair
            sale(3 * hour + 1, 4, c),
        ],
    )
    assert result.dropped == 2
    assert outputs(result, "seq", "window", "rank", "a", "b", "n") == [
        (13, 0, 0, a, b, 2),
        (14, 1, -1, -1, -1, 0),  # c-d once, and that is not more than once
        (16, 2, -1, -1, -1, 0),
        (17, 3, -1, -1, -1, 0),
    ]


def test_q1_breaks_ties_by_the_items_and_cuts_the_list():
    params = {"items": 60, "threshold": 0, "limit": 4}
    a, b, c = of_category(registry.load("q1").bind(params), 1, 2, 3)[:3]
    result = run_events(
        "q1", params, [sale(1, 1, c), sale(1, 1, b), sale(1, 2, c), sale(1, 2, a), sale(1, 3, b), sale(1, 3, a)]
    )
    assert outputs(result, "rank", "a", "b", "n") == [(0, a, b, 1), (1, a, c, 1), (2, b, c, 1)]
    result = run_events(
        "q1",
        {**params, "limit": 2},
        [sale(1, t, i) for t, i in ((1, a), (1, b), (2, a), (2, c), (3, c), (3, b), (4, c), (4, b))],
    )
    assert outputs(result, "rank", "a", "b", "n") == [(0, b, c, 2), (1, a, b, 1)]


def test_stores_and_categories_are_lists_of_numbers():
    assert bigbench.chosen("1, 3,9", 4).tolist() == [0, 1, 0, 1, 0]
    for wrong in ("", "1,,2", "one", "1;2", "-1", "1.5"):
        with pytest.raises(BadInput, match="is no list of numbers such as 1,2,3"):
            bigbench.chosen(wrong, 9)
    app = registry.load("q1")
    with pytest.raises(BadInput, match="'ten' is no list of numbers"):
        compile_app(app, app.bind({"wanted_stores": "ten"}))


# --- Q2 ---------------------------------------------------------------------------------------------------------------


def sessions_of(events, timeout, keep):
    """(cause, clicks) of every session in the order in which it closes; open ones close at the end, by user."""
    closed, opened = [], {}
    for e in events:
        if not keep(e):
            continue
        last = opened.get(e["user_sk"])
        if last and e["ts"] - last[-1]["ts"] > timeout:
            closed.append((e["seq"], last))
            opened[e["user_sk"]] = [e]
        else:
            opened.setdefault(e["user_sk"], []).append(e)
    return closed + [(len(events), opened[user]) for user in sorted(opened)]


@pytest.mark.parametrize(
    "params",
    [
        {"items": 30, "users": 40, "emit_every": 100, "limit": 5},
        {"items": 30, "users": 40, "emit_every": 100, "limit": 5, "width": 2},
        {"items": 30, "users": 40, "emit_every": 7, "limit": 3, "given": 27, "width": 5},
        {"items": 30, "users": 10, "emit_every": 1_000, "mode": "kit", "invalid_ratio": 0.1, "null_ratio": 0.1},
        {"items": 4, "users": 2, "emit_every": 1, "limit": 2, "timeout": 60, "events_per_day": 2_000},
    ],
)
def test_q2_ranks_pairs_of_sessions(params):
    events, result = run("q2", params, events=1500)
    bound = result.params
    given, counts, lists, seen = bound["given"], Counter(), [], 0

    def show(cause):
        lists.extend((cause, seen, rank, *pair, n) for rank, (pair, n) in enumerate(best(counts, bound["limit"])))

    keep = lambda e: e["item_sk"] > 0 and e["user_sk"] >= 0  # noqa: E731
    for cause, clicks in sessions_of(events, bound["timeout"], keep):
        for one, other in combinations(dict.fromkeys(c["item_sk"] for c in clicks), 2):
            if given == 0:
                counts[min(one, other), max(one, other)] += 1
            elif given in (one, other):
                counts[one if other == given else other, given] += 1
            else:
                continue
            seen += 1
            if seen % bound["emit_every"] == 0:
                show(cause)
    show(len(events))
    assert outputs(result, "seq", "inputs", "rank", "a", "b", "n") == lists
    assert result.dropped == sum(e["item_sk"] == 0 for e in events)
    assert seen > 20


def click(ts, user, item, sales=-1, page=1):
    return {"ts": ts, "user_sk": user, "item_sk": item, "sales_sk": sales, "web_page_sk": page}


def test_q2_by_hand():
    result = run_events(
        "q2",
        {"items": 9, "emit_every": 2, "limit": 3, "width": 2},
        [
            click(0, 7, 1),
            click(3600, 7, 2),  # silent for an hour, and no longer: the same session
            click(3600, 7, 1),  # viewed before
            click(3600, 8, -1),
            click(3600, -1, 3),
            click(3601, 7, 3),
            click(7202, 7, 3),  # a second more: the pairs 1-2, 1-3, list, 2-3
            click(7203, 5, 4),
            click(7204, 5, 2),
            click(7205, 7, 2),
        ],
    )
    assert outputs(result, "seq", "inputs", "rank", "a", "b", "n") == [
        (6, 2, 0, 1, 2, 1),
        (6, 2, 1, 1, 3, 1),
        # The end: user 5 leaves 2-4, which makes a list, then user 7 leaves 2-3, the most frequent now; the last list.
        (10, 4, 0, 1, 2, 1),
        (10, 4, 1, 1, 3, 1),
        (10, 4, 2, 2, 3, 1),
        (10, 5, 0, 2, 3, 2),
        (10, 5, 1, 1, 2, 1),
        (10, 5, 2, 1, 3, 1),
    ]
    assert result.state["state_session"][1][7].session == 2


# --- Q3 ---------------------------------------------------------------------------------------------------------------


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
    events, result = run("q3", params)
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
    assert outputs(result, "seq", "sub", "bought", "rank", "viewed", "n") == expected
    assert expected
    assert result.dropped == sum(e["item_sk"] == 0 for e in events)


def test_q3_by_hand():
    params = {"items": 60, "last": 3}
    a, b, c = of_category(registry.load("q3").bind(params), 2, 3)[:3]
    other = of_category(registry.load("q3").bind(params), 1, 4, 5, 6, 7, 8, 9)[0]
    days = 864_000
    result = run_events(
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
    assert outputs(result, "seq", "sub", "bought", "viewed", "n") == [
        (2, 0, b, a, 1),
        (3, 0, b, a, 2),
        (3, 1, b, b, 1),
        (4, 0, c, b, 2),
    ]


# --- Q4 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {"users": 30},
        {"users": 30, "mode": "kit", "timeout": 10_000, "null_ratio": 0.1, "invalid_ratio": 0.1},
        {"users": 1, "pages": 20, "timeout": 0, "events_per_day": 2_000},
    ],
)
def test_q4_averages_abandoned_sessions(params):
    events, result = run("q4", params)
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
    assert outputs(result, "seq", "n", "total", "tenths") == expected
    assert result.dropped == sum(e["item_sk"] == 0 for e in events)
    assert n > 5


def test_q4_by_hand():
    params = {"pages": 60}
    types = bigbench.page_types(registry.load("q4").bind(params)).tolist()
    page = {name: types.index(i, 1) for i, name in enumerate(bigbench.PAGE_TYPES)}
    order, dynamic, review = page["order"], page["dynamic"], page["review"]
    result = run_events(
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
    assert run_events("q4", params, [click(0, 1, 1, page=order)]).outputs == []


def test_q4_rounds_halves_up():
    app = registry.load("q4")
    with by_hand.bound(app, app.bind()) as module:
        state, out = by_hand.fresh(module.Sum.resolve({})), by_hand.Out()
        for pages in (1, 0, 0, 0, 2):
            module.average(by_hand.SimpleNamespace(pages=pages), state, out)
    assert [row["tenths"] for row in out.rows] == [10, 5, 3, 3, 6]  # 10, 5, 3.3, 2.5, 6


# --- Q15 --------------------------------------------------------------------------------------------------------------


def least_squares(points):
    """Slope and intercept of the line through day -> sum."""
    n, sx, sxx = len(points), sum(points), sum(x * x for x in points)
    sy, sxy = sum(points.values()), sum(x * y for x, y in points.items())
    slope = Fraction(n * sxy - sx * sy, n * sxx - sx * sx)
    return slope, Fraction(sy - slope * sx, n)


def line(row):
    return tuple(row[name] + Fraction(row[f"{name}_rest"], row["divisor"]) for name in ("slope", "intercept"))


@pytest.mark.parametrize(
    "params",
    [
        {"items": 60, "events_per_day": 1_000, "stores": 10},
        {
            "items": 60,
            "events_per_day": 1_000,
            "stores": 3,
            "store": 2,
            "mode": "kit",
            "categories": 10,
            "trend_days": 3,
        },
        {"items": 20, "events_per_day": 1_000, "stores": 1, "store": 1, "from_date": 2_452_156, "span": 2},
        {"items": 60, "stores": 10, "events_per_day": 1_000, "invalid_ratio": 0.1, "null_ratio": 0.1},
    ],
)
def test_q15_fits_lines(params):
    events, result = run("q15", params, events=8_000)
    bound = result.params
    category, first = bigbench.categories(bound), bound["from_date"]
    days, expected = defaultdict(Counter), []

    def evaluate(of, cause):
        if len(days[of]) > 1:
            slope, intercept = least_squares(days[of])
            if slope <= 0:
                expected.append((cause, of, len(days[of]), slope, intercept))

    for e in events:
        if e["item_sk"] <= 0 or e["store_sk"] != bound["store"]:
            continue
        of, x = category[e["item_sk"]], e["date_sk"] - first
        if not 0 <= x < bound["span"] or of < 0:
            continue
        if x not in days[of]:
            evaluate(of, e["seq"])
        days[of][x] += e["net_paid"]
    for of in sorted(days):
        evaluate(of, len(events))
    assert [(r["seq"], r["category"], r["n"], *line(r)) for r in result.outputs] == expected
    assert expected
    assert result.dropped == sum(e["item_sk"] == 0 for e in events)


def sold(date, item, paid, store=10):
    return {"ts": date * 86_400, "date_sk": date, "item_sk": item, "net_paid": paid, "store_sk": store}


def test_q15_by_hand():
    params = {"items": 60, "span": 6}
    bound = registry.load("q15").bind(params)
    two, three = of_category(bound, 2)[0], of_category(bound, 3)[0]
    day = 2_452_155
    result = run_events(
        "q15",
        params,
        [
            sold(day - 1, three, 9_999),  # too early
            sold(day, three, 500),
            sold(day, three, 300, store=9),
            sold(day, three, -1),
            sold(day, three, 10_000_000),  # more than a price can be: invalid
            sold(day, two, 10),
            sold(day + 1, three, 400),
            sold(day + 1, three, 100),  # the same day: no new point
            sold(day + 1, two, 20),
            sold(day + 4, three, 200),  # two days are over: level; none between is a point
            sold(day + 5, three, 0),
            sold(day + 6, three, 9_999),  # too late
        ],
    )
    assert result.dropped == 1
    assert [(r["seq"], r["category"], r["n"], *line(r)) for r in result.outputs] == [
        (9, 3, 2, 0, 500),
        (10, 3, 3, *least_squares({0: 500, 1: 500, 4: 200})),
        (12, 3, 4, *least_squares({0: 500, 1: 500, 4: 200, 5: 0})),
    ]  # category 2 rises
    # Through (0, 500), (1, 500), (4, 200): slope -1050 / 13, at 0 it is 6950 / 13.
    assert line(result.outputs[1]) == (Fraction(-1050, 13), Fraction(6950, 13))


LARGEST = q15.Sums.fields["lines"].high


@record
class Given:
    n: i64
    sx: i64
    sy: i64
    sxx: i64
    sxy: i64


def judge(row, sums, out):
    sums.n = row.n
    sums.sx = row.sx
    sums.sy = row.sy
    sums.sxx = row.sxx
    sums.sxy = row.sxy
    evaluate(sums, out)


@pytest.mark.parametrize(
    ("days", "lines"),
    [
        ([399, 400], [LARGEST, 0]),
        ([399, 400], [0, LARGEST]),
        ([0, 400], [LARGEST, 0]),
        (list(range(401)), [LARGEST] + [0] * 400),
        (list(range(401)), [0] * 400 + [LARGEST]),
        (list(range(401)), [LARGEST // 401 - x for x in range(401)]),
        (list(range(0, 401, 2)), [LARGEST // 201 + 7 * (x % 3) for x in range(201)]),
        ([0, 1], [1, 0]),
        ([3, 4, 6], [5, 5, 5]),
    ],
)
def test_q15_is_exact_at_the_largest_sums_there_can_be(days, lines):
    """As it is compiled, and by both oracles, on sums that no stream of a test's size reaches."""
    points = {x: count * q15.MOST for x, count in zip(days, lines, strict=True)}
    slope, intercept = least_squares(points)
    sums = {
        "n": len(points),
        "sx": sum(points),
        "sy": sum(points.values()),
        "sxx": sum(x * x for x in points),
        "sxy": sum(x * y for x, y in points.items()),
    }
    assert max(sums.values()) < 1 << 63
    app = App("sums")
    app.source(Given).flat_map(judge, q15.Line, scratch=q15.Sums).sink()
    app.generates(lambda *args: {})
    events = pa.Table.from_pylist([{"seq": 0, **sums}], workload.schema(app, {}))
    for way in (Kernel, Interpreter, Loop):
        made = way(app, {}).process(events).to_pylist()
        assert [(r["n"], *line(r)) for r in made] == ([(len(points), slope, intercept)] if slope <= 0 else [])
        for row in made:
            assert 0 <= row["slope_rest"] < row["divisor"]
            assert 0 <= row["intercept_rest"] < row["divisor"]


# --- matrix -----------------------------------------------------------------------------------------------------------


def mixed(number):
    number ^= number >> 32
    for factor, shift in ((0x9E3779B1, 15), (0x85EBCA77, 13), (0xC2B2AE3D, 16)):
        number = number * factor % (1 << 32)
        number ^= number >> shift
    return number


@pytest.mark.parametrize(
    "params",
    [
        {"keys": 3, "d": 2, "s": 2, "r": 1, "r_keyed": 2},
        {"keys": 1, "d": 1, "s": 1, "r": 0, "r_keyed": 0, "sel": 2.25, "sel_keyed": 0.5},
        {"keys": 5, "d": 3, "s": 3, "sel": 0.4, "sigma": 0.2, "invalid_ratio": 0.2},
    ],
)
def test_matrix_multiplies_and_folds(params):
    events, result = run("matrix", params, events=300)
    p = result.params
    d, factor = p["d"], matrix.factor.build(p).tolist()

    def times(x, count):
        for _ in range(count):
            x = [sum(x[i * d + k] * factor[k * d + j] for k in range(d)) & MASK for i in range(d) for j in range(d)]
        return x

    def checksum(words):
        total = 0
        for word in words:
            total = (total * 31 + word) & MASK
        return total

    def leaving(seq, which, sel):
        fraction = round((sel - int(sel)) * (1 << 24))
        return int(sel) + (mixed(2 * seq + which) >> 8 < fraction)

    states, expected, dropped = {}, [], 0
    for e in events:
        if e["key"] >= p["keys"]:
            dropped += 1
            continue
        x = times(e["m"], p["r"])
        for j in range(leaving(e["seq"], 0, p["sel"])):
            words, n = states.setdefault(e["key"], ([mixed(i) for i in range(p["s"] ** 2)], [0]))
            n[0] += 1
            at = n[0] % len(words)
            words[at] = (words[at] * 3 + checksum(times([(y + j) & MASK for y in x], p["r_keyed"]))) & MASK
            for copy in range(leaving(e["seq"], 1, p["sel_keyed"])):
                expected.append((e["seq"], e["key"], n[0], copy, checksum(words)))
    assert outputs(result, "seq", "key", "n", "copy", "checksum") == expected
    assert result.dropped == dropped
    assert (dropped > 0) == ("invalid_ratio" in params)
    assert abs(len(expected) / (len(events) - dropped) / (p["sel"] * p["sel_keyed"]) - 1) < 0.15


def test_matrix_shows_when_two_tuples_of_a_key_change_places():
    rows = [{"key": 1, "m": [i] * 4} for i in range(4)]
    params = {"d": 2, "s": 1, "keys": 2}
    right = run_events("matrix", params, rows).outputs
    wrong = run_events("matrix", params, [rows[0], rows[2], rows[1], rows[3]]).outputs
    assert right[0] == wrong[0]
    assert right[3]["checksum"] != wrong[3]["checksum"]
