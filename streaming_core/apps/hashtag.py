"""hashtag: how long the longest tweet of each hashtag is, in every hour, every half an hour anew (STRETCH's running
example, section 1 and operator 9; workloads E.2).

    tweets -> longer (windows by hashtag: each tweet has the keys that are its hashtags) -> sink

A hashtag is what follows a `#`: one or more ASCII letters, digits and `_`. A tweet without any has no key. Its length
is in characters, that is code points, and of all of its text.
"""

from streaming_core.api import App, Param, i64, record, text
from streaming_core.generator.tweets import (
    ENDS,
    LEFT_OUT_OF_TIME,
    LONGEST_WINDOW,
    OUT_OF_ORDER,
    TWEETS,
    tweets,
)

app = App(
    "hashtag",
    reads="STRETCH, sections 1 and 4, appendices C to E: operator 9",
    params={
        **TWEETS,
        "advance": Param(1_800_000, "ms from one window to the next", minimum=1, maximum=LONGEST_WINDOW),
        "size": Param(3_600_000, "ms of a window", minimum=1, maximum=LONGEST_WINDOW),
    },
)
HASH = ord("#")


@record
class Tweet:
    ts: i64
    user: i64
    text: text


@record
class Hashtag:
    hashtag: text


@record
class Longest:
    chars: i64


@record
class LongestTweet:
    ts: i64
    hashtag: text
    chars: i64


def is_word(byte):
    return 48 <= byte < 58 or 65 <= byte < 91 or 97 <= byte < 123 or byte == 95


def hashtags(row, keys):
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
    """Code points: bytes that do not go on with one (UTF-8)."""
    count = 0
    for i in range(len(line)):
        if line[i] & 0xC0 != 0x80:
            count += 1
    return count


def longer(row, window, state, out):
    state.chars = max(state.chars, characters(row.text))


def longest(window, state, out):
    out.emit(ts=window.end, hashtag=window.key.hashtag, chars=state.chars)


app.source(Tweet).window(
    keys=hashtags,
    key=Hashtag,
    advance="advance",
    size="size",
    state=Longest,
    update=longer,
    result=longest,
    output=LongestTweet,
).sink()

app.generates(tweets)


app.invariant(
    "a hashtag's value in a window is the length of the longest of its tweets there",
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
    "a hashtag leaves a window once",
    "SELECT ts, hashtag, count(*) AS times FROM outputs GROUP BY ts, hashtag HAVING count(*) > 1",
)
app.invariant(
    "a window's hashtags leave with the first tweet from its end on, or when there are no more tweets",
    LEFT_OUT_OF_TIME,
)
app.invariant(
    "of windows that end together the earlier comes first",
    OUT_OF_ORDER,
    by_order=True,
)
