"""The interpreter against independent computations, and its errors when an operator fails."""

from collections import OrderedDict, deque
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import (
    App,
    Array,
    Counter,
    Map,
    Param,
    Ring,
    Set,
    TopK,
    boolean,
    f64,
    i8,
    i64,
    record,
    text,
    u8,
    u32,
)
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.errors import BadInput, RunFailed
from streaming_core.oracle.interpreter import Interpreter
from tests.differential.test_engine import SMALL
from tests.support import by_hand


def generated(app, **params):
    app.generates(lambda *args: {})
    return Interpreter(app, app.bind(params))


def table(**columns):
    n = len(next(iter(columns.values())))
    return pa.table({"seq": pa.array(range(n), pa.int64()), **columns})


# --- the applications ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in SMALL if registry.load(name).kind != "windowed"])
def test_an_application_runs_its_operators(name):
    """Applications with windows: apps/windows.py."""
    params = SMALL[name]
    app = registry.load(name)
    events = workload.generate_chunk(app, params, 2500, 5, 0, 2500)
    expected = by_hand.run(app, params, events)
    machine = Interpreter(app, app.bind(params))
    parts = [machine.process(events.slice(0, 301)), machine.process(events.slice(301)), machine.finish(2500)]
    outputs = pa.concat_tables(parts)
    assert outputs.num_rows > 0
    assert outputs.equals(expected.output_table())
    assert (machine.events, machine.dropped_invalid) == (2500, expected.dropped)
    state = {f"state_{n}": t for n, t in machine.state().items()}
    assert state.keys() == expected.state_tables().keys()
    for key, value in expected.state_tables().items():
        assert state[key].equals(value)


# --- containers ------------------------------------------------------------------------------------------------------


@record
class Step:
    k: i64
    v: i64


@record
class Boxes:
    ring: Ring[i64, 3]
    seen: Set[i64]
    values: Map[i64, i64]
    counts: Counter[i64]
    best: TopK[3]


@record
class Seen:
    a: i64
    b: i64
    c: i64
    d: i64
    e: i64


def box(row, state, out):
    k = row.k
    v = row.v
    if v == 13:
        state.ring.clear()
        state.seen.clear()
        state.values.clear()
        state.counts.clear()
        state.best.clear()
    state.ring.append(v)
    new = state.seen.add(k)
    old = state.values.get(k, -1)
    state.values.put(k, v)
    count = state.counts.add(k, v)
    state.best.offer(k, v)
    i = len(state.seen) - 1
    out.emit(
        a=state.ring[0] + 1000 * len(state.ring),
        b=old + state.values.value_at(i // 2) * 7 + state.values.key_at(i),
        c=count + state.counts.get(k + 1) * 3 + state.counts.key_at(0) + state.counts.value_at(i),
        d=state.best.key_at(0) * 100 + state.best.score_at(len(state.best) - 1) + len(state.best) * 10_000,
        e=(1 if new else 0)
        + (2 if k + 1 in state.seen else 0)
        + (4 if k not in state.values else 0)
        + state.seen.at(i),
    )


def test_containers_behave_like_pythons():
    app = App("boxes")
    app.source(Step).process(box, Boxes, Seen).sink()
    r = np.random.default_rng(7)
    keys, values = r.integers(0, 9, 3000).tolist(), r.integers(0, 40, 3000).tolist()
    machine = generated(app)
    outputs = machine.process(table(k=keys, v=values)).to_pylist()
    ring, seen, held, counts, best = deque(maxlen=3), OrderedDict(), OrderedDict(), OrderedDict(), {}
    for k, v, row in zip(keys, values, outputs, strict=True):
        if v == 13:
            ring.clear(), seen.clear(), held.clear(), counts.clear(), best.clear()
        ring.append(v)
        new = k not in seen
        seen[k] = True
        old = held.get(k, -1)
        held[k] = v
        counts[k] = counts.get(k, 0) + v
        best[k] = v
        ranks = sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))[:3]
        best = dict(ranks)
        i = len(seen) - 1
        assert row["a"] == ring[0] + 1000 * len(ring)
        assert row["b"] == old + list(held.values())[i // 2] * 7 + list(held)[i]
        assert row["c"] == counts[k] + counts.get(k + 1, 0) * 3 + next(iter(counts)) + list(counts.values())[i]
        assert row["d"] == ranks[0][0] * 100 + ranks[-1][1] + len(ranks) * 10_000
        assert row["e"] == new + 2 * (k + 1 in seen) + list(seen)[i]
    [state] = machine.state()["box"].to_pylist()
    assert state["ring"] == list(ring)
    assert state["seen"] == list(seen)
    assert state["values"] == [{"key": k, "value": v} for k, v in held.items()]
    assert state["counts"] == [{"key": k, "value": v} for k, v in counts.items()]
    assert state["best"] == [{"key": k, "score": v} for k, v in ranks]


# --- the end of the stream, fan-out ----------------------------------------------------------------------------------


@record
class Number:
    n: i64


@record
class Total:
    n: i64
    times: i64


def spread(row, out):
    for i in range(row.n):
        out.emit(n=i)


def add(row, state, out):
    state.n += row.n
    state.times += 1


def tell(state, out):
    out.emit(n=state.n, times=state.times)


def collect(row, state, out):
    state.n += row.n
    out.emit(n=row.n, times=state.n)


def last(state, out):
    out.emit(n=-1, times=state.n)


def test_flushes_run_in_topological_order_and_ascending_keys():
    app = App("flush")
    spread_out = app.source(Number).flat_map(spread, Number)
    spread_out.key_by("n").process(add, Total, Total, flush=tell).process(collect, Total, Total, flush=last).sink()
    machine = generated(app)
    assert machine.process(table(n=[3, 0, 5])).num_rows == 0
    rows = machine.finish(3).to_pylist()
    assert [(r["seq"], r["sub"], r["n"], r["times"]) for r in rows] == [
        (3, 0, 0, 0), (3, 1, 2, 2), (3, 2, 4, 6), (3, 3, 3, 9), (3, 4, 4, 13), (3, 5, -1, 13),
    ]  # fmt: skip


def test_sub_continues_over_events_of_one_seq():
    """A replayed operator takes several events of one seq, across chunks and at the end of the stream."""
    app = App("again")
    app.source(Number).flat_map(spread, Number).process(collect, Total, Total, flush=last).sink()
    events = table(n=[3, 1, 2, 4]).set_column(0, "seq", pa.array([5, 5, 5, 9]))
    for part, flushed in ((app.only("spread"), 0), (app, 1)):
        machine = generated(part)
        parts = [machine.process(events.slice(0, 2)), machine.process(events.slice(2)), machine.finish(9)]
        rows = [(r["seq"], r["sub"]) for r in pa.concat_tables(parts).to_pylist()]
        assert rows == [(5, sub) for sub in range(6)] + [(9, sub) for sub in range(4 + flushed)]


def test_the_sink_of_a_single_operator_can_also_take_the_events():
    app = App("beside")
    events = app.source(Number)
    events.union(events.flat_map(spread, Number)).sink()
    rows = generated(app).process(table(n=[2, 1])).to_pylist()
    assert [(r["seq"], r["sub"], r["n"]) for r in rows] == [(0, 0, 2), (0, 1, 0), (0, 2, 1), (1, 0, 1), (1, 1, 0)]


def test_a_single_operator_can_take_the_events_twice():
    app = App("twice")
    events = app.source(Number)
    events.union(events).flat_map(spread, Number).sink()
    rows = generated(app).process(table(n=[2, 1])).to_pylist()
    assert [(r["seq"], r["sub"], r["n"]) for r in rows] == [
        (0, 0, 0), (0, 1, 1), (0, 2, 0), (0, 3, 1), (1, 0, 0), (1, 1, 0),
    ]  # fmt: skip


# --- transactions ----------------------------------------------------------------------------------------------------


@record
class Move:
    source: u32
    target: u32
    amount: i64


@record
class Account:
    balance: i64
    history: Array[i64, 2]


@record
class Moved:
    ok: boolean
    before: i64
    source: i64
    target: i64
    noted: i64


bank = App("bank", params={"size": Param(4)})
accounts = bank.table("accounts", Account, "size", lambda key, params: {"balance": 10 * (key + 1)})
bank.generates(lambda *args: {})  # here, because tests of two files use it


def enough(account, move):
    return account.balance >= move.amount


def richer(left, right, move):
    return left.balance >= right.balance


def take(account, move):
    account.balance -= move.amount


def give(account, move, i):
    account.balance += move.amount
    account.history[i] = move.amount


@bank.transaction(input=Move, output=Moved)
def move(request, txn):
    if request.amount < 0:
        txn.drop()
        return
    source = txn.row(accounts, request.source)
    target = txn.row(accounts, request.target)
    txn.read(source)
    txn.modify(source, take)
    txn.require(enough, source)  # late on purpose: it still sees the state before the event
    txn.modify(target, give, 1)
    txn.require(richer, source, target)
    txn.read(source)
    txn.read(target)


@move.post
def moved(request, txn, out):
    noted = txn.result(accounts, 2).history[1]
    out.emit(
        ok=txn.accepted,
        before=txn.result(accounts, 0).balance,
        source=txn.result(accounts, 1).balance,
        target=txn.result(accounts, 2).balance,
        noted=noted,
    )


def moves(*rows):
    source, target, amount = zip(*rows, strict=True)
    return table(
        source=pa.array(source, pa.uint32()), target=pa.array(target, pa.uint32()), amount=pa.array(amount, pa.int64())
    )


def test_conditions_see_the_previous_state_and_a_rejected_event_changes_nothing():
    machine = Interpreter(bank, bank.bind({}))
    rows = machine.process(moves((3, 0, 40), (3, 0, 1), (2, 1, 5), (1, 0, -3), (2, 2, 25), (2, 1, 26))).to_pylist()
    assert [tuple(row.values())[2:] for row in rows] == [
        (True, 40, 0, 50, 40),  # exactly enough
        (False, 0, 0, 50, 40),  # nothing left, and nothing happens
        (True, 30, 25, 25, 5),
        (True, 25, 25, 25, 25),  # to itself
        (False, 25, 25, 25, 5),
    ]
    assert [row["seq"] for row in rows] == [0, 1, 2, 4, 5]
    assert (machine.rejected, machine.dropped_invalid, machine.events) == (2, 1, 6)
    assert machine.state()["accounts"]["balance"].to_pylist() == [50, 25, 25, 0]
    assert machine.state()["accounts"]["history"].to_pylist() == [[0, 40], [0, 5], [0, 25], [0, 0]]


# --- failures --------------------------------------------------------------------------------------------------------


@record
class Any:
    a: i64
    b: i64
    t: text


@record
class Small:
    n: i8
    u: u8
    x: f64


def divide(row, out):
    out.emit(n=row.a // row.b, u=0, x=0.0)  # here


def narrow(row, out):
    n = row.a
    out.emit(n=n, u=row.b, x=1)  # here


def byte(row, out):
    t = row.t
    out.emit(n=t[row.a], u=0, x=0.0)  # here


def shift(row, out):
    out.emit(n=helper(row.a, row.b), u=0, x=0.0)


def helper(a, b):
    return (a << b) & 7  # here


@pytest.mark.parametrize(
    ("fn", "a", "b", "error"),
    [
        (divide, 1, 0, "ZeroDivisionError"),
        (divide, 256, 2, "OverflowError: Small.n"),
        (narrow, 127, 256, "OverflowError: Small.u"),
        (narrow, -129, 0, "OverflowError: Small.n"),
        (byte, 3, 0, "IndexError"),
        (byte, -4, 0, "IndexError"),
        (shift, 1, 64, "ValueError: shift count"),
        (shift, 1, -1, "ValueError: shift count"),
    ],
)
def test_an_error_names_operator_event_and_line(fn, a, b, error):
    app = App("errors")
    app.source(Any).flat_map(fn, Small).sink()
    machine = generated(app)
    with pytest.raises(RunFailed) as failure:
        machine.process(table(a=[0, 0, a], b=[1, 1, b], t=pa.array([b"abc"] * 3, pa.binary())))
    lines = list(enumerate(Path(__file__).read_text().splitlines(), 1))
    line = next(i for i, text in lines if text.endswith("# here") and i > fn.__code__.co_firstlineno)
    assert str(failure.value).startswith(f"operator {fn.__name__}, event 2: {error}")
    assert str(failure.value).endswith(f"({Path(__file__).name}:{line})")
    assert "\n" not in str(failure.value)


def test_extreme_values_fit():
    app = App("fits")
    app.source(Any).flat_map(narrow, Small).sink()
    rows = generated(app).process(table(a=[127, -128], b=[255, 0], t=pa.array([b""] * 2, pa.binary()))).to_pylist()
    assert [(r["n"], r["u"], r["x"]) for r in rows] == [(127, 255, 1.0), (-128, 0, 1.0)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop_columns(["k"]), "column 'k' is missing"),
        (lambda t: t.set_column(1, "k", t["k"].cast(pa.int32())), "column k must have type int64, got int32"),
        (lambda t: t.set_column(1, "k", pa.array([None, 1], pa.int64())), "must not contain nulls, got 1"),
        (lambda t: t.take([1, 0]), "seq must not be negative and must not decrease"),
    ],
)
def test_bad_events_are_refused(change, words):
    app = App("events")
    app.source(Step).process(box, Boxes, Seen).sink()
    with pytest.raises(BadInput, match=words):
        generated(app).process(change(table(k=[1, 2], v=[3, 4])))
