"""wordcount against the same counts written again, and by hand."""

import pytest

from tests.streaming_core.apps.windows import run, windows_of


@pytest.mark.parametrize(
    "params",
    [
        {"vocabulary": 300, "rate": 5.0, "advance": 60_000, "size": 120_000},
        {"vocabulary": 40, "advance": 1_000, "size": 2_500},
        {"vocabulary": 40, "advance": 1_000, "size": 2_500, "multiplicity": "bag"},
        {"vocabulary": 2_000, "rate": 200.0, "advance": 300, "size": 300},
        {"vocabulary": 10, "skew": 0.0, "rate": 1.0, "advance": 7, "size": 50},  # most windows have no tweet
    ],
)
@pytest.mark.slow
def test_wordcount_counts_the_words_of_windows(params):
    events, result = run("wordcount", params)
    is_set = result.params["multiplicity"] == "set"

    def words(event):
        keys = [(word,) for word in event["text"].split()]
        return dict.fromkeys(keys) if is_set else keys

    wanted = [(seq, end, *key, len(of)) for seq, end, key, of in windows_of(events, result.params, words)]
    assert result.columns("seq", "ts", "word", "n") == wanted
    assert len({seq for seq, *_ in wanted}) > 1
    assert any(n > 1 for *_, n in wanted)
    assert any(len(set(words(e))) < len(e["text"].split()) for e in events)


def test_wordcount_matches_an_example_by_hand():
    rows = [
        {"ts": 120_000, "text": b"a b a"},
        {"ts": 150_000, "text": b""},
        {"ts": 179_999, "text": b" \t A,\n\r\x0b\x0cb\x1f \0 "},  # six blanks; two characters that are none
        {"ts": 240_000, "text": b"a"},
    ]
    for multiplicity, twice in (("set", 1), ("bag", 2)):
        _, result = run("wordcount", {"multiplicity": multiplicity}, rows)
        counts = {row[:3]: row[3] for row in result.columns("seq", "ts", "word", "n")}
        assert counts == {
            (3, 180_000, b"a"): twice, (3, 180_000, b"b"): 1, (3, 180_000, b"b\x1f"): 1, (3, 180_000, b"A,"): 1,
            (3, 180_000, b"\0"): 1,
            (3, 240_000, b"a"): twice, (3, 240_000, b"b"): 1, (3, 240_000, b"b\x1f"): 1, (3, 240_000, b"A,"): 1,
            (3, 240_000, b"\0"): 1,
            (4, 300_000, b"a"): 1, (4, 360_000, b"a"): 1,
        }  # fmt: skip


def test_wordcount_is_empty_without_words():
    assert run("wordcount", {}, [])[1].outputs == []
    assert run("wordcount", {}, [{"ts": 1, "text": b" \t"}])[1].outputs == []
