"""Runtime, interpreter and compiled loop agree at the end of the stream.

Covers keys from an upstream flush, several flushes in a row, unions and branches of flushed rows, and empty streams.
"""

from types import FunctionType

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core.api import App, Counter, boolean, i64, record, text
from streaming_core.errors import RunFailed
from streaming_core.oracle import oracle
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.loop.workspace import Workspace
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import ENGINE_EXECUTORS, RunSpec
from tests.differential.case import Case, Events, strategies
from tests.differential.streams import Stream, examine, streams
from tests.differential.test_dataflows import EVENT, subject, ways
from tests.support.draws import some

DATAFLOW = [name for name, executor in ENGINE_EXECUTORS.items() if "dataflow" in executor.application_kinds]
WAYS = list({f["executor"]: f for name in DATAFLOW for f in strategies(name)}.values())


@record
class Event:
    ts: i64
    key: i64
    value: i64


@record
class Word:
    key: text
    value: i64


@record
class Total:
    n: i64
    sum: i64
    seen: Counter[i64]


@record
class Small:
    n: i64


@record
class Flag:
    ts: i64
    key: boolean
    value: i64


def keep(row, state, out):
    state.n += 1
    state.sum = state.sum * 3 + row.value
    state.seen.add(row.value % 5, 1)


def echo(row, state, out):
    state.n += 1
    state.sum += row.value
    out.emit(ts=row.ts, key=row.key, value=state.sum)


def count(row, state, out):
    state.n += row.value


def another(function, number):
    """The same function, as an operator of its own."""
    return FunctionType(function.__code__, function.__globals__, f"{function.__name__}_{number}")


def dozen(state, out):
    for i in range(12):
        out.emit(ts=state.n, key=i * 7 - 40, value=state.sum + i)
    state.n = -state.n


def thousands(state, out):
    for i in range(1500):
        out.emit(ts=i, key=(i * 7919) % 1301 - 600, value=state.sum % 1000 + i)


def last_row(state, out):
    out.emit(ts=state.n, key=state.sum % 97, value=len(state.seen))
    state.sum += 1


def entries(state, out):
    if state.n == 2:
        out.drop()
    for i in range(len(state.seen)):
        out.emit(ts=i, key=state.seen.key_at(i), value=state.seen.value_at(i))
    state.seen.clear()


def tell(state, out):
    out.emit(ts=state.n, key=1, value=2)


def tell_flags(state, out):
    out.emit(ts=state.n, key=state.n % 2 == 0, value=state.n)


def forward(row, out):
    if row.value % 3 != 1:
        out.emit(ts=row.ts, key=row.key + 1, value=row.value)


def divides(row, out):
    out.emit(ts=row.ts, key=row.key, value=100 // (row.key - 2))


def fails(state, out):
    out.emit(ts=state.n, key=0, value=7 // (state.n - state.n))


def then_keys(app):
    """A flush emits all keys."""
    app.source(Event).process(keep, Total, Event, flush=dozen).key_by("key").process(
        another(keep, 2), Total, Event, flush=last_row
    ).sink()


def in_a_row(app):
    stream = app.source(Event).process(echo, Total, Event, flush=thousands)
    stream = stream.key_by("key").process(keep, Total, Event, flush=last_row).flat_map(forward, Event)
    stream = stream.key_by("key").process(another(echo, 2), Total, Event, flush=entries)
    stream.process(another(keep, 2), Total, Event, flush=dozen).sink()


def beside(app):
    """An operator that the sink does not read flushes too, and so changes its own states."""
    first = app.source(Event).process(keep, Total, Event, flush=dozen)
    first.key_by("key").process(echo, Total, Event, flush=last_row)
    first.key_by("value").process(another(keep, 2), Total, Event, flush=tell).sink()


def of_words(app):
    app.source(Word).key_by("key").process(count, Small, Event, flush=tell).key_by("ts").process(
        echo, Total, Event, flush=dozen
    ).sink()


def of_flags(app):
    app.source(Event).key_by("key").process(count, Small, Flag, flush=tell_flags).key_by("key").process(
        another(count, 2), Small, Flag, flush=tell_flags
    ).sink()


def into_nothing(app):
    """An operator with a flush that receives no rows, because the one before it drops them all."""
    app.source(Event).flat_map(nothing, Event).key_by("key").process(keep, Total, Event, flush=last_row).sink()


def nothing(row, out):
    out.drop()


def built(pipeline):
    app = App(pipeline.__name__)
    pipeline(app)
    app.generates(lambda *args: {})
    return app.check()


def events(app, n):
    r = np.random.default_rng(n)
    names = app.event.fields
    columns = {"ts": np.arange(n), "key": r.integers(0, 9, n), "value": r.integers(0, 1000, n)}
    if names["key"] is text:
        columns["key"] = pa.array([b"k" * (int(k) * 5) for k in columns["key"]], pa.binary())
    return pa.table({"seq": pa.array(range(n), pa.int64()), **{name: columns[name] for name in names}})


@pytest.mark.parametrize(
    ("pipeline", "in_loop"),
    some(
        [
            (of_words, False),
            *((operator, True) for operator in (of_words, in_a_row, then_keys, into_nothing, beside, of_flags)),
        ]
    ),
)
def test_oracles_and_runtime_agree_at_the_end_of_the_stream(pipeline, in_loop):
    app = built(pipeline)
    loop, program = Loop(app, {}) if in_loop else None, None
    for n in (0, 1, 200):
        table = events(app, n)
        case = Case(app, {}, table, program)
        program = case.program
        if pipeline is not into_nothing:
            assert case.outputs.num_rows > 0 or n == 0
        if loop:
            loop.reset()
            output = pa.concat_tables([loop.process(table), loop.finish(n)])
            compare(app.name, case.outputs, output, f"outputs of {n} events")
            for name, rows in case.state.items():
                compare(app.name, rows, loop.state()[name], name)
            assert (loop.dropped_invalid, loop.events) == (case.dropped, n)
        for fields in WAYS:
            for threads, batch in ((1, 64), (3, 7)):
                case.check(RunSpec.parse({"app": app.name, "threads": threads, "batch": batch, **fields}))


def test_keys_added_by_a_flush_are_flushed_too():
    machine = Interpreter(built(then_keys), {})
    machine.process(pa.table({"seq": [0], "ts": [0], "key": [3], "value": [4]}))
    output = machine.finish(1).to_pydict()
    # Each of the dozen keys has taken one row; its value is the number of the key plus 4.
    assert output["key"] == [4 + i for i in range(12)]
    assert (output["ts"], output["value"], output["seq"]) == ([1] * 12, [1] * 12, [1] * 12)


@pytest.mark.parametrize("pipeline", some(["divides", "fails"]))
@pytest.mark.slow
def test_error_of_a_flush_or_its_rows_is_equal_on_every_machine(pipeline):
    app = App("errors")
    stream = app.source(Event).process(keep, Total, Event, flush=tell)
    if pipeline == "divides":
        stream = stream.key_by("key").process(another(keep, 2), Total, Event, flush=flush_two).flat_map(divides, Event)
    else:
        stream = stream.key_by("key").process(another(keep, 2), Total, Event, flush=fails)
    stream.sink()
    app.generates(lambda *args: {})
    table = events(app.check(), 5)
    errors, operator = [], "divides" if pipeline == "divides" else "keep_2"
    for machine in (Interpreter(app, {}), Loop(app, {})):
        machine.process(table)
        with pytest.raises(RunFailed, match=f"operator {operator}, event 5: Zero") as failure:
            machine.finish(5)
        errors.append(str(failure.value))
    assert errors[0].split(":")[:2] == errors[1].split(":")[:2]


def flush_two(state, out):
    out.emit(ts=0, key=2, value=state.n)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(5))
def test_random_pipeline_agrees_over_repeated_flushes(tmp_path, number):
    some, rows = subject(tmp_path, number, is_flushing=True), []
    flushing = [o for o in some.app.operators if "flush" in o.functions]
    assert len(flushing) > 1
    loop = Loop(some.app, {})

    @given(stream=st.just(Stream([], 1, 1, False)) | streams(EVENT, EVENT), ways=ways())
    @examine(15)
    def agree(stream, ways):
        expected = some.agrees(stream, ways)
        if expected.failed is not None:
            return
        table = some.encode(stream)
        loop.reset()
        parts = [loop.process(table), loop.finish(table.num_rows)]
        assert loop.digest[0] == sum(part.num_rows for part in parts)
        rows.append(loop.digest[0])
        oracle_state = some.oracle.state()
        for name, state in loop.state().items():
            compare(some.app.name, oracle_state[name], state, name)
        assert f"{loop.digest[0]}:{loop.digest[1]:016x}" == expected.outputs

    agree()
    assert sum(rows) > 100


class Source(Events):
    """Events of an application, as the oracle takes them in."""

    def __init__(self, app, table):
        super().__init__([table])
        self.app, self.manifest = app, {"params": {}}

    def blocks(self, size):
        return (table for table, _ in self.read_on((0, 0), size, lambda table: (table, 0)))


@pytest.mark.slow
def test_loop_check_covers_the_end_of_the_stream(tmp_path, monkeypatch):
    app = built(then_keys)
    source = Source(app, events(app, 50))
    monkeypatch.setattr(oracle, "CHECKED", 20)
    manifests = {}
    for mode in ("interpreted", "compiled"):
        (tmp_path / mode).mkdir()
        manifests[mode] = oracle.compute(source, tmp_path / mode, mode)
    assert manifests["compiled"]["checked_events"] == 20
    for key in ("output_digest", "state_digest"):
        assert manifests["compiled"][key] == manifests["interpreted"][key]
    # A loop that forgets the last key of every operator, but only at the end of the stream.
    ascending = Workspace.ascending
    monkeypatch.setattr(Workspace, "ascending", lambda *arguments: ascending(*arguments)[:-1])
    (tmp_path / "wrong").mkdir()
    with pytest.raises(
        RunFailed, match="compiled loop and the interpreter disagree; this is a fault of Lockstep: flushed outputs"
    ):
        oracle.compute(source, tmp_path / "wrong", "compiled")
    # One that puts out the same, and has another state then.
    monkeypatch.setattr(Workspace, "ascending", ascending)
    finish = Loop.finish
    monkeypatch.setattr(Loop, "finish", lambda loop, seq: (finish(loop, seq), loop.process(events(app, 1)))[0])
    (tmp_path / "other").mkdir()
    with pytest.raises(
        RunFailed, match="compiled loop and the interpreter disagree; this is a fault of Lockstep: state"
    ):
        oracle.compute(source, tmp_path / "other", "compiled")
