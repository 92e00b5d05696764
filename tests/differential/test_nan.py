"""All machines use the same 64 bits for every NaN that an operator reads, keeps or emits (test_arithmetic: makes)."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, Array, Map, Queue, Ring, f64, i64, record
from streaming_core.data import workload
from streaming_core.data.comparison import unequal
from streaming_core.data.digest import digest_table
from streaming_core.language.record import NAN_BITS
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.run.way import RunSpec, Transactional
from tests.differential.case import Case
from tests.differential.kernel import Kernel
from tests.support.draws import some

# Quiet NaNs of either sign, with a payload, signalling ones; and what else makes NaNs.
NANS = [NAN_BITS, 0xFFF8 << 48, 0x7FF8 << 48 | 0xBEEF, 0xFFFF << 48 | 7, 0x7FF0 << 48 | 1, 0xFFF4 << 48]
VALUES = [*np.array(NANS, np.uint64).view(np.float64).tolist(), np.inf, -np.inf, 0.0, -0.0, 1.5, 1e308]


@record
class Event:
    ts: i64
    k: i64
    x: f64
    y: f64
    several: Array[f64, 3]


@record
class Output:
    x: f64
    y: f64
    several: Array[f64, 3]


def taken(schema):
    """Every two of the values, and an array of them."""
    pairs = [(x, y) for x in VALUES for y in VALUES]
    rows = [{"seq": i, "ts": i, "k": i % 5, "x": x, "y": y, "several": [y, x, 1.0]} for i, (x, y) in enumerate(pairs)]
    return pa.Table.from_pylist(rows, schema)


def doubles(table):
    """All doubles of a table, in containers too."""
    columns = []
    for column in table.itercolumns():
        column = column.combine_chunks()
        while pa.types.is_nested(column.type):
            # A map's value, and the last field of a queue's rows.
            is_struct = pa.types.is_struct(column.type)
            column = column.field(column.type.num_fields - 1) if is_struct else column.flatten()
        if pa.types.is_floating(column.type):
            columns.append(column.to_numpy(zero_copy_only=False))
    return np.concatenate(columns)


def has_one_nan(table):
    """Assert that the table has NaNs, all with the same bits."""
    values = doubles(table)
    assert set(values[np.isnan(values)].view(np.uint64).tolist()) == {NAN_BITS}


def same(left, right):
    """Asserts that two tables are equal bit by bit."""
    assert left.schema == right.schema
    for name in left.column_names:
        assert not unequal(left[name], right[name]).any(), name


def flow(*functions, state=None, scratch=None):
    app = App("nans")
    stream = app.source(Event)
    if state is None:
        stream.flat_map(functions[0], Output, scratch).sink()
    else:
        stream.process(functions[0], state, Output, flush=functions[1]).sink()
    app.generates(lambda *args: {})
    return app


def copied(row, out):
    out.emit(x=row.x, y=row.y, several=row.several)


@record
class Scratch:
    x: f64
    several: Array[f64, 3]
    last: Ring[f64, 2]


def worked(row, scratch, out):
    scratch.x = -row.x
    scratch.several[0] = row.x * row.y
    scratch.several[2] = -scratch.several[0]
    scratch.last.append(-row.y)
    out.emit(x=scratch.x, y=scratch.last[0], several=scratch.several)


@record
class Pair:
    k: i64
    x: f64


@record
class State:
    x: f64
    several: Array[f64, 3]
    last: Ring[f64, 4]
    held: Map[i64, f64]
    waiting: Queue[Pair]


def kept(row, state, out):
    state.x = -(state.x + row.x)
    state.several[row.k % 3] = row.x - row.y
    state.last.append(-row.y)
    state.held.put(row.k, -state.held.get(row.k, -row.x))
    state.waiting.append(x=row.x - row.y, k=row.k)
    out.emit(x=state.x, y=state.held.value_at(0), several=state.several)
    out.emit(x=-state.waiting[len(state.waiting) - 1].x, y=state.waiting[0].x, several=state.several)


def emit_last(state, out):
    for i in range(len(state.last)):
        out.emit(x=state.last[i], y=-state.x, several=state.several)


@pytest.mark.parametrize("function", some([worked, copied, kept]))
def test_every_nan_is_stored_with_the_same_bits(function):
    app = {kept: lambda: flow(kept, emit_last, state=State), worked: lambda: flow(worked, scratch=Scratch)}.get(
        function, lambda: flow(function)
    )()
    events = taken(workload.schema(app, {}))
    interpreter, loop, kernel = (kind(app, {}) for kind in (Interpreter, Loop, Kernel))
    expected = interpreter.process(events)
    has_one_nan(expected)
    same(loop.process(events), expected)
    same(kernel.process(events), expected)
    assert loop.digest == digest_table(expected, ("seq", "sub"))
    if function is kept:
        [(name, state)] = interpreter.state().items()
        has_one_nan(state)
        same(loop.state()[name], state)
        same(loop.finish(len(events)), interpreter.finish(len(events)))


@pytest.mark.slow
def test_forwarded_events_hold_the_same_nan_bits():
    """Events forwarded from source to sink, and state and outputs of an engine's run."""
    app = App("nans")
    source = app.source(Output)
    source.union(source.process(summed, Sum, Output)).sink()
    app.generates(lambda *args: {})
    events = taken(workload.schema(flow(copied), {})).select(["seq", "x", "y", "several"])
    case = Case(app, {}, events)
    has_one_nan(case.outputs)
    has_one_nan(case.state["summed"])
    same(Loop(app, {}).process(events), case.outputs)
    for executor in ("pooled", "pinned", "morsel"):
        case.check(RunSpec.parse({"app": "nans", "executor": executor, "threads": 2, "batch": 7}), 50)


@record
class Sum:
    x: f64


def summed(row, state, out):
    state.x = row.x - state.x
    out.emit(x=state.x, y=-row.y, several=row.several)


@record
class Row:
    x: f64
    several: Array[f64, 3]
    held: Map[i64, f64]


bank = App("nans")


@bank.constant
def offsets(params):
    return np.array(VALUES)


def opened(key, params):
    return {"x": np.array(VALUES)[key % len(VALUES)], "several": np.array(VALUES[1:4])}


rows = bank.table("rows", Row, 13, opened)


def small(row, event):
    return not row.x > event.y and not event.x > event.y


def change(row, event):
    row.x = -(row.several[0] - event.x) + offsets[event.k]
    row.several[event.k % 3] = offsets[event.ts % 12]
    row.held.put(event.k, -event.y)


@bank.transaction(input=Event, output=Output)
def move(event, txn):
    row = txn.row(rows, event.ts % 13)
    txn.require(small, row)
    txn.modify(row, change)
    txn.read(row)


@move.post
def answer(event, txn, out):
    row = txn.result(rows, 0)
    out.emit(x=row.x, y=offsets[event.k], several=row.several)


bank.generates(lambda *args: {})


@pytest.mark.slow
def test_tables_and_constants_hold_the_same_nan_bits():
    events = taken(workload.schema(bank, {}))
    case = Case(bank, {}, events)
    assert 0 < case.rejected < case.events.rows
    has_one_nan(case.outputs)
    has_one_nan(case.state["rows"])
    loop = Loop(bank, {})
    same(loop.process(events), case.outputs)
    same(loop.state()["rows"], case.state["rows"])
    for scheme, threads in itertools.product(("serial", "owners", "lock", "mvlk", "pat"), (1, 2)):
        case.check(Transactional(app="nans", scheme=scheme, threads=threads, punctuation=9), 30)
