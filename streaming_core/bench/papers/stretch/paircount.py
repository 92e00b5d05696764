"""Word pairs: the number of tweets in the last two minutes that contain each pair of nearby words, in this order.

    tweets -> count (windows by pair: the keys of a tweet are its pairs of words) -> sink

The application comes from STRETCH, section 8.1. It is `wordcount` with more keys per row. Two words are near if they
are at most 3 words apart (`level` L), 10 (M), or any number (H). The same word twice is a pair too. A pair that a
tweet repeats counts once.
"""

import numpy as np

from streaming_core.api import App, Param, i64, record, sliding, text
from streaming_core.apps.wordcount import Count, count
from streaming_core.generator.tweets import (
    LONGEST_WINDOW,
    TWEETS,
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
    },
)


@record
class Pair:
    """Two words of a tweet, in this order: the key of a window."""

    first: text
    second: text


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


def counted(window, state, out):
    """Emit the count of a pair at the end of the window."""
    out.emit(ts=window.end, first=window.key.first, second=window.key.second, n=state.n)


windows = app.source(Tweet).key_by(Pair, keys=pairs).window(sliding("size", every="advance"))
windows.apply(update=count, state=Count, output=Counted, result=counted).sink()

app.generates(tweets)
