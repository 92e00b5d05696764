"""Conditions on one row, over rows of one table and of two: rows the event writes, and rows it only reads."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, Param, Set, boolean, i64, record, u8, u32
from streaming_core.oracle.loop import Loop
from streaming_core.run.way import RunSpec, Transactional
from tests.differential.case import Case, strategies


@record
class Order:
    ts: i64
    kind: u8
    buyer: u32
    other: u32
    item: u32
    amount: i64


@record
class Wallet:
    money: i64


@record
class Item:
    price: i64
    sold: i64
    buyers: Set[i64]


@record
class Receipt:
    kind: u8
    ok: boolean
    first: i64
    second: i64
    price: i64
    sold: i64


def affordable(wallet, item, order):
    return wallet.money > item.price * order.amount


def richer(wallet, other, order):
    return wallet.money > other.money + order.amount


def solvent(wallet, order):
    return wallet.money > order.amount


def pay(wallet, order):
    wallet.money -= order.amount


def earn(wallet, order):
    wallet.money += order.amount


def sell(item, order):
    item.price += 1
    if item.buyers.add(order.buyer):
        item.sold += 1


# Conditions on one row, over rows of one table and of two tables. The event writes some rows and only reads others.
shop = App("shop", params={"wallets": Param(2), "items": Param(1)})
wallets = shop.table("wallets", Wallet, "wallets", lambda key, params: {"money": 40 + key})
stock = shop.table("stock", Item, "items", lambda key, params: {"price": 1 + key})
shop.generates(lambda *arguments: {})


@shop.transaction(input=Order, output=Receipt)
def trade(order, txn):
    if order.kind > 4:
        txn.drop()
        return
    buyer = txn.row(wallets, order.buyer)
    other = txn.row(wallets, order.other)
    item = txn.row(stock, order.item)
    if order.kind == 0:
        txn.require(affordable, buyer, item)
    elif order.kind == 1:
        txn.require(affordable, buyer, item)
        txn.modify(buyer, pay)
        txn.modify(item, sell)
    elif order.kind == 2:
        txn.require(richer, buyer, other)
        txn.require(solvent, buyer)
        txn.modify(other, earn)
    elif order.kind == 3:
        txn.require(affordable, other, item)
        txn.modify(buyer, earn)
    else:
        txn.require(solvent, other)
        txn.require(richer, other, buyer)
        txn.modify(other, pay)
        txn.modify(buyer, earn)
    txn.read(buyer)
    txn.read(other)
    txn.read(item)


@trade.post
def receipt(order, txn, out):
    out.emit(
        kind=order.kind,
        ok=txn.accepted,
        first=txn.result(wallets, 0).money,
        second=txn.result(wallets, 1).money,
        price=txn.result(stock, 2).price,
        sold=txn.result(stock, 2).sold,
    )


@pytest.mark.parametrize(("purses", "items"), [(2, 1), (40, 9)])
@pytest.mark.slow
def test_conditions_may_use_written_and_read_only_rows(purses, items):
    random, n = np.random.default_rng(11), 3000
    drawn = {
        "ts": np.arange(n),
        "kind": random.integers(0, 6, n),
        "buyer": random.integers(0, purses, n),
        "other": random.integers(0, purses, n),
        "item": random.integers(0, items, n),
        "amount": random.integers(0, 9, n),
    }
    schema = Order.resolve({}).arrow(("seq",))
    columns = [np.arange(n) if name == "seq" else drawn[name] for name in schema.names]
    table = pa.Table.from_arrays([pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)], schema=schema)
    case = Case(shop, shop.bind({"wallets": purses, "items": items}), table)
    assert 0 < case.rejected < n - case.dropped
    # Batches take turns, so that every strategy and every number of threads meets both.
    for (i, strategy), (j, threads) in itertools.product(
        enumerate(strategies("transactional")), enumerate((1, 2, 3, 8))
    ):
        batch = (7, 256)[(i + j) % 2]
        idle = "yield" if threads < 8 else "park"  # yielding to seven others on few cores is slow
        spec = RunSpec.parse(
            {"app": "shop", "threads": threads, "punctuation": batch, "batch": batch, "idle": idle, **strategy}
        )
        case.check(spec, block=1700)


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
    money = txn.result(both, False).money
    out.emit(kind=order.kind, ok=txn.accepted, first=money, second=0, price=0, sold=0)


flags.generates(lambda *args: {})


def test_transaction_takes_a_boolean_as_an_integer():
    n = 40
    drawn = {"seq": np.arange(n), "ts": np.arange(n), "kind": np.arange(n) % 3, "amount": np.arange(n) % 5}
    schema = Order.resolve({}).arrow(("seq",))
    columns = [drawn.get(name, np.zeros(n, np.int64)) for name in schema.names]
    table = pa.Table.from_arrays([pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)], schema=schema)
    case = Case(flags, {}, table)
    assert 0 < case.rejected < n
    loop = Loop(flags, {})
    assert loop.process(table).equals(case.outputs)
    for scheme, threads in (("serial", 1), ("owners", 2)):
        case.check(Transactional(app="flags", scheme=scheme, threads=threads, punctuation=7))
