"""Q2 against the same computation written again, and by hand."""

from collections import Counter
from itertools import combinations

import pytest

from tests.streaming_core.apps.shop import best, click, sessions_of
from tests.support import by_hand


@pytest.mark.parametrize(
    "params",
    [
        {"items": 30, "users": 40, "emit_every": 100, "limit": 5},
        {"items": 30, "users": 40, "emit_every": 100, "limit": 5, "width": 2},
        {"items": 30, "users": 40, "emit_every": 7, "limit": 3, "given": 27, "width": 5},
        {"items": 30, "users": 10, "emit_every": 1_000, "mode": "kit", "invalid_ratio": 0.1, "null_ratio": 0.1},
        {"items": 4, "users": 2, "emit_every": 1, "limit": 2, "timeout": 60, "events_per_day": 2_000},
    ],
)
def test_q2_ranks_pairs_of_sessions(params):
    events, result = by_hand.run_generated("q2", params)
    bound = result.params
    anchor, counts, lists, seen = bound["given"], Counter(), [], 0

    def show(cause):
        lists.extend((cause, seen, rank, *pair, n) for rank, (pair, n) in enumerate(best(counts, bound["limit"])))

    keep = lambda e: e["item_sk"] > 0 and e["user_sk"] >= 0  # noqa: E731
    for cause, clicks in sessions_of(events, bound["timeout"], keep):
        for first, second in combinations(dict.fromkeys(c["item_sk"] for c in clicks), 2):
            if anchor == 0:
                counts[min(first, second), max(first, second)] += 1
            elif anchor in (first, second):
                counts[first if second == anchor else second, anchor] += 1
            else:
                continue
            seen += 1
            if seen % bound["emit_every"] == 0:
                show(cause)
    show(len(events))
    assert result.columns("seq", "inputs", "rank", "a", "b", "n") == lists
    assert result.dropped == sum(e["item_sk"] == 0 for e in events)
    assert seen > 20


def test_q2_matches_an_example_by_hand():
    result = by_hand.run_rows(
        "q2",
        {"items": 9, "emit_every": 2, "limit": 3, "width": 2},
        [
            click(0, 7, 1),
            click(3600, 7, 2),  # silent for an hour, and no longer: the same session
            click(3600, 7, 1),  # viewed before
            click(3600, 8, -1),
            click(3600, -1, 3),
            click(3601, 7, 3),
            click(7202, 7, 3),  # a second more: the pairs 1-2, 1-3, list, 2-3
            click(7203, 5, 4),
            click(7204, 5, 2),
            click(7205, 7, 2),
        ],
    )
    assert result.columns("seq", "inputs", "rank", "a", "b", "n") == [
        (6, 2, 0, 1, 2, 1),
        (6, 2, 1, 1, 3, 1),
        # The end: user 5 leaves 2-4, which makes a list, then user 7 leaves 2-3, the most frequent now; the last list.
        (10, 4, 0, 1, 2, 1),
        (10, 4, 1, 1, 3, 1),
        (10, 4, 2, 2, 3, 1),
        (10, 5, 0, 2, 3, 2),
        (10, 5, 1, 1, 2, 1),
        (10, 5, 2, 1, 3, 1),
    ]
    assert result.state["state_session"][1][7].session == 2
