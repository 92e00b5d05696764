"""paircount against the same counts written again, and by hand."""

import pytest

from streaming_core.apps import registry
from tests.streaming_core.apps.windows import run, windows_of

FAR = {"L": 3, "M": 10, "H": 10**9}


@pytest.mark.parametrize("multiplicity", ["set", "bag"])
@pytest.mark.parametrize("level", ["L", "M", pytest.param("H", marks=pytest.mark.slow)])
def test_paircount_counts_the_pairs_of_windows(level, multiplicity):
    params = {"level": level, "multiplicity": multiplicity, "vocabulary": 30, "advance": 1_000, "size": 2_500}
    events, result = run("paircount", params, events=200)

    def pairs(event):
        words = event["text"].split()
        near = [(a, b) for i, a in enumerate(words) for j, b in enumerate(words) if 0 < j - i <= FAR[level]]
        return dict.fromkeys(near) if multiplicity == "set" else near

    wanted = [(seq, end, *key, len(of)) for seq, end, key, of in windows_of(events, result.params, pairs)]
    assert result.columns("seq", "ts", "first", "second", "n") == wanted
    assert len({seq for seq, *_ in wanted}) > 3
    assert any(n > 1 for *_, n in wanted)
    assert any(first == second for _, _, first, second, _ in wanted)


@pytest.mark.parametrize(("level", "far"), FAR.items())
def test_a_tweet_of_distinct_words_has_the_expected_number_of_pairs(level, far):
    _, result = run("paircount", {"level": level}, [{"ts": 120_000, "text": b" ".join(b"w%d" % k for k in range(40))}])
    assert len(result.outputs) == 2 * sum(40 - d for d in range(1, min(far, 39) + 1))


def test_paircount_matches_an_example_by_hand():
    rows = [{"ts": 120_000, "text": b"\ta b  a c a "}, {"ts": 200_000, "text": b"alone"}]
    pairs = {b"ab": 1, b"aa": 2, b"ac": 2, b"ba": 2, b"bc": 1, b"ca": 1}  # the first and the last are four apart
    for multiplicity in ("set", "bag"):
        _, result = run("paircount", {"multiplicity": multiplicity}, rows)
        counts = {(seq, ts, a + b): n for seq, ts, a, b, n in result.columns("seq", "ts", "first", "second", "n")}
        assert counts == {
            (seq, end, pair): 1 if multiplicity == "set" else n
            for seq, end in ((1, 180_000), (2, 240_000))
            for pair, n in pairs.items()
        }


def test_each_level_has_a_profile():
    app = registry.load("paircount")
    levels = {name: app.bind(profile.params)["level"] for name, profile in app.profiles.items()}
    assert levels == {"paircount-l": "L", "paircount-m": "M", "paircount-h": "H", "paircount-bag": "L"}
