"""The compiled loop against the interpreter: applications, containers, flushes, late conditions, errors."""

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, boolean, f64, i64, record, text
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.data.digest import digest_table
from streaming_core.errors import RunFailed
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from tests.differential.test_engine import SMALL
from tests.streaming_core.oracle.test_interpreter import bank, moves, table


def agree(app, params, events, cuts=(0,)):
    """Runs both on the same events, cut at these positions; returns the loop after comparing everything."""
    params = app.bind(params)
    machines = [Interpreter(app, params), Loop(app, params)]
    rows = 0
    for start, stop in zip(cuts, [*cuts[1:], events.num_rows], strict=True):
        expected, actual = (m.process(events.slice(start, stop - start)) for m in machines)
        compare(app.name, expected, actual, "outputs")
        rows += actual.num_rows
    expected, actual = (m.finish(events.num_rows) for m in machines)
    compare(app.name, expected, actual, "flush")
    states, others = (m.state() for m in machines)
    assert list(states) == list(others)
    for name in states:
        assert states[name].equals(others[name]), name
    for count in ("events", "dropped_invalid", "rejected"):
        assert getattr(machines[0], count) == getattr(machines[1], count), count
    assert machines[1].digest[0] == rows + actual.num_rows
    return machines


# Each is compiled for: `make test` does it for these, and for others elsewhere.
QUICK = ("q3",)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in registry.names()]
)
def test_application_equals_the_interpreter_in_the_loop(name):
    app, params = registry.load(name), SMALL[name]
    events = workload.generate_chunk(app, params, 3000, 9, 0, 3000)
    _, loop = agree(app, params, events, cuts=(0, 1, 1000))
    before = {key: value.to_pydict() for key, value in loop.state().items()}
    digest = loop.digest
    loop.reset()
    outputs = pa.concat_tables([loop.process(events), loop.finish(3000)])
    assert outputs.num_rows > 0
    assert (loop.digest, digest) == (digest_table(outputs, ("seq", "sub")),) * 2
    assert {key: value.to_pydict() for key, value in loop.state().items()} == before


def test_loop_takes_many_events_of_one_seq():
    """As in the replay of one operator: more events of one seq than a slice of the loop, or a chunk, holds."""
    wc = registry.load("wc")
    events = workload.generate_chunk(wc, {}, 2000, 9, 0, 2000)
    events = events.set_column(0, "seq", pa.array(np.repeat([0, 3, 1999, 2000], [7, 1000, 500, 493])))
    _, loop = agree(wc, {}, events, cuts=(0, 5, 300))
    digests = set()
    for _ in range(2):
        loop.reset()
        loop.process(events.slice(0, 5))
        digests.add(loop.digest)
    assert len(digests) == 1


@pytest.mark.slow
def test_loop_rejects_a_transaction_by_a_late_condition():
    r = np.random.default_rng(3)
    events = moves(
        *zip(*(r.integers(0, n, 2000).tolist() for n in (4, 4)), r.integers(-2, 30, 2000).tolist(), strict=True)
    )
    _, loop = agree(bank, {}, events, cuts=(0, 700))
    assert 0 < loop.rejected < 2000


@record
class Op:
    what: i64
    k: i64
    v: i64
    x: f64
    t: text


@record
class Answer:
    i: i64
    x: f64
    t: boolean


def test_keys_of_every_length_have_states_of_their_own():
    """Text keys of up to 16 bytes lie in the map's entries, and longer ones outside them; the maps grow."""
    app = App("keys")
    app.source(Op).key_by("t").process(count, Counted, Answer, flush=report).sink()
    app.generates(lambda *args: {})
    r = np.random.default_rng(5)
    stems = [bytes(r.integers(0, 256, n).tolist()) for n in range(34) for _ in range(30)]
    # Keys that differ in the last byte only, in length only, and by zeros behind them.
    keys = stems + [s[:-1] + b"\x00" for s in stems if s] + [s + b"\x00" for s in stems]
    picked = [keys[i] for i in r.integers(0, len(keys), 6000)]
    zeros = np.zeros(6000, np.int64)
    events = table(what=zeros, k=zeros, v=zeros, x=zeros.astype(float), t=pa.array(picked, pa.binary()))
    _, loop = agree(app, {}, events, cuts=(0, 10, 3000))
    assert loop.state()["count"].num_rows == len(set(picked))


@record
class Counted:
    n: i64


def count(row, state, out):
    state.n += 1
    out.emit(i=state.n, x=0.0, t=False)


def report(state, out):
    out.emit(i=state.n, x=1.0, t=True)


def test_loop_reports_the_error_of_the_interpreter():
    app = App("errors")
    app.source(Op).flat_map(fail, Answer).sink()
    app.generates(lambda *args: {})
    events = table(what=[1, 1], k=[2, 3], v=[1, 0], x=[0.5, 0.5], t=pa.array([b"", b""], pa.binary()))
    lines = []
    for machine in (Interpreter(app, {}), Loop(app, {})):
        with pytest.raises(RunFailed) as failure:
            machine.process(events)
        lines.append(str(failure.value))
    assert lines[0].startswith("operator fail, event 1: ZeroDivisionError: ")
    assert [line.rpartition(" ")[2] for line in lines] == [f"(test_loop.py:{fail.__code__.co_firstlineno + 1})"] * 2


def fail(row, out):
    out.emit(i=row.k // row.v, x=0.0, t=False)
