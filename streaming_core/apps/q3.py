"""TPCx-BB query 3: the products viewed most often shortly before each product is bought.

    web_clickstreams -> known (stateless) -> buy (partitioned by user) -> count (partitioned by the item bought) -> sink

The query comes from Scaling Ordered Stream Processing, table 1.

A purchase counts its user's last `last` clicks. It skips clicks that are older than `window` seconds, and items outside
the wanted categories. Each purchase with such clicks emits a list: the products viewed most often before its item, so
far.
"""

from typing import Literal

from streaming_core.api import App, Array, Counter, Param, Profile, Ring, TopK, boolean, i32, i64, record
from streaming_core.generator import bigbench
from streaming_core.generator.bigbench import Click

app = App(
    "q3",
    reads="Scaling Ordered Stream Processing, table 1; TPCx-BB, query 3",
    params={
        **bigbench.CLICKS,
        "window": Param(
            864_000, "how long before a purchase clicks count, in seconds", minimum=0, maximum=1_000_000_000
        ),
        "last": Param(5, "number of clicks to remember per user", minimum=1, maximum=1_000),
        "given": Param(0, "count only purchases of this item; 0: all purchases", minimum=0, maximum=1_000_000),
        "wanted_categories": Param("2,3", "categories of the views to count, separated by commas"),
        "limit": Param(30, "maximum number of items in a list", minimum=1, maximum=10_000),
    },
    profiles={
        "q3-kit": Profile(
            "the item, the times and the number of users of the kit", {"given": 10_001, "mode": "kit", "users": 100_000}
        ),
    },
)
p = app.params


@record
class View:
    """A click of a known user on an item: the time in seconds, and whether the user bought the item."""

    ts: i64
    user: i64
    item: i64
    bought: boolean


@record
class Recent:
    """The last clicks of a user: items, and times in seconds. `views` holds the items of the next output."""

    items: Ring[i64, Literal["last"]]
    times: Ring[i64, Literal["last"]]
    views: Array[i64, Literal["last"]]


@record
class Bought:
    """A purchase with the `size` items that its user viewed shortly before."""

    item: i64
    size: i32
    views: Array[i64, Literal["last"]]


@record
class Views:
    """How often each item was viewed before purchases of one item, and the most frequent ones."""

    counts: Counter[i64]
    best: TopK[Literal["limit"]]


@record
class Ranked:
    """An entry of the list of a bought item: rank from 0, the viewed item, and its count."""

    bought: i64
    rank: i32
    viewed: i64
    n: i64


@app.constant
def wanted_item(params):
    """Return 1 for each item of a wanted category, else 0."""
    categories = bigbench.chosen(params["wanted_categories"], params["categories"])
    categories[0] = 0
    return categories[bigbench.categories(params).clip(0)]


def known(row, out):
    """Keep the clicks of known users, and drop clicks on items that do not exist."""
    if row.item_sk == 0 or row.item_sk > p.items:
        out.drop()
    if row.item_sk > 0 and row.user_sk >= 0:
        out.emit(ts=row.ts, user=row.user_sk, item=row.item_sk, bought=row.sales_sk >= 0)


def buy(row, state, out):
    """Remember a click; a purchase first emits the wanted items that its user viewed shortly before."""
    items = state.items
    times = state.times
    if row.bought and (p.given == 0 or row.item == p.given):
        size = 0
        for i in range(len(items)):
            if times[i] >= row.ts - p.window and wanted_item[items[i]] == 1:
                state.views[size] = items[i]
                size += 1
        if size > 0:
            out.emit(item=row.item, size=size, views=state.views)
    # Only now: a purchase does not precede itself, but later purchases count it as a view.
    items.append(row.item)
    times.append(row.ts)


def count(row, state, out):
    """Count the views before a purchase, and emit the list of the item bought."""
    best = state.best
    for i in range(row.size):
        n = state.counts.add(row.views[i], 1)
        # Counts only grow. So an item outside the list can enter it only when its own count grows.
        if len(best) < p.limit or n >= best.score_at(p.limit - 1):
            best.offer(row.views[i], n)
    for i in range(len(best)):
        out.emit(bought=row.item, rank=i, viewed=best.key_at(i), n=best.score_at(i))


purchases = app.source(Click).flat_map(known, View).key_by("user").process(buy, state=Recent, output=Bought)
purchases.key_by("item").process(count, state=Views, output=Ranked).sink()

app.generates(bigbench.web_clickstreams)


app.invariant(
    "a list is sorted by count, then by item",
    """SELECT * FROM (SELECT *, lag(n) OVER list AS n_before, lag(viewed) OVER list AS v_before,
    row_number() OVER list AS nth FROM outputs WINDOW list AS (PARTITION BY seq ORDER BY sub))
    WHERE rank <> sub OR rank <> nth - 1 OR n < 1
    OR (sub > 0 AND (n > n_before OR (n = n_before AND viewed <= v_before)))""",
)
app.invariant(
    "a list names the item of its purchase",
    """SELECT o.seq, o.bought, e.item_sk, e.sales_sk, e.user_sk FROM outputs o LEFT JOIN events e ON o.seq = e.seq
    WHERE e.seq IS NULL OR e.item_sk <> o.bought OR e.sales_sk < 0 OR e.user_sk < 0""",
)
app.invariant(
    "two successive lists of an item differ by at most as many views as a user's memory holds",
    """SELECT * FROM (SELECT *, lag(total, 1, 0) OVER (PARTITION BY bought ORDER BY seq) AS before FROM
    (SELECT bought, seq, sum(n) AS total FROM outputs GROUP BY bought, seq))
    WHERE total < before OR total > before + (SELECT max(size(items)) FROM state_buy)""",
)
app.invariant(
    "the last list of an item holds its highest final counts",
    """SELECT coalesce(o.bought, s.key) AS bought, o.rank, o.viewed, o.n, s.place FROM
    (SELECT * FROM (SELECT *, max(seq) OVER (PARTITION BY bought) AS newest FROM outputs) WHERE seq = newest) o
    FULL OUTER JOIN (SELECT key, count.key AS viewed, count.value AS n,
        row_number() OVER (PARTITION BY key ORDER BY count.value DESC, count.key) - 1 AS place
        FROM (SELECT key, explode(counts) AS count FROM state_count)) s
    ON o.bought = s.key AND o.rank = s.place AND o.viewed = s.viewed AND o.n = s.n
    WHERE s.key IS NULL OR (o.bought IS NULL AND s.place <= (SELECT max(rank) FROM outputs))""",
)
app.invariant(
    "a count is at most the number of such views among the last clicks before a purchase",
    """SELECT s.bought, s.viewed, s.n, e.views FROM
    (SELECT key AS bought, count.key AS viewed, count.value AS n FROM
        (SELECT key, explode(counts) AS count FROM state_count)) s
    LEFT JOIN (SELECT b.item_sk AS bought, v.item_sk AS viewed, count(*) AS views FROM
        (SELECT *, row_number() OVER (PARTITION BY user_sk ORDER BY seq) AS nth FROM events
            WHERE user_sk >= 0 AND item_sk > 0) b
        JOIN (SELECT *, row_number() OVER (PARTITION BY user_sk ORDER BY seq) AS nth FROM events
            WHERE user_sk >= 0 AND item_sk > 0) v
        ON b.user_sk = v.user_sk AND v.nth < b.nth AND v.nth >= b.nth - (SELECT max(size(items)) FROM state_buy)
        WHERE b.sales_sk >= 0 GROUP BY b.item_sk, v.item_sk) e
    ON s.bought = e.bought AND s.viewed = e.viewed WHERE e.views IS NULL OR s.n > e.views""",
)
