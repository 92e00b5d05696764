"""GS against the same computation written again."""

from collections import Counter
from itertools import groupby

import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from tests.support import by_hand


@pytest.mark.parametrize(
    "params",
    [
        {"n_items": 50},
        {"n_items": 10, "partitioned": False, "theta": 1.0, "read_ratio": 0.25},
        {"length": 3, "n_items": 4, "gen_parts": 2, "duplicates": True},
        {"length": 16, "n_items": 40, "post_compute": 3},
        {"n_items": 60, "invalid_ratio": 0.1, "read_ratio": 0.3},
        {"length": 1, "n_items": 1, "read_ratio": 1.0},
        {"n_items": 50, "payload": 0},
        {"n_items": 50, "payload": 15, "summation": False},
    ],
)
def test_gs_reads_earlier_writes(params):
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
            total = mixed = sum(table[k] for k in e["keys"][0 if bound["summation"] else -1 :])
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
    assert [row.payload for row in result.state["state_items"][1].values()] == [[v] * bound["payload"] for v in table]
    assert (dropped > 0) == ("invalid_ratio" in params)


@pytest.mark.parametrize("partitions", [1, 2, 4, 6, 8, 10, 12])
@pytest.mark.parametrize("neighbours", [True, False])
def test_multi_partition_events_touch_exactly_mp_len_partitions(partitions, neighbours):
    params = {"mp_ratio": 1.0, "mp_len": partitions, "mp_partitions": "neighbours" if neighbours else "any"}
    keys = workload.generate_chunk("gs", params, 400, 3, 0, 400)["keys"].to_pylist()
    touched = [{key // 250 for key in event} for event in keys]  # 40 partitions of 10,000 records
    assert {len(event) for event in touched} == {min(partitions, 10)}
    counts = Counter(tuple(len(list(group)) for _, group in groupby(key // 250 for key in event)) for event in keys)
    assert counts == {
        {
            1: (10,), 2: (5, 5), 4: (3, 3, 3, 1), 6: (2, 2, 2, 2, 1, 1), 8: (2, 2, 1, 1, 1, 1, 1, 1),
        }.get(partitions, (1,) * 10): 400
    }  # fmt: skip


@pytest.mark.parametrize(("app", "payload", "size"), [("gs", 15, 128), ("sl", 11, 96), ("ob", 4, 48), ("tp", 8, 80)])
def test_records_reach_the_papers_sizes(app, payload, size):
    loaded = registry.load(app)
    assert loaded.tables[0].row.resolve(loaded.bind({"payload": payload})).state[1] == size
    default = {"gs": 32, "sl": 8, "ob": 16, "tp": 16}[app]
    assert loaded.tables[0].row.resolve(loaded.bind({})).state[1] == default
