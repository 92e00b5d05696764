"""What a state transaction cannot be made of: the compiler and the oracle both refuse it, in a line that says where."""

import pytest

from streaming_core.api import App, Counter, Ring, Set, boolean, i64, record, u32
from streaming_core.errors import BadInput
from streaming_core.kernels.program import compile_app
from streaming_core.oracle.interpreter import Interpreter


@record
class Event:
    ts: i64
    a: u32
    b: u32


@record
class Row:
    n: i64
    last: Ring[i64, 3]
    seen: Set[u32]
    counts: Counter[u32]


@record
class Output:
    n: i64
    ok: boolean


app = App("refusals")
rows = app.table("rows", Row, 4)
others = app.table("others", Row, 4)


def plain(event, txn):
    txn.read(txn.row(rows, event.a))


def told(event, txn, out):
    out.emit(n=txn.result(rows, 0).n, ok=txn.accepted)


def holds(row, event):
    return row.n > 0


def member(row, other, event):
    return event.a in row.seen or row.n == other.n


def counted(row, other, event):
    return row.n > 0 and other.counts.get(event.a) > 0


def joint_set(event, txn):
    txn.require(member, txn.row(rows, event.a), txn.row(others, event.b))


def joint_counter(event, txn):
    txn.require(counted, txn.row(rows, event.a), txn.row(rows, event.b))


def result_set(event, txn, out):
    out.emit(n=len(txn.result(rows, 0).seen), ok=txn.accepted)


def result_ring(event, txn, out):
    out.emit(n=txn.result(rows, 0).last[0], ok=txn.accepted)


def nothing(event):
    return event.a > 0


def backwards(event, txn):
    txn.require(holds, 3, txn.row(rows, event.a))


def rowless(event, txn):
    txn.require(nothing, 3)


def a_float(event, txn):
    txn.require(holds, txn.row(rows, event.a), 0.5)


def unnamed(event, txn):
    txn.require(event.a > 0)


def part(event, txn):
    if event.a > 3:
        txn.drop()
    txn.read(txn.row(rows, event.a))


def whole(event, txn):
    part(event, txn)


def hand_back(out):
    out.drop()


def dropping(event, txn, out):
    out.emit(n=0, ok=True)
    hand_back(out)


def writing(row, event):
    row.n += 1
    return True


def conditional_write(event, txn):
    txn.require(writing, txn.row(rows, event.a))


@pytest.mark.parametrize(
    ("plan", "post", "words"),
    [
        (joint_set, told, ["member", "set"]),
        (joint_counter, told, ["counted", "counter"]),
        (plain, result_set, ["result_set", "set"]),
        (plain, result_ring, ["result_ring", "last"]),
        (backwards, told, ["backwards", "txn.row"]),
        (rowless, told, ["rowless", "row"]),
        (a_float, told, ["a_float"]),
        (unnamed, told, ["unnamed", "plain function"]),
        (whole, told, ["part", "drop belongs to the transaction's own functions"]),
        (plain, dropping, ["hand_back", "drop belongs to the transaction's own functions"]),
        (conditional_write, told, ["Row.n: this row is read-only here"]),
    ],
)
@pytest.mark.parametrize("make", [compile_app, Interpreter])
def test_what_a_transaction_cannot_be_made_of_is_refused(make, plan, post, words, monkeypatch):
    monkeypatch.setattr(app, "operators", [])
    monkeypatch.setattr(app, "_event", None)
    monkeypatch.setattr(app, "_outputs", None)
    app.transaction(input=Event, output=Output)(plan).post(post)
    app.generates(lambda *arguments: {})
    with pytest.raises(BadInput) as refused:
        make(app, {})
    message = str(refused.value)
    assert "\n" not in message
    assert "test_transactions.py" in message
    for word in words if make is Interpreter else words[-1:]:
        assert word in message, message
