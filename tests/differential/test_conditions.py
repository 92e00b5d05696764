"""A transaction takes a truth value for a key, for an argument and for the number of a read."""

import pyarrow as pa
import pytest

from streaming_core.api import App, boolean, i64, record, u8
from streaming_core.oracle.loop import Loop
from streaming_core.run.way import Transactional
from tests.differential.case import Case


@record
class Order:
    kind: u8
    amount: i64


@record
class Wallet:
    money: i64


@record
class Receipt:
    ok: boolean
    money: i64


flags = App("flags")
both = flags.table("both", Wallet, 2, lambda key, params: {"money": 10 * key})


def other_is_rich(wallet, order, i):
    return wallet.money > i


def give(wallet, order, i):
    wallet.money += order.amount + i


@flags.transaction(input=Order, output=Receipt)
def flag(order, txn):
    is_odd = order.kind % 2 == 1
    txn.require(other_is_rich, txn.row(both, not is_odd), is_odd)
    txn.modify(txn.row(both, is_odd), give, is_odd)
    txn.read(txn.row(both, is_odd))


@flag.post
def flagged(order, txn, out):
    out.emit(ok=txn.accepted, money=txn.result(both, False).money)


flags.generates(lambda *args: {})


@pytest.mark.slow
def test_transaction_takes_a_boolean_as_an_integer():
    n = 40
    columns = {"seq": range(n), "kind": [i % 3 for i in range(n)], "amount": [i % 5 for i in range(n)]}
    table = pa.table(columns).cast(Order.resolve({}).arrow(("seq",)))
    case = Case(flags, {}, table)
    assert 0 < case.rejected < n
    loop = Loop(flags, {})
    assert loop.process(table).equals(case.outputs)
    for scheme, threads in (("serial", 1), ("owners", 2)):
        case.check(Transactional(app="flags", scheme=scheme, threads=threads, punctuation=7))
