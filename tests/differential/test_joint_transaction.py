"""A shop whose transaction combines all operations of a state transaction."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, Array, Counter, Map, Param, Ring, Set, TopK, boolean, f64, i16, i64, record, u8, u32
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import RunSpec
from tests.differential.case import CUTS, Case, strategies


@record
class Purchase:
    who: u32
    what: u32
    other: u32
    amount: i16
    code: u8


@record
class Shelf:
    price: f64
    stock: i16
    recent: Ring[i16, 3]
    buyers: Set[u32]
    paid: Map[u8, f64]
    best: TopK[2]


@record
class Wallet:
    money: f64
    closed: boolean
    limits: Array[i64, 2]
    visits: Counter[u8]


@record
class Receipt:
    ok: boolean
    before: f64
    price: f64
    stock: i64
    money: f64
    limit: i64
    closed: boolean


shop = App("shop", params={"shelves": Param(3), "wallets": Param(2)})
shelves = shop.table("shelves", Shelf, "shelves", lambda key, params: {"price": 1.5 + key, "stock": 5})
wallets = shop.table("wallets", Wallet, "wallets", lambda key, params: {"money": 50.0 * (key + 1), "limits": [40, 9]})


def polite(purchase):
    return purchase.code != 13


def fresh(shelf, purchase):
    return purchase.code > 200 or purchase.who not in shelf.buyers or len(shelf.buyers) < 2


def within(shelf, wallet, other, purchase, i):
    bound = other.recent[0] if len(other.recent) > 0 else 0
    return shelf.price * purchase.amount <= wallet.money and purchase.amount + bound // 2 <= wallet.limits[i]


def few(wallet, purchase, i):
    return wallet.visits.get(purchase.code) < 3 + i + 1 // (99 - purchase.code)  # fails for events that are dropped


def charge(wallet, purchase, i):
    wallet.money = wallet.money - wallet.limits[i] / 8.0
    wallet.limits[i] += purchase.amount % 3 - 1
    wallet.closed = wallet.money < 0.0
    wallet.visits.add(purchase.code, 1)


def sell(shelf, purchase):
    shelf.stock = (shelf.stock - purchase.amount) % 100
    shelf.price = shelf.price * 1.01 + shelf.paid.get(purchase.code, 0.25)
    shelf.recent.append(purchase.amount)
    shelf.buyers.add(purchase.who)
    shelf.paid.put(purchase.code, shelf.price / 3.0)
    shelf.best.offer(purchase.who, shelf.stock)
    if len(shelf.buyers) > 20:
        shelf.buyers.clear()


def wallet_of(purchase, txn):
    return txn.row(wallets, purchase.who % p.wallets)


def pay(purchase, txn, cheap):
    wallet = wallet_of(purchase, txn)
    txn.require(polite)
    if not cheap:
        txn.require(within, txn.row(shelves, purchase.what), wallet, txn.row(shelves, purchase.other), 1)
    for i in range(2):
        txn.require(few, wallet, i)
        txn.modify(wallet, charge, i)


def hand_over(purchase, txn):
    shelf = txn.row(shelves, purchase.what)
    txn.require(fresh, shelf)  # late on purpose, and in a function that is called: it sees the state before the event
    txn.read(shelf)
    txn.modify(shelf, sell)
    txn.modify(txn.row(shelves, purchase.other), sell)
    txn.read(shelf)


@shop.transaction(input=Purchase, output=Receipt)
def buy(purchase, txn):
    if purchase.what >= p.shelves or purchase.other >= p.shelves:
        txn.drop()
        return
    pay(purchase, txn, purchase.amount < 3)
    hand_over(purchase, txn)
    txn.read(wallet_of(purchase, txn))
    if purchase.code == 99:
        txn.drop()


@buy.post
def receipt(purchase, txn, out):
    after = txn.result(shelves, 1)
    wallet = txn.result(wallets, 2)
    out.emit(
        ok=txn.accepted,
        before=txn.result(shelves, 0).price,
        price=after.price,
        stock=after.stock,
        money=wallet.money,
        limit=wallet.limits[0] * 1000 + wallet.limits[1],
        closed=wallet.closed,
    )
    if purchase.code == 77:
        out.drop()


p = shop.params
shop.generates(lambda *arguments: {})


def purchases(keys, n=2000):
    random = np.random.default_rng(11)
    columns = {
        "who": random.integers(0, 30, n), "what": random.integers(0, keys + (keys > 2), n),
        "other": random.integers(0, keys, n), "amount": random.integers(0, 9, n), "code": random.integers(0, 256, n),
    }  # fmt: skip
    schema = Purchase.resolve({}).arrow(("seq",))
    return pa.table({"seq": np.arange(n), **columns}).select(schema.names).cast(schema)


# Every strategy with two of the four numbers of threads. The slow tests take all.
@pytest.mark.slow
@pytest.mark.parametrize(("keys", "people", "turns"), [(2, 1, 2), (2, 1, 4), (40, 30, 4)])
def test_transaction_may_combine_all_operations(keys, people, turns):
    table = purchases(keys)
    n = table.num_rows
    params = shop.bind({"shelves": keys, "wallets": people})
    case, loop = Case(shop, params, table), Loop(shop, params)
    assert 100 < case.rejected < n - 100
    assert case.dropped
    assert case.outputs["ok"].to_pylist().count(True) > 100
    compare("shop", case.outputs, loop.process(table), "outputs")
    for name, rows in case.state.items():
        compare("shop", rows, loop.state()[name], name)
    assert (loop.rejected, loop.dropped_invalid) == (case.rejected, case.dropped)
    # Cuts and numbers of threads take turns, so that they all meet each other, with and without stealing.
    for (i, strategy), turn in itertools.product(enumerate(strategies("transactional")), range(turns)):
        j = (i + i // 2 + turn) % 4
        threads = (1, 2, 3, 8)[j]
        punctuation, batch, block = CUTS[(i + j) % len(CUTS)]
        spec = RunSpec.parse(
            {"app": "shop", "threads": threads, "punctuation": punctuation, "batch": batch, **strategy}
        )
        case.check(spec, block)
