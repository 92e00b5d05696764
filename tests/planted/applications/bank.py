"""Transfers between accounts that cannot be overdrawn."""

import numpy as np

from streaming_core.api import App, Param, boolean, i64, record, u32
from streaming_core.generator import Draws

app = App("bank", params={"accounts": Param(16, "number of accounts", minimum=2, maximum=1000)})
p = app.params


@record
class Transfer:
    """An amount that moves from one account to another."""

    ts: i64
    source: u32
    target: u32
    amount: i64


@record
class Account:
    """The balance of an account."""

    balance: i64


@record
class Answer:
    """Whether the transfer took place, and the balance of its source before."""

    ok: boolean
    balance: i64


accounts = app.table("accounts", Account, "accounts", lambda key, params: {"balance": 100})


def covered(account, request):
    """Whether the source has the amount."""
    return account.balance >= request.amount


def take(account, request):
    """Debit the source."""
    account.balance -= request.amount


def give(account, request):
    """Credit the target."""
    account.balance += request.amount


@app.transaction(input=Transfer, output=Answer)
def transfer(request, txn):
    """Move the amount; drop what no bank accepts."""
    if request.amount < 0 or request.source == request.target or max(request.source, request.target) >= p.accounts:
        txn.drop()
        return
    source = txn.row(accounts, request.source)
    txn.read(source)
    txn.require(covered, source)
    txn.modify(source, take)
    txn.modify(txn.row(accounts, request.target), give)


@transfer.post
def answer(request, txn, out):
    """Answer with the outcome."""
    out.emit(ok=txn.accepted, balance=txn.result(accounts, 0).balance)


@app.generates
def transfers(params, seed, start, stop):
    """Draw accounts and amounts."""
    draws = Draws(seed, "transfers", start, stop)
    ends = {name: draws.below(at, params["accounts"]) for at, name in enumerate(("source", "target"))}
    return {"ts": np.arange(start, stop), "amount": draws.below(2, 90), **ends}


@app.property
def money_moves_only_if_the_source_has_it(stream):
    """Balances are those of a bank that takes one transfer after the other."""
    balance = [100] * stream.params["accounts"]
    for event in stream.events:
        source, target, amount = event["source"], event["target"], event["amount"]
        if source != target and max(source, target) < len(balance) and 0 <= amount <= balance[source]:
            balance[source] -= amount
            balance[target] += amount
    assert [row["balance"] for row in stream.state("accounts").values()] == balance


@app.property
def a_transfer_to_itself_is_invalid(stream):
    """Only transfers between two accounts have an answer."""
    loops = stream.where(lambda event: event["source"] == event["target"])
    assert loops.dropped == len(loops.events)
