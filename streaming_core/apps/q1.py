"""TPCx-BB Q1: the item pairs that are sold together most, hour by hour (Scaling Ordered Stream Processing, table 1;
workloads B.1).

    store_sales -> wanted (stateless) -> basket (partitioned by ticket) -> count (partitioned by pair)
                -> rank (stateful) -> sink

Hours are closed by the first pair of a later one, or by the end of the stream. An hour's list holds the pairs that were
sold together more often than `threshold` times, most frequent first; an hour with pairs, but none of those, leaves one
row of rank -1.
"""

from streaming_core.api import App, Param, Profile, Set, TopK, i32, i64, record
from streaming_core.generator import bigbench

app = App(
    "q1",
    reads="Scaling Ordered Stream Processing, table 1; TPCx-BB, query 1",
    params={
        **bigbench.SALES,
        "events_per_day": Param(
            600_000, "lines of a simulated day, on average: 25,000 an hour", minimum=10, maximum=20_000_000
        ),
        "wanted_categories": Param("1,2,3", "categories whose items count"),
        "wanted_stores": Param("1,3,5,7,10", "stores whose sales count"),
        "threshold": Param(2, "a pair is listed if it was sold together more often than that", minimum=0),
        "limit": Param(100, "pairs in a list", minimum=1, maximum=10_000),
    },
    profiles={
        "q1-kit": Profile(
            "the kit's parameters and times; one store of its five exists, and no pair of an hour is that frequent",
            {"wanted_stores": "10,20,33,40,50", "threshold": 50, "mode": "kit"},
        ),
        "q1-busy": Profile(
            "ten tickets a second, some pairs of an hour are sold together more than 50 times",
            {"events_per_day": 6_480_000, "threshold": 50},
        ),
    },
)
p = app.params
HOUR = 3_600
BITS = 31  # a pair is smaller item << BITS | larger item: it sorts by the one, then by the other
LARGER = (1 << BITS) - 1


@record
class Sale:
    ts: i64
    date_sk: i64
    time_sk: i64
    item_sk: i64
    customer_sk: i64
    store_sk: i64
    ticket: i64
    quantity: i32
    net_paid: i64


@record
class Line:
    ts: i64
    ticket: i64
    item: i64


@record
class Basket:
    ts: i64
    items: Set[i64]


@record
class Pair:
    ts: i64
    pair: i64


@record
class Sold:
    window: i64
    n: i64


@record
class Counted:
    window: i64
    pair: i64
    n: i64


@record
class Hour:
    window: i64
    counts: i64
    best: TopK["limit"]


@record
class Ranked:
    window: i64
    rank: i32
    a: i64
    b: i64
    n: i64


@app.constant
def wanted_item(params):
    """By item: 1 if its category is wanted."""
    categories = bigbench.chosen(params["wanted_categories"], params["categories"])
    categories[0] = 0
    return categories[bigbench.categories(params).clip(0)]


@app.constant
def wanted_store(params):
    """By store: 1 if it is wanted."""
    return bigbench.chosen(params["wanted_stores"], params["stores"])


def wanted(row, out):
    item = row.item_sk
    if item == 0 or item > p.items or row.store_sk > p.stores:
        out.drop()
    known = row.date_sk >= 0 and item > 0 and row.store_sk >= 0
    if known and wanted_item[item] == 1 and wanted_store[row.store_sk] == 1:
        out.emit(ts=row.ts, ticket=row.ticket, item=item)


def basket(row, state, out):
    # A basket that has lain for an hour is forgotten, when somebody looks.
    items = state.items
    if row.ts - state.ts > HOUR:
        items.clear()
    state.ts = row.ts
    if items.add(row.item):
        for i in range(len(items) - 1):
            other = items.at(i)
            out.emit(ts=row.ts, pair=(min(other, row.item) << BITS) | max(other, row.item))


def count(row, state, out):
    window = row.ts // HOUR
    if window > state.window:
        state.window = window
        state.n = 0
    state.n += 1
    out.emit(window=state.window, pair=row.pair, n=state.n)


def rank(row, state, out):
    if row.window > state.window:
        close(state, out)
        state.window = row.window
        state.counts = 0
        state.best.clear()
    state.counts += 1
    # Counts only grow, so a pair that is not among the best needs to be looked at again only when it grows.
    best = state.best
    if row.n > p.threshold and (len(best) < p.limit or row.n >= best.score_at(p.limit - 1)):
        best.offer(row.pair, row.n)


def close(state, out):
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
    "a list is in order: most frequent first, then by the smaller item, then by the larger, which is another",
    """SELECT * FROM (SELECT *, lag(n) OVER one AS n_before, lag(a) OVER one AS a_before, lag(b) OVER one AS b_before,
    row_number() OVER one AS nth FROM outputs WINDOW one AS (PARTITION BY window ORDER BY rank))
    WHERE (rank >= 0 AND (rank <> nth - 1 OR a >= b OR n < 1))
    OR (rank < 0 AND (nth > 1 OR n <> 0 OR a <> -1 OR b <> -1))
    OR (nth > 1 AND (n > n_before OR (n = n_before AND (a < a_before OR (a = a_before AND b <= b_before)))))""",
)
app.invariant(
    "there is one list for each hour in which a ticket has two items",
    """SELECT w.window, o.window AS listed, o.seqs FROM
    (SELECT DISTINCT floor(ts / 3600) AS window FROM state_basket WHERE size(items) > 1) w FULL OUTER JOIN
    (SELECT window, count(DISTINCT seq) AS seqs FROM outputs GROUP BY window) o ON w.window = o.window
    WHERE w.window IS NULL OR o.window IS NULL OR o.seqs <> 1""",
)
app.invariant(
    "a pair is counted once for each ticket of the hour that has both items",
    """SELECT o.window, o.a, o.b, o.n, count(s.items) AS tickets FROM outputs o LEFT JOIN state_basket s
    ON floor(s.ts / 3600) = o.window AND array_contains(s.items, o.a) AND array_contains(s.items, o.b)
    WHERE o.rank >= 0 GROUP BY o.window, o.rank, o.a, o.b, o.n HAVING count(s.items) <> o.n""",
)
app.invariant(
    "the pairs of the last hour are those of its tickets, n(n-1)/2 of each",
    """SELECT * FROM (SELECT sum(size(items) * (size(items) - 1) / 2) AS expected FROM state_basket
    WHERE floor(ts / 3600) = (SELECT max(window) FROM state_count)),
    (SELECT sum(n) AS counted FROM state_count WHERE window = (SELECT max(window) FROM state_count)), state_rank
    WHERE expected <> counted OR counted <> counts""",
)
app.invariant(
    "a basket holds the items of its ticket that are wanted, each once",
    """SELECT coalesce(e.ticket, s.key) AS ticket, e.item_sk, s.item FROM
    (SELECT DISTINCT ticket, item_sk FROM events WHERE date_sk >= 0
        AND store_sk IN (SELECT store_sk FROM events WHERE store_sk >= 0 AND ticket IN (SELECT key FROM state_basket))
        AND item_sk IN (SELECT explode(items) FROM state_basket)) e
    FULL OUTER JOIN (SELECT key, explode(items) AS item FROM state_basket) s ON e.ticket = s.key AND e.item_sk = s.item
    WHERE e.ticket IS NULL OR s.key IS NULL""",
)
