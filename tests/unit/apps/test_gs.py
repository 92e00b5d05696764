"""GS against the same computation written again."""

import pytest

from tests.unit import by_hand


@pytest.mark.parametrize(
    "params",
    [
        {"n_items": 50},
        {"n_items": 10, "partitioned": False, "theta": 1.0, "read_ratio": 0.25},
        {"length": 3, "n_items": 4, "gen_parts": 2, "duplicates": True},
        {"length": 16, "n_items": 40, "post_compute": 3},
        {"n_items": 60, "invalid_ratio": 0.1, "read_ratio": 0.3},
        {"length": 1, "n_items": 1, "read_ratio": 1.0},
    ],
)
def test_gs_reads_what_was_written_before(params):
    events, result = by_hand.run_generated("gs", params)
    bound = result.params
    table = list(range(bound["n_items"]))
    expected, dropped = [], 0
    for e in events:
        if max(e["keys"]) >= bound["n_items"]:
            dropped += 1
            continue
        total = mixed = 0
        if e["is_read"]:
            total = mixed = sum(table[k] for k in e["keys"])
            mixed %= 2**31 - 1
            for _ in range(bound["post_compute"]):
                mixed = (mixed * 48271 + 11) % (2**31 - 1)
        else:
            for k, v in zip(e["keys"], e["vals"], strict=True):
                table[k] = v
        expected.append({"seq": e["seq"], "sub": 0, "is_read": e["is_read"], "total": total, "mixed": mixed})
    assert result.outputs == expected
    assert result.dropped == dropped
    assert [row.value for row in result.state["state_items"][1].values()] == table
    assert (dropped > 0) == ("invalid_ratio" in params)
