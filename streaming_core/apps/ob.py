"""Online bidding: bids buy items; orders change asking prices or add quantities.

    authenticate -> trade (transaction: a bid's items, or an order's 20 items) -> sink

The application comes from TStream, section VI-A. An event has one of three kinds:

- A BID takes the quantities that it wants. It is rejected, without any effect, if an item costs more than the bid's
  price or if too few are left.
- An ALTER sets asking prices, without a condition.
- A TOP adds quantities, without a condition.

The output of a bid holds the asking price and quantity of its item after the bid. For several items it holds the sums.
A rejected bid leaves both unchanged.

An event without authorisation counts as dropped. It touches no item, but has an answer.

An event is invalid if its kind is unknown, it has no items or too many, or a key lies outside the table. A negative
price or quantity is invalid too, and so is a bid that names an item twice.

The initial asking prices belong to the application. They do not depend on the seed of the workload.

A record takes 16 bytes, and 8 more for each of its `payload` words. Each word is the sum of price and quantity. A
change stores all words, and a bid reads them all. With 4 words, a record takes about 50 bytes, as in the paper.
"""

from typing import Literal

import numpy as np

from streaming_core.api import App, Array, Param, Profile, boolean, burn, i64, record, u8, u32
from streaming_core.errors import BadInput
from streaming_core.generator import Draws, Keys, of_eight

app = App(
    "ob",
    reads="TStream, section VI-A; prices and quantities of its code",
    params={
        "n_items": Param(10_000, "number of items", minimum=1, maximum=100_000_000),
        "length": Param(20, "items in an ALTER or TOP, and the maximum in any event", minimum=1, maximum=24),
        "len_mode": Param(
            "paper",
            "paper: `length` items per ALTER or TOP; code: 5 to 24, uniformly",
            choices=("paper", "code"),
        ),
        "bid_length": Param(1, "items in a bid", minimum=1, maximum=24),
        "bid_ratio": Param(0.75, "share of bids; the rest is half ALTER, half TOP", minimum=0.0, maximum=1.0),
        "init_qty": Param(100, "initial quantity of every item", minimum=0, maximum=10**15),
        "max_price": Param(100, "upper bound of asking and bid prices, exclusive", minimum=1, maximum=10**9),
        "max_qty": Param(20, "upper bound of the quantities in bids and TOPs, exclusive", minimum=1, maximum=10**9),
        "payload": Param(0, "words of 8 bytes in a record, besides price and quantity", minimum=0, maximum=1_000),
        "users": Param(10_000, "number of users who send events", minimum=1, maximum=10**9),
        "index": Param(
            "dense",
            "dense: the key of a row is its number; hash: a hash index finds the row, as in TStream's code",
            choices=("dense", "hash"),
        ),
        "work": Param(0, "rounds of extra work per changed item", minimum=0, maximum=1_000_000),
        "theta": Param(0.6, "Zipf exponent of the keys", minimum=0.0, maximum=4.0),
        "partitioned": Param(True, "draw keys partition by partition; false: from the whole table"),
        "gen_parts": Param(
            40, "partitions to draw keys from; independent of the number of threads", minimum=1, maximum=1024
        ),
        "mp_ratio": Param(0.25, "share of multi-partition events", minimum=0.0, maximum=1.0),
        "mp_len": Param(4, "partitions that a multi-partition event touches", minimum=1, maximum=1024),
        "mp_partitions": Param(
            "neighbours",
            "neighbours: a multi-partition event touches consecutive partitions; any: random ones",
            choices=("neighbours", "any"),
        ),
        "pattern": Param(
            "code",
            "code: the last of every 8 events are multi-partition orders, as in TStream's code; independent: random",
            choices=("code", "independent"),
        ),
        "duplicates": Param(
            False, "allow an ALTER or TOP to name an item twice: the last price wins, quantities add up"
        ),
        "unauth_ratio": Param(0.0, "share of events without authorisation", minimum=0.0, maximum=1.0),
        "invalid_ratio": Param(0.0, "share of events with an item outside the table", minimum=0.0, maximum=1.0),
    },
    profiles={
        "ob-code": Profile(
            "5 to 24 items per ALTER and TOP, uniformly, as in TStream's code", {"len_mode": "code", "length": 24}
        ),
        "ob-basket": Profile("bids for four items, which must all be available", {"bid_length": 4}),
        "ob-scarce": Profile("one of each item: most bids find nothing left", {"init_qty": 1}),
    },
)
p = app.params
BID = 0
ALTER = 1
TOP = 2
OWN = 0  # seed of the data that is the same in every workload


@record
class Request:
    """A bid, ALTER or TOP: the first `n` items of the arrays, with a price and a quantity for each."""

    ts: i64
    user: u32
    kind: u8
    auth: boolean
    n: u8
    items: Array[u32, Literal["length"]]
    prices: Array[i64, Literal["length"]]
    qtys: Array[i64, Literal["length"]]


@record
class Item:
    """An item: its asking price and its quantity, with words that all equal their sum."""

    ask: i64
    qty: i64
    payload: Array[i64, Literal["payload"]]


@record
class Answer:
    """The outcome of an event; for a bid, the sums of asking prices and quantities of its items after it."""

    kind: u8
    auth: boolean
    ok: boolean
    ask: i64
    qty: i64


def offer(key, params):
    """Return the columns of the items before the first event; prices do not depend on the seed."""
    ask, qty = Draws(OWN, "ob.init", units=key).below(0, params["max_price"]), params["init_qty"]
    return {"ask": ask, "qty": qty, "payload": (ask + qty)[:, None]}


goods = app.table("goods", Item, "n_items", offer, key=u32, lookup="index")


def sells(item, request, i):
    """Tell whether item i costs no more than the bid offers, and whether enough of it is left."""
    return request.prices[i] >= item.ask and request.qtys[i] <= item.qty


def seal(item):
    """Make the payload of an item agree with its fields."""
    for word in range(len(item.payload)):
        item.payload[word] = item.ask + item.qty


def quantity_of(item):
    """The quantity of a record. A word of its payload that differs changes it, so that a torn record shows."""
    qty = item.qty
    for word in range(len(item.payload)):
        qty += item.payload[word] - item.ask - item.qty
    return qty


def take(item, request, i):
    """Take the quantity that a bid wants of item i."""
    item.qty -= request.qtys[i]
    seal(item)
    if p.work > 0:
        item.qty += burn(item.qty, p.work)


def alter(item, request, i):
    """Set the asking price of item i."""
    item.ask = request.prices[i]
    seal(item)
    if p.work > 0:
        item.ask += burn(item.ask, p.work)


def top_up(item, request, i):
    """Add to the quantity of item i."""
    item.qty += request.qtys[i]
    seal(item)
    if p.work > 0:
        item.qty += burn(item.qty, p.work)


def makes_sense(request):
    """Tell whether an event is valid: a known kind, existing items, and no negative number."""
    if request.kind > TOP or request.n < 1 or request.n > len(request.items):
        return False
    for i in range(request.n):
        if request.items[i] >= p.n_items or request.prices[i] < 0 or request.qtys[i] < 0:
            return False
    if request.kind == BID:
        for i in range(1, request.n):
            for j in range(i):
                if request.items[i] == request.items[j]:
                    return False
    return True


@app.transaction(input=Request, output=Answer)
def trade(request, txn):
    """Run a bid, ALTER or TOP as one transaction; drop invalid events, and touch nothing without authorisation."""
    if not makes_sense(request):
        txn.drop()
        return
    if not request.auth:
        return
    if request.kind == BID:
        for i in range(request.n):
            txn.require(sells, txn.row(goods, request.items[i]), i)
        for i in range(request.n):
            item = txn.row(goods, request.items[i])
            txn.modify(item, take, i)
            txn.read(item)
    elif request.kind == ALTER:
        for i in range(request.n):
            txn.modify(txn.row(goods, request.items[i]), alter, i)
    else:
        for i in range(request.n):
            txn.modify(txn.row(goods, request.items[i]), top_up, i)


@trade.post
def answer(request, txn, out):
    """Answer an event; one without authorisation also counts as dropped."""
    ask = 0
    qty = 0
    if request.auth and request.kind == BID:
        for i in range(request.n):
            ask += txn.result(goods, i).ask
            qty += quantity_of(txn.result(goods, i))
    out.emit(kind=request.kind, auth=request.auth, ok=request.auth and txn.accepted, ask=ask, qty=qty)
    if not request.auth:
        out.drop()


@app.generates
def requests(params, seed, start, stop):
    """Draw bids, ALTERs and TOPs in a pattern of 8, keys by partition; ts is the number of the event."""
    n_items, room, bid_length = params["n_items"], params["length"], params["bid_length"]
    coded = params["len_mode"] == "code"
    if coded and room < 24:
        raise BadInput(f"app ob: len_mode=code needs a length of at least 24, got {room}")
    if bid_length > room:
        raise BadInput(f"app ob: a bid for {bid_length} items needs a length of at least {bid_length}, got {room}")
    most = bid_length if params["duplicates"] or params["bid_ratio"] == 1.0 else room
    if most > n_items:
        raise BadInput(f"app ob: {most} distinct items need n_items of at least {most}, got {n_items}")
    drawn = params["pattern"] == "independent"
    draws = Draws(seed, "ob.events", start, stop)
    order = of_eight(1.0 - params["bid_ratio"], draws, 0, start, stop)
    multi = of_eight(params["mp_ratio"], draws, 1, start, stop, drawn)
    # Among eight events, the first half of the orders are ALTERs and the second half TOPs.
    half = 4 * (1.0 - params["bid_ratio"])
    top = of_eight(half / 8, draws, 0, start, stop) if half == int(half) else order & draws.chance(2, 0.5)
    kind = np.where(top, TOP, np.where(order, ALTER, BID))
    n = np.where(order, 5 + draws.below(3, 20) if coded else room, bid_length)

    space = Keys(n_items, params["theta"], params["gen_parts"], params["partitioned"])
    items, prices, qtys = (np.zeros((stop - start, room), np.int64) for _ in range(3))
    for bids, length in sorted({(True, bid_length), *((False, k) for k in np.unique(n[order]).tolist())}):
        rows = np.flatnonzero((n == length) & (order != bids))
        keys = Draws(seed, "ob.items", units=start + rows)
        distinct = bids or not params["duplicates"]
        items[rows, :length] = _keys(keys, space, length, multi[rows], params, distinct)
        values = Draws(seed, "ob.values", units=start + rows)
        for i in range(length):
            prices[rows, i] = values.below(i, params["max_price"])
            qtys[rows, i] = values.below(room + i, params["max_qty"])
    prices[kind == TOP], qtys[kind == ALTER] = 0, 0
    if params["invalid_ratio"] > 0:
        invalid = Draws(seed, "ob.invalid", start, stop)
        broken = np.flatnonzero(invalid.chance(0, params["invalid_ratio"]))
        items[broken, invalid.below(1, n)[broken]] += n_items
    return {
        "ts": np.arange(start, stop),
        "user": draws.below(4, params["users"]),
        "kind": kind,
        "auth": ~draws.chance(5, params["unauth_ratio"]),
        "n": n,
        "items": items,
        "prices": prices,
        "qtys": qtys,
    }


def _keys(draws, space, length, multi, params, distinct):
    """Draw `length` keys per event.

    A single-partition event has the keys of one partition. A multi-partition event has keys of `mp_len` partitions, in
    order.
    """
    first = space.start(draws, length)
    shares = space.shares(length, params["mp_len"])
    partitions = space.partitions(draws, first, len(shares), params["mp_partitions"] == "neighbours")
    columns: list[np.ndarray] = []
    for group, share in enumerate(shares):
        partition = np.where(multi, partitions[group], first)
        for _ in range(share):
            needs, avoid = ((length, share), columns) if distinct else ((1, 1), ())
            columns.append(space.draw(draws, len(columns), partition, multi, needs, avoid))
    return np.stack(columns, axis=1)


NAMED = "slice({}, 1, CAST(n AS INT))"
VALID = f"""kind <= 2 AND n BETWEEN 1 AND size(items)
    AND array_max({NAMED.format("items")}) < (SELECT count(*) FROM state_goods)
    AND array_min({NAMED.format("prices")}) >= 0 AND array_min({NAMED.format("qtys")}) >= 0
    AND (kind <> 0 OR size(array_distinct({NAMED.format("items")})) = n)"""

# Each item of each event, with its effect.
TRADES = f"""SELECT *, prices[pos] AS price,
    CASE WHEN kind = 2 THEN qtys[pos] WHEN kind = 0 AND ok THEN -qtys[pos] ELSE 0 END AS moved FROM
    (SELECT e.seq, e.kind, e.prices, e.qtys, o.ok, o.ask, o.qty AS remains,
    posexplode({NAMED.format("items")}) AS (pos, item)
    FROM events e JOIN outputs o ON e.seq = o.seq WHERE o.auth)"""

app.invariant(
    "each valid event has one answer of its kind; authorised orders succeed, and unauthorised events have no effect",
    f"""SELECT coalesce(e.seq, o.seq) AS seq, e.valid, e.kind, o.outputs, o.of_kind FROM
    (SELECT seq, kind, auth, {VALID} AS valid FROM events) e FULL OUTER JOIN
    (SELECT seq, count(*) AS outputs, max(kind) AS of_kind, bool_and(auth) AS auth, bool_and(ok) AS ok,
    bool_and(kind = 0 AND auth OR (ask = 0 AND qty = 0 AND ok = auth)) AS plain FROM outputs GROUP BY seq) o
    ON e.seq = o.seq WHERE e.seq IS NULL OR coalesce(o.outputs, 0) <> CAST(e.valid AS INT) OR o.of_kind <> e.kind
    OR o.auth <> e.auth OR NOT o.plain""",
)
app.invariant(
    # All items start with the same quantity. So the final quantities minus the accepted changes must be one number.
    "an item's final quantity is the initial one, plus additions, minus sales",
    f"""SELECT * FROM (SELECT *, mode(opening) OVER () AS others FROM (SELECT g.key, g.qty,
    g.qty - coalesce(m.moved, 0) AS opening FROM state_goods g LEFT JOIN
    (SELECT item, sum(moved) AS moved FROM ({TRADES}) GROUP BY item) m ON g.key = m.item)) WHERE opening <> others""",
)
app.invariant(
    "an item's final asking price is that of its last ALTER",
    f"""SELECT g.key, g.ask, a.newest FROM state_goods g JOIN (SELECT item, max_by(price, struct(seq, pos)) AS newest
    FROM ({TRADES}) WHERE kind = 1 GROUP BY item) a ON g.key = a.item WHERE g.ask <> a.newest""",
)
app.invariant(
    "no quantity is ever negative",
    """SELECT seq AS row, qty FROM outputs WHERE qty < 0 UNION ALL SELECT key, qty FROM state_goods WHERE qty < 0""",
)
app.invariant(
    # The initial asking price of an item is only known if no ALTER changes it. Bids before the first ALTER of an item
    # are not checked.
    "a bid sees the latest asking prices, and the quantities after all earlier events",
    f"""WITH seen AS (SELECT t.*, g.qty - sum(moved) OVER (PARTITION BY item) + sum(moved) OVER sofar AS quantity,
    coalesce(last_value(IF(kind = 1, price, NULL), true) OVER sofar,
    IF(max(kind = 1) OVER (PARTITION BY item), NULL, g.ask)) AS asked
    FROM ({TRADES}) t JOIN state_goods g ON g.key = t.item
    WINDOW sofar AS (PARTITION BY item ORDER BY seq, pos ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW))
    SELECT * FROM (SELECT seq, max(ask) AS ask, max(remains) AS qty, sum(quantity) AS quantity,
    IF(count(asked) = count(*), sum(asked), NULL) AS asked FROM seen WHERE kind = 0 GROUP BY seq)
    WHERE qty <> quantity OR ask <> asked""",
)
app.invariant(
    "a bid for one item is accepted exactly when price and quantity suffice",
    """SELECT * FROM (SELECT o.*, e.prices[0] AS price, e.qtys[0] AS wanted, o.qty + IF(o.ok, e.qtys[0], 0) AS available
    FROM outputs o JOIN events e ON o.seq = e.seq WHERE o.kind = 0 AND o.auth AND e.n = 1)
    WHERE ok <> (price >= ask AND wanted <= available)""",
)
