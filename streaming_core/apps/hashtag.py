"""Longest tweets: the length of the longest tweet with each hashtag, per hour, every half hour.

    tweets -> longer (windows by hashtag: the keys of a tweet are its hashtags) -> sink

This is the running example of STRETCH (section 1 and operator 9).

A hashtag is what follows a `#`: one or more ASCII letters, digits and `_`. A tweet without hashtags has no key. The
length of a tweet counts the characters (code points) of its whole text.
"""

import re

from streaming_core.api import App, Param, i64, record, sliding, text
from streaming_core.generator.tweets import (
    ENDS,
    LEFT_OUT_OF_TIME,
    LONGEST_WINDOW,
    OUT_OF_ORDER,
    TWEETS,
    Tweet,
    tweets,
)

app = App(
    "hashtag",
    reads="STRETCH, sections 1 and 4, appendices C to E: operator 9",
    params={
        **TWEETS,
        "advance": Param(
            1_800_000,
            "milliseconds from the start of one window to that of the next",
            minimum=1,
            maximum=LONGEST_WINDOW,
        ),
        "size": Param(3_600_000, "length of a window in milliseconds", minimum=1, maximum=LONGEST_WINDOW),
    },
)
HASH = ord("#")


@record
class Hashtag:
    """A hashtag without its `#`: the key of a window."""

    hashtag: text


@record
class Longest:
    """The length of the longest tweet so far, in characters."""

    chars: i64


@record
class LongestTweet:
    """A hashtag and the length of its longest tweet in a window that ends at `ts`."""

    ts: i64
    hashtag: text
    chars: i64


def is_word(byte):
    """Tell whether a byte is an ASCII letter, a digit or `_`."""
    return 48 <= byte < 58 or 65 <= byte < 91 or 97 <= byte < 123 or byte == 95


def hashtags(row, keys):
    """Give a tweet its hashtags as keys."""
    line = row.text
    at = line.find(HASH, 0)
    while at >= 0:
        end = at + 1
        while end < len(line) and is_word(line[end]):
            end += 1
        if end > at + 1:
            keys.add(hashtag=line[at + 1 : end])
        at = line.find(HASH, end)


def characters(line):
    """Count code points, that is, bytes that are no continuation bytes of UTF-8."""
    count = 0
    for i in range(len(line)):
        if line[i] & 0xC0 != 0x80:
            count += 1
    return count


def longer(row, window, state, out):
    """Keep the greater of the longest length so far and that of this tweet."""
    state.chars = max(state.chars, characters(row.text))


def longest(window, state, out):
    """Emit the longest length of a hashtag at the end of the window."""
    out.emit(ts=window.end, hashtag=window.key.hashtag, chars=state.chars)


windows = app.source(Tweet).key_by(Hashtag, keys=hashtags).window(sliding("size", every="advance"))
windows.apply(update=longer, state=Longest, output=LongestTweet, result=longest).sink()

app.generates(tweets)


app.invariant(
    "a window lists each of its hashtags with the length of the longest tweet",
    f"""SELECT coalesce(e.ts, o.ts) AS ts, coalesce(e.tag, o.tag) AS hashtag, e.longest, o.chars FROM
    (SELECT at * :advance + :size AS ts, tag, max(chars) AS longest FROM
        (SELECT explode({ENDS}) AS at, tag, chars FROM
            (SELECT ts, char_length(CAST(text AS STRING)) AS chars,
                explode(regexp_extract_all(CAST(text AS STRING), '#([A-Za-z0-9_]+)', 1)) AS tag FROM events))
        GROUP BY at, tag) e
    FULL OUTER JOIN (SELECT ts, CAST(hashtag AS STRING) AS tag, chars FROM outputs) o ON e.ts = o.ts AND e.tag = o.tag
    WHERE e.ts IS NULL OR o.ts IS NULL OR e.longest <> o.chars""",
)
app.invariant(
    "a window lists a hashtag once",
    "SELECT ts, hashtag, count(*) AS times FROM outputs GROUP BY ts, hashtag HAVING count(*) > 1",
)
app.invariant(
    "a window's hashtags leave with the first tweet at or after its end, or at the end of the stream",
    LEFT_OUT_OF_TIME,
)
app.invariant(
    "if one tweet ends several windows, the earlier windows leave first",
    OUT_OF_ORDER,
    by_order=True,
)


@app.property
def windows_have_the_longest_tweet_of_a_hashtag(stream):
    """The length is that of the longest tweet in the window with the hashtag."""
    size, advance = stream.params["size"], stream.params["advance"]
    expected: dict = {}
    for event in stream.events:
        chars = sum(byte & 0xC0 != 0x80 for byte in event["text"])
        for tag in {*re.findall(rb"#(\w+)", event["text"])}:
            for number in range((event["ts"] - size) // advance + 1, event["ts"] // advance + 1):
                key = number * advance + size, tag
                expected[key] = max(expected.get(key, 0), chars)
    assert {(row["ts"], row["hashtag"]): row["chars"] for row in stream.rows} == expected
