"""SL against the same computation written again, and its conditions by hand."""

from itertools import pairwise

import pyarrow as pa
import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from tests.support import by_hand


@pytest.mark.parametrize(
    "params",
    [
        {"n_items": 20},
        {"n_items": 2, "partitioned": False, "init_balance": 5_000},
        {"n_items": 30, "theta": 1.5, "init_balance": 100_000, "min_balance": 90_000},
        {"n_items": 3, "duplicates": True, "deposit_ratio": 0.3, "max_amount": 10, "max_asset_amount": 10},
        {"n_items": 20, "invalid_ratio": 0.1},
        {"n_items": 20, "payload": 11, "mp_ratio": 1.0, "mp_len": 2, "gen_parts": 5, "mp_partitions": "any"},
    ],
)
def test_sl_moves_money(params):
    events, result = by_hand.run_generated("sl", params)
    bound = result.params
    a, b = ([bound["init_balance"]] * bound["n_items"] for _ in range(2))
    expected = []
    for e in events:
        if e["amt_acct"] < 0 or e["amt_asset"] < 0:
            continue
        da, db, sa, sb = e["dst_acct"], e["dst_asset"], e["src_acct"], e["src_asset"]
        ok = True
        if e["kind"] == 0:
            a[da] += e["amt_acct"]
            b[db] += e["amt_asset"]
        else:
            ok = a[sa] > e["min_bal"] and a[sa] > e["amt_acct"] and b[sb] > e["amt_asset"]
            if ok:
                a[sa] -= e["amt_acct"]
                a[da] += e["amt_acct"]
                b[sb] -= e["amt_asset"]
                b[db] += e["amt_asset"]
        sources = (a[sa], b[sb]) if e["kind"] else (0, 0)
        balances = {"src_acct": sources[0], "dst_acct": a[da], "src_asset": sources[1], "dst_asset": b[db]}
        expected.append({"seq": e["seq"], "sub": 0, "kind": e["kind"], "ok": ok, **balances})
    assert result.outputs == expected
    assert result.dropped == len(events) - len(expected)
    assert [row.balance for row in result.state["state_accounts"][1].values()] == a
    assert [row.balance for row in result.state["state_assets"][1].values()] == b
    assert [row.payload for row in result.state["state_assets"][1].values()] == [[v] * bound["payload"] for v in b]
    rejected = sum(not o["ok"] for o in expected)
    assert 0 < rejected < len(expected)


@pytest.mark.parametrize("mp_len", [1, 2, 3, 4])
@pytest.mark.parametrize("mp_partitions", ["neighbours", "any"])
def test_sl_multi_partition_transfers_touch_mp_len_partitions_and_deposits_two(mp_len, mp_partitions):
    params = {"mp_ratio": 1.0, "mp_len": mp_len, "mp_partitions": mp_partitions}
    events = workload.generate_chunk("sl", params, 400, 3, 0, 400).to_pylist()
    for event in events:
        roles = ("src_acct", "dst_acct", "src_asset", "dst_asset") if event["kind"] else ("dst_acct", "dst_asset")
        partitions = [event[role] // 250 for role in roles]  # 40 partitions of 10,000 records
        assert len(set(partitions)) == min(mp_len, len(roles))
        if mp_partitions == "neighbours":
            assert all((after - before) % 40 <= 1 for before, after in pairwise(partitions))
    single = workload.generate_chunk("sl", params | {"mp_ratio": 0.0}, 400, 3, 0, 400).to_pylist()
    assert all(e["dst_acct"] // 250 == e["dst_asset"] // 250 for e in single)


def sl_event(**fields):
    event = dict.fromkeys(
        ("src_acct", "dst_acct", "src_asset", "dst_asset", "amt_acct", "amt_asset", "min_bal", "kind", "ts"), 0
    )
    return event | fields


@pytest.mark.parametrize(
    ("fields", "ok"),
    [
        ({"amt_acct": 99}, True),
        ({"amt_acct": 100}, False),  # strictly more than the amount
        ({"min_bal": 99}, True),
        ({"min_bal": 100}, False),
        ({"amt_asset": 100}, False),
        ({"amt_acct": 0, "amt_asset": 0}, True),
        ({"amt_acct": 60, "dst_acct": 0}, True),  # to itself: nothing is lost
    ],
)
def test_sl_conditions_are_strict(fields, ok):
    app = registry.load("sl")
    params = {"n_items": 2, "init_balance": 100, "duplicates": True}
    event = {"seq": 0, **sl_event(kind=1, dst_acct=1, dst_asset=1), **fields}
    result = by_hand.run(app, params, pa.Table.from_pylist([event], workload.schema(app, params)))
    assert [o["ok"] for o in result.outputs] == [ok]
    assert sum(row.balance for row in result.state["state_accounts"][1].values()) == 200
    if event["src_acct"] == event["dst_acct"]:
        assert result.outputs[0]["src_acct"] == 100


@pytest.mark.parametrize(
    "fields", [{"kind": 2}, {"amt_acct": -1}, {"amt_asset": -1}, {"src_acct": 2, "kind": 1}, {"dst_asset": 2}]
)
def test_sl_drops_invalid_events(fields):
    app = registry.load("sl")
    event = {"seq": 0, **sl_event(), **fields}
    result = by_hand.run(app, {"n_items": 2}, pa.Table.from_pylist([event], workload.schema(app, {})))
    assert (result.outputs, result.dropped) == ([], 1)
