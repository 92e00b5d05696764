"""Forwarding: passes the tweets of two streams on unchanged, which measures the cost of sharing and sorting rows.

    tweets -> even, odd (stateless: streams 1 and 2) -> forward (windows of 1 ms, by instance) -> sink

The application comes from STRETCH, section 8.2. An instance is a key that every row has.

The paper describes two variants. In its operator 15, every instance forwards every row, so a row leaves `copies`
times. In its text, a row leaves once. Parameter `once` selects the second: instance `seq mod copies` forwards the row.
The operator takes rows in the order of `seq`, even if their `ts` are equal.
"""

from streaming_core.api import App, Param, Profile, i64, record, text
from streaming_core.generator.tweets import TWEETS, Tweet, tweets

app = App(
    "forward",
    reads="STRETCH, section 8.2 and operator 15",
    params={
        **TWEETS,
        "copies": Param(4, "number of instances; the paper uses the degree of parallelism", minimum=1, maximum=10_000),
        "once": Param(False, "one instance forwards each row, in turn; false: every instance forwards every row"),
    },
    profiles={"forward-once": Profile("one instance forwards each row", {"once": True})},
)
p = app.params


@record
class Nothing:
    """Stands for the paper's empty state; a record needs at least one field."""

    nothing: i64


@record
class Forwarded:
    """A tweet that an instance has passed on, one millisecond later."""

    ts: i64
    instance: i64
    user: i64
    text: text


def even(row, out):
    """Keep the tweets with an even number: the first stream."""
    if row.seq % 2 == 0:
        out.emit(ts=row.ts, user=row.user, text=row.text)


def odd(row, out):
    """Keep the tweets with an odd number: the second stream."""
    if row.seq % 2 == 1:
        out.emit(ts=row.ts, user=row.user, text=row.text)


def forward(row, window, evens, odds, out):
    """Pass a tweet on, if it is this instance's turn."""
    if not p.once or row.seq % p.copies == window.key.index:
        out.emit(ts=window.end, instance=window.key.index, user=row.user, text=row.text)


source = app.source(Tweet)
windows = app.window(
    source.flat_map(even, Tweet), source.flat_map(odd, Tweet), size=1, advance=1, kind="single"
).key_by(every="copies")
windows.apply(update=(forward, forward), state=(Nothing, Nothing), output=Forwarded).sink()

app.generates(tweets)


app.invariant(
    "each output is an unchanged tweet, stamped one millisecond later",
    """SELECT o.*, e.ts AS came FROM outputs o LEFT JOIN events e ON o.seq = e.seq
    WHERE e.seq IS NULL OR o.ts <> e.ts + 1 OR o.user <> e.user OR o.text <> e.text""",
)
app.invariant(
    "every instance forwards each tweet once; with `once`, the instances take turns",
    """SELECT e.seq, o.outputs, o.instances, o.least, o.most FROM events e FULL OUTER JOIN
    (SELECT seq, count(*) AS outputs, count(DISTINCT instance) AS instances, min(instance) AS least,
        max(instance) AS most FROM outputs GROUP BY seq) o ON e.seq = o.seq
    WHERE e.seq IS NULL OR o.seq IS NULL OR o.outputs <> o.instances
    OR CASE WHEN :once THEN o.outputs <> 1 OR o.least <> e.seq % :copies
        ELSE o.outputs <> :copies OR o.least <> 0 OR o.most <> :copies - 1 END""",
)
app.invariant(
    "the copies of a tweet leave in the order of the instances",
    """SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY seq ORDER BY sub) AS nth FROM outputs)
    WHERE NOT :once AND instance <> nth - 1""",
    by_order=True,
)
