"""FD against the same computation written again, and its model against exact arithmetic."""

from collections import defaultdict, deque
from fractions import Fraction

import numpy as np
import pytest

from streaming_core.apps import fd
from tests.support import by_hand


def fd_state(name):
    return "LMH".index(name[0]) * 6 + "NH".index(name[1]) * 3 + "LNS".index(name[2])


@pytest.mark.parametrize(
    "params",
    [
        {"entities": 20},
        {"entities": 7, "window": 2, "threshold_e4": 9500},
        {"entities": 30, "window": 10, "threshold_e4": 8000, "theta": 0.8},
        {"entities": 25, "markov": True, "fraud_ratio": 0.3, "invalid_ratio": 0.1},
    ],
)
def test_fd_scores_the_window(params):
    events, result = by_hand.run_generated("fd", params)
    window, miss = result.params["window"], fd.miss.build(result.params)
    last, expected = defaultdict(lambda: deque(maxlen=window)), []
    for e in events:
        fields = e["line"].decode().split(",")
        if len(fields) != 3 or fields[2] not in {n.decode() for n in fd.NAMES}:
            continue
        states = last[fields[0]]
        states.append(fd_state(fields[2]))
        score, outlier = Fraction(0), False
        if len(states) == window:
            missed = sum(int(miss[a * 18 + b]) for a, b in zip(list(states), list(states)[1:], strict=False))
            score = Fraction(missed, window - 1)
            outlier = score > Fraction(result.params["threshold_e4"], 10_000) * 2**32
        expected.append(
            {"seq": e["seq"], "sub": 0, "entity": fields[0].encode(), "score": int(score), "outlier": outlier}
        )
    assert result.outputs == expected
    assert result.dropped == len(events) - len(expected)
    assert (result.dropped > 0) == ("invalid_ratio" in params)
    assert any(o["score"] for o in expected)
    states = {key: list(state.recent) for key, state in result.state["state_predict"][1].items()}
    assert states == {key.encode(): list(states) for key, states in last.items()}


def test_fd_drops_unreadable_lines():
    good = b"e,t,LNL"
    bad = [
        b"", b"e", b"e,t", b",t,LNL", b"e,t,", b"e,t,LN", b"e,t,LNLL", b"e,t,XNL", b"e,t,LXL", b"e,t,LNX", b"e,t,lnl",
    ]  # fmt: skip
    result = by_hand.run_lines("fd", [good, *bad, b"e,,HHS"])
    assert [(o["seq"], o["entity"]) for o in result.outputs] == [(0, b"e"), (len(bad) + 1, b"e")]
    assert result.dropped == len(bad)


def test_fd_model_is_a_distribution_close_to_the_product():
    counts, misses = fd._model()
    assert counts.shape == (18, 18)
    assert counts.min() >= 1
    assert counts.sum() == 1_000_000 + 18 * 18
    product = np.array(fd.WEIGHTS) / 1e6
    assert abs(counts / counts.sum(axis=1, keepdims=True) - product).max() < 0.036
    exact = [(1 - Fraction(int(c), int(row.sum()))) * 2**32 for row in counts for c in row]
    assert all(abs(int(m) - x) <= Fraction(1, 2) for m, x in zip(misses, exact, strict=True))


def test_fd_scores_on_the_threshold_are_exact():
    """A score equal to the threshold is no outlier; one unit less of threshold makes it one."""
    lines = [b"e,t,LNL"] * 2
    result = by_hand.run_lines("fd", lines, {"window": 2, "threshold_e4": 10_000})
    assert [o["outlier"] for o in result.outputs] == [False, False]
    result = by_hand.run_lines("fd", lines, {"window": 2, "threshold_e4": 0})
    assert [o["outlier"] for o in result.outputs] == [False, True]
