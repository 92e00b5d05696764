"""Q15 against the same computation written again, by hand, and at the largest possible sums."""

from collections import Counter, defaultdict
from fractions import Fraction

import pyarrow as pa
import pytest

from streaming_core.api import App, i64, record
from streaming_core.apps import q15, registry
from streaming_core.apps.q15 import evaluate
from streaming_core.data import workload
from streaming_core.generator import bigbench
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from tests.differential.kernel import Kernel
from tests.streaming_core.apps.shop import of_category
from tests.support import by_hand


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
        {"items": 60, "events_per_day": 1_000, "stores": 3, "store": 2, "mode": "kit", "categories": 10,
         "trend_days": 3},
        {"items": 20, "events_per_day": 1_000, "stores": 1, "store": 1, "from_date": 2_452_156, "span": 2},
        {"items": 60, "stores": 10, "events_per_day": 1_000, "invalid_ratio": 0.1, "null_ratio": 0.1},
    ],
)  # fmt: skip
def test_q15_fits_lines(params):
    events, result = by_hand.run_generated("q15", params, events=8_000)
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


def test_q15_matches_an_example_by_hand():
    params = {"items": 60, "span": 6}
    bound = registry.load("q15").bind(params)
    two, three = of_category(bound, 2)[0], of_category(bound, 3)[0]
    day = 2_452_155
    result = by_hand.run_rows(
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
class Reading:
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
def test_q15_is_exact_at_the_largest_possible_sums(days, lines):
    """Checks the compiled operator and both oracles on sums beyond any stream of a test's size."""
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
    app.source(Reading).flat_map(judge, q15.Line, scratch=q15.Sums).sink()
    app.generates(lambda *args: {})
    events = pa.Table.from_pylist([{"seq": 0, **sums}], workload.schema(app, {}))
    for way in (Kernel, Interpreter, Loop):
        outputs = way(app, {}).process(events).to_pylist()
        assert [(r["n"], *line(r)) for r in outputs] == ([(len(points), slope, intercept)] if slope <= 0 else [])
        for row in outputs:
            assert 0 <= row["slope_rest"] < row["divisor"]
            assert 0 <= row["intercept_rest"] < row["divisor"]
