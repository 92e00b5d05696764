"""Modifications read other rows as they were before the transaction, even if it changes them."""

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, Array, Param, Ring, boolean, i64, record, u8, u32
from tests.differential.case import Case

TURN, SWAP, WRITE, SHIFT, STAY = range(5)
AFFORDABLE = 60


@record
class Order:
    kind: u8
    first: u32
    second: u32
    third: u32
    amount: i64


@record
class Account:
    balance: i64
    parts: Array[i64, 2]
    recent: Ring[i64, 3]


@record
class Limit:
    most: i64


@record
class Seen:
    ok: boolean
    first: i64
    second: i64
    third: i64
    newest: i64


book = App("book", params={"accounts": Param(3), "limits": Param(2)})
accounts = book.table("accounts", Account, "accounts", lambda key, params: {"balance": 100 * key + 1})
limits = book.table("limits", Limit, "limits", lambda key, params: {"most": 50 * (key + 1)})
p = book.params
book.generates(lambda *arguments: {})


def take_over(account, other, order):
    account.balance = other.balance
    account.parts[0] = other.parts[1]
    account.parts[1] = len(other.recent) * 1000 + order.amount
    account.recent.append(other.recent[0] if len(other.recent) > 0 else other.balance)


def set_within(account, limit, other, order, i):
    if order.amount <= limit.most and other.balance % 3 != i:  # a WRITE with a condition on other rows
        account.balance = order.amount
        account.recent.append(i)


def raise_limit(limit, account, order):
    limit.most = (limit.most + account.balance) % 100


def modest(account, order):
    return account.balance % 7 < 5 and order.amount < AFFORDABLE


@book.transaction(input=Order, output=Seen)
def trade(order, txn):
    first = txn.row(accounts, order.first)
    second = txn.row(accounts, order.second)
    third = txn.row(accounts, order.third)
    if order.kind == TURN:
        for i in range(3):  # each gets what the next one had
            row = txn.row(accounts, (order.first + i) % p.accounts)
            txn.modify(row, take_over, txn.row(accounts, (order.first + i + 1) % p.accounts))
    elif order.kind == SWAP:
        txn.require(modest, first)
        txn.modify(first, take_over, second)
        txn.modify(second, take_over, first)
    elif order.kind == WRITE:
        txn.modify(first, set_within, txn.row(limits, order.second % p.limits), third, order.amount % 3)
    elif order.kind == SHIFT:
        txn.read(first)
        txn.modify(txn.row(limits, order.first % p.limits), raise_limit, first)
        txn.modify(first, take_over, first)
        txn.modify(first, set_within, txn.row(limits, order.first % p.limits), second, 1)
    else:
        txn.require(modest, third)
        txn.modify(second, take_over, third)
    if order.kind != SHIFT:
        txn.read(first)
    txn.read(second)
    txn.read(third)


@trade.post
def seen(order, txn, out):
    third = txn.result(accounts, 2)
    out.emit(
        ok=txn.accepted,
        first=txn.result(accounts, 0).balance,
        second=txn.result(accounts, 1).balance,
        third=third.balance,
        newest=third.parts[0] * 31 + third.parts[1],
    )


def orders(**columns):
    schema = Order.resolve({}).arrow(("seq",))
    n = len(columns["kind"])
    arrays = [np.arange(n) if name == "seq" else np.asarray(columns[name]) for name in schema.names]
    return pa.Table.from_arrays([pa.array(c, t) for c, t in zip(arrays, schema.types, strict=True)], schema=schema)


@pytest.mark.slow
def test_transaction_reads_the_state_before_it():
    table = orders(
        kind=[SWAP, TURN, WRITE, WRITE, SHIFT, SWAP],
        first=[0, 0, 1, 1, 2, 0],
        second=[2, 1, 0, 0, 0, 0],
        third=[1, 2, 2, 0, 2, 0],
        amount=[3, 3, 50, 51, 7, 60],
    )
    case = Case(book, book.bind({}), table)
    rows = [(row["ok"], row["first"], row["second"], row["third"]) for row in case.outputs.to_pylist()]
    assert rows == [
        (True, 201, 1, 101),  # swapped
        (True, 101, 1, 201),  # each has what the next one had
        (True, 50, 101, 201),  # within the limit
        (True, 50, 101, 101),  # not within it: left as it was, and the event is accepted all the same
        (True, 201, 101, 7),  # by the limit as it was, which the event has lowered
        (False, 101, 101, 101),  # too much
    ]
    assert case.state["limits"]["most"].to_pylist() == [(50 + 201) % 100, 100]
    assert case.state["accounts"]["recent"].to_pylist()[2] == [201, 1, 1]
