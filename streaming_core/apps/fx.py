"""Currency exchange: transfers and swaps between accounts, while quotes change the exchange rates.

    exchange (transaction: two rates for a quote; two accounts for a swap; two accounts and two rates for a transfer)
        -> sink

The application is Lockstep's own. It tests writes whose values depend on other rows, even in circles. Each value must
be that before the event. TStream lists such writes in its table II.

Account n holds currency n modulo `n_currencies`. An event has one of three kinds:

- A QUOTE sets the rate of a currency if that rate differs by at most `band` percent from the rate of another currency.
  Otherwise the rate stays. The event is accepted in both cases: WRITE with a condition on another row.
- A TRANSFER moves a share of the source's balance, in thousandths, to the target. The rates of both currencies convert
  it: READ_MODIFY(target, f(source, rates)).
- A SWAP exchanges the balances of two accounts.

The output holds both balances, or both rates, after the event. After a transfer it also holds the two rates.

An event is invalid if its kind is unknown, its rate is 0, or its share exceeds the whole. It is also invalid if an
account or currency does not exist or occurs twice.
"""

import numpy as np

from streaming_core.api import App, Param, Profile, i64, record, u8, u16, u32
from streaming_core.generator import Draws, Keys

app = App(
    "fx",
    reads="Lockstep's own: writes that read other rows, as in TStream, table II",
    params={
        "n_accounts": Param(10_000, "number of accounts", minimum=2, maximum=100_000_000),
        "n_currencies": Param(100, "number of currencies", minimum=2, maximum=1_000_000),
        "opening": Param(1_000_000, "initial balance of every account", minimum=0, maximum=1_000_000),
        "band": Param(10, "largest accepted difference between two rates, in percent", minimum=0, maximum=100),
        "spread": Param(
            15, "largest difference between a quoted rate and the initial rate, in percent", minimum=0, maximum=90
        ),
        "quote_ratio": Param(0.1, "share of quotes", minimum=0.0, maximum=1.0),
        "swap_ratio": Param(0.2, "share of swaps", minimum=0.0, maximum=1.0),
        "theta": Param(0.6, "Zipf exponent of accounts and currencies", minimum=0.0, maximum=4.0),
        "invalid_ratio": Param(0.0, "share of events that name the same row twice", minimum=0.0, maximum=1.0),
    },
    profiles={
        "fx-crisis": Profile(
            "half of the events are quotes, for ten currencies", {"quote_ratio": 0.5, "n_currencies": 10}
        ),
        "fx-circles": Profile(
            "swaps only, between 100 accounts", {"quote_ratio": 0.0, "swap_ratio": 1.0, "n_accounts": 100}
        ),
    },
)
p = app.params
QUOTE = 0
TRANSFER = 1
SWAP = 2
PAR = 1_000_000  # initial rate of every currency
WHOLE = 1_000  # a share counts thousandths


@record
class Request:
    """A quote, transfer or swap: two currencies or accounts, a share in thousandths, and a rate in 1/PAR."""

    ts: i64
    kind: u8
    first: u32
    second: u32
    share: u16
    rate: u32


@record
class Account:
    """An account and its balance, in units of its currency."""

    balance: i64


@record
class Currency:
    """A currency and its rate, in 1/PAR."""

    rate: i64


@record
class Answer:
    """Both balances or both rates after the event; after a transfer, also the rates of both currencies."""

    kind: u8
    first: i64
    second: i64
    first_rate: i64
    second_rate: i64


accounts = app.table("accounts", Account, "n_accounts", lambda key, params: {"balance": params["opening"]})
currencies = app.table("currencies", Currency, "n_currencies", lambda key, params: {"rate": PAR})


def set_near(currency, other, request):
    """Set the quoted rate if it lies within `band` percent of the other currency's rate."""
    if abs(request.rate - other.rate) * 100 <= other.rate * p.band:
        currency.rate = request.rate


def moved(balance, request):
    """Return the amount that a transfer takes from this balance."""
    return balance * request.share // WHOLE


def receive(target, source, its_rate, rate, request):
    """Credit the target with the transferred amount, converted into its currency."""
    target.balance += moved(source.balance, request) * its_rate.rate // rate.rate


def send(source, request):
    """Debit the source with the transferred amount."""
    source.balance -= moved(source.balance, request)


def take_over(account, other, request):
    """Give an account the balance of the other one."""
    account.balance = other.balance


@app.transaction(input=Request, output=Answer)
def exchange(request, txn):
    """Run a quote, transfer or swap as one transaction, and drop invalid events."""
    rows = p.n_currencies if request.kind == QUOTE else p.n_accounts
    known = request.kind <= SWAP and max(request.first, request.second) < rows and request.first != request.second
    if not known or request.share > WHOLE or request.rate == 0:
        txn.drop()
        return
    if request.kind == QUOTE:
        currency = txn.row(currencies, request.first)
        reference = txn.row(currencies, request.second)
        txn.modify(currency, set_near, reference)
        txn.read(currency)
        txn.read(reference)
        return
    first = txn.row(accounts, request.first)
    second = txn.row(accounts, request.second)
    if request.kind == TRANSFER:
        first_rate = txn.row(currencies, request.first % p.n_currencies)
        second_rate = txn.row(currencies, request.second % p.n_currencies)
        txn.modify(second, receive, first, first_rate, second_rate)
        txn.modify(first, send)
        txn.read(first)
        txn.read(second)
        txn.read(first_rate)
        txn.read(second_rate)
    else:
        txn.modify(first, take_over, second)
        txn.modify(second, take_over, first)
        txn.read(first)
        txn.read(second)


@exchange.post
def answer(request, txn, out):
    """Answer an event with the rows that it has read."""
    if request.kind == QUOTE:
        first = txn.result(currencies, 0).rate
        second = txn.result(currencies, 1).rate
    else:
        first = txn.result(accounts, 0).balance
        second = txn.result(accounts, 1).balance
    first_rate = 0
    second_rate = 0
    if request.kind == TRANSFER:
        first_rate = txn.result(currencies, 2).rate
        second_rate = txn.result(currencies, 3).rate
    out.emit(kind=request.kind, first=first, second=second, first_rate=first_rate, second_rate=second_rate)


@app.generates
def requests(params, seed, start, stop):
    """Draw accounts and currencies by Zipf's law, all else uniformly; ts is the number of the event."""
    draws = Draws(seed, "fx.requests", start, stop)
    whole, single = np.zeros(stop - start, np.int64), np.zeros(stop - start, bool)  # one partition: all of a table
    quote = draws.chance(0, params["quote_ratio"])
    pairs = []
    for size, name in (("n_accounts", "fx.accounts"), ("n_currencies", "fx.currencies")):
        space, keys = Keys(params[size], params["theta"], 1, False), Draws(seed, name, start, stop)
        first = space.draw(keys, 0, whole, single, (2, 2))
        pairs.append((first, space.draw(keys, 1, whole, single, (2, 2), [first])))
    first, second = (np.where(quote, currency, account) for account, currency in zip(*pairs, strict=True))
    if params["invalid_ratio"] > 0:
        invalid = Draws(seed, "fx.invalid", start, stop).chance(0, params["invalid_ratio"])
        second = np.where(invalid, first, second)
    spread = params["spread"] * PAR // 100
    return {
        "ts": np.arange(start, stop),
        "kind": np.where(quote, QUOTE, np.where(draws.chance(1, params["swap_ratio"]), SWAP, TRANSFER)),
        "first": first,
        "second": second,
        "share": draws.below(2, WHOLE // 10 + 1),
        "rate": PAR - spread + draws.below(3, 2 * spread + 1),
    }


VALID = f"""greatest(first, second) < (SELECT count(*) FROM state_accounts)
    AND (kind > 0 OR greatest(first, second) < (SELECT count(*) FROM state_currencies))
    AND first <> second AND kind <= 2 AND share <= {WHOLE} AND rate > 0"""

# Each row that an output shows: its value, and its value in the output before, or its initial value.
SHOWN = f"""SELECT *, coalesce(lag(value) OVER (PARTITION BY name, key ORDER BY seq, pos),
    IF(name = 'accounts', :opening, {PAR})) AS former FROM
    (SELECT e.seq, e.kind, stack(4, 0, IF(e.kind = 0, 'currencies', 'accounts'), e.first, o.first,
    1, IF(e.kind = 0, 'currencies', 'accounts'), e.second, o.second,
    2, 'currencies', e.first % :n_currencies, o.first_rate,
    3, 'currencies', e.second % :n_currencies, o.second_rate) AS (pos, name, key, value)
    FROM outputs o JOIN events e ON o.seq = e.seq) WHERE kind = 1 OR pos < 2"""
BEFORE = f"""SELECT seq, max(IF(pos = 0, former, NULL)) AS had, max(IF(pos = 1, former, NULL)) AS other_had
    FROM ({SHOWN}) GROUP BY seq"""

app.invariant(
    "each valid event has one answer of its kind, and other events have none",
    f"""SELECT coalesce(e.seq, o.seq) AS seq, e.valid, e.kind, o.outputs, o.of_kind FROM
    (SELECT seq, kind, {VALID} AS valid FROM events) e FULL OUTER JOIN
    (SELECT seq, count(*) AS outputs, max(kind) AS of_kind FROM outputs GROUP BY seq) o ON e.seq = o.seq
    WHERE e.seq IS NULL OR coalesce(o.outputs, 0) <> CAST(e.valid AS INT) OR o.of_kind <> e.kind""",
)
app.invariant(
    "a quote sets its rate exactly when the other rate is close enough; the other rate stays",
    f"""SELECT o.*, e.rate, b.had, b.other_had FROM outputs o JOIN events e ON o.seq = e.seq JOIN ({BEFORE}) b
    ON o.seq = b.seq WHERE o.kind = 0 AND (o.second <> b.other_had
    OR o.first <> IF(abs(e.rate - b.other_had) * 100 <= b.other_had * :band, e.rate, b.had))""",
)
app.invariant(
    "a swap exchanges two balances, and a transfer moves the converted share",
    f"""SELECT o.*, e.share, b.had, b.other_had FROM outputs o JOIN events e ON o.seq = e.seq JOIN ({BEFORE}) b
    ON o.seq = b.seq WHERE (o.kind = 2 AND (o.first <> b.other_had OR o.second <> b.had)) OR (o.kind = 1 AND
    (o.first <> b.had - b.had * e.share DIV {WHOLE}
    OR o.second <> b.other_had + b.had * e.share DIV {WHOLE} * o.first_rate DIV o.second_rate))""",
)
app.invariant(
    "a transfer uses the latest rates, and a row's final value is the last one shown, or the initial one",
    f"""SELECT seq, name, key, value, former FROM ({SHOWN}) WHERE pos > 1 AND value <> former
    UNION ALL SELECT -1, s.name, s.key, s.value, coalesce(l.newest, s.first) FROM
    (SELECT 'accounts' AS name, key, balance AS value, :opening AS first FROM state_accounts
    UNION ALL SELECT 'currencies', key, rate, {PAR} FROM state_currencies) s LEFT JOIN
    (SELECT name, key, max_by(value, struct(seq, pos)) AS newest FROM ({SHOWN}) GROUP BY name, key) l
    ON s.name = l.name AND s.key = l.key WHERE s.value <> coalesce(l.newest, s.first)""",
)


@app.property
def balances_follow_the_events(stream):
    """Events take effect one after the other, each on the values that it finds."""
    params, wrap = stream.params, stream.wrap
    balance: dict = {}
    rate: dict = {}
    for event in stream.events:
        kind, first, second = event["kind"], event["first"], event["second"]
        rows = params["n_currencies" if kind == QUOTE else "n_accounts"]
        if kind > SWAP or max(first, second) >= rows or first == second or event["share"] > WHOLE or event["rate"] == 0:
            continue
        had, other_had = (balance.get(account, params["opening"]) for account in (first, second))
        if kind == QUOTE:
            near = rate.get(second, PAR)
            if abs(event["rate"] - near) * 100 <= near * params["band"]:
                rate[first] = event["rate"]
        elif kind == TRANSFER:
            sent = wrap(had * event["share"]) // WHOLE
            of_first, of_second = (rate.get(account % params["n_currencies"], PAR) for account in (first, second))
            balance[second] = wrap(other_had + wrap(sent * of_first) // of_second)
            balance[first] = wrap(had - sent)
        else:
            balance[first], balance[second] = other_had, had
    final = stream.state("accounts")
    assert {account: final[account]["balance"] for account in balance} == balance
    final = stream.state("currencies")
    assert {currency: final[currency]["rate"] for currency in rate} == rate
