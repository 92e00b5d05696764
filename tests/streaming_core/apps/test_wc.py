"""WC against the same computation written again."""

from collections import Counter

import pytest

from tests.support import by_hand


@pytest.mark.parametrize(
    "params", [{}, {"vocabulary": 5}, {"skew": 1.0, "words": 3, "invalid_ratio": 0.2}, {"distinct": True}]
)
def test_wc_counts_words(params):
    events, result = by_hand.run_generated("wc", params)
    seen, expected, dropped = Counter(), [], 0
    for e in events:
        dropped += not e["line"]
        words = [w for w in e["line"].split(b" ") if w]
        assert len(words) == (result.params["words"] if e["line"] else 0)
        for sub, word in enumerate(words):
            seen[word] += 1
            expected.append({"seq": e["seq"], "sub": sub, "word": word, "n": seen[word]})
    assert result.outputs == expected
    assert {key: state.n for key, state in result.state["state_count"][1].items()} == seen
    assert result.dropped == dropped
    assert (dropped > 0) == ("invalid_ratio" in params)


def test_wc_skips_empty_words_and_drops_empty_lines():
    result = by_hand.run_lines("wc", [b" a  b ", b"", b"   ", b"b", b"a\tB"])
    assert [(o["seq"], o["sub"], o["word"], o["n"]) for o in result.outputs] == [
        (0, 0, b"a", 1), (0, 1, b"b", 1), (3, 0, b"b", 2), (4, 0, b"a\tB", 1),
    ]  # fmt: skip
    assert result.dropped == 1
