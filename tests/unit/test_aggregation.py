"""Aggregates of windows in the words of other stream processors, against what their definition says."""

from collections import Counter as Counts
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, Param, f64, i64, record, sliding, text, tumbling
from streaming_core.errors import BadInput
from streaming_core.run.way import RunSpec
from tests.differential.case import Case

EVENTS = 600
MINUTE, HOUR = 60_000, 3_600_000


@record
class Order:
    ts: i64
    shop: text
    item: i64
    price: f64


@record
class Total:
    n: i64


@record
class Mean:
    ts: i64
    shop: text
    mean: f64


def orders():
    rng = np.random.default_rng(5)
    columns = {
        "seq": np.arange(EVENTS),
        "ts": np.cumsum(rng.integers(0, 3_000, EVENTS)),
        "shop": [f"shop {n}".encode() for n in rng.integers(0, 4, EVENTS)],
        "item": rng.integers(-5, 6, EVENTS),
        "price": rng.integers(1, 4_000, EVENTS) / 4,
    }
    return pa.table(columns).cast(Order.resolve({}).arrow(("seq",)))


def windows(table, size, every):
    """The rows of each window and shop."""
    found = defaultdict(list)
    for row in table.to_pylist():
        for number in range((row["ts"] - size) // every + 1, row["ts"] // every + 1):
            found[number * every + size, row["shop"]].append(row)
    return found


def top(rows, k):
    counts = Counts(row["item"] for row in rows)
    best = sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:k]
    return [(rank, item, count) for rank, (item, count) in enumerate(best)]


# The declaration, and what leaves for the rows of a window and shop.
AGGREGATES = {
    "count": (lambda windowed: windowed.count(), lambda rows: [(len(rows),)]),
    "sum": (lambda windowed: windowed.sum("price"), lambda rows: [(sum(row["price"] for row in rows),)]),
    "sum of integers": (lambda windowed: windowed.sum("item"), lambda rows: [(sum(row["item"] for row in rows),)]),
    "min": (lambda windowed: windowed.min("item"), lambda rows: [(min(row["item"] for row in rows),)]),
    "max": (lambda windowed: windowed.max("price"), lambda rows: [(max(row["price"] for row in rows),)]),
    "top_k": (lambda windowed: windowed.top_k("item", 3), lambda rows: top(rows, 3)),
}


def declared(aggregate, extent, **app):
    made = App("shops", **app)
    AGGREGATES[aggregate][0](made.source(Order).key_by("shop").window(extent)).sink()
    made.generates(lambda *arguments: {})
    return made


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize(
    ("extent", "size", "every"),
    [(tumbling("1m"), MINUTE, MINUTE), (sliding("1m30s", every="20s"), 90_000, 20_000)],
    ids=["tumbling", "sliding"],
)
def test_an_aggregate_is_what_its_definition_says(aggregate, extent, size, every):
    table, app = orders(), declared(aggregate, extent)
    case = Case(app, app.bind(), table)
    wanted = {
        (end, shop, *values)
        for (end, shop), rows in windows(table, size, every).items()
        for values in AGGREGATES[aggregate][1](rows)
    }
    names = [name for name in case.outputs.column_names if name not in ("seq", "sub")]
    assert {tuple(row[name] for name in names) for row in case.outputs.to_pylist()} == wanted
    assert len(case.outputs) == len(wanted)
    for threads in (1, 2, 3):
        case.check(RunSpec.parse({"app": "shops", "executor": "pinned", "threads": threads, "batch": 7}), 100)


def average(row, window, state, out):
    state.n += 1


def averaged(window, state, out):
    out.emit(ts=window.end, shop=window.key.shop, mean=state.n / 2)


def test_an_aggregate_of_one_s_own_and_a_later_operator():
    app = App("halves")
    halves = app.source(Order).key_by("shop").window(tumbling("1h")).aggregate(average, Total, averaged, Mean)
    halves.key_by("shop").window(tumbling("1d")).max("mean").sink()
    app.generates(lambda *arguments: {})
    table = orders()
    case = Case(app, app.bind(), table)
    largest = defaultdict(float)
    for (end, shop), rows in windows(table, HOUR, HOUR).items():
        day = 24 * HOUR * (end // (24 * HOUR) + 1)
        largest[day, shop] = max(largest[day, shop], len(rows) / 2)
    assert {(row["ts"], row["shop"]): row["max"] for row in case.outputs.to_pylist()} == largest


def test_durations_are_counted_in_the_application_s_unit_of_time():
    assert [declared("count", tumbling("2m"), time=unit).operators[1].window.size for unit in ("s", "ms", "us")] == [
        120, 120_000, 120_000_000,
    ]  # fmt: skip
    # Numbers and parameters are counted in it already.
    assert declared("count", tumbling(90)).operators[1].window.size == 90
    sized = declared("count", tumbling("size"), params={"size": Param(70)})
    assert sized.operators[1].window.bound("count", sized.bind()).size == 70


@pytest.mark.parametrize(
    ("declare", "why"),
    [
        (lambda stream: stream.key_by("shop").window("1m"), 'window takes tumbling("1m") or sliding'),
        (lambda stream: stream.key_by("shop").window(tumbling("1 minute")).count(), "'1 minute' is not a duration"),
        (lambda stream: stream.key_by("shop").window(tumbling("5us")).count(), "'5us' is no whole number"),
        (lambda stream: stream.key_by("shop").window(tumbling("1m")).sum("shop"), "sum('shop'): Order has the number"),
        (lambda stream: stream.key_by("shop").window(tumbling("1m")).top_k("price", 3), "needs an integer field price"),
        (lambda stream: stream.key_by("ts").window(tumbling("1m")).count(), "count: the key ts has the name of a"),
    ],
)
def test_a_declaration_that_does_not_fit_is_refused(declare, why):
    with pytest.raises(BadInput) as refused:
        declare(App("shops").source(Order))
    assert why in str(refused.value)


def test_a_method_that_does_not_exist_is_answered_by_those_that_do():
    keyed = App("shops").source(Order).key_by("shop")
    with pytest.raises(AttributeError, match=r"a keyed stream has no method 'count'; it has process and window"):
        keyed.count()
    with pytest.raises(AttributeError, match=r"no method 'mean'; it has count, sum, min, max, top_k and aggregate"):
        keyed.window(tumbling("1m")).mean("price")
    with pytest.raises(BadInput, match=r"unit of time"):
        App("shops", time="minute")
