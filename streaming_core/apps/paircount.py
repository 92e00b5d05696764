"""Word pairs: the number of tweets in the last two minutes that contain each pair of nearby words, in this order.

    tweets -> count (windows by pair: the keys of a tweet are its pairs of words) -> sink

The application comes from STRETCH, section 8.1. It is `wordcount` with more keys per row. Two words are near if they
are at most 3 words apart (`level` L), 10 (M), or any number (H). The same word twice is a pair too. `multiplicity`
works as in `wordcount`.
"""

import numpy as np

from streaming_core.api import App, Param, Profile, i64, record, text
from streaming_core.generator.tweets import (
    ENDS,
    LEFT_OUT_OF_TIME,
    LONGEST_WINDOW,
    OUT_OF_ORDER,
    TWEETS,
    WORDS_IN_TWEET,
    Tweet,
    tweets,
    word_end,
    word_from,
)

# How far apart the words of a pair may be; no tweet has as many words as H allows.
DISTANCES = {"L": 3, "M": 10, "H": 1_000_000}

app = App(
    "paircount",
    reads="STRETCH, section 8.1, algorithm 13, operators 12 and 14",
    params={
        **TWEETS,
        "level": Param(
            "L", "largest distance of the words of a pair: 3 (L), 10 (M), any (H)", choices=tuple(DISTANCES)
        ),
        "advance": Param(
            60_000, "milliseconds from the start of one window to that of the next", minimum=1, maximum=LONGEST_WINDOW
        ),
        "size": Param(120_000, "length of a window in milliseconds", minimum=1, maximum=LONGEST_WINDOW),
        "multiplicity": Param(
            "set", "count a pair that a tweet repeats once (set) or every time (bag)", choices=("set", "bag")
        ),
    },
    profiles={
        "paircount-l": Profile("words at most 3 apart: about 34 pairs per tweet", {"level": "L"}),
        "paircount-m": Profile("words at most 10 apart: about 75 pairs per tweet", {"level": "M"}),
        "paircount-h": Profile("all words of a tweet: about 83 pairs per tweet", {"level": "H"}),
        "paircount-bag": Profile("count every occurrence, as Flink's implementation does", {"multiplicity": "bag"}),
    },
)


@record
class Pair:
    """Two words of a tweet, in this order: the key of a window."""

    first: text
    second: text


@record
class Count:
    """The number of tweets with the pair so far."""

    n: i64


@record
class Counted:
    """A pair of words and its count in the window that ends at `ts`."""

    ts: i64
    first: text
    second: text
    n: i64


@app.constant
def distance(params):
    """Return how far apart the words of a pair may be, as one number."""
    return np.array([DISTANCES[params["level"]]])


def pairs(row, keys):
    """Give a tweet its pairs of nearby words as keys."""
    line = row.text
    first = word_from(line, 0)
    while first < len(line):
        first_end = word_end(line, first)
        following = word_from(line, first_end)
        second = following
        far = 1
        while second < len(line) and far <= distance[0]:
            second_end = word_end(line, second)
            keys.add(first=line[first:first_end], second=line[second:second_end])
            second = word_from(line, second_end)
            far += 1
        first = following


def count(row, window, state, out):
    """Count a tweet for one of its pairs."""
    state.n += 1


def counted(window, state, out):
    """Emit the count of a pair at the end of the window."""
    out.emit(ts=window.end, first=window.key.first, second=window.key.second, n=state.n)


windows = app.source(Tweet).window(size="size", advance="advance").key_by(Pair, keys=pairs, multiplicity="multiplicity")
windows.apply(update=count, state=Count, output=Counted, result=counted).sink()

app.generates(tweets)


# The pairs of words of each tweet.
FAR = " ".join(f"WHEN '{level}' THEN {far}" for level, far in DISTANCES.items())
PAIRS = f"""flatten(transform(spoken, (one, i) ->
    transform(slice(spoken, i + 2, CASE :level {FAR} END), other -> struct(one, other))))"""

app.invariant(
    "the counts of a window add up to the number of pairs in its tweets",
    f"""SELECT coalesce(e.ts, o.ts) AS ts, e.pairs, o.counted FROM
    (SELECT at * :advance + :size AS ts, sum(pairs) AS pairs FROM
        (SELECT explode({ENDS}) AS at,
            size(CASE :multiplicity WHEN 'set' THEN array_distinct({PAIRS}) ELSE {PAIRS} END) AS pairs FROM
            (SELECT ts, {WORDS_IN_TWEET} AS spoken FROM events))
        WHERE pairs > 0 GROUP BY at) e
    FULL OUTER JOIN (SELECT ts, sum(n) AS counted FROM outputs GROUP BY ts) o ON e.ts = o.ts
    WHERE e.ts IS NULL OR o.ts IS NULL OR e.pairs <> o.counted""",
)
app.invariant(
    "a window ends one size after a multiple of the advance", "SELECT * FROM outputs WHERE (ts - :size) % :advance <> 0"
)
app.invariant(
    "a window lists a pair once, with a count of at least 1",
    """SELECT ts, first, second, count(*) AS times, min(n) AS n FROM outputs GROUP BY ts, first, second
    HAVING count(*) > 1 OR min(n) < 1""",
)
app.invariant(
    "a window's counts leave with the first tweet at or after its end, or at the end of the stream",
    LEFT_OUT_OF_TIME,
)
app.invariant(
    "if one tweet ends several windows, the earlier windows leave first",
    OUT_OF_ORDER,
    by_order=True,
)
