"""Word count: running counts of the words in a stream of sentences.

    source -> split (stateless) -> count (partitioned by word) -> sink

The application comes from BriskStream, section 2.2.

A sentence is a line of words between single blanks. An empty line is invalid. The output holds every word with the
number of times it has occurred so far. An engine needs to keep only the order of equal words to give these results.
"""

from collections import Counter
from functools import lru_cache

import numpy as np

from streaming_core.api import App, Param, Profile, i64, record, text
from streaming_core.generator import Draws, Tokens, words, zipf

app = App(
    "wc",
    reads="BriskStream, section 2.2 and figure 2",
    params={
        "words": Param(10, "words per sentence", minimum=1, maximum=1000),
        "vocabulary": Param(10_000, "number of different words", minimum=1, maximum=1_000_000),
        "skew": Param(0.0, "Zipf exponent of the words; 0: all equally likely", minimum=0.0, maximum=4.0),
        "distinct": Param(False, "use random decimal fractions as words, nearly all of them different"),
        "invalid_ratio": Param(0.0, "share of empty lines", minimum=0.0, maximum=1.0),
    },
    profiles={
        "wc-skewed": Profile("the skew of natural language", {"skew": 1.0}),
        "wc-distinct": Profile("as BriskStream's code generates: the state grows without bound", {"distinct": True}),
    },
)
p = app.params


@record
class Sentence:
    """A line of words between single blanks, with its number as its time."""

    ts: i64
    line: text


@record
class Word:
    """One word of a sentence."""

    word: text


@record
class Count:
    """The number of times that a word has occurred."""

    n: i64


@record
class Counted:
    """A word with the number of times it has occurred so far."""

    word: text
    n: i64


def split(row, out):
    """Emit each word of a line, and drop an empty line."""
    if len(row.line) == 0:
        out.drop()
    for word in row.line.split(b" "):
        if len(word) > 0:
            out.emit(word=word)


def count(row, state, out):
    """Count a word, and emit it with its new count."""
    state.n += 1
    out.emit(word=row.word, n=state.n)


app.source(Sentence).flat_map(split, Word).key_by("word").process(count, state=Count, output=Counted).sink()


app.agrees_unordered("word", "n", states=("count",))


@app.generates
def sentences(params, seed, start, stop):
    """Draw each word independently; ts is the number of the sentence."""
    draws = Draws(seed, "wc.words", start, stop)
    columns = []
    if params["distinct"]:
        tokens = _fractions()
        for j in range(params["words"]):
            bits = draws.bits(j)
            columns.append(np.full(len(draws), tokens.first["zero"]))
            for k in range(4):
                digits = ((bits >> np.uint64(16 * k) & np.uint64(0xFFFF)) * np.uint64(10_000)) >> np.uint64(16)
                last = k == 3 and j < params["words"] - 1
                columns.append(digits.view(np.int64) + tokens.first["then" if last else "digits"])
    else:
        tokens, law = _vocabulary(params["vocabulary"]), zipf(params["vocabulary"], params["skew"])
        for j in range(params["words"]):
            columns.append(law.pick(draws.u53(j)) + tokens.first["then" if j < params["words"] - 1 else "last"])
    if params["invalid_ratio"] > 0:
        invalid = Draws(seed, "wc.invalid", start, stop).chance(0, params["invalid_ratio"])
        columns = [np.where(invalid, tokens.first["nothing"], column) for column in columns]
    return {"ts": np.arange(start, stop), "line": tokens.lines(columns)}


@lru_cache(maxsize=4)
def _vocabulary(size):
    vocabulary = words(size)
    return Tokens(then=[word + b" " for word in vocabulary], last=vocabulary, nothing=[b""])


@lru_cache(maxsize=1)
def _fractions():
    digits = [b"%04d" % k for k in range(10_000)]
    return Tokens(zero=[b"0."], digits=digits, then=[d + b" " for d in digits], nothing=[b""])


app.invariant(
    "the n-th occurrence of a word has count n",
    """SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY word ORDER BY seq, sub) AS expected FROM outputs)
    WHERE n <> expected""",
    by_order=True,
)
app.invariant(
    "a sentence has one output per word",
    r"""SELECT coalesce(e.seq, o.seq) AS seq, e.words, o.outputs FROM
    (SELECT seq, size(filter(split(CAST(line AS STRING), ' '), w -> w <> '')) AS words FROM events) e
    FULL OUTER JOIN (SELECT seq, count(*) AS outputs FROM outputs GROUP BY seq) o ON e.seq = o.seq
    WHERE e.seq IS NULL OR coalesce(o.outputs, 0) <> e.words""",
)
app.invariant(
    "a word's final count is its number of outputs",
    """SELECT coalesce(s.key, o.word) AS word, s.n, o.outputs FROM state_count s
    FULL OUTER JOIN (SELECT word, count(*) AS outputs FROM outputs GROUP BY word) o ON s.key = o.word
    WHERE s.n IS NULL OR o.outputs IS NULL OR s.n <> o.outputs""",
)


@app.property
def counts_are_those_of_the_words(stream):
    """A word leaves with the number of times it has occurred so far."""
    seen: Counter = Counter()
    expected = []
    for event in stream.events:
        for word in filter(None, event["line"].split(b" ")):
            seen[word] += 1
            expected.append({"word": word, "n": seen[word]})
    assert stream.rows == expected
