"""forward: every instance of an operator hands on every row of two streams, which costs nothing but sharing and sorting
them (STRETCH, section 8.2; workloads E.3).

    tweets -> even, odd (stateless: streams 1 and 2) -> forward (windows of one moment, by instance) -> sink

An instance is a key that every row has. As operator 15 is written each of them forwards each row, so `copies` of it
leave; as the text around it reads each row is forwarded once: then (`once`) instance `seq mod copies` does it alone.
Rows are taken in the order of their `seq`, those of one `ts` too.
"""

from streaming_core.api import App, Param, Profile, i64, record, text
from streaming_core.generator.tweets import TWEETS, tweets

app = App(
    "forward",
    reads="STRETCH, section 8.2 and operator 15",
    params={
        **TWEETS,
        "copies": Param(4, "instances, and keys of a row; the paper's is the parallelism", minimum=1, maximum=10_000),
        "once": Param(False, "an instance forwards each row, not all of them: they take turns"),
    },
    profiles={"forward-once": Profile("each row leaves once", {"once": True})},
)
p = app.params


@record
class Tweet:
    ts: i64
    user: i64
    text: text


@record
class Nothing:
    """The paper's state is empty; a record has a field at least."""

    nothing: i64


@record
class Forwarded:
    ts: i64
    instance: i64
    user: i64
    text: text


def even(row, out):
    if row.seq % 2 == 0:
        out.emit(ts=row.ts, user=row.user, text=row.text)


def odd(row, out):
    if row.seq % 2 == 1:
        out.emit(ts=row.ts, user=row.user, text=row.text)


def forward(row, window, evens, odds, out):
    if not p.once or row.seq % p.copies == window.key.index:
        out.emit(ts=window.end, instance=window.key.index, user=row.user, text=row.text)


source = app.source(Tweet)
app.window(
    source.flat_map(even, Tweet),
    source.flat_map(odd, Tweet),
    every="copies",
    advance=1,
    size=1,
    kind="single",
    state=(Nothing, Nothing),
    update=(forward, forward),
    output=Forwarded,
).sink()

app.generates(tweets)


app.invariant(
    "what is forwarded is a tweet as it came, a moment later",
    """SELECT o.*, e.ts AS came FROM outputs o LEFT JOIN events e ON o.seq = e.seq
    WHERE e.seq IS NULL OR o.ts <> e.ts + 1 OR o.user <> e.user OR o.text <> e.text""",
)
app.invariant(
    "every instance forwards every tweet once; or each is forwarded once, by the instances in turn",
    """SELECT e.seq, o.outputs, o.instances, o.least, o.most FROM events e FULL OUTER JOIN
    (SELECT seq, count(*) AS outputs, count(DISTINCT instance) AS instances, min(instance) AS least,
        max(instance) AS most FROM outputs GROUP BY seq) o ON e.seq = o.seq
    WHERE e.seq IS NULL OR o.seq IS NULL OR o.outputs <> o.instances
    OR CASE WHEN :once THEN o.outputs <> 1 OR o.least <> e.seq % :copies
        ELSE o.outputs <> :copies OR o.least <> 0 OR o.most <> :copies - 1 END""",
)
app.invariant(
    "the copies of a tweet come in the order of the instances",
    """SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY seq ORDER BY sub) AS nth FROM outputs)
    WHERE NOT :once AND instance <> nth - 1""",
    by_order=True,
)
