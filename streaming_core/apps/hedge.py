"""Hedges: pairs of trades in two companies, one as far above its average price as the other is below.

    trades -> valid (stateless) -> as_left (windows; every row has every key; both streams are the trades) -> sink

The application comes from STRETCH, section 8.6. The keys work as in `scalejoin`.

The normalised distance of a trade is (price - average) / average. Two trades in different companies are a pair if the
right distance divided by the left one lies in -1.05..-0.95, bounds included. All arithmetic is in whole numbers.

The paper pairs trades within half a minute. The default window is one second.
"""

from itertools import accumulate

import numpy as np

from streaming_core.api import App, Param, Profile, Queue, i64, record, rolling
from streaming_core.generator import Draws, by_period, splitmix64, zipf
from streaming_core.generator.distributions import exponential

app = App(
    "hedge",
    reads="STRETCH, section 8.6 and operator 10",
    params={
        "keys": Param(32, "number of keys, which share the stored trades", minimum=1, maximum=100_000),
        "size": Param(
            1_001, "length of a window in milliseconds; trades closer than that are compared", minimum=1, maximum=10**12
        ),
        "same_exchange": Param(False, "pair only trades at the same exchange, as in the authors' code"),
        "rate": Param(
            300.0, "median number of trades per second, without bursts and pauses", minimum=1.0, maximum=8_000.0
        ),
        "invalid_ratio": Param(0.0, "share of trades without an average price", minimum=0.0, maximum=1.0),
    },
    profiles={
        "hedge-paper": Profile("trades up to half a minute apart, 1,000 keys", {"size": 30_001, "keys": 1000}),
        "hedge-exchange": Profile("only pairs at the same exchange", {"same_exchange": True}),
    },
)
p = app.params
COMPANIES = ("GOOG", "FB", "AMZN", "MSFT", "AAPL", "WMT", "BABA", "V", "VOD", "MA")
NASDAQ = ("GOOG", "FB", "AMZN", "MSFT", "AAPL", "VOD")  # the others: NYSE
NUMBER = len(COMPANIES)
HIGHEST = 100_000_000  # cents; 105 times the product of two prices still fits into an i64


@record
class Trade:
    """A trade: `company` is an index into COMPANIES, prices are in cents, `average` is that of the day before."""

    ts: i64
    company: i64
    price: i64
    average: i64


@record
class Kept:
    """A stored trade; `number` is its `seq`, and prices are in cents."""

    ts: i64
    number: i64
    company: i64
    price: i64
    average: i64


@record
class Lefts:
    """The stored trades of the left stream, and the number of trades that this key has seen."""

    seen: i64
    rows: Queue[Kept]


@record
class Rights:
    """The stored trades of the right stream."""

    rows: Queue[Kept]


@record
class Pair:
    """A pair of trades: `earlier` is the `seq` of the earlier one."""

    ts: i64
    earlier: i64
    l_company: i64
    l_price: i64
    r_company: i64
    r_price: i64


@app.constant
def exchange_of(params):
    """Return 1 for each company that is traded at NASDAQ, 0 for NYSE."""
    return np.array([int(name in NASDAQ) for name in COMPANIES])


def valid(row, out):
    """Drop trades with an unknown company, or with a price outside the bounds."""
    if row.average <= 0 or row.average > HIGHEST or row.price < 0 or row.price > HIGHEST:
        out.drop()
        return
    if row.company < 0 or row.company >= NUMBER:
        out.drop()
        return
    out.emit(ts=row.ts, company=row.company, price=row.price, average=row.average)


def fits(left, right):
    """Tell whether trades of two companies may form a pair."""
    return left != right and (not p.same_exchange or exchange_of[left] == exchange_of[right])


def is_hedge(l_price, l_average, r_price, r_average):
    """Tell whether the right normalised distance is -1.05 to -0.95 times the left one."""
    # Distances are multiplied by both averages, and the left one is made positive. A left distance of 0 hedges nothing.
    l_distance = (l_price - l_average) * r_average
    r_distance = (r_price - r_average) * l_average
    if l_distance < 0:
        l_distance = -l_distance
        r_distance = -r_distance
    return l_distance > 0 and -105 * l_distance <= 100 * r_distance and 100 * r_distance <= -95 * l_distance


def purge(rows, start):
    """Remove the trades that came before this time, in milliseconds."""
    while len(rows) > 0 and rows[0].ts < start:
        rows.popleft()


def as_left(row, window, lefts, rights, out):
    """Pair a trade with the stored trades of the right stream, and store it if it is this key's turn."""
    lefts.seen += 1
    kept = rights.rows
    purge(kept, window.start)
    for i in range(len(kept)):
        if fits(row.company, kept[i].company) and is_hedge(row.price, row.average, kept[i].price, kept[i].average):
            out.emit(
                ts=window.end,
                earlier=kept[i].number,
                l_company=row.company,
                l_price=row.price,
                r_company=kept[i].company,
                r_price=kept[i].price,
            )
    if lefts.seen % p.keys == window.key.index:
        lefts.rows.append(ts=row.ts, number=row.seq, company=row.company, price=row.price, average=row.average)


def as_right(row, window, lefts, rights, out):
    """Pair a trade with the stored trades of the left stream, and store it if it is this key's turn."""
    lefts.seen += 1
    kept = lefts.rows
    purge(kept, window.start)
    for i in range(len(kept)):
        if fits(kept[i].company, row.company) and is_hedge(kept[i].price, kept[i].average, row.price, row.average):
            out.emit(
                ts=window.end,
                earlier=kept[i].number,
                l_company=kept[i].company,
                l_price=kept[i].price,
                r_company=row.company,
                r_price=row.price,
            )
    if lefts.seen % p.keys == window.key.index:
        rights.rows.append(ts=row.ts, number=row.seq, company=row.company, price=row.price, average=row.average)


trades = app.source(Trade).flat_map(valid, Trade)
windows = app.connect(trades, trades).key_by(every="keys").window(rolling("size"))
windows.apply(update=(as_left, as_right), state=(Lefts, Rights), output=Pair).sink()


# --- the generator ----------------------------------------------------------------------------------------------------

BEGIN = 1_532_957_400_000  # ms: 30 July 2018, 9:30 in New York
MINUTE = 60
MOST = 8_000  # trades per second at most
BURST = 5  # longest burst in seconds
RATE_DEVIATION, RATE_MEMORY = 0.5, 0.9  # of the logarithm of the rate, from second to second
DEVIATION, MEMORY = 0.01, 0.95  # of distances from the average price, from trade to trade


def _averages():
    """Return the average price of each company in cents: 50 to 2000 dollars."""
    return 5_000 + (splitmix64(np.arange(NUMBER, dtype=np.uint64)) % np.uint64(195_001)).astype(np.int64)


def _normal(draws, first):
    """Draw approximately normal numbers of variance 1: the sum of twelve uniform draws, from `first` on."""
    return np.sum([draws.u53(first + d) for d in range(12)], axis=0) / float(1 << 53) - 6.0


def _chain(noise, memory):
    """Return an autoregressive series of variance 1."""
    step = (1.0 - memory * memory) ** 0.5
    scaled = np.concatenate([noise[:1], noise[1:] * step]).tolist()
    return np.array(list(accumulate(scaled, lambda before, new: memory * before + new)))


def _rates(params, seed, minute):
    """Return the number of trades in each second of a minute: a wandering rate, bursts, and empty seconds."""
    second = np.arange(minute * MINUTE, (minute + 1) * MINUTE)
    draws = Draws(seed, "hedge.seconds", units=second)
    wandering = params["rate"] * exponential(RATE_DEVIATION * _chain(_normal(draws, 0), RATE_MEMORY))
    rates = np.rint(wandering).astype(np.int64)
    for ago in range(BURST - 1, -1, -1):  # the latest burst wins
        begun = Draws(seed, "hedge.bursts", units=second - ago)
        lasts = begun.chance(0, 0.005) & (1 + begun.below(1, BURST) > ago) & (second >= ago)
        rates = np.where(lasts, 2_000 + begun.below(2, 5_601), rates)
    return second, np.where(draws.chance(12, 0.02), 0, np.minimum(rates, MOST))


def _count(params, seed, minute):
    return int(_rates(params, seed, minute)[1].sum())


def _make(params, seed, minute):
    """Make the trades of a minute.

    Distances from the average start again each minute. Half of their variance is common to all companies, with the
    opposite sign for every other company: these are the hedges.
    """
    second, count = _rates(params, seed, minute)
    rank = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    second = np.repeat(second, count)
    unit = second * MOST + rank
    ts = BEGIN + second * 1000 + Draws(seed, "hedge.trades", units=unit).below(0, 1000)
    order = np.argsort(ts, kind="stable")
    draws = Draws(seed, "hedge.trades", units=unit[order])
    company = zipf(NUMBER, 0.5).pick(draws.u53(1))
    common, own = _chain(_normal(draws, 2), MEMORY), _normal(draws, 14)
    for c in range(NUMBER):
        mine = np.flatnonzero(company == c)
        own[mine] = _chain(own[mine], MEMORY)
    distance = DEVIATION * 0.5**0.5 * (np.where(company % 2 == 0, common, -common) + own)
    average = _averages()[company]
    price = np.rint(average * (1.0 + distance)).astype(np.int64)
    invalid = draws.chance(26, params["invalid_ratio"])
    return {"ts": ts[order], "company": company, "price": price, "average": np.where(invalid, 0, average)}


app.generates(by_period(_make, _count))


# Pairs with the columns of their trades.
PAIRS = """(SELECT o.*, e.ts AS ts_later, f.ts AS ts_earlier, e.company AS later, f.company AS before,
    CASE WHEN o.l_company = e.company THEN e.price ELSE f.price END AS l_traded,
    CASE WHEN o.l_company = e.company THEN f.price ELSE e.price END AS r_traded,
    CASE WHEN o.l_company = e.company THEN e.average ELSE f.average END AS l_average,
    CASE WHEN o.l_company = e.company THEN f.average ELSE e.average END AS r_average
    FROM outputs o LEFT JOIN events e ON o.seq = e.seq LEFT JOIN events f ON o.earlier = f.seq)"""

app.invariant(
    "a pair's trades belong to two companies and have the prices of their events",
    f"""SELECT * FROM {PAIRS} WHERE ts_later IS NULL OR ts_earlier IS NULL OR l_company = r_company
    OR NOT (l_company IN (later, before) AND r_company IN (later, before))
    OR l_price <> l_traded OR r_price <> r_traded""",
)
app.invariant(
    "a pair's distances from the averages are opposite, within five percent",
    f"""SELECT * FROM {PAIRS} WHERE l_price = l_average OR NOT ((r_price - r_average) * l_average * 100 *
    CASE WHEN l_price < l_average THEN -1 ELSE 1 END
    BETWEEN abs(l_price - l_average) * r_average * -105 AND abs(l_price - l_average) * r_average * -95)""",
)
app.invariant(
    "a pair's trades lie in one window, and the pair is stamped one millisecond after the later trade",
    f"""SELECT * FROM {PAIRS} WHERE earlier >= seq OR ts <> ts_later + 1 OR ts_later - ts_earlier >= :size""",
)
app.invariant(
    "no pair occurs twice with the same left trade",
    """SELECT seq, earlier, l_company, count(*) AS times FROM outputs GROUP BY seq, earlier, l_company
    HAVING count(*) > 1""",
)
