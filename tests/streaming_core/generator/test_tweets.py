"""Tweets follow their distributions, whatever slices a caller requests."""

import re

import numpy as np
import pytest

from streaming_core.generator.tweets import BEGIN, TWEETS, _make, tweets

N = 60_000


def defaults(**params):
    return {name: p.default for name, p in TWEETS.items()} | params


@pytest.mark.parametrize("rate", [0.5, 25.0, 3_000.0])
def test_tweets_arrive_as_a_poisson_process(rate):
    ts = tweets(defaults(rate=rate, vocabulary=100), 2, 0, N)["ts"] - BEGIN
    assert 0 <= ts[0] < 100_000 / rate
    seconds = ts // 1000
    count = np.bincount(seconds)[:-1]  # the last second is cut off
    assert abs(count.mean() / rate - 1) < 0.02
    if len(count) > 100:
        assert abs(count.var() / rate - 1) < 0.1
    assert abs((ts % 1000).mean() - 499.5) < 5


@pytest.mark.slow
def test_words_and_hashtags_follow_their_distributions():
    columns = tweets(defaults(), 1, 0, N)
    texts = columns["text"].to_pylist()
    assert all(len(text) <= 280 and not re.search(rb"  |^ | $|[^a-z0-9# ]", text) for text in texts)
    assert max(map(len, texts)) > 250
    split = [text.split() for text in texts]
    words = [[word for word in tweet if not word.startswith(b"#")] for tweet in split]
    tags = [tweet[len(numbers) :] for tweet, numbers in zip(split, words, strict=True)]
    assert all(tag.startswith(b"#t") for tweet in tags for tag in tweet)  # behind the words
    counts = np.array([len(numbers) for numbers in words])
    assert 1 <= counts.min() <= 2
    assert abs(counts.mean() - 13) < 0.05
    assert abs(counts.var() - 12) < 0.3
    tagged = np.array([len(tweet) for tweet in tags])
    assert abs((tagged > 0).mean() - 0.25) < 0.01
    assert abs(tagged[tagged > 0].mean() - 1 / 0.6) < 0.03
    numbers = np.array([int(re.match(rb"w(\d+)", word)[1]) for tweet in words for word in tweet])
    law = 1 / np.arange(1, 200_001)
    law /= law.sum()
    frequencies = np.bincount(numbers, minlength=200_000) / len(numbers)
    assert len(frequencies) == 200_000
    assert abs(frequencies[:50] / law[:50] - 1).max() < 0.08
    assert abs(frequencies[:10_000].sum() - law[:10_000].sum()) < 0.003
    tag = np.array([int(name[2:]) for tweet in tags for name in tweet])
    assert tag.max() < 20_000
    law = np.arange(1, 20_001) ** -1.1
    assert abs((tag == 0).mean() - law[0] / law.sum()) < 0.01
    users = columns["user"]
    assert users.min() >= 0
    assert 990_000 < users.max() < 1_000_000


def test_an_overlong_tweet_is_cut_after_a_whole_token(monkeypatch):
    params = defaults(hashtag_ratio=1.0, skew=0.0, rate=100.0)
    whole = _make(params, 4, 0)["text"].to_pylist()
    assert all(b" #t" in text for text in whole)
    monkeypatch.setattr("streaming_core.generator.tweets.CHARACTERS", 60)
    for text, kept in zip(whole, _make(params, 4, 0)["text"].to_pylist(), strict=True):
        assert kept == (text if len(text) <= 60 else text[: text.rindex(b" ", 0, 61)])
