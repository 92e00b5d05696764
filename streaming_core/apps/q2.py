"""TPCx-BB Q2: the products that are viewed together most in a session of the web shop (Scaling Ordered Stream
Processing, table 1; workloads B.2).

    web_clickstreams -> known (stateless) -> session (partitioned by user) -> pairs (stateless)
                     -> count (partitioned by pair) -> rank (stateful) -> sink

A session ends when its user is silent for longer than `timeout`, which shows at the user's next click, or at the end of
the stream. All pairs of its items count, or with `given` those with that item. The list of the most frequent pairs so
far leaves after every `emit_every` pairs, and at the end.
"""

from streaming_core.api import App, Array, Param, Profile, Set, TopK, i32, i64, record
from streaming_core.generator import bigbench

app = App(
    "q2",
    reads="Scaling Ordered Stream Processing, table 1; TPCx-BB, query 2",
    params={
        **bigbench.CLICKS,
        "timeout": Param(3_600, "seconds of silence that a session survives", minimum=0, maximum=1_000_000_000),
        "given": Param(0, "the item whose company is looked for; 0: all pairs count", minimum=0, maximum=1_000_000),
        "limit": Param(30, "pairs in a list", minimum=1, maximum=10_000),
        "emit_every": Param(10_000, "pairs from one list to the next", minimum=1, maximum=1_000_000_000),
        "width": Param(32, "items of a session that travel in a row; no result hangs on it", minimum=2, maximum=10_000),
    },
    profiles={
        "q2-kit": Profile(
            "the kit's item and times, as many users as it has", {"given": 10_001, "mode": "kit", "users": 100_000}
        ),
    },
)
p = app.params
BITS = 31  # a pair is its first item << BITS | its second item: it sorts by the one, then by the other
SECOND = (1 << BITS) - 1


@record
class Click:
    ts: i64
    date_sk: i64
    time_sk: i64
    sales_sk: i64
    item_sk: i64
    web_page_sk: i64
    user_sk: i64


@record
class View:
    ts: i64
    user: i64
    item: i64


@record
class Visit:
    """Of a user: when the last click was, the number of the session it belongs to, and the session's items in the order
    in which they were first viewed. `few` is what leaves next."""

    user: i64
    last: i64
    session: i64
    items: Set[i64]
    few: Array[i64, "width"]


@record
class Session:
    """Items of a closed session, the first `size`: each of the first `heads` pairs with each behind it."""

    user: i64
    session: i64
    heads: i32
    size: i32
    items: Array[i64, "width"]


@record
class Pair:
    pair: i64


@record
class Seen:
    n: i64


@record
class Counted:
    pair: i64
    n: i64


@record
class Best:
    inputs: i64
    best: TopK["limit"]


@record
class Ranked:
    inputs: i64
    rank: i32
    a: i64
    b: i64
    n: i64


def known(row, out):
    if row.item_sk == 0 or row.item_sk > p.items:
        out.drop()
    if row.item_sk > 0 and row.user_sk >= 0:
        out.emit(ts=row.ts, user=row.user_sk, item=row.item_sk)


def session(row, state, out):
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
    # Rows are of fixed width. A session that fits into one leaves in one; of a longer one, each item leaves with those
    # behind it, in as many rows as they fill. The pairs come out in the same order either way.
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
    for i in range(row.heads):
        one = row.items[i]
        for j in range(i + 1, row.size):
            other = row.items[j]
            if p.given == 0:
                out.emit(pair=(min(one, other) << BITS) | max(one, other))
            elif one == p.given:
                out.emit(pair=(other << BITS) | one)
            elif other == p.given:
                out.emit(pair=(one << BITS) | other)


def count(row, state, out):
    state.n += 1
    out.emit(pair=row.pair, n=state.n)


def rank(row, state, out):
    # Counts only grow, so a pair that is not among the best needs to be looked at again only when it grows.
    best = state.best
    if len(best) < p.limit or row.n >= best.score_at(p.limit - 1):
        best.offer(row.pair, row.n)
    state.inputs += 1
    if state.inputs % p.emit_every == 0:
        show(state, out)


def show(state, out):
    best = state.best
    for i in range(len(best)):
        pair = best.key_at(i)
        out.emit(inputs=state.inputs, rank=i, a=pair >> BITS, b=pair & SECOND, n=best.score_at(i))


views = app.source(Click).flat_map(known, View)
sessions = views.key_by("user").process(session, state=Visit, output=Session, flush=close)
counts = sessions.flat_map(pairs, Pair).key_by("pair").process(count, state=Seen, output=Counted)
counts.process(rank, state=Best, output=Ranked, flush=show).sink()

app.generates(bigbench.web_clickstreams)


# Lists, numbered: one begins with every rank 0.
LISTS = "SELECT *, sum(CAST(rank = 0 AS INT)) OVER (ORDER BY seq, sub) AS list FROM outputs"

app.invariant(
    "a list is in order: most frequent first, then by the first item, then by the second, which is another",
    f"""SELECT * FROM (SELECT *, lag(n) OVER one AS n_before, lag(a) OVER one AS a_before, lag(b) OVER one AS b_before,
    row_number() OVER one AS nth FROM ({LISTS}) WINDOW one AS (PARTITION BY list ORDER BY seq, sub))
    WHERE rank <> nth - 1 OR a = b OR n < 1
    OR (nth > 1 AND (n > n_before OR (n = n_before AND (a < a_before OR (a = a_before AND b <= b_before)))))""",
)
app.invariant(
    "no count ever shrinks",
    """SELECT * FROM (SELECT *, lag(n) OVER (PARTITION BY a, b ORDER BY seq, sub) AS n_before FROM outputs)
    WHERE n < n_before""",
)
app.invariant(
    "the last list shows the final counts, and all pairs have been counted",
    f"""SELECT l.a, l.b, l.n, c.n AS final, l.inputs, r.inputs AS all_inputs, r.counted FROM
    (SELECT inputs, (SELECT sum(n) FROM state_count) AS counted FROM state_rank) r
    LEFT JOIN (SELECT * FROM (SELECT *, max(list) OVER () AS newest FROM ({LISTS})) WHERE list = newest) l
    LEFT JOIN state_count c ON c.key = l.a * 2147483648 + l.b
    WHERE r.inputs > 0 AND (c.n IS NULL OR c.n <> l.n OR r.inputs <> r.counted OR r.inputs <> l.inputs)""",
)
app.invariant(
    "a user's last session ends with the last view, and holds views of the user, each item once",
    """SELECT s.key, s.last, e.last AS newest, s.items FROM state_session s FULL OUTER JOIN
    (SELECT user_sk, max(ts) AS last, max_by(item_sk, seq) AS item, collect_set(item_sk) AS viewed FROM events
        WHERE user_sk >= 0 AND item_sk > 0 GROUP BY user_sk) e ON s.key = e.user_sk
    WHERE s.key IS NULL OR e.user_sk IS NULL OR s.user <> s.key OR s.last <> e.last
    OR NOT array_contains(s.items, e.item) OR size(array_except(s.items, e.viewed)) > 0
    OR size(array_distinct(s.items)) < size(s.items) OR (s.session = 1 AND size(s.items) < size(e.viewed))""",
)
