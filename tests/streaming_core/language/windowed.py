"""Shared by the tests of windows: an interpreter run, and an application with windows over pairs of keys."""

import pyarrow as pa

from streaming_core.api import App, Param, i64, record
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from tests.differential.windows import check_executed
from tests.support.windows import declare_window


def interpreted(app, rows, end=None, **params):
    """Runs rows (tuples of the event's fields) and returns the outputs and the interpreter.

    The compiled loop must produce the same outputs.
    """
    app.generates(lambda *args: {})
    interpreter = Interpreter(app, app.bind(params))
    kinds = interpreter.event.arrow()
    columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
    table = pa.table(
        {"seq": pa.array(range(len(rows)), pa.int64())}
        | {field.name: pa.array(column, field.type) for field, column in zip(kinds, columns, strict=True)}
    )
    end = len(rows) if end is None else end
    outputs = pa.concat_tables([interpreter.process(table), interpreter.finish(end)])
    loop = Loop(app, app.bind(params))
    for _ in range(2):  # the second time from the start
        half = len(rows) // 3
        parts = [loop.process(part) for part in (table[:half], table[half:])] + [loop.finish(end)]
        compare(app.name, outputs, pa.concat_tables(parts), "outputs")
        assert loop.dropped_late == interpreter.dropped_late
        assert loop.state() == {}
        loop.reset()
    check_executed(app, app.bind(params), table, outputs, interpreter.dropped_late, end)
    return outputs.to_pylist(), interpreter


@record
class Event:
    ts: i64
    keys: i64
    value: i64


@record
class Pair:
    a: i64
    b: i64


@record
class Sum:
    n: i64
    total: i64
    first: i64


@record
class Output:
    ts: i64
    start: i64
    a: i64
    b: i64
    n: i64
    total: i64
    first: i64


def pairs(row, keys):
    """Keys of two parts. Some rows have a key twice, some have none."""
    for i in range(row.keys):
        keys.add(a=(row.value + i) % 3, b=i % 2)


def summed(row, window, state, out):
    if state.n == 0:
        state.first = row.seq
    state.n += 1
    state.total += row.value


def emit_sums(window, state, out):
    out.emit(
        ts=window.end, start=window.start, a=window.key.a, b=window.key.b, n=state.n, total=state.total,
        first=state.first,
    )  # fmt: skip


def counted(**changed):
    app = App("counted", params={"p": Param(0), "f": Param(0.5)})
    source = app.source(Event)
    declared = {
        "keys": pairs, "key": Pair, "advance": 2, "size": 4, "state": Sum, "update": summed, "result": emit_sums,
        "output": Output,
    }  # fmt: skip
    declare_window(source, **declared | changed).sink()
    return app
