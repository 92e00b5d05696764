"""Compiled operators through the kernel ABI alone, without the runtime: results and error messages."""

import ctypes

import numpy as np
import pytest

from streaming_core.api import App, Counter, Map, Param, Ring, Set, TopK, boolean, f64, i16, i64, record, text, u8
from streaming_core.kernels.program import compile_app, describe_error
from streaming_core.machine_code import Kept

# This module's records and operators stand for an application's file.


@record
class Event:
    ts: i64
    a: i64
    b: f64
    line: text


@record
class State:
    seen: Set[i64]
    values: Map[i64, f64]
    counts: Counter[i64]
    best: TopK["k"]  # noqa: F821
    last: Ring[i16, 3]
    n: u8


@record
class Output:
    n: i64
    x: f64
    ok: boolean


class Batch:
    """A batch with room for outputs, like the runtime's arguments of a kernel."""

    def __init__(self, program, rows, line=b""):
        self.program = program
        self.rows = np.zeros(len(rows), program.bound.event.dtype(True))
        for i, (a, b) in enumerate(rows):
            self.rows[i] = (i, 0, a, b, (0, len(line)))
        self.text = ctypes.create_string_buffer(line + bytes(64), len(line) + 64)
        self.out = np.zeros(1000, program.bound.output.dtype(True))
        self.blocks = []
        self.alloc = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(self._allocate)
        self.grow = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda emitter: 1)
        self.arena = (ctypes.c_int64 * 2)(ctypes.cast(self.alloc, ctypes.c_void_p).value, 0)
        grow = ctypes.cast(self.grow, ctypes.c_void_p).value
        self.emitter = (ctypes.c_int64 * 8)(self.out.ctypes.data, 0, len(self.out), grow, 0, 0, 0, 0)
        self.state = np.zeros(4096, np.uint8)
        self.states = np.full(max(1, len(rows)), self.state.ctypes.data, np.int64)

    def _allocate(self, arena, size):
        self.blocks.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(self.blocks[-1])

    def run(self, role="kernel", states=False):
        entry = self.program.description["operators"][0]
        context = (ctypes.c_int64 * 12)(
            self.rows.ctypes.data,
            len(self.rows),
            0,
            self.states.ctypes.data if states else 0,
            ctypes.addressof(self.text),
            ctypes.addressof(self.emitter),
            ctypes.addressof(self.arena),
            len(self.rows),
        )
        status = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(entry[role])(ctypes.addressof(context))
        error = ctypes.string_at(context[9], context[10]) if status else b""
        return status, context[8], describe_error(error) if status else ""

    def outputs(self):
        return [tuple(row.item()[1:]) for row in self.out[: self.emitter[1]]]


def stateless(fn):
    app = App("test", params={"k": Param(2), "word": Param("x")})
    app.source(Event).flat_map(fn, Output).sink()
    app.generates(lambda *args: {})
    return compile_app(app, app.bind())


def stateful(fn, flush=None):
    app = App("test", params={"k": Param(2)})
    app.source(Event).process(fn, State, Output, flush=flush).sink()
    app.generates(lambda *args: {})
    return compile_app(app, app.bind())


def wide(row, out):
    out.emit(n=row.a + 9223372036854775807, x=row.b * 2, ok=row.a == 1)


def test_integers_wrap_around_and_fields_are_emitted():
    batch = Batch(stateless(wide), [(1, 0.5), (0, 1.5)])
    assert batch.run() == (0, 1, "")
    assert batch.outputs() == [(-(2**63), 1.0, 1), (2**63 - 1, 3.0, 0)]
    assert list(batch.out["seq"][:2]) == [0, 1]


def divide(row, out):
    out.emit(n=7 // row.a, x=0.0, ok=True)


def test_an_error_names_event_and_reason():
    batch = Batch(stateless(divide), [(2, 0.0), (0, 0.0)])
    status, position, error = batch.run()
    assert (status, position) == (1, 1)
    assert error == "ZeroDivisionError: division by zero"
    assert batch.outputs() == [(3, 0.0, 1)]


def shift(row, out):
    out.emit(n=1 << row.a, x=0.0, ok=True)


def byte_at(row, out):
    out.emit(n=row.line[row.a], x=0.0, ok=True)


@pytest.mark.parametrize(
    ("fn", "a", "error"),
    [
        (shift, 64, "ValueError: shift count"),
        (shift, -1, "ValueError"),
        (byte_at, 3, "IndexError"),
        (byte_at, -1, "Ind"),
    ],
)
def test_an_undefined_operation_is_an_error(fn, a, error):
    status, _, message = Batch(stateless(fn), [(a, 0.0)], b"abc").run()
    assert status == 1
    assert message.startswith(error)


def narrow(row, state, out):
    state.n = row.a
    out.emit(n=state.n, x=0.0, ok=True)


@pytest.mark.parametrize(("a", "fits"), [(0, True), (255, True), (256, False), (-1, False)])
def test_a_lossy_store_is_an_error(a, fits):
    batch = Batch(stateful(narrow), [(a, 0.0)])
    status, _, message = batch.run(states=True)
    assert status == (0 if fits else 1)
    assert message == "" if fits else message.startswith("OverflowError: State.n")


def search(row, out):
    at = row.line.find(32, row.a)
    out.emit(n=at, x=float(len(row.line[at:])), ok=row.line[0:1] == row.line[1:2])


def test_text_can_be_searched_and_cut():
    line = b"aa bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb c"
    batch = Batch(stateless(search), [(0, 0), (3, 0), (line.rindex(b" "), 0)], line)
    assert batch.run()[0] == 0
    last = line.rindex(b" ")
    assert batch.outputs() == [(2, float(len(line) - 2), 1), (last, 2.0, 1), (last, 2.0, 1)]


def collect(row, state, out):
    new = state.seen.add(row.a)
    state.values.put(row.a, row.b)
    total = state.counts.add(row.a % 3, 2)
    state.best.offer(row.a % 3, total)
    state.last.append(row.a)
    out.emit(n=total, x=state.values.get(row.a - 1, -1.0), ok=new and row.a in state.seen)


def leave(state, out):
    for i in range(len(state.best)):
        out.emit(n=state.best.key_at(i), x=float(state.best.score_at(i)), ok=True)
    for i in range(len(state.last)):
        out.emit(n=state.last[i], x=float(len(state.seen)), ok=False)


def test_containers_grow_and_stay_ordered():
    rows = [(a, a / 2) for a in [*range(40), 0, 1, 1]]
    batch = Batch(stateful(collect, leave), rows)
    assert batch.run(states=True)[0] == 0
    expected, counts = [], {}
    for i, (a, _) in enumerate(rows):
        counts[a % 3] = counts.get(a % 3, 0) + 2
        expected.append((counts[a % 3], (a - 1) / 2 if a > 0 else -1.0, int(i < 40)))
    assert batch.outputs() == expected
    batch.rows = batch.rows[:1]
    batch.emitter[1] = 0
    assert batch.run("flush", states=True)[0] == 0
    best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:2]
    assert batch.outputs() == [(k, float(n), 1) for k, n in best] + [(n, 40.0, 0) for n in (0, 1, 1)]


def keeps(row, out):
    if row.a >= bound.params.limit:
        out.emit(n=row.a, x=row.b, ok=True)


bound = App("bound", params={"limit": Param(3), "theta": Param(0.5)})
bound.source(Event).flat_map(keeps, Output).sink()
bound.generates(lambda *args: {})


def test_kernels_are_cached_by_the_parameters_that_operators_read(tmp_path):
    def output(**params):
        batch = Batch(compile_app(bound, bound.bind(params), Kept(tmp_path)), [(2, 0.0), (4, 0.0)])
        batch.run()
        return [n for n, _, _ in batch.outputs()]

    def kept():
        return len(list(tmp_path.iterdir()))

    assert output() == output(theta=0.9) == [4]
    assert kept() == 2  # the kernels, and which parameters they read
    assert output(limit=2) == output(limit=2, theta=0.0) == [2, 4]
    assert kept() == 3
    assert output() == [4]
