"""TPCx-BB query 2: the pairs of products viewed together most often in a session of a web shop.

    web_clickstreams -> known (stateless) -> session (partitioned by user) -> pairs (stateless)
                     -> count (partitioned by pair) -> rank (stateful) -> sink

The query comes from Scaling Ordered Stream Processing, table 1.

A session ends when its user is silent for more than `timeout` seconds. The user's next click, or the end of the stream,
closes it. All pairs of its items count; with `given`, only the pairs with that item. The list of the most frequent
pairs so far leaves after every `emit_every` pairs, and at the end.
"""

from collections import Counter
from itertools import combinations
from typing import Literal

from streaming_core.api import App, Array, Param, Profile, Set, TopK, i32, i64, record
from streaming_core.generator import bigbench
from streaming_core.generator.bigbench import Click

app = App(
    "q2",
    reads="Scaling Ordered Stream Processing, table 1; TPCx-BB, query 2",
    params={
        **bigbench.CLICKS,
        "timeout": Param(3_600, "longest silence within a session, in seconds", minimum=0, maximum=1_000_000_000),
        "given": Param(0, "count only pairs with this item; 0: all pairs", minimum=0, maximum=1_000_000),
        "limit": Param(30, "maximum number of pairs in a list", minimum=1, maximum=10_000),
        "emit_every": Param(10_000, "number of pairs between two lists", minimum=1, maximum=1_000_000_000),
        "width": Param(32, "items of a session per row; has no effect on results", minimum=2, maximum=10_000),
    },
    profiles={
        "q2-kit": Profile(
            "the item, the times and the number of users of the kit", {"given": 10_001, "mode": "kit", "users": 100_000}
        ),
    },
)
p = app.params
BITS = 31  # a pair is first item << BITS | second item, so it sorts by the first item, then by the second
SECOND = (1 << BITS) - 1


@record
class View:
    """An item that a known user viewed, with the time in seconds."""

    ts: i64
    user: i64
    item: i64


@record
class Visit:
    """The open session of a user: its last click, its number, and its items in the order of their first view.

    `few` holds the items of the next output.
    """

    user: i64
    last: i64
    session: i64
    items: Set[i64]
    few: Array[i64, Literal["width"]]


@record
class Session:
    """The first `size` items of a closed session; each of the first `heads` forms pairs with all behind it."""

    user: i64
    session: i64
    heads: i32
    size: i32
    items: Array[i64, Literal["width"]]


@record
class Pair:
    """Two items viewed in one session: first item << BITS | second item."""

    pair: i64


@record
class Seen:
    """How often a pair has been viewed together."""

    n: i64


@record
class Counted:
    """A pair with the number of its sessions so far."""

    pair: i64
    n: i64


@record
class Best:
    """The most frequent pairs so far, and the number of pairs that have been counted."""

    inputs: i64
    best: TopK[Literal["limit"]]


@record
class Ranked:
    """An entry of a list: rank from 0, two items, and their count, after so many pairs (`inputs`)."""

    inputs: i64
    rank: i32
    a: i64
    b: i64
    n: i64


def known(row, out):
    """Keep the views of items by known users, and drop clicks on items that do not exist."""
    if row.item_sk == 0 or row.item_sk > p.items:
        out.drop()
    if row.item_sk > 0 and row.user_sk >= 0:
        out.emit(ts=row.ts, user=row.user_sk, item=row.item_sk)


def session(row, state, out):
    """Add a view to its user's session; first close a session that has been silent for too long."""
    if state.session == 0:
        state.user = row.user
        state.session = 1
    elif row.ts - state.last > p.timeout:
        close(state, out)
        state.session += 1
        state.items.clear()
    state.items.add(row.item)
    state.last = row.ts


def close(state, out):
    """Emit the items of a session, in as many rows as they need."""
    # Rows have a fixed width. A session that fits leaves in one row. Otherwise each item leaves with the items behind
    # it, in several rows. The order of the pairs is the same in both cases.
    items = state.items
    size = len(items)
    if size <= p.width:
        for i in range(size):
            state.few[i] = items.at(i)
        out.emit(user=state.user, session=state.session, heads=size, size=size, items=state.few)
        return
    for i in range(size - 1):
        state.few[0] = items.at(i)
        at = i + 1
        while at < size:
            behind = min(p.width - 1, size - at)
            for j in range(behind):
                state.few[1 + j] = items.at(at + j)
            out.emit(user=state.user, session=state.session, heads=1, size=1 + behind, items=state.few)
            at += behind


def pairs(row, out):
    """Emit the pairs of a session's items; with `given`, only those with that item."""
    for i in range(row.heads):
        item = row.items[i]
        for j in range(i + 1, row.size):
            other = row.items[j]
            if p.given == 0:
                out.emit(pair=(min(item, other) << BITS) | max(item, other))
            elif item == p.given:
                out.emit(pair=(other << BITS) | item)
            elif other == p.given:
                out.emit(pair=(item << BITS) | other)


def count(row, state, out):
    """Count a pair, and emit it with its new count."""
    state.n += 1
    out.emit(pair=row.pair, n=state.n)


def rank(row, state, out):
    """Keep the most frequent pairs, and emit their list after every `emit_every` pairs."""
    # Counts only grow. So a pair outside the list can enter it only when its own count grows.
    best = state.best
    if len(best) < p.limit or row.n >= best.score_at(p.limit - 1):
        best.offer(row.pair, row.n)
    state.inputs += 1
    if state.inputs % p.emit_every == 0:
        show(state, out)


def show(state, out):
    """Emit the list of the most frequent pairs so far."""
    best = state.best
    for i in range(len(best)):
        pair = best.key_at(i)
        out.emit(inputs=state.inputs, rank=i, a=pair >> BITS, b=pair & SECOND, n=best.score_at(i))


views = app.source(Click).flat_map(known, View)
sessions = views.key_by("user").process(session, state=Visit, output=Session, flush=close)
counts = sessions.flat_map(pairs, Pair).key_by("pair").process(count, state=Seen, output=Counted)
counts.process(rank, state=Best, output=Ranked, flush=show).sink()

app.generates(bigbench.web_clickstreams)


# Numbered lists: rank 0 starts a list.
LISTS = "SELECT *, sum(CAST(rank = 0 AS INT)) OVER (ORDER BY seq, sub) AS list FROM outputs"

app.invariant(
    "a list is sorted by count, then by first item, then by second item, and the two items differ",
    f"""SELECT * FROM (SELECT *, lag(n) OVER one AS n_before, lag(a) OVER one AS a_before, lag(b) OVER one AS b_before,
    row_number() OVER one AS nth FROM ({LISTS}) WINDOW one AS (PARTITION BY list ORDER BY seq, sub))
    WHERE rank <> nth - 1 OR a = b OR n < 1
    OR (nth > 1 AND (n > n_before OR (n = n_before AND (a < a_before OR (a = a_before AND b <= b_before)))))""",
)
app.invariant(
    "no count shrinks",
    """SELECT * FROM (SELECT *, lag(n) OVER (PARTITION BY a, b ORDER BY seq, sub) AS n_before FROM outputs)
    WHERE n < n_before""",
)
app.invariant(
    "the last list holds the final counts, and their total covers all pairs",
    f"""SELECT l.a, l.b, l.n, c.n AS final, l.inputs, r.inputs AS all_inputs, r.counted FROM
    (SELECT inputs, (SELECT sum(n) FROM state_count) AS counted FROM state_rank) r
    LEFT JOIN (SELECT * FROM (SELECT *, max(list) OVER () AS newest FROM ({LISTS})) WHERE list = newest) l
    LEFT JOIN state_count c ON c.key = l.a * 2147483648 + l.b
    WHERE r.inputs > 0 AND (c.n IS NULL OR c.n <> l.n OR r.inputs <> r.counted OR r.inputs <> l.inputs)""",
)
app.invariant(
    "a user's last session ends with the user's last view, and holds only viewed items, each once",
    """SELECT s.key, s.last, e.last AS newest, s.items FROM state_session s FULL OUTER JOIN
    (SELECT user_sk, max(ts) AS last, max_by(item_sk, seq) AS item, collect_set(item_sk) AS viewed FROM events
        WHERE user_sk >= 0 AND item_sk > 0 GROUP BY user_sk) e ON s.key = e.user_sk
    WHERE s.key IS NULL OR e.user_sk IS NULL OR s.user <> s.key OR s.last <> e.last
    OR NOT array_contains(s.items, e.item) OR size(array_except(s.items, e.viewed)) > 0
    OR size(array_distinct(s.items)) < size(s.items) OR (s.session = 1 AND size(s.items) < size(e.viewed))""",
)


@app.property
def pairs_are_those_of_sessions(stream):
    """A pair counts once for each session that views both items; with `given`, only with that item."""
    visits: dict = {}
    last: dict = {}
    sessions = []
    for event in stream.events:
        ts, user, item = event["ts"], event["user_sk"], event["item_sk"]
        if 0 < item <= stream.params["items"] and user >= 0:
            if user in last and stream.wrap(ts - last[user]) > stream.params["timeout"]:
                sessions.append(visits.pop(user))
            visits.setdefault(user, set()).add(item)
            last[user] = ts
    pairs: dict = Counter(pair for items in [*sessions, *visits.values()] for pair in combinations(sorted(items), 2))
    if item := stream.params["given"]:
        pairs = {(a + b - item, item): n for (a, b), n in pairs.items() if item in (a, b)}
    assert {(pair >> BITS, pair & SECOND): row["n"] for pair, row in stream.state("count").items()} == pairs


@app.property
def the_last_list_has_the_most_frequent_pairs(stream):
    """The list at the end ranks all pairs by their counts, then by their items."""
    counts = sorted((-row["n"], pair >> BITS, pair & SECOND) for pair, row in stream.state("count").items())
    best = counts[: stream.params["limit"]]
    last = stream.rows[len(stream.rows) - len(best) :]
    assert [(-row["n"], row["a"], row["b"]) for row in last] == best
