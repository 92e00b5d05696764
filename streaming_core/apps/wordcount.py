"""Word count of tweets: the number of tweets in the last two minutes that contain each word.

    tweets -> count (windows by word: the keys of a tweet are its words) -> sink

The application comes from STRETCH, section 8.1. ASCII whitespace separates words; case and punctuation are part of a
word. A word that a tweet repeats counts once in STRETCH (`multiplicity` set), and every time in Flink (bag). Lockstep
never compares results of the two. A count leaves at the end of its window.
An engine that does not order the words of a window still counts the same.
"""

from collections import Counter

from streaming_core.api import App, Param, Profile, i64, record, sliding, text
from streaming_core.generator.tweets import (
    ENDS,
    LEFT_OUT_OF_TIME,
    LONGEST_WINDOW,
    OUT_OF_ORDER,
    TWEETS,
    WORDS_IN_TWEET,
    Tweet,
    tweets,
)

app = App(
    "wordcount",
    reads="STRETCH, section 8.1 and operators 11, 12 and 14",
    params={
        **TWEETS,
        "advance": Param(
            60_000, "milliseconds from the start of one window to that of the next", minimum=1, maximum=LONGEST_WINDOW
        ),
        "size": Param(120_000, "length of a window in milliseconds", minimum=1, maximum=LONGEST_WINDOW),
        "multiplicity": Param(
            "set", "count a word that a tweet repeats once (set) or every time (bag)", choices=("set", "bag")
        ),
    },
    profiles={
        "wordcount-bag": Profile("count every occurrence, as Flink's implementation does", {"multiplicity": "bag"}),
    },
)


@record
class Word:
    """A word of a tweet: the key of a window."""

    word: text


@record
class Count:
    """The number of tweets with the word so far."""

    n: i64


@record
class Counted:
    """A word and its count in the window that ends at `ts`."""

    ts: i64
    word: text
    n: i64


def words(row, keys):
    """Give a tweet its words as keys."""
    for word in row.text.split():
        keys.add(word=word)


def count(row, window, state, out):
    """Count a tweet for one of its words."""
    state.n += 1


def counted(window, state, out):
    """Emit the count of a word at the end of the window."""
    out.emit(ts=window.end, word=window.key.word, n=state.n)


keyed = app.source(Tweet).key_by(Word, keys=words, multiplicity="multiplicity")
keyed.window(sliding("size", every="advance")).apply(update=count, state=Count, output=Counted, result=counted).sink()

app.agrees_unordered("ts", "word", "n")

app.generates(tweets)


app.invariant(
    "the counts of a window add up to the number of words in its tweets",
    f"""SELECT coalesce(e.ts, o.ts) AS ts, e.words, o.counted FROM
    (SELECT at * :advance + :size AS ts, sum(words) AS words FROM
        (SELECT explode({ENDS}) AS at,
            size(CASE :multiplicity WHEN 'set' THEN array_distinct(spoken) ELSE spoken END) AS words FROM
            (SELECT ts, {WORDS_IN_TWEET} AS spoken FROM events))
        WHERE words > 0 GROUP BY at) e
    FULL OUTER JOIN (SELECT ts, sum(n) AS counted FROM outputs GROUP BY ts) o ON e.ts = o.ts
    WHERE e.ts IS NULL OR o.ts IS NULL OR e.words <> o.counted""",
)
app.invariant(
    "a window ends one size after a multiple of the advance", "SELECT * FROM outputs WHERE (ts - :size) % :advance <> 0"
)
app.invariant(
    "a window lists a word once, with a count of at least 1",
    "SELECT ts, word, count(*) AS times, min(n) AS n FROM outputs GROUP BY ts, word HAVING count(*) > 1 OR min(n) < 1",
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


@app.property
def windows_count_their_tweets(stream):
    """The count of a word is the number of tweets in the window that have it, or of its occurrences."""
    size, advance = stream.params["size"], stream.params["advance"]
    expected: Counter = Counter()
    for event in stream.events:
        spoken = event["text"].split()
        for word in spoken if stream.params["multiplicity"] == "bag" else {*spoken}:
            for number in range((event["ts"] - size) // advance + 1, event["ts"] // advance + 1):
                expected[number * advance + size, word] += 1
    assert {(row["ts"], row["word"]): row["n"] for row in stream.rows} == expected
