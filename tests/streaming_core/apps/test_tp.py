"""TP and TPK against the same computation written again, and tolls by hand."""

from collections import defaultdict

import pyarrow as pa
import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from tests.support import by_hand


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"segments": 2, "vehicles": 90, "invalid_ratio": 0.1, "max_speed": 60},
        {"segments": 1, "max_speed": 1, "flagged": True},
        {"segments": 1, "max_speed": 1},
        {"segments": 1, "vehicles": 90, "max_speed": 60, "payload": 8},
        {"segments": 3, "vehicles": 50, "window": 3, "reports_per_s": 60, "theta": 1.0},
        {"input": "linear_road", "seconds": 300, "veh_per_s": 9.0, "window": 60},
    ],
)
def test_tp_charges_tolls(params):
    events, result = by_hand.run_generated("tp", params)
    bound = result.params
    speed, seen, began, expected = {}, defaultdict(dict), defaultdict(int), []
    for e in events:
        seg, answer = e["seg"], {"ok": False, "speed": 0.0, "count": 0, "toll": 0}
        if e["speed"] >= 0:
            fresh = seg not in speed if bound["flagged"] else not speed.get(seg)
            speed[seg] = float(e["speed"]) if fresh else (speed[seg] + e["speed"]) / 2
            if bound["window"] and e["ts"] // bound["window"] * bound["window"] > began[seg]:
                began[seg] = e["ts"] // bound["window"] * bound["window"]
                seen[seg] = {}
            seen[seg][e["vid"]] = None
            count = len(seen[seg])
            toll = 2 * (count - 50) ** 2 if speed[seg] < 40 and count > 50 else 0
            answer = {"ok": True, "speed": speed[seg], "count": count, "toll": toll}
        expected.append({"seq": e["seq"], "sub": 0, "vid": e["vid"], "seg": seg, **answer})
    assert result.outputs == expected
    assert result.dropped == 0
    assert any(o["toll"] for o in expected) == (bound["segments"] < 3)
    assert (not all(o["ok"] for o in expected)) == ("invalid_ratio" in params)
    presence = result.state["state_presence"][1]
    assert {k: list(row.vehicles) for k, row in presence.items() if row.count} == {k: list(v) for k, v in seen.items()}
    assert all(row.count == len(row.vehicles) and row.begin == began[k] for k, row in presence.items())
    assert [row.average for row in result.state["state_speeds"][1].values()] == [
        speed.get(k, 0.0) for k in range(bound["segments"])
    ]
    assert all(row.payload == [row.average] * bound["payload"] for row in result.state["state_speeds"][1].values())


@pytest.mark.parametrize(
    "params",
    [
        {"segments": 2, "vehicles": 90, "invalid_ratio": 0.1, "max_speed": 60, "payload": 8},
        {"segments": 3, "vehicles": 50, "window": 3, "reports_per_s": 60, "flagged": True},
        {"input": "linear_road", "seconds": 300, "veh_per_s": 9.0, "segments": 80},
    ],
)
def test_tp_in_three_transactions_charges_the_same_tolls(params):
    reports, joint = by_hand.run_generated("tp", params, events=1000)
    events, separate = by_hand.run_generated("tp", params | {"separate": True}, events=3000)
    assert [e["kind"] for e in events] == [0, 1, 2] * 1000
    for number, report in enumerate(reports):
        assert events[3 * number : 3 * number + 3] == [report | {"seq": 3 * number + k, "kind": k} for k in range(3)]
    notifications = [o for o in separate.outputs if o["seq"] % 3 == 2]
    assert [o | {"seq": o["seq"] // 3} for o in notifications] == joint.outputs
    others = [o for o in separate.outputs if o["seq"] % 3 < 2]
    assert len(others) == 2 * len(notifications)
    assert all(o["speed"] == o["count"] == o["toll"] == 0 for o in others)
    assert separate.dropped == 3 * joint.dropped
    for name in ("state_speeds", "state_presence"):
        assert separate.state_tables()[name] == joint.state_tables()[name]


def test_tp_runs_one_operator_per_event_if_separate():
    result = tp_run(
        {"kind": 1, "vid": 7}, {"kind": 2, "speed": 90}, {"kind": 0, "speed": 60}, {"kind": 2}, {"kind": 3},
        separate=True,
    )  # fmt: skip
    assert [(o["seq"], o["speed"], o["count"]) for o in result.outputs] == [
        (0, 0.0, 0), (1, 0.0, 1), (2, 0.0, 0), (3, 60.0, 1),
    ]  # fmt: skip
    assert result.dropped == 1


def tp_run(*events, **params):
    app = registry.load("tp")
    zeros = dict.fromkeys(("ts", "vid", "pos", "speed", "xway", "lane", "dir", "seg", "kind"), 0)
    rows = [{"seq": i, **zeros, **event} for i, event in enumerate(events)]
    return by_hand.run(app, {"segments": 2, **params}, pa.Table.from_pylist(rows, workload.schema(app, {})))


def test_tp_profiles_differ_in_the_meaning_of_speed_zero():
    reports = [{"speed": s} for s in (0, 50, 0, 25)]
    assert [o["speed"] for o in tp_run(*reports).outputs] == [0.0, 50.0, 25.0, 25.0]
    assert [o["speed"] for o in tp_run(*reports, flagged=True).outputs] == [0.0, 25.0, 12.5, 18.75]


def test_tp_rejects_a_negative_speed_in_all_three_operators():
    result = tp_run({"speed": 30, "vid": 1}, {"speed": -1, "vid": 2}, {"speed": -1, "seg": 1}, {"speed": 30, "vid": 1})
    assert [(o["ok"], o["speed"], o["count"]) for o in result.outputs] == [
        (True, 30.0, 1), (False, 0.0, 0), (False, 0.0, 0), (True, 30.0, 1),
    ]  # fmt: skip
    assert [list(row.vehicles) for row in result.state["state_presence"][1].values()] == [[1], []]
    assert result.dropped == 0


def test_tp_charges_from_the_51st_vehicle_below_40():
    slow = [{"speed": 39, "vid": v, "seg": 0} for v in range(52)]
    fast = [{"speed": 40, "vid": v, "seg": 1} for v in range(60)]
    tolls = [o["toll"] for o in tp_run(*slow, *fast).outputs]
    assert tolls == [0] * 50 + [2, 8] + [0] * 60


def test_tp_drops_an_unknown_segment():
    result = tp_run({"seg": 2}, {"seg": 2, "speed": -1})
    assert (result.outputs, result.dropped) == ([], 2)
