"""Several sources: the form and order of their events, their windows, and refusals."""

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from streaming_core.api import App, Array, Param, Record, Ring, boolean, f64, i32, i64, record, text, u8
from streaming_core.data import workload
from streaming_core.errors import BadInput
from streaming_core.generator import merge
from streaming_core.kernels.program import compile_app
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run import one_pass
from streaming_core.run.blocks import Blocks
from streaming_core.run.one_pass import PassRequest
from streaming_core.run.way import Pinned, RunSpec
from tests.differential.case import Case, Events, strategies
from tests.differential.windows import check_executed
from tests.support.draws import seeds, some
from tests.support.windows import declare_window


def stream(ts, **columns):
    """A generator with one row for each of `ts`."""

    def generate(params, seed, start, stop):
        return {name: values[start:stop] for name, values in ({"ts": ts} | columns).items()}

    return generate


def agreed(app, table):
    """The outputs of the interpreter. The compiled loop and every way of the engine must agree."""
    interpreter, loop = Interpreter(app, {}), Loop(app, {})
    outputs = pa.concat_tables([interpreter.process(table), interpreter.finish(table.num_rows)])
    cut = table.num_rows // 3
    parts = [loop.process(table[:cut]), loop.process(table[cut:]), loop.finish(table.num_rows)]
    compare(app.name, outputs, pa.concat_tables(parts), "outputs")
    assert interpreter.state() == loop.state() == {}  # everything has expired
    check_executed(app, {}, table, outputs, interpreter.dropped_late)
    return outputs.to_pylist()


# --- events -----------------------------------------------------------------------------------------------------------


@record
class Bid:
    ts: i64
    who: text
    price: i64
    parts: Array[u8, 2]


@record
class Ask:
    ts: i64
    price: f64
    who: text
    is_last: boolean


@record
class Tick:
    ts: i64


def count_tick(row, window, state, out):
    state.n += 1


def test_events_of_several_sources_form_a_tagged_union():
    app = App("market")
    bids, asks, ticks = app.sources(Bid, Ask, Tick)
    assert [o.name for s in (bids, asks, ticks) for o in s._operators] == ["Bid", "Ask", "Tick"]
    app.generates(
        stream(np.array([1, 5]), who=[b"a", b"bb"], price=np.array([7, 8]), parts=np.array([[1, 2], [3, 4]])),
        stream(np.array([1, 3]), price=np.array([0.5, 1.5]), who=pa.array([b"c", b"d"]), is_last=[False, True]),
        stream(np.array([3])),
    )
    table = workload.generate_chunk(app, {}, 5, 1, 0, 5)
    assert table.schema.equals(workload.schema(app, {}))
    assert {field.name: str(field.type) for field in table.schema} == {
        "seq": "int64", "ts": "int64", "who": "binary", "Bid_price": "int64",
        "parts": "fixed_size_list<item: uint8>[2]", "Ask_price": "double", "is_last": "bool", "stream": "uint8",
    }  # fmt: skip
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (0, 1, b"a", 7, [1, 2], 0.0, False, 0),
        (1, 1, b"c", 0, [0, 0], 0.5, False, 1),
        (2, 3, b"d", 0, [0, 0], 1.5, True, 1),
        (3, 3, b"", 0, [0, 0], 0.0, False, 2),
        (4, 5, b"bb", 8, [3, 4], 0.0, False, 0),
    ]
    assert workload.generate_chunk(app, {}, 5, 1, 2, 3).equals(table[2:3])  # of one stream alone


@pytest.mark.parametrize("seed", seeds(2, of=8))
def test_streams_merge_by_time_then_stream_then_position(seed, monkeypatch):
    """Merging equals sorting, for any slices."""
    monkeypatch.setattr(workload, "_SLICE", 64)
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 6))
    lengths = [int(n) for n in rng.choice([0, 1, 30, 400], count)]
    lengths[int(rng.integers(count))] = 400
    times = [np.cumsum(rng.choice([0, 0, 1, 7, 300], n)) for n in lengths]
    records = [Record(f"S{i}", {"ts": i64, "place": i64}, None) for i in range(count)]
    app = App("merged")
    app.sources(*records)
    app.generates(*(stream(ts, place=np.arange(len(ts))) for ts in times))
    wanted = sorted((int(t), i, place) for i, ts in enumerate(times) for place, t in enumerate(ts))
    events = len(wanted)
    whole = workload.generate_chunk(app, {}, events, 1, 0, events)
    assert list(zip(*(whole[name].to_pylist() for name in ("ts", "stream", "place")), strict=True)) == wanted
    assert whole["seq"].to_pylist() == list(range(events))
    for _ in range(5):
        start, stop = sorted(int(at) for at in rng.integers(0, events + 1, 2))
        assert workload.generate_chunk(app, {}, events, 1, start, stop).equals(whole[start:stop])
    with pytest.raises(BadInput, match=f"generator of merged: all streams end before event {events + 1}$"):
        workload.generate_chunk(app, {}, events + 1, 1, 0, events + 1)


@pytest.mark.parametrize("seed", seeds(2, of=8))
def test_streams_whose_time_goes_back_merge_by_their_highest_time(seed, monkeypatch):
    monkeypatch.setattr(workload, "_SLICE", 64)
    monkeypatch.setattr(merge, "_BLOCK", 16)
    rng = np.random.default_rng(seed)
    lengths = [300, int(rng.integers(400)), 50]
    times = [np.cumsum(rng.choice([0, 1, 7], n)) - rng.choice([0, 0, 3, 90], n) for n in lengths]
    app = App("disordered")
    app.sources(*(Record(f"S{i}", {"ts": i64, "place": i64}, None) for i in range(3)), delay="5s")
    app.generates(*(stream(ts, place=np.arange(len(ts))) for ts in times))
    marks = [np.maximum.accumulate(ts) for ts in times]
    wanted = sorted((int(mark), i, place) for i, of in enumerate(marks) for place, mark in enumerate(of))
    events = len(wanted)
    whole = workload.generate_chunk(app, {}, events, 1, 0, events)
    assert list(zip(*(whole[name].to_pylist() for name in ("stream", "place")), strict=True)) == [
        (i, place) for _, i, place in wanted
    ]
    assert whole["ts"].to_pylist() == [int(times[i][place]) for _, i, place in wanted]
    for _ in range(5):
        start, stop = sorted(int(at) for at in rng.integers(0, events + 1, 2))
        merge.merge.cache_clear()  # another process
        assert workload.generate_chunk(app, {}, events, 1, start, stop).equals(whole[start:stop])


@pytest.mark.parametrize("delay", ["5s", "late", 5000])
def test_windows_inherit_the_delay_of_their_source(delay):
    delays = []
    for declared in ({}, {"delay": 7}, {"kind": "single"}):
        app = App("delayed", params={"late": Param(5000)})
        source = app.source(Tick, delay=delay)
        declare_window(source, every=1, advance=5, size=10, state=Count, update=count_tick, output=Tick, **declared)
        delays.append(app.operators[1].window.bound("count_tick", app.bind()).delay)
    assert delays == [5000, 7, 0]


@pytest.mark.parametrize(("start", "stop", "rows"), [(0, 4, "0 to 4"), (2, 4, "1 to 4"), (2, 3, "1 to 3")])
def test_rows_out_of_order_are_refused_at_any_slice_boundary(start, stop, rows):
    app = App("disorder")
    app.sources(Bid, Tick)
    texts = {"who": [b""] * 4, "price": np.zeros(4, int), "parts": np.zeros((4, 2), int)}
    app.generates(stream(np.array([5, 6, 1, 2]), **texts), stream(np.empty(0, int)))
    message = f"generator of disorder: stream Bid: ts must not decrease, but does in rows {rows}; declare"
    with pytest.raises(BadInput, match=f"^{message}"):
        workload.generate_chunk(app, {}, 4, 1, start, stop)


def test_distant_rows_are_located_with_few_generated_rows():
    sizes = []

    def rows(params, seed, start, stop):
        sizes.append(stop - start)
        return {"ts": np.arange(start, stop) // 3}

    merged = merge.Merge("far", ("A", "B"), (rows, rows), True)
    at = 10**12 + 1
    parts, order = merged.rows({}, 1, at, at + 100)
    assert sum(sizes) < 300
    ts = np.concatenate([columns["ts"] for columns, _ in parts])[order]
    assert ts.tolist() == [e // 6 for e in range(at, at + 100)]
    sizes.clear()
    merged.rows({}, 1, at + 100, at + 200)  # continues at its position
    assert sum(sizes) < 120


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ts": np.array([1, 3, 2])}, "stream Bid: ts must not decrease, but does in rows 0 to 3"),
        ({"price": np.array([1, 2])}, "stream Bid: column price: needs 3 values without nulls, got 2 values"),
        ({"stream": np.zeros(3)}, r"stream Bid: must return columns .*, got parts, price, stream, ts, who"),
        (dict.fromkeys(("ts", "who", "parts")), "stream Bid: must return a column ts, got price"),
    ],
)
def test_a_generator_that_breaks_its_contract_is_named(changed, message):
    good = {"ts": np.arange(3), "who": [b""] * 3, "price": np.arange(3), "parts": np.zeros((3, 2), int)}
    columns = {name: values for name, values in (good | changed).items() if values is not None}
    app = App("market")
    app.sources(Bid, Tick)
    app.generates(lambda params, seed, start, stop: {n: v[start:stop] for n, v in columns.items()}, stream([]))
    with pytest.raises(BadInput, match=f"generator of market: {message}"):
        workload.generate_chunk(app, {}, 3, 1, 0, 3)


# --- operators over sources -------------------------------------------------------------------------------------------


@record
class Left:
    ts: i64
    key: i64
    value: i64


@record
class Right:
    ts: i64
    key: i64
    value: u8
    line: text


@record
class Count:
    n: i64


@record
class Counts:
    ts: i64
    key: i64
    lefts: i64
    rights: i64


def count_left(row, window, lefts, rights, out):
    lefts.n += 1


def count_right(row, window, lefts, rights, out):
    rights.n += len(row.line)


def counts(window, lefts, rights, out):
    out.emit(ts=window.end, key=window.key.key, lefts=lefts.n, rights=rights.n)


def counting(lefts, rights, **declared):
    """Windows that count rows of two streams, and events of these."""
    app = App("counting")
    declare_window(
        app,
        *app.sources(Left, Right),
        key="key",
        state=(Count, Count),
        update=(count_left, count_right),
        result=counts,
        output=Counts,
        **declared,
    ).sink()
    app.generates(*(stream(rows["ts"], **{n: v for n, v in rows.items() if n != "ts"}) for rows in (lefts, rights)))
    events = len(lefts["ts"]) + len(rights["ts"])
    return app.check(), workload.generate_chunk(app, {}, events, 1, 0, events)


def drawn(rng, rows, steps):
    """Columns of rows of either stream."""
    columns = {"ts": np.cumsum(rng.choice(steps, rows)) - 10, "key": rng.integers(-2, 3, rows)}
    return columns | {"value": rng.integers(0, 256, rows)}


def drawn_right(rng, rows, steps):
    """Columns of rows of the right stream."""
    return drawn(rng, rows, steps) | {"line": [b"x" * int(n) for n in rng.integers(0, 4, rows)]}


@pytest.mark.parametrize("seed", seeds(1, of=4))
@pytest.mark.slow
def test_windows_over_sources_match_their_definition(seed):
    rng = np.random.default_rng(seed)
    advance = int(rng.integers(1, 6))
    size = advance + int(rng.integers(0, 9))
    lefts, rights = drawn(rng, 90, [0, 1, 3]), drawn_right(rng, 60, [0, 2, 30])
    app, table = counting(lefts, rights, advance=advance, size=size)
    wanted = defaultdict(lambda: [0, 0])
    for side, rows in enumerate((lefts, rights)):
        for i, (ts, key) in enumerate(zip(rows["ts"].tolist(), rows["key"].tolist(), strict=True)):
            for at in range(ts // advance - size // advance - 1, ts // advance + 1):
                if at * advance <= ts < at * advance + size:
                    wanted[at * advance + size, key][side] += len(rows["line"][i]) if side else 1
    outputs = agreed(app, table)
    assert {(row["ts"], row["key"]): [row["lefts"], row["rights"]] for row in outputs} == wanted
    assert len(outputs) == len(wanted)


@record
class Spread:
    key: i64
    total: i64


def of_left(row, out):
    if row.value % 5 > 0:
        out.emit(key=row.key, total=row.value)


def of_right(row, out):
    out.emit(key=len(row.line), total=-row.value)


@record
class Total:
    total: i64


def added(row, state, out):
    state.total = state.total * 3 + row.total
    out.emit(key=row.key, total=state.total)


def last(state, out):
    out.emit(key=-1, total=state.total)


@pytest.mark.slow
def test_operators_without_windows_take_streams():
    """No windows: streams are mapped to one record, and any executor runs them."""
    rng = np.random.default_rng(5)
    lefts, rights = drawn(rng, 500, [0, 1]), drawn_right(rng, 300, [0, 5])
    app = App("spread")
    left, right = app.sources(Left, Right)
    left_rows, right_rows = left.flat_map(of_left, Spread), right.flat_map(of_right, Spread)
    left_rows.union(right_rows).key_by("key").process(added, state=Total, output=Spread, flush=last).sink()
    app.generates(*(stream(rows["ts"], **{n: v for n, v in rows.items() if n != "ts"}) for rows in (lefts, rights)))
    table = workload.generate_chunk(app.check(), {}, 800, 1, 0, 800)
    case, loop = Case(app, {}, table), Loop(app, {})
    compare("spread", case.outputs, pa.concat_tables([loop.process(table), loop.finish(800)]), "outputs")
    assert case.outputs.num_rows > 600
    for executor in ("pooled", "pinned", "morsel"):
        for threads, batch in ((1, 256), (2, 7), (3, 1)):
            for fields in strategies(executor):
                case.check(RunSpec.parse({"app": "spread", "threads": threads, "batch": batch, **fields}), block=300)


# --- streams that fall silent -----------------------------------------------------------------------------------------

SIZE = 20
ROWS = 3_000


def paced(app, table, outputs):
    """Runs the engine with paced arrivals, which must not change its outputs."""
    program, events = compile_app(app, {}), Events([table])
    for threads, batch in ((1, 256), (2, 1), (3, 64)):
        spec = Pinned(app=app.name, threads=threads, batch=batch)
        peak, open_loop = (
            one_pass.run(spec, program, Blocks(events, program, 1000), PassRequest(rate=rate)).sample
            for rate in (0.0, 1e5)
        )
        assert (open_loop.digest, open_loop.outputs) == (peak.digest, peak.outputs)
        assert open_loop.in_order
        assert peak.outputs == len(outputs)
        assert open_loop.end_to_end is not None


@pytest.mark.parametrize("silent_one", [0, 1])
@pytest.mark.parametrize("rows", some([3, 0, 40]))
@pytest.mark.slow
def test_windows_expire_by_the_time_of_the_active_stream(silent_one, rows):
    """A stream falls silent after a few rows: the other stream's time expires its state."""
    rng = np.random.default_rng(rows)
    sides = [drawn(rng, rows if side == silent_one else ROWS, [1]) for side in (0, 1)]
    sides[1]["line"] = [b"x"] * len(sides[1]["ts"])
    app, table = counting(*sides, advance=5, size=SIZE, idle=0)
    outputs = agreed(app, table)
    ts, streams = table["ts"].to_numpy(), table["stream"].to_numpy()
    for row in outputs:  # with the first event at or after its window's end
        assert row["seq"] == np.searchsorted(ts, row["ts"])
    name = ("lefts", "rights")[silent_one]
    assert sum(row[name] for row in outputs) == 4 * rows
    assert all(row[name] == 0 for row in outputs if row["ts"] > rows + SIZE)
    assert (streams == silent_one).sum() == rows
    paced(app, table, outputs)


# --- refusals ---------------------------------------------------------------------------------------------------------

ORDER, SHIPMENT = ({"ts": i64, "item": i64, "price": kind} for kind in (i64, f64))
RECORDS = {
    name: Record(name, fields, None)
    for name, fields in {
        "Order": ORDER, "Shipment": SHIPMENT, "source": SHIPMENT, "Untimed": {"item": i64},
        "Fraction": {"ts": f64}, "Coarse": {"ts": i32}, "Tagged": {"ts": i64, "stream": i64},
        "Clash": {"ts": i64, "Order_price": i64, "price": f64}, "Past": {"ts": i64, "times": Ring(i64, 3)},
    }.items()
}  # fmt: skip


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ([()], "sources: needs 2 to 256 records, got 0; use app.source"),
        ([("Order",)], "sources: needs 2 to 256 records, got 1; use app.source"),
        ([("Order", 7)], "sources: records must be a record; put @record \\(not @dataclass\\) above its class, got 7"),
        ([("Order", "Shipment", "Order")], "sources: two streams have record Order"),
        ([("Order", "Untimed")], "sources: record Untimed needs an integer field ts"),
        ([("Fraction", "Order")], "sources: record Fraction needs an integer field ts"),
        ([("Order", "Coarse")], "sources: field ts must have the same type in Order and Coarse"),
        ([("Order", "Tagged")], "sources: record Tagged: the field name stream is reserved"),
        ([("Order", "Clash")], "sources: record Clash: fields "),
        ([("Order", "Past")], "sources: record Past: times is a Ring, which no event can hold"),
        (["Order", ("Order", "Shipment")], "the events are declared already; call only one of"),
        ([("Order", "Shipment"), "Order"], "the events are declared already; call only one of"),
        ([("Order", "Shipment"), ("Order", "Shipment")], "the events are declared already"),
        ([("Order", "source")], "two operators have the function name source"),
    ],
)
def test_invalid_sources_are_refused(calls, message):
    def declare():
        app = App("written")
        for records in calls:
            if isinstance(records, str):
                app.source(RECORDS[records])
            else:
                app.sources(*(RECORDS.get(name, name) for name in records))
        app.check()

    with pytest.raises(BadInput, match=message) as refused:
        declare()
    assert "\n" not in str(refused.value)


def test_each_source_needs_a_generator():
    app = App("written")
    left, right = app.sources(Left, Right)
    left.flat_map(of_left, Spread).union(right.flat_map(of_right, Spread)).sink()
    app.generates(stream([]))
    with pytest.raises(BadInput, match="each source needs one generator; got 1 for 2 sources"):
        app.check()


def test_rows_of_a_source_that_no_operator_takes_are_events_without_outputs():
    lefts, rights = drawn(np.random.default_rng(1), 90, [0, 1]), drawn_right(np.random.default_rng(2), 60, [0, 1])
    app = App("written")
    left, _ = app.sources(Left, Right)
    left.flat_map(of_left, Spread).sink()
    app.generates(*(stream(rows["ts"], **{n: v for n, v in rows.items() if n != "ts"}) for rows in (lefts, rights)))
    table = workload.generate_chunk(app.check(), {}, 150, 1, 0, 150)
    case = Case(app, {}, table)
    rows = zip(lefts["key"].tolist(), lefts["value"].tolist(), strict=True)
    outputs = [(row["key"], row["total"]) for row in case.outputs.to_pylist()]
    assert outputs == [(key, value) for key, value in rows if value % 5 > 0]
    case.check(RunSpec.parse({"app": "written", "executor": "pinned", "threads": 2}))
