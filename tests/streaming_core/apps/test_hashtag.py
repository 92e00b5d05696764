"""hashtag against the same maxima written again, and against the paper's trace."""

import re

import pytest

from tests.streaming_core.apps.windows import run, windows_of

MINUTE = 60_000


@pytest.mark.parametrize(
    "params",
    [
        {"rate": 0.1, "hashtags": 20},
        {"hashtags": 10, "hashtag_ratio": 0.8, "advance": 1_000, "size": 2_500},
        {"hashtags": 500, "rate": 300.0, "hashtag_ratio": 1.0, "advance": 100, "size": 100},
    ],
)
@pytest.mark.slow
def test_hashtag_finds_the_longest(params):
    events, result = run("hashtag", params)

    def tags(event):
        return dict.fromkeys((tag,) for tag in re.findall(rb"#([A-Za-z0-9_]+)", event["text"]))

    wanted = [
        (seq, end, *key, max(len(event["text"].decode()) for event in of))
        for seq, end, key, of in windows_of(events, result.params, tags)
    ]
    assert result.columns("seq", "ts", "hashtag", "chars") == wanted
    assert len({seq for seq, *_ in wanted}) > 1
    assert any(len(of) > 1 for *_, of in windows_of(events, result.params, tags))


def at(hour, minute):
    return (60 * hour + minute) * MINUTE


def test_hashtag_matches_the_papers_trace():
    """STRETCH, appendices C to E: figure 15 and listing 16."""
    tweets = ((at(9, 50), b"hello #pink"), (at(9, 58), b"hi #red #pink"), (at(10, 0), b"nothing # at all"))
    _, result = run("hashtag", {}, [{"ts": ts, "text": text} for ts, text in tweets])
    assert set(result.columns("seq", "ts", "hashtag", "chars")) == {
        (2, at(10, 0), b"red", 13),
        (2, at(10, 0), b"pink", 13),
        (3, at(10, 30), b"red", 13),
        (3, at(10, 30), b"pink", 13),
    }
    assert len(result.outputs) == 4


def test_hashtags_and_lengths_match_an_example_by_hand():
    text = "##a#b_9-#Z # #é #a ü€😀"
    _, result = run("hashtag", {"advance": 10, "size": 10}, [{"ts": 10, "text": text.encode()}])
    assert set(result.columns("ts", "hashtag", "chars")) == {(20, tag, len(text)) for tag in (b"a", b"b_9", b"Z")}
    assert len(result.outputs) == 3
    assert len(text) < len(text.encode())
