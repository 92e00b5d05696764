"""Tweets for the applications of STRETCH's first two questions, and what these applications share.

Tweets are a Poisson process, with words by Zipf's law, and hashtags after the words of some (workloads E.1). The
paper's own tweets, of 1 and 2 October 2018, may not be passed on.

A tweet is a unit. The second in which it arrives and its rank within that second address its draws. The place in the
tweet also addresses those of a word. `ts` counts milliseconds from 1 October 2018 on. This is beyond the size of any
window, so no window of a tweet begins below zero.

The shared parts are the record, the functions that find the words of a tweet, and invariants. The invariants check when
windows leave, which does not depend on what they count.
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
WORDS, TAGS = 50, 14  # largest number in a tweet
PLACES = WORDS + TAGS
CHARACTERS = 280
RANKS = 1 << 17  # largest number of tweets within a second
PERIOD = 16_384  # tweets of a period, approximately

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
# Outputs that left with another tweet than the first one at or after the end of their window, or too early.
LEFT_OUT_OF_TIME = """SELECT o.* FROM (SELECT DISTINCT seq, ts FROM outputs) o LEFT JOIN
    (SELECT seq, ts, lag(ts) OVER (ORDER BY seq) AS before FROM
        (SELECT seq, ts FROM events UNION ALL SELECT count(*), 9223372036854775807 FROM events)) e ON o.seq = e.seq
    WHERE e.seq IS NULL OR e.ts < o.ts OR coalesce(e.before >= o.ts, true)"""
# Outputs that left with the same tweet as a later window, and after it.
OUT_OF_ORDER = """SELECT * FROM (SELECT *, lag(ts) OVER (PARTITION BY seq ORDER BY sub) AS ts_before FROM outputs)
    WHERE ts < ts_before"""


def is_blank(byte: int) -> bool:
    """Tell whether a byte is ASCII whitespace. Operators call this function and the two below."""
    return byte == 32 or 9 <= byte < 14


def word_from(line: bytes, at: int) -> int:
    """Return where the first word from `at` on begins; the end of the line if there is none."""
    while at < len(line) and is_blank(line[at]):
        at += 1
    return at


def word_end(line: bytes, at: int) -> int:
    """Return where the word that begins at `at` ends."""
    while at < len(line) and not is_blank(line[at]):
        at += 1
    return at


def _seconds(params: dict, period: int) -> np.ndarray:
    """Return the seconds of a period; their number changes no tweet."""
    length = min(3_600, max(1, round(PERIOD / params["rate"])))
    return np.arange(period * length, (period + 1) * length)


def _arrivals(params: dict, seed: int, second: np.ndarray) -> np.ndarray:
    """Return the number of tweets that arrive in each of these seconds."""
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
    order = np.argsort(ts, kind="stable")  # equal milliseconds: by rank
    draws = Draws(seed, "tweets.tweets", units=tweet[order])
    return {"ts": ts[order], "user": draws.below(1, params["users"]), "text": _texts(params, seed, tweet[order], draws)}


def _texts(params: dict, seed: int, tweet: np.ndarray, draws: Draws) -> pa.BinaryArray:
    """Return the texts: words between blanks, then hashtags. A text ends before the token that makes it too long."""
    _, length = _poisson(12.0)
    spoken = np.minimum(1 + length.pick(draws.u53(2)), WORDS)
    tagged = np.where(draws.chance(3, params["hashtag_ratio"]), 1 + _more_tags().pick(draws.u53(4)), 0)
    size = spoken + tagged
    of = np.repeat(np.arange(len(tweet)), size)
    first = np.cumsum(size) - size
    place = np.arange(len(of)) - first[of]
    u = Draws(seed, "tweets.words", units=tweet[of] * PLACES + place).u53(0)
    tokens, is_tag = _tokens(params["vocabulary"], params["hashtags"]), place >= spoken[of]
    token = zipf(params["vocabulary"], params["skew"]).pick(u) + tokens.first["then"]
    token[first] += tokens.first["first"] - tokens.first["then"]
    token[is_tag] = zipf(params["hashtags"], params["hashtag_skew"]).pick(u[is_tag]) + tokens.first["tag"]
    upto = np.cumsum(tokens.lengths(token))
    fits = upto - np.concatenate([[0], upto])[first][of] <= CHARACTERS
    return tokens.texts(token[fits], np.bincount(of[fits], minlength=len(tweet)))


tweets = by_period(_make, _count)


@lru_cache(maxsize=2)
def _tokens(vocabulary: int, hashtags: int) -> Tokens:
    plain = words(vocabulary)
    return Tokens(first=plain, then=[b" " + word for word in plain], tag=[b" #t%d" % k for k in range(hashtags)])


@lru_cache(maxsize=1)
def _more_tags() -> Discrete:
    """Return the law of the number of hashtags after the first: geometric, each with probability 0.4."""
    weights = [0.6]
    while len(weights) < TAGS:
        weights.append(weights[-1] * 0.4)
    return proportional(np.array(weights))


@lru_cache(maxsize=8)
def _poisson(mean: float) -> tuple[int, Discrete]:
    """Return the least number that occurs, and the law of how many more occur.

    It computes weights from the likeliest number outwards. If the mean is large, the probability of 0 is too small for
    a double.
    """
    likeliest = int(mean)
    more, fewer = [1.0], [1.0]
    while more[-1] > 1e-18:
        more.append(more[-1] * mean / (likeliest + len(more)))
    while fewer[-1] > 1e-18 and len(fewer) <= likeliest:
        fewer.append(fewer[-1] * (likeliest - len(fewer) + 1) / mean)
    return likeliest - len(fewer) + 1, proportional(np.array(fewer[:0:-1] + more))
