"""Forwarding: passes the tweets of two streams on unchanged, which measures the cost of sharing and sorting rows.

    tweets -> even, odd (stateless: streams 1 and 2) -> forward (windows of 1 ms, by instance) -> sink

The application comes from STRETCH, section 8.2. An instance is a key that every row has.

As in the paper's operator 15, every instance forwards every row, so a row leaves `copies` times. The operator takes
rows in the order of `seq`, even if their `ts` are equal.
"""

from streaming_core.api import App, Param, i64, record, rolling, text
from streaming_core.generator.tweets import TWEETS, Tweet, tweets

app = App(
    "forward",
    reads="STRETCH, section 8.2 and operator 15",
    params={
        **TWEETS,
        "copies": Param(4, "number of instances; the paper uses the degree of parallelism", minimum=1, maximum=10_000),
    },
)


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
    """Pass a tweet on."""
    out.emit(ts=window.end, instance=window.key.index, user=row.user, text=row.text)


source = app.source(Tweet)
streams = app.connect(source.flat_map(even, Tweet), source.flat_map(odd, Tweet))
streams.key_by(every="copies").window(rolling(1)).apply(
    update=(forward, forward), state=(Nothing, Nothing), output=Forwarded
).sink()

app.generates(tweets)
