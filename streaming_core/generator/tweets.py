"""Tweets as STRETCH's first two questions take them (workloads E.1; the paper's own, of 1 and 2 October 2018, may not
be handed on): a Poisson process of them, words by Zipf's law, hashtags behind the words of some.

A tweet is a unit: its draws are addressed by the second in which it comes and its rank among those of that second, and
those of a word by its place in the tweet. `ts` are milliseconds, from the day on that the paper's begin with: beyond
any window's size, so no window of a tweet begins below zero.

Beside them what applications with windows over tweets have in common: how a tweet's words are found, and what holds of
when its windows leave, whatever was counted in them.
"""

from functools import lru_cache

import numpy as np
import pyarrow as pa

from streaming_core.api import Param, i64, record, text
from streaming_core.generator.distributions import Discrete, proportional, zipf
from streaming_core.generator.draws import Draws
from streaming_core.generator.periods import by_period
from streaming_core.generator.tokens import Tokens, words

BEGIN = 1_538_352_000_000  # 2018-10-01T00:00:00Z
LONGEST_WINDOW = 1_000_000_000_000  # ms: below BEGIN
WORDS, TAGS = 50, 14  # of a tweet at most
PLACES = WORDS + TAGS
CHARACTERS = 280
RANKS = 1 << 17  # tweets that may come within a second
PERIOD = 16_384  # tweets that are made at once, about

TWEETS = {
    "rate": Param(25.0, "average number of tweets per second", minimum=0.01, maximum=100_000.0),
    "users": Param(1_000_000, "number of users", minimum=1, maximum=1_000_000_000),
    "vocabulary": Param(200_000, "number of different words", minimum=1, maximum=1_000_000),
    "skew": Param(1.0, "Zipf exponent of the words; 0: all equally likely", minimum=0.0, maximum=4.0),
    "hashtag_ratio": Param(0.25, "share of tweets with hashtags", minimum=0.0, maximum=1.0),
    "hashtags": Param(20_000, "number of different hashtags", minimum=1, maximum=1_000_000),
    "hashtag_skew": Param(1.1, "Zipf exponent of the hashtags", minimum=0.0, maximum=4.0),
}


@record
class Tweet:
    """A tweet: the time in milliseconds, the number of its user, and its text as UTF-8."""

    ts: i64
    user: i64
    text: text


# In SQL: the words of a tweet, and the numbers of the windows that it falls in.
WORDS_IN_TWEET = r"filter(split(CAST(text AS STRING), '\\s+'), word -> word <> '')"
ENDS = "sequence(floor((ts - :size) / :advance) + 1, floor(ts / :advance))"
# What left its window with another tweet than the first one from its end on, or before there were no more.
LEFT_OUT_OF_TIME = """SELECT o.* FROM (SELECT DISTINCT seq, ts FROM outputs) o LEFT JOIN
    (SELECT seq, ts, lag(ts) OVER (ORDER BY seq) AS before FROM
        (SELECT seq, ts FROM events UNION ALL SELECT count(*), 9223372036854775807 FROM events)) e ON o.seq = e.seq
    WHERE e.seq IS NULL OR e.ts < o.ts OR coalesce(e.before >= o.ts, true)"""
# What left with the same tweet as a later window, and behind it.
OUT_OF_ORDER = """SELECT * FROM (SELECT *, lag(ts) OVER (PARTITION BY seq ORDER BY sub) AS ts_before FROM outputs)
    WHERE ts < ts_before"""


def is_blank(byte):
    """ASCII whitespace. This and those below are written like operators, and called by them."""
    return byte == 32 or 9 <= byte < 14


def word_from(line, at):
    """Where the first word behind `at` begins; the end of the line if there is none."""
    while at < len(line) and is_blank(line[at]):
        at += 1
    return at


def word_end(line, at):
    """Where the word that begins at `at` ends."""
    while at < len(line) and not is_blank(line[at]):
        at += 1
    return at


def _seconds(params: dict, period: int) -> np.ndarray:
    """The seconds of a period: no tweet hangs on how many these are."""
    length = min(3_600, max(1, round(PERIOD / params["rate"])))
    return np.arange(period * length, (period + 1) * length)


def _arrivals(params: dict, seed: int, second: np.ndarray) -> np.ndarray:
    """How many tweets come in each of these seconds."""
    fewest, law = _poisson(params["rate"])
    return fewest + law.pick(Draws(seed, "tweets.seconds", units=second).u53(0))


def _count(params: dict, seed: int, period: int) -> int:
    return int(_arrivals(params, seed, _seconds(params, period)).sum())


def _make(params: dict, seed: int, period: int) -> dict:
    second = _seconds(params, period)
    count = _arrivals(params, seed, second)
    rank = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    second = np.repeat(second, count)
    tweet = second * RANKS + rank
    ts = BEGIN + second * 1000 + Draws(seed, "tweets.tweets", units=tweet).below(0, 1000)
    order = np.argsort(ts, kind="stable")  # of one millisecond: by rank
    draws = Draws(seed, "tweets.tweets", units=tweet[order])
    return {"ts": ts[order], "user": draws.below(1, params["users"]), "text": _texts(params, seed, tweet[order], draws)}


def _texts(params: dict, seed: int, tweet: np.ndarray, draws: Draws) -> pa.BinaryArray:
    """The tweets' words, between blanks, then their hashtags; from where they would be too long on, none."""
    _, length = _poisson(12.0)
    said = np.minimum(1 + length.pick(draws.u53(2)), WORDS)
    tagged = np.where(draws.chance(3, params["hashtag_ratio"]), 1 + _more_tags().pick(draws.u53(4)), 0)
    size = said + tagged
    of = np.repeat(np.arange(len(tweet)), size)
    first = np.cumsum(size) - size
    place = np.arange(len(of)) - first[of]
    u = Draws(seed, "tweets.words", units=tweet[of] * PLACES + place).u53(0)
    tokens, is_tag = _tokens(params["vocabulary"], params["hashtags"]), place >= said[of]
    token = zipf(params["vocabulary"], params["skew"]).pick(u) + tokens.first["then"]
    token[first] += tokens.first["first"] - tokens.first["then"]
    token[is_tag] = zipf(params["hashtags"], params["hashtag_skew"]).pick(u[is_tag]) + tokens.first["tag"]
    upto = np.cumsum(tokens.lengths(token))
    fits = upto - np.concatenate([[0], upto])[first][of] <= CHARACTERS
    return tokens.texts(token[fits], np.bincount(of[fits], minlength=len(tweet)))


tweets = by_period(_make, _count)


@lru_cache(maxsize=2)
def _tokens(vocabulary: int, hashtags: int) -> Tokens:
    said = words(vocabulary)
    return Tokens(first=said, then=[b" " + word for word in said], tag=[b" #t%d" % k for k in range(hashtags)])


@lru_cache(maxsize=1)
def _more_tags() -> Discrete:
    """Hashtags behind the first one: geometric, each with probability 0.4."""
    weights = [0.6]
    while len(weights) < TAGS:
        weights.append(weights[-1] * 0.4)
    return proportional(np.array(weights))


@lru_cache(maxsize=8)
def _poisson(mean: float) -> tuple[int, Discrete]:
    """The least number that comes about, and the law of how many more do. From the likeliest number outwards, for the
    probability of none is too small for a double where the mean is large."""
    likeliest = int(mean)
    more, fewer = [1.0], [1.0]
    while more[-1] > 1e-18:
        more.append(more[-1] * mean / (likeliest + len(more)))
    while fewer[-1] > 1e-18 and len(fewer) <= likeliest:
        fewer.append(fewer[-1] * (likeliest - len(fewer) + 1) / mean)
    return likeliest - len(fewer) + 1, proportional(np.array(fewer[:0:-1] + more))
