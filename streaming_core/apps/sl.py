"""Streaming Ledger: deposits, and transfers between accounts and between assets.

    ledger (transaction: 2 records for a deposit, 4 for a transfer) -> sink

The application comes from TStream, section VI-A.

A deposit credits `dst_acct` and `dst_asset`. A transfer needs more than `min_bal` and more than its amount in its
source account, and more than its amount in its source asset. Otherwise it is rejected, without any effect.

The output holds the balances after the event; after a rejected transfer they are unchanged. An event is invalid if an
amount is negative, its kind is unknown, or a key lies outside the tables.

A record takes 8 bytes, and 8 more for each of its `payload` words, which equal the balance. A change stores all words,
and a read copies them all. With 11 words, a record takes about 100 bytes, as in the paper.

The records of a single-partition event have the same partition number in both tables. Those of a multi-partition event
have different ones, up to `mp_len`.
"""

from typing import Literal

import numpy as np

from streaming_core.api import App, Array, Param, Profile, boolean, burn, i64, record, u8, u32
from streaming_core.errors import BadInput
from streaming_core.generator import Draws, Keys, of_eight

app = App(
    "sl",
    reads="TStream, section VI-A; conditions and amounts from its code, transfers as corrected by MorphStream",
    params={
        "n_items": Param(10_000, "number of accounts, and number of assets", minimum=1, maximum=100_000_000),
        "init_balance": Param(0, "initial balance of every account and asset", minimum=0, maximum=10**15),
        "min_balance": Param(0, "balance that the source account of a transfer must exceed", minimum=0, maximum=10**15),
        "min_balance_rise": Param(
            0, "increase of `min_balance` per 1,000 events, as deposits accumulate", minimum=0, maximum=10**9
        ),
        "max_amount": Param(
            10_000, "upper bound of amounts moved between accounts, exclusive", minimum=1, maximum=10**9
        ),
        "max_asset_amount": Param(
            1_000, "upper bound of amounts moved between assets, exclusive", minimum=1, maximum=10**9
        ),
        "deposit_ratio": Param(0.5, "share of deposits", minimum=0.0, maximum=1.0),
        "index": Param(
            "dense",
            "dense: the key of a row is its number; hash: a hash index finds the row, as in TStream's code",
            choices=("dense", "hash"),
        ),
        "work": Param(0, "rounds of extra work per changed balance", minimum=0, maximum=1_000_000),
        "payload": Param(0, "words of 8 bytes in a record, besides its balance", minimum=0, maximum=1_000),
        "theta": Param(0.6, "Zipf exponent of the keys", minimum=0.0, maximum=4.0),
        "partitioned": Param(True, "draw keys partition by partition; false: from the whole table"),
        "gen_parts": Param(
            40, "partitions to draw keys from; independent of the number of threads", minimum=1, maximum=1024
        ),
        "mp_ratio": Param(
            0.25,
            "share of multi-partition events",
            minimum=0.0,
            maximum=1.0,
        ),
        "mp_len": Param(
            4, "partitions that a multi-partition transfer touches; a deposit at most 2", minimum=1, maximum=4
        ),
        "mp_partitions": Param(
            "neighbours",
            "neighbours: a multi-partition event touches consecutive partitions; any: random ones",
            choices=("neighbours", "any"),
        ),
        "pattern": Param(
            "code",
            "code: the last of every 8 events are multi-partition, as in TStream's code; independent: random",
            choices=("code", "independent"),
        ),
        "duplicates": Param(False, "allow a transfer with the same source and target"),
        "invalid_ratio": Param(0.0, "share of events with negative amounts", minimum=0.0, maximum=1.0),
    },
    profiles={
        "sl-code": Profile(
            "balances start at 0, as in TStream's code; most rejections come early", {"init_balance": 0}
        ),
        "sl-rich": Profile("balances start at ten million: nothing is rejected", {"init_balance": 10_000_000}),
        "sl-tight": Profile(
            "sources need the mean balance: about half of the transfers are rejected",
            {"init_balance": 100_000, "min_balance": 100_000, "min_balance_rise": 400},
        ),
    },
)
p = app.params
DEPOSIT = 0
TRANSFER = 1


@record
class Request:
    """A deposit or transfer: the keys and amounts of accounts and assets, and the least balance of the source."""

    ts: i64
    kind: u8
    src_acct: u32
    dst_acct: u32
    src_asset: u32
    dst_asset: u32
    amt_acct: i64
    amt_asset: i64
    min_bal: i64


@record
class Balance:
    """The balance of an account or asset, with words that all equal it."""

    balance: i64
    payload: Array[i64, Literal["payload"]]


@record
class Outcome:
    """Whether the event was accepted, and the balances of its records after it."""

    kind: u8
    ok: boolean
    src_acct: i64
    dst_acct: i64
    src_asset: i64
    dst_asset: i64


def opening(key, params):
    """Return the columns of accounts or assets before the first event."""
    return {"balance": params["init_balance"], "payload": params["init_balance"]}


accounts = app.table("accounts", Balance, "n_items", opening, key=u32, lookup="index")
assets = app.table("assets", Balance, "n_items", opening, key=u32, lookup="index")


def solvent(account, request):
    """Tell whether an account holds more than the least balance and more than the amount."""
    return account.balance > request.min_bal and account.balance > request.amt_acct


def covered(asset, request):
    """Tell whether an asset holds more than the amount."""
    return asset.balance > request.amt_asset


def seal(record):
    """Make the payload of a record agree with its balance."""
    for word in range(len(record.payload)):
        record.payload[word] = record.balance


def balance_of(record):
    """The balance of a record. A word of its payload that differs changes it, so that a torn record shows."""
    balance = record.balance
    for word in range(len(record.payload)):
        balance += record.payload[word] - record.balance
    return balance


def debit_account(account, request):
    """Take the amount from the source account of a transfer."""
    account.balance -= request.amt_acct
    seal(account)
    if p.work > 0:
        account.balance += burn(account.balance, p.work)


def credit_account(account, request):
    """Add the amount to the target account."""
    account.balance += request.amt_acct
    seal(account)
    if p.work > 0:
        account.balance += burn(account.balance, p.work)


def debit_asset(asset, request):
    """Take the amount from the source asset of a transfer."""
    asset.balance -= request.amt_asset
    seal(asset)
    if p.work > 0:
        asset.balance += burn(asset.balance, p.work)


def credit_asset(asset, request):
    """Add the amount to the target asset."""
    asset.balance += request.amt_asset
    seal(asset)
    if p.work > 0:
        asset.balance += burn(asset.balance, p.work)


@app.transaction(input=Request, output=Outcome)
def ledger(request, txn):
    """Run a deposit or transfer as one transaction, and drop invalid events."""
    known = request.src_acct < p.n_items and request.dst_acct < p.n_items
    known = known and request.src_asset < p.n_items and request.dst_asset < p.n_items
    if not known or request.kind > TRANSFER or request.amt_acct < 0 or request.amt_asset < 0:
        txn.drop()
        return
    target = txn.row(accounts, request.dst_acct)
    target_asset = txn.row(assets, request.dst_asset)
    if request.kind == DEPOSIT:
        txn.modify(target, credit_account)
        txn.modify(target_asset, credit_asset)
        txn.read(target)
        txn.read(target_asset)
    else:
        source = txn.row(accounts, request.src_acct)
        source_asset = txn.row(assets, request.src_asset)
        txn.require(solvent, source)
        txn.require(covered, source_asset)
        txn.modify(source, debit_account)
        txn.modify(target, credit_account)
        txn.modify(source_asset, debit_asset)
        txn.modify(target_asset, credit_asset)
        txn.read(source)
        txn.read(target)
        txn.read(source_asset)
        txn.read(target_asset)


@ledger.post
def settle(request, txn, out):
    """Answer an event with the balances of its records."""
    if request.kind == DEPOSIT:
        out.emit(
            kind=DEPOSIT,
            ok=txn.accepted,
            src_acct=0,
            dst_acct=balance_of(txn.result(accounts, 0)),
            src_asset=0,
            dst_asset=balance_of(txn.result(assets, 1)),
        )
    else:
        out.emit(
            kind=TRANSFER,
            ok=txn.accepted,
            src_acct=balance_of(txn.result(accounts, 0)),
            dst_acct=balance_of(txn.result(accounts, 1)),
            src_asset=balance_of(txn.result(assets, 2)),
            dst_asset=balance_of(txn.result(assets, 3)),
        )


@app.generates
def requests(params, seed, start, stop):
    """Draw deposits and transfers in a pattern of 8, keys by partition; ts is the number of the event."""
    n_items, distinct = params["n_items"], not params["duplicates"]
    if distinct and n_items < 2:
        raise BadInput("app sl: a transfer between two accounts needs n_items of at least 2, got 1")
    drawn = params["pattern"] == "independent"
    draws, seq = Draws(seed, "sl.events", start, stop), np.arange(start, stop)
    transfer = of_eight(1.0 - params["deposit_ratio"], draws, 5, start, stop)
    multi = of_eight(params["mp_ratio"], draws, 6, start, stop, drawn)

    space = Keys(n_items, params["theta"], params["gen_parts"], params["partitioned"])
    # The partition of each record, by its number among the event's. A transfer has a source and a target account, and a
    # source and a target asset. A deposit has an account and an asset.
    transfers, deposits = (_groups(space.shares(records, params["mp_len"])) for records in (4, 2))
    neighbours = params["mp_partitions"] == "neighbours"
    partitions = np.stack(space.partitions(draws, space.start(draws, 0), transfers[-1] + 1, neighbours))
    shared = transfers[0] == transfers[1] or transfers[2] == transfers[3]

    def key(lane, group, *avoid):
        where = partitions[np.where(multi, group, 0), np.arange(stop - start)]
        needs = (2, 2 if shared else 1) if distinct else (1, 1)
        return space.draw(draws, lane, where, multi, needs, avoid if distinct else ())

    account = key(1, 0)
    other_account = key(2, transfers[1], account)
    asset = key(3, np.where(transfer, transfers[2], deposits[1]))
    other_asset = key(4, transfers[3], asset)

    amt_acct, amt_asset = draws.below(7, params["max_amount"]), draws.below(8, params["max_asset_amount"])
    min_bal = params["min_balance"] + seq * params["min_balance_rise"] // 1000
    if params["invalid_ratio"] > 0:
        invalid = Draws(seed, "sl.invalid", start, stop).chance(0, params["invalid_ratio"])
        amt_acct = np.where(invalid, -1 - amt_acct, amt_acct)
    return {
        "ts": seq,
        "kind": transfer.astype(np.int64),
        "src_acct": np.where(transfer, account, 0),
        "dst_acct": np.where(transfer, other_account, account),
        "src_asset": np.where(transfer, asset, 0),
        "dst_asset": np.where(transfer, other_asset, asset),
        "amt_acct": amt_acct,
        "amt_asset": amt_asset,
        "min_bal": np.where(transfer, min_bal, 0),
    }


def _groups(shares):
    return np.repeat(np.arange(len(shares)), shares)


VALID = """greatest(src_acct, dst_acct) < (SELECT count(*) FROM state_accounts)
    AND greatest(src_asset, dst_asset) < (SELECT count(*) FROM state_assets)
    AND kind <= 1 AND amt_acct >= 0 AND amt_asset >= 0"""

app.invariant(
    "each valid event has one output of its kind, and other events have none",
    f"""SELECT coalesce(e.seq, o.seq) AS seq, e.valid, e.kind, o.outputs, o.of_kind FROM
    (SELECT seq, kind, {VALID} AS valid FROM events) e FULL OUTER JOIN
    (SELECT seq, count(*) AS outputs, max(kind) AS of_kind FROM outputs GROUP BY seq) o ON e.seq = o.seq
    WHERE e.seq IS NULL OR coalesce(o.outputs, 0) <> CAST(e.valid AS INT) OR o.of_kind <> e.kind""",
)
app.invariant(
    # All rows of a table start with the same balance. So the final balances minus the accepted changes must be one
    # number.
    "a final balance is the initial one, plus all accepted credits, minus all accepted debits",
    """WITH movements AS (SELECT name, key, sum(amount) AS moved FROM
        (SELECT stack(4, 'accounts', e.dst_acct, e.amt_acct,
            'accounts', e.src_acct, IF(e.kind = 1, -e.amt_acct, 0),
            'assets', e.dst_asset, e.amt_asset,
            'assets', e.src_asset, IF(e.kind = 1, -e.amt_asset, 0)) AS (name, key, amount)
        FROM outputs o JOIN events e ON o.seq = e.seq WHERE o.ok) GROUP BY name, key),
    balances AS (SELECT 'accounts' AS name, key, balance FROM state_accounts
        UNION ALL SELECT 'assets', key, balance FROM state_assets),
    openings AS (SELECT b.*, b.balance - coalesce(m.moved, 0) AS opening
        FROM balances b LEFT JOIN movements m ON b.name = m.name AND b.key = m.key)
    SELECT * FROM (SELECT *, mode(opening) OVER (PARTITION BY name) AS others FROM openings) WHERE opening <> others""",
)
app.invariant(
    "no balance is negative",
    """SELECT seq AS row, least(src_acct, dst_acct, src_asset, dst_asset) AS balance FROM outputs
    WHERE least(src_acct, dst_acct, src_asset, dst_asset) < 0
    UNION ALL SELECT key, balance FROM state_accounts WHERE balance < 0
    UNION ALL SELECT key, balance FROM state_assets WHERE balance < 0""",
)
app.invariant(
    "all deposits are accepted, and a transfer exactly when its sources suffice",
    """SELECT * FROM (SELECT o.*, e.min_bal, e.amt_acct, e.amt_asset,
    o.src_acct + CASE WHEN o.ok AND e.src_acct <> e.dst_acct THEN e.amt_acct ELSE 0 END AS had,
    o.src_asset + CASE WHEN o.ok AND e.src_asset <> e.dst_asset THEN e.amt_asset ELSE 0 END AS had_asset
    FROM outputs o JOIN events e ON o.seq = e.seq)
    WHERE ok <> (kind = 0 OR (had > min_bal AND had > amt_acct AND had_asset > amt_asset))""",
)
