"""Aggregates of windows, declared in the terms of other stream processors, against their definition."""

from collections import Counter as Counts
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import (
    App,
    Array,
    Param,
    Set,
    agg,
    boolean,
    count_window,
    f64,
    global_window,
    i8,
    i64,
    record,
    rolling,
    session,
    sliding,
    text,
    tumbling,
)
from streaming_core.errors import BadInput
from streaming_core.language.acceptance import accept
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.run.way import RunSpec
from tests.differential.case import Case
from tests.support.draws import some

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
class Rows:
    n: i64
    rows_so_far: i64


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
    rows_by_window = defaultdict(list)
    for row in table.to_pylist():
        for number in range((row["ts"] - size) // every + 1, row["ts"] // every + 1):
            rows_by_window[number * every + size, row["shop"]].append(row)
    return rows_by_window


def top(rows, k):
    counts = Counts(row["item"] for row in rows)
    best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:k]
    return [(rank, item, count) for rank, (item, count) in enumerate(best)]


# The declaration, and the outputs for the rows of a window and shop.
AGGREGATES = {
    name: (
        lambda windowed, aggregate=aggregate: windowed.aggregate(v=aggregate),
        lambda rows, value=value: [(value(rows),)],
    )
    for name, aggregate, value in (
        ("count", agg.count(), len),
        ("sum", agg.sum("price"), lambda rows: sum(row["price"] for row in rows)),
        ("sum of integers", agg.sum("item"), lambda rows: sum(row["item"] for row in rows)),
        ("min", agg.min("item"), lambda rows: min(row["item"] for row in rows)),
        ("max", agg.max("price"), lambda rows: max(row["price"] for row in rows)),
    )
} | {"top_k": (lambda windowed: windowed.top_k("item", 3), lambda rows: top(rows, 3))}


def declared(aggregate, extent, early=None, **app):
    application = App("shops", **app)
    AGGREGATES[aggregate][0](application.source(Order).key_by("shop").window(extent, early=early)).sink()
    application.generates(lambda *arguments: {})
    return application


def sessions(table, gap):
    """The rows of each session and shop."""
    bursts, latest = defaultdict(list), {}
    for row in table.to_pylist():
        burst = latest.get(row["shop"])
        if burst is None or row["ts"] >= burst[-1]["ts"] + gap:
            burst = latest[row["shop"]] = []
            bursts[len(bursts)] = burst
        burst.append(row)
    return list(bursts.values())


def produced(case):
    names = [name for name in case.outputs.column_names if name not in ("seq", "sub")]
    return Counts(tuple(row[name] for name in names) for row in case.outputs.to_pylist())


@pytest.mark.parametrize("aggregate", some(AGGREGATES))
def test_early_results_are_emitted_before_a_session_ends(aggregate):
    table, app = orders(), declared(aggregate, session("4s"), early=3)
    case = Case(app, app.bind(), table)
    wanted = Counts()
    for rows in sessions(table, 4_000):
        for n in [*range(3, len(rows) + 1, 3), len(rows)]:
            values = AGGREGATES[aggregate][1](rows[:n])
            wanted.update((rows[n - 1]["ts"] + 4_000, rows[0]["shop"], *some) for some in values)
    assert produced(case) == wanted
    case.check(RunSpec.parse({"app": "shops", "executor": "pinned", "threads": 2, "batch": 7}), 100)


@record
class Basket:
    items: Set[i64]
    least: Array[f64, 2]
    is_dear: boolean
    n: i64


@record
class Bought:
    ts: i64
    shop: text
    items: i64
    first: f64
    last: f64
    is_dear: boolean


def filled(row, state, out):
    state.items.add(row.item)
    if state.n == 0:
        state.least[0] = row.price
    state.least[1] = row.price
    state.is_dear = state.is_dear or row.price > 900
    state.n += 1


def bought(row, state, out):
    out.emit(
        ts=row.ts, shop=row.shop, items=len(state.items), first=state.least[0], last=state.least[1],
        is_dear=state.is_dear,
    )  # fmt: skip


def filled_in_time(row, window, state, out):
    filled(row, state, out)


def bought_in_time(window, state, out):
    out.emit(
        ts=window.end, shop=window.key.shop, items=len(state.items), first=state.least[0], last=state.least[1],
        is_dear=state.is_dear,
    )  # fmt: skip


def basket(rows):
    prices = [row["price"] for row in rows]
    return (len({row["item"] for row in rows}), prices[0], prices[-1], max(prices) > 900)


@pytest.mark.slow
def test_a_custom_aggregate_restarts_with_each_count_window():
    app = App("baskets")
    app.source(Order).key_by("shop").window(count_window(5)).apply(filled, Basket, Bought, bought).sink()
    app.generates(lambda *arguments: {})
    table = orders()
    of_shop = defaultdict(list)
    for row in table.to_pylist():
        of_shop[row["shop"]].append(row)
    full = [rows[at : at + 5] for rows in of_shop.values() for at in range(0, len(rows) - 4, 5)]
    case = Case(app, app.bind(), table)
    assert produced(case) == Counts((rows[-1]["ts"], rows[0]["shop"], *basket(rows)) for rows in full)
    case.check(RunSpec.parse({"app": "baskets", "executor": "pooled", "threads": 2}), 100)


@pytest.mark.slow
def test_a_custom_aggregate_emits_early_results():
    app = App("early_baskets")
    windowed = app.source(Order).key_by("shop").window(tumbling("1m"), early=4)
    windowed.apply(filled_in_time, Basket, Bought, bought_in_time).sink()
    app.generates(lambda *arguments: {})
    table, wanted = orders(), Counts()
    for (end, shop), rows in windows(table, MINUTE, MINUTE).items():
        for n in [*range(4, len(rows) + 1, 4), len(rows)]:
            wanted[(end, shop, *basket(rows[:n]))] += 1
    case = Case(app, app.bind(), table)
    assert produced(case) == wanted
    case.check(RunSpec.parse({"app": "early_baskets", "executor": "pinned", "threads": 2, "batch": 7}), 100)


def average(row, window, state, out):
    state.n += 1


def averaged(window, state, out):
    out.emit(ts=window.end, shop=window.key.shop, mean=state.n / 2)


@pytest.mark.slow
def test_an_operator_can_follow_a_custom_aggregate():
    app = App("halves")
    halves = app.source(Order).key_by("shop").window(tumbling("1h")).apply(average, Total, Mean, averaged)
    halves.key_by("shop").window(tumbling("1d")).aggregate(most=agg.max("mean")).sink()
    app.generates(lambda *arguments: {})
    table = orders()
    case = Case(app, app.bind(), table)
    largest = defaultdict(float)
    for (end, shop), rows in windows(table, HOUR, HOUR).items():
        day = 24 * HOUR * (end // (24 * HOUR) + 1)
        largest[day, shop] = max(largest[day, shop], len(rows) / 2)
    assert {(row["ts"], row["shop"]): row["most"] for row in case.outputs.to_pylist()} == largest


@record
class Narrow:
    ts: i8
    key: i8


@pytest.mark.parametrize("extent", [tumbling(100), sliding(100, every=100), session(100), count_window(1)])
def test_the_end_of_a_window_may_lie_beyond_the_type_of_ts(extent):
    app = App("narrow")
    app.source(Narrow).key_by("key").window(extent).aggregate(count=agg.count()).sink()
    app.generates(lambda *arguments: {})
    rows = pa.table({"seq": [0], "ts": [127], "key": [-128]}).cast(Narrow.resolve({}).arrow(("seq",)))
    machine = Interpreter(app, {})
    outputs = pa.concat_tables([machine.process(rows), machine.finish(1)])
    end = {"session": 227, "multi": 200}.get(getattr(extent, "kind", ""), 127)
    assert outputs.select(["ts", "key", "count"]).to_pylist() == [{"ts": end, "key": -128, "count": 1}]


def test_durations_use_the_application_s_unit_of_time():
    assert [declared("count", tumbling("2m"), time=unit).operators[1].window.size for unit in ("s", "ms", "us")] == [
        120, 120_000, 120_000_000,
    ]  # fmt: skip
    # Numbers and parameters use the unit already.
    assert declared("count", tumbling(90)).operators[1].window.size == 90
    sized = declared("count", tumbling("size"), params={"size": Param(70)})
    assert sized.operators[1].window.bound("count", sized.bind()).size == 70


@pytest.mark.parametrize(
    ("declare", "why"),
    [
        (lambda stream: stream.key_by("shop").window("1m"), 'window: extent must be tumbling("1m"), '),
        (lambda stream: stream.window(tumbling("1 minute")).top_k("item", 1), "'1 minute' is not a duration"),
        (lambda stream: stream.key_by("shop").window(tumbling("5us")).top_k("item", 1), "'5us' is no whole number"),
        *((lambda stream, columns=columns: stream.key_by("shop").window(tumbling("1m")).aggregate(**columns), why)
          for columns, why in (
              ({"n": agg.sum("shop")}, "aggregate: n=agg.sum('shop'): shop is no number; Order has the number fields"),
              ({"n": agg.max("pric")}, "aggregate: n=agg.max('pric'): unknown field 'pric' (did you mean 'price'?)"),
              ({"n": agg.count_distinct("price")}, "n=agg.count_distinct('price'): keys of Set must be integers"),
              ({}, "aggregate needs an aggregate; write for example aggregate(n=agg.count())"),
              ({"ts": agg.count()}, "aggregate: ts is the end of the window; rename the field"),
              ({"shop": agg.count()}, "aggregate: the key shop has the name of a field of the result; rename it"),
              ({"seq": agg.count()}, "aggregate: the field name 'seq' is reserved; rename the field"),
              ({"rows_so_far": agg.count()}, "aggregate: the field name 'rows_so_far' is reserved"),
              ({"n": agg.count}, "aggregate: n must be an aggregate such as agg.count() or agg.max("),
              ({"n": agg}, "aggregate: n must be an aggregate such as"),
          )),
        (lambda stream: stream.window(tumbling("1m")).top(0, by="price"), "top must be at least 1"),
        (lambda stream: stream.select("ts", rank="price").window(tumbling("1m")).top(1, by="ts"),
         "top: the result has a field rank of its own"),
        (lambda stream: stream.window(tumbling("1m")).top(1, by="shop"), "top('shop'): Order has the number fields"),
        (lambda stream: stream.window(rolling("1m")).aggregate(n=agg.count()), "aggregate does not go with rolling"),
        (lambda stream: stream._app.connect(stream, stream).window(tumbling("1m")).aggregate(n=agg.count()),
         "aggregate takes one stream; unite the streams with union, or write apply"),
        (lambda stream: stream.key_by(every=2).window(count_window(3)), "count_window takes one stream, and fields as"),
        (lambda stream: stream.key_by(every=2).process(average, Total, Mean), "process takes one stream whose key is"),
        (lambda stream: stream.key_by("shop").window(tumbling("1m")).top_k("price", 3), "needs an integer field price"),
        (lambda stream: stream.key_by("ts").window(tumbling("1m")).top_k("item", 1), "top_k: the key ts has the name"),
        (lambda stream: stream.key_by("shop").window(count_window(0)), "count_window must be at least 1, or the name"),
        (lambda stream: stream.key_by("shop").window(count_window(True)),
         "rows must be an integer or a text, got True"),
        (lambda stream: stream.key_by("shop").window(count_window("row")), "unknown parameter 'row' (did you mean"),
        (lambda stream: stream.key_by("shop").window(count_window("free")), "parameter free must be an integer with"),
        (lambda stream: stream.key_by("shop").window(tumbling("1m"), early=-1), "early must be at least 1, or the"),
        (lambda stream: stream.key_by("shop").window(count_window(5), early=2), "early does not go with count_window"),
        (lambda stream: stream.key_by("shop").window(global_window(), early=0), "early must be at least 1, or the"),
        (lambda stream: stream.key_by("shop").window(global_window(), delay=2), "delay does not go with global_window"),
        (lambda stream: stream.key_by("shop").window(global_window()).late(), "no row is late for global_window"),
        (lambda stream: stream.key_by(every=2).window(global_window()), "global_window takes one stream, and fields"),
        (lambda stream: stream.key_by("shop").window(global_window()).aggregate(row_ts=agg.sum("price")),
         "aggregate: the field name 'row_ts' is reserved; rename the field"),
        (lambda stream: stream.window(global_window(), early=5).apply(filled, Basket, Bought),
         "early needs a result function"),
        (lambda stream: stream.window(global_window()).apply((filled, filled), Basket, Bought),
         "a window with global_window takes one update function and one state, and no slide"),
        (lambda stream: stream.key_by("shop").window(tumbling("1m"), early=2).apply(average, Rows, Mean, averaged),
         "the field name 'rows_so_far' is reserved"),
    ],
)  # fmt: skip
def test_an_invalid_declaration_is_refused(declare, why):
    params = {"rows": Param(3, minimum=1), "free": Param(3)}
    with pytest.raises(BadInput) as refused:
        declare(App("shops", params=params).source(Order))
    assert why in str(refused.value)


def test_a_condition_of_an_aggregate_must_be_a_function_of_the_row():
    with pytest.raises(BadInput, match="count: where must be a plain def or None, got 'price'"):
        agg.count(where="price")
    app = App("shops")
    app.source(Order).window(tumbling("1m")).aggregate(n=agg.count(where=lambda row: row.pric > 0)).sink()
    with pytest.raises(BadInput, match=r"n_where \(test_aggregation.py:\d+\): .*pric"):
        accept(app, app.bind())


def test_an_unknown_method_is_refused_with_the_known_ones():
    keyed = App("shops").source(Order).key_by("shop")
    with pytest.raises(
        AttributeError, match=r"a keyed stream has no method 'count'; it has process, window and distinct"
    ):
        keyed.count()
    with pytest.raises(AttributeError, match=r"method 'mean'; it has aggregate, apply, top, top_k and late"):
        keyed.window(tumbling("1m")).mean("price")
    with pytest.raises(AttributeError, match=r"has no method 'max'; write \.aggregate\(n=agg\.max\(\"field\"\)\)"):
        keyed.window(tumbling("1m")).max("price")
    with pytest.raises(AttributeError, match=r"agg has no 'summ' \(did you mean 'sum'\?\); it has count, sum, avg,"):
        agg.summ("price")
    with pytest.raises(BadInput, match=r"unit of time"):
        App("shops", time="minute")
