"""TPCx-BB query 1: the pairs of items that stores sell together most often, hour by hour.

    store_sales -> wanted (stateless) -> basket (partitioned by ticket) -> count (partitioned by pair)
                -> rank (stateful) -> sink

The query comes from Scaling Ordered Stream Processing, table 1.

The first pair of a later hour, or the end of the stream, closes an hour. The list of an hour holds the pairs sold
together more than `threshold` times, most frequent first. An hour with pairs, but none above the threshold, leaves one
row of rank -1.
"""

from typing import Literal

from streaming_core.api import App, Param, Profile, Set, TopK, i32, i64, record
from streaming_core.generator import bigbench
from streaming_core.generator.bigbench import Sale

app = App(
    "q1",
    reads="Scaling Ordered Stream Processing, table 1; TPCx-BB, query 1",
    params={
        **bigbench.SALES,
        "events_per_day": Param(
            600_000,
            "average number of lines per simulated day; the default is 25,000 per hour",
            minimum=10,
            maximum=20_000_000,
        ),
        "wanted_categories": Param("1,2,3", "categories to count, separated by commas"),
        "wanted_stores": Param("1,3,5,7,10", "stores to count, separated by commas"),
        "threshold": Param(2, "number of common sales above which a pair is listed", minimum=0),
        "limit": Param(100, "maximum number of pairs in a list", minimum=1, maximum=10_000),
    },
    profiles={
        "q1-kit": Profile(
            "the parameters and times of the kit: one of its five stores exists, and no pair reaches the threshold",
            {"wanted_stores": "10,20,33,40,50", "threshold": 50, "mode": "kit"},
        ),
        "q1-busy": Profile(
            "ten tickets per second: some pairs are sold together more than 50 times per hour",
            {"events_per_day": 6_480_000, "threshold": 50},
        ),
    },
)
p = app.params
HOUR = 3_600
BITS = 31  # a pair is smaller item << BITS | larger item, so it sorts by the smaller item, then by the larger
LARGER = (1 << BITS) - 1


@record
class Line:
    """A line of a ticket in a wanted store and category: time in seconds, ticket, and item."""

    ts: i64
    ticket: i64
    item: i64


@record
class Basket:
    """The items of a ticket, and the time of its last line in seconds."""

    ts: i64
    items: Set[i64]


@record
class Pair:
    """Two items of one ticket, with the time of the later line in seconds."""

    ts: i64
    pair: i64


@record
class Sold:
    """How often a pair has been sold together in an hour."""

    window: i64
    n: i64


@record
class Counted:
    """A pair with the number of its sales in an hour so far."""

    window: i64
    pair: i64
    n: i64


@record
class Hour:
    """The best pairs of the open hour, and the number of counts that it has had."""

    window: i64
    counts: i64
    best: TopK[Literal["limit"]]


@record
class Ranked:
    """An entry of an hour's list: rank from 0, two items, and the number of common sales."""

    window: i64
    rank: i32
    a: i64
    b: i64
    n: i64


@app.constant
def wanted_item(params):
    """Return 1 for each item of a wanted category, else 0."""
    categories = bigbench.chosen(params["wanted_categories"], params["categories"])
    categories[0] = 0
    return categories[bigbench.categories(params).clip(0)]


@app.constant
def wanted_store(params):
    """Return 1 for each wanted store, else 0."""
    return bigbench.chosen(params["wanted_stores"], params["stores"])


def wanted(row, out):
    """Keep the lines of wanted stores and categories, and drop lines whose item or store does not exist."""
    item = row.item_sk
    if item == 0 or item > p.items or row.store_sk > p.stores:
        out.drop()
    known = row.date_sk >= 0 and item > 0 and row.store_sk >= 0
    if known and wanted_item[item] == 1 and wanted_store[row.store_sk] == 1:
        out.emit(ts=row.ts, ticket=row.ticket, item=item)


def basket(row, state, out):
    """Add an item to its ticket, and emit a pair with each other item."""
    # The next line of the ticket clears a basket that is more than an hour old.
    items = state.items
    if row.ts - state.ts > HOUR:
        items.clear()
    state.ts = row.ts
    if items.add(row.item):
        for i in range(len(items) - 1):
            other = items.at(i)
            out.emit(ts=row.ts, pair=(min(other, row.item) << BITS) | max(other, row.item))


def count(row, state, out):
    """Count a pair; the first pair of a later hour starts again at 1."""
    window = row.ts // HOUR
    if window > state.window:
        state.window = window
        state.n = 0
    state.n += 1
    out.emit(window=state.window, pair=row.pair, n=state.n)


def rank(row, state, out):
    """Keep the best pairs of the hour; the first pair of a later hour closes the open one."""
    if row.window > state.window:
        close(state, out)
        state.window = row.window
        state.counts = 0
        state.best.clear()
    state.counts += 1
    # Counts only grow. So a pair outside the list can enter it only when its own count grows.
    best = state.best
    if row.n > p.threshold and (len(best) < p.limit or row.n >= best.score_at(p.limit - 1)):
        best.offer(row.pair, row.n)


def close(state, out):
    """Emit the list of the open hour, or one row of rank -1 if no pair is above the threshold."""
    best = state.best
    if state.counts > 0 and len(best) == 0:
        out.emit(window=state.window, rank=-1, a=-1, b=-1, n=0)
    for i in range(len(best)):
        pair = best.key_at(i)
        out.emit(window=state.window, rank=i, a=pair >> BITS, b=pair & LARGER, n=best.score_at(i))


lines = app.source(Sale).flat_map(wanted, Line)
pairs = lines.key_by("ticket").process(basket, state=Basket, output=Pair)
counts = pairs.key_by("pair").process(count, state=Sold, output=Counted)
counts.process(rank, state=Hour, output=Ranked, flush=close).sink()

app.generates(bigbench.store_sales)


app.invariant(
    "a list is sorted by count, then by smaller item, then by larger item, and the two items differ",
    """SELECT * FROM (SELECT *, lag(n) OVER one AS n_before, lag(a) OVER one AS a_before, lag(b) OVER one AS b_before,
    row_number() OVER one AS nth FROM outputs WINDOW one AS (PARTITION BY window ORDER BY rank))
    WHERE (rank >= 0 AND (rank <> nth - 1 OR a >= b OR n < 1))
    OR (rank < 0 AND (nth > 1 OR n <> 0 OR a <> -1 OR b <> -1))
    OR (nth > 1 AND (n > n_before OR (n = n_before AND (a < a_before OR (a = a_before AND b <= b_before)))))""",
)
app.invariant(
    "each hour in which a ticket has two items has one list",
    """SELECT w.window, o.window AS listed, o.seqs FROM
    (SELECT DISTINCT floor(ts / 3600) AS window FROM state_basket WHERE size(items) > 1) w FULL OUTER JOIN
    (SELECT window, count(DISTINCT seq) AS seqs FROM outputs GROUP BY window) o ON w.window = o.window
    WHERE w.window IS NULL OR o.window IS NULL OR o.seqs <> 1""",
)
app.invariant(
    "a pair's count is the number of tickets of the hour with both items",
    """SELECT o.window, o.a, o.b, o.n, count(s.items) AS tickets FROM outputs o LEFT JOIN state_basket s
    ON floor(s.ts / 3600) = o.window AND array_contains(s.items, o.a) AND array_contains(s.items, o.b)
    WHERE o.rank >= 0 GROUP BY o.window, o.rank, o.a, o.b, o.n HAVING count(s.items) <> o.n""",
)
app.invariant(
    "the last hour has n(n-1)/2 pairs for each ticket of n items",
    """SELECT * FROM (SELECT sum(size(items) * (size(items) - 1) / 2) AS expected FROM state_basket
    WHERE floor(ts / 3600) = (SELECT max(window) FROM state_count)),
    (SELECT sum(n) AS counted FROM state_count WHERE window = (SELECT max(window) FROM state_count)), state_rank
    WHERE expected <> counted OR counted <> counts""",
)
app.invariant(
    "a basket holds the wanted items of its ticket, each once",
    """SELECT coalesce(e.ticket, s.key) AS ticket, e.item_sk, s.item FROM
    (SELECT DISTINCT ticket, item_sk FROM events WHERE date_sk >= 0
        AND store_sk IN (SELECT store_sk FROM events WHERE store_sk >= 0 AND ticket IN (SELECT key FROM state_basket))
        AND item_sk IN (SELECT explode(items) FROM state_basket)) e
    FULL OUTER JOIN (SELECT key, explode(items) AS item FROM state_basket) s ON e.ticket = s.key AND e.item_sk = s.item
    WHERE e.ticket IS NULL OR s.key IS NULL""",
)
