"""Emitted arrays, and the scratch of stateless operators: kernel, interpreter and compiled loop agree."""

import pyarrow as pa
import pytest

from streaming_core.api import App, Array, Param, Ring, Set, i64, record, text, u8, u32
from streaming_core.data import workload
from streaming_core.data.digest import digest_table
from streaming_core.errors import BadInput
from streaming_core.language.typed import Program
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.loop.source import Source
from streaming_core.oracle.loop.workspace import Workspace
from streaming_core.run.way import Pooled, Transactional
from tests.differential.case import Case
from tests.differential.kernel import Kernel
from tests.support.draws import some


@record
class Event:
    ts: i64
    numbers: Array[u32, "size"]  # noqa: F821


@record
class Scratch:
    totals: Array[u32, "size"]  # noqa: F821
    few: Array[u8, 3]
    last: Ring[i64, 2]
    calls: u8


@record
class Output:
    n: i64
    totals: Array[u32, "size"]  # noqa: F821
    few: Array[u8, 3]
    numbers: Array[u32, "size"]  # noqa: F821


@record
class State:
    sums: Array[u32, "size"]  # noqa: F821
    few: Array[u8, 3]


def work(row, scratch, out):
    for i in range(len(row.numbers)):
        scratch.totals[i] = row.numbers[i] + scratch.totals[i] + 1
        scratch.last.append(row.numbers[i])
    scratch.few[1] += 1
    out.emit(n=len(scratch.last), totals=scratch.totals, few=scratch.few, numbers=row.numbers)
    scratch.totals[0] = 9
    scratch.calls += 1
    out.emit(n=scratch.calls, totals=scratch.totals, few=scratch.few, numbers=row.numbers)


def add(row, state, out):
    out.emit(n=-1, totals=state.sums, few=state.few, numbers=row.numbers)
    for i in range(len(row.numbers)):
        state.sums[i] = state.sums[i] + row.numbers[i]
    state.few[2] += 1
    out.emit(n=row.ts, totals=state.sums, few=state.few, numbers=row.numbers)


def built(function, scratch=Scratch):
    app = App("arrays", params={"size": Param(5)})
    if function is add:
        app.source(Event).process(add, State, Output).sink()
    else:
        app.source(Event).flat_map(function, Output, scratch).sink()
    app.generates(lambda *args: {})
    return app, app.bind()


@pytest.mark.parametrize("function", [work, add])
def test_arrays_are_emitted_with_their_current_content(function):
    app, params = built(function)
    rows = [{"seq": i, "ts": 2 * i, "numbers": [i, i + 1, 3, 4, 1 << 28]} for i in range(6)]
    events = pa.Table.from_pylist(rows, workload.schema(app, params))
    expected = Interpreter(app, params).process(events)
    assert Kernel(app, params).process(events).equals(expected)
    assert Loop(app, params).process(events).equals(expected)
    first, second = expected.slice(2, 2).to_pylist()
    if function is work:  # scratch is zero again at the second event
        assert (first["n"], first["totals"], first["few"]) == (2, [2, 3, 4, 5, (1 << 28) + 1], [0, 1, 0])
        assert (second["n"], second["totals"]) == (1, [9, 3, 4, 5, (1 << 28) + 1])
    else:
        assert (first["totals"], first["few"]) == ([0, 1, 3, 4, 1 << 28], [0, 0, 1])
    assert first["numbers"] == second["numbers"] == rows[1]["numbers"]


@record
class Growing:
    seen: Set[i64]


@record
class Named:
    name: text


def nothing(row, scratch, out):
    pass


def test_scratch_has_a_fixed_size():
    for wrong in (Growing, Named):
        with pytest.raises(BadInput, match=r"is a (Set|Text), which no scratch can hold"):
            built(nothing, wrong)


@record
class Row:
    counts: Array[u8, 4]
    last: Array[u32, "size"]  # noqa: F821
    n: u32


@record
class Seen:
    counts: Array[u8, 4]
    last: Array[u32, "size"]  # noqa: F821
    numbers: Array[u32, "size"]  # noqa: F821


transactional = App("arrays", params={"size": Param(3)})
rows = transactional.table("rows", Row, 2)


def few(row, event):
    return row.counts[event.ts % 4] < 5


def change(row, event):
    row.counts[event.ts % 4] += 1
    for i in range(len(event.numbers)):
        row.last[i] = row.last[i] + event.numbers[i]


@transactional.transaction(input=Event, output=Seen)
def touch(event, txn):
    row = txn.row(rows, event.ts % 2)
    txn.require(few, row)
    txn.modify(row, change)
    txn.read(row)


@touch.post
def answer(event, txn, out):
    row = txn.result(rows, 0)
    out.emit(counts=row.counts, last=row.last, numbers=event.numbers)


transactional.generates(lambda *args: {})


@pytest.mark.parametrize("scheme", ["owners", "serial", "lock"])
@pytest.mark.slow
def test_arrays_of_read_rows_are_emitted(scheme):
    params = transactional.bind()
    rows = [{"seq": i, "ts": i * i % 7, "numbers": [i, 1, 2]} for i in range(100)]
    case = Case(transactional, params, pa.Table.from_pylist(rows, workload.schema(transactional, params)))
    assert case.rejected
    assert Loop(transactional, params).process(case.events.tables[0]).equals(case.outputs)
    for threads in (1, 2):
        case.check(Transactional(app="arrays", scheme=scheme, threads=threads, punctuation=9), 30)


def printed(function, size):
    """The lines of the compiled loop of an operator over arrays of this length."""
    app, _ = built(function)
    params = app.bind({"size": size})
    work = Workspace(app, Program(app.check(), params))
    source = Source(work)
    calls = [source.operator(0, work.operators[0])]
    source.sink(work.program.records[app.outputs])
    source.driver(*map(list, zip(*calls, strict=True)))
    return source.source().splitlines()


@pytest.mark.parametrize("function", [work, add])
def test_array_length_does_not_change_the_size_of_the_compiled_loop(function):
    assert len(printed(function, 16_000)) == len(printed(function, 2))


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.slow
def test_arrays_of_every_length_have_the_same_digest_on_every_machine(size):
    app, _ = built(add)
    params = app.bind({"size": size})
    rows = [{"seq": i, "ts": 2 * i, "numbers": list(range(i, i + size))} for i in range(3)]
    events = pa.Table.from_pylist(rows, workload.schema(app, params))
    loop = Loop(app, params)
    outputs = loop.process(events)
    assert outputs.equals(Interpreter(app, params).process(events))
    assert outputs.equals(Kernel(app, params).process(events))
    assert loop.digest == digest_table(outputs, ("seq", "sub"))


@record
class Padded:
    n: i64
    padding: Array[i64, "padding"]  # noqa: F821


@record
class Number:
    ts: i64


def padded(keyed):
    """An application whose rows, or states, have padding."""
    app = App("padded", params={"padding": Param(0, minimum=0)})

    def count(row, number):
        row.n += number.ts
        for i in range(len(row.padding)):
            row.padding[i] = row.padding[i] + i + 1

    def total(row):
        sum_of_row = row.n
        for i in range(len(row.padding)):
            sum_of_row += row.padding[i]
        return sum_of_row

    def step(number, state, out):
        count(state, number)
        out.emit(ts=total(state))

    if keyed:
        app.source(Number).key_by("ts").process(step, Padded, Number).sink()
    else:
        table = app.table("rows", Padded, 3)

        @app.transaction(input=Number, output=Number)
        def change(number, txn):
            row = txn.row(table, number.ts % 3)
            txn.modify(row, count)
            txn.read(row)

        @change.post
        def answer(number, txn, out):
            out.emit(ts=total(txn.result(table, 0)))

    app.generates(lambda *args: {})
    return app


@pytest.mark.parametrize("keyed", some([True, False]))
@pytest.mark.parametrize("padding", some([0, 1, 3]))
@pytest.mark.slow
def test_empty_array_takes_no_bytes_and_no_column(padding, keyed):
    app = padded(keyed)
    params = app.bind({"padding": padding})
    events = pa.Table.from_pylist([{"seq": i, "ts": i % 4} for i in range(100)], workload.schema(app, params))
    case = Case(app, params, events)
    loop = Loop(app, params)
    assert loop.process(events).equals(case.outputs)
    assert loop.state() == case.state
    [state] = case.state.values()
    assert state.column_names == ["key", "n"] + ["padding"] * (padding > 0)
    assert Padded.resolve(params).state[1] == 8 + 8 * padding
    way = Pooled if keyed else Transactional
    for threads in (1, 2):
        case.check(way(app="padded", threads=threads), 30)


@record
class Nothing:
    padding: Array[i64, "padding"]  # noqa: F821


def test_empty_array_needs_another_field_and_is_refused_in_events():
    with pytest.raises(
        BadInput, match="record Nothing: all its arrays have length 0; a row needs a field with a value"
    ):
        Nothing.resolve({"padding": 0}).state  # noqa: B018
    with pytest.raises(BadInput, match=r"record Padded.padding: the size must be between 1 and 1000000, got 0"):
        Padded.resolve({"padding": 0}).event  # noqa: B018
    with pytest.raises(BadInput, match=r"record Padded.padding: the size must be between 0 and 1000000, got -1"):
        Padded.resolve({"padding": -1}).state  # noqa: B018
