"""Linear Road: LR, and its operators pos_rep and new_seg, against two passes over all reports."""

from collections import Counter, defaultdict

import pyarrow as pa
import pytest

from streaming_core.apps import lr, registry
from streaming_core.data import workload
from tests.streaming_core.generator import traffic
from tests.support import by_hand

ROAD = {"seconds": 120, "veh_per_s": 2.0, "request_ratio": 0.2, "invalid_ratio": 0.1}
REPORTED = ("seq", "ts", "vid", "pos", "speed", "xway", "seg", "lane", "dir")


def reports_of(events):
    """The valid position reports, with the fields that are forwarded."""
    return [{f: e[f] for f in REPORTED} for e in events if e["type"] == 0 and e["dir"] in (0, 1)]


def test_pos_rep_forwards_position_reports():
    events, result = by_hand.run_generated("pos_rep", ROAD)
    assert result.outputs == [{**report, "sub": 0} for report in reports_of(events)]
    assert result.dropped == sum(e["type"] == 0 and e["dir"] > 1 for e in events) > 0
    assert sum(e["type"] != 0 for e in events) > 100


@pytest.mark.parametrize("purge", [0, 29, 30, 31])
def test_new_seg_forwards_reports_from_a_new_segment(purge):
    # Four repetitions: vehicles report every 30 s, come back after up to two minutes, and are remembered or not.
    events, result = by_hand.run_generated("new_seg", {**ROAD, "purge": purge})
    assert events[-1]["ts"] > 3 * 120
    last, expected, stayed = {}, [], 0
    for report in reports_of(events):
        here = (report["xway"], report["seg"])
        then, there = last.get(report["vid"], (-(10**6), None))
        if there != here or (purge and report["ts"] - then > purge):
            expected.append({**report, "sub": 0, "new_seg": True})
            stayed += there == here
        last[report["vid"]] = (report["ts"], here)
    assert result.outputs == expected
    assert result.dropped == sum(e["type"] == 0 and e["dir"] > 1 for e in events) > 0
    assert (stayed > 0) == (purge > 0)
    state = result.state["state_new_seg"][1]
    reported = {vid: (row.ts, (row.xway, row.seg)) for vid, row in state.items() if row.known}
    assert reported == last


def test_new_seg_ignores_the_direction():
    app = registry.load("new_seg")
    row = {"seq": 0, "ts": 0, "vid": 7, "pos": 0, "speed": 50, "xway": 0, "seg": 3, "type": 0, "lane": 1, "dir": 0}
    rows = [row, {**row, "dir": 1}, {**row, "xway": 1}, {**row, "seg": 4}, {**row, "seg": 4, "type": 2}]
    rows = [{**row, "seq": seq} for seq, row in enumerate(rows)]
    result = by_hand.run(app, {}, pa.Table.from_pylist(rows, workload.schema(app, {})))
    assert [output["seq"] for output in result.outputs] == [0, 2, 3]


class Traffic:
    """The first pass: speeds, stopped cars and accidents of whole minutes."""

    def __init__(self, events):
        self.speeds, self.stopped, self.accidents = defaultdict(lambda: defaultdict(list)), defaultdict(set), set()
        self._runs = {}  # vehicle -> its last position and lane, and the number of equal reports there
        for event in events:
            if is_report(event):
                self._report(event)

    def _report(self, event):
        vid, minute, segment = event["vid"], event["ts"] // 60 + 1, segment_of(event)
        self.speeds[segment, minute][vid].append(event["speed"])
        place = (event["xway"], event["dir"], event["pos"])
        here = (place, event["lane"])
        former, count = self._runs.get(vid, (None, 0))
        again = count + 1 if former == here else 1
        self._runs[vid] = here, 0 if event["lane"] == 4 else again
        is_stopped = self._runs[vid][1] >= 4
        if is_stopped:
            self.stopped[place].add(vid)
        elif former != here and count >= 4:
            self.stopped[former[0]].discard(vid)
        if len(self.stopped[place]) >= 2 and is_stopped:
            self.accidents.add((segment, minute))

    def velocity(self, segment, minute):
        """The mean of the vehicles' mean speeds in the five minutes before."""
        if (segment, minute - 1) not in self.speeds:
            return 0
        vehicles = [v for m in range(minute - 5, minute) for v in self.speeds.get((segment, m), {}).values()]
        averages = [sum(speeds) // len(speeds) for speeds in vehicles]
        return sum(averages) // len(averages)

    def vehicles(self, segment, minute):
        """The number of vehicles in the minute before."""
        return len(self.speeds[segment, minute - 1]) if (segment, minute - 1) in self.speeds else 0

    def accidents_ahead(self, segment, minute):
        """Distances in segments to the accidents of the minute before, nearest first."""
        xway, direction, seg = segment
        step = 1 - 2 * direction
        return [d for d in range(5) if ((xway, direction, seg + d * step), minute - 1) in self.accidents]


def is_report(event):
    return event["type"] == 0 and event["dir"] in (0, 1)


def segment_of(event):
    return event["xway"], event["dir"], event["seg"]


def two_passes(events, limit=40):
    """Linear Road as workloads C.4 has it: first the traffic of whole minutes, then tolls, warnings and accounts.

    Returns answers as (seq, kind, value, velocity, count, accident): kinds 0 toll, 3 warning, 4 balance, 5 expenditure.
    """
    traffic = Traffic(events)
    answers, last, balance, due = [], {}, Counter(), Counter()
    for e in events:
        seq, vid, minute = e["seq"], e["vid"], e["ts"] // 60 + 1
        if e["type"] == 2:
            answers.append((seq, 4, balance[vid], 0, 0, False))
        if e["type"] == 3:
            answers.append((seq, 5, lr.past_toll(vid, e["day"], e["xway"]), 0, 0, False))
        if not is_report(e):
            continue
        segment = segment_of(e)
        if e["lane"] == 4 or last.get(vid) == segment:
            answers.append((seq, 0, -1, 0, 0, False))
        else:
            velocity, count = traffic.velocity(segment, minute), traffic.vehicles(segment, minute)
            ahead = traffic.accidents_ahead(segment, minute)
            is_free = velocity >= limit or count <= 50 or ahead
            toll = 0 if is_free else 2 * (count - 50) ** 2
            answers.append((seq, 0, toll, velocity, count, bool(ahead)))
            answers += [(seq, 3, ahead[0], 0, 0, True)] if ahead else []
            balance[vid] += due[vid]
            due[vid] = toll
        if e["lane"] == 4:
            balance[vid] += due.pop(vid, 0)
        last[vid] = None if e["lane"] == 4 else segment
    return answers, balance, due


@pytest.mark.parametrize("limit", [40, 28, 27])
def test_lr_charges_warns_and_answers(limit):
    app, table = registry.load("lr"), traffic.events()
    result = by_hand.run(app, {"limit": limit}, table)
    check_lr(table.to_pylist(), result, limit)
    tolls = [o["value"] for o in result.outputs if o["kind"] == 0]
    assert (max(tolls) > 0) == (limit > 27)
    assert {o["kind"] for o in result.outputs} == set(range(6))
    assert max(o["value"] for o in result.outputs if o["kind"] == 4) == max(0, *tolls)


def test_lr_is_right_on_a_generated_road():
    params = {"seconds": 3_600, "veh_per_s": 2.0, "request_ratio": 0.2, "invalid_ratio": 0.02}
    app = registry.load("lr")
    events = workload.generate_chunk(app, params, 25_000, 3, 0, 25_000)
    result = by_hand.run(app, params, events)
    check_lr(events.to_pylist(), result, 40)
    assert result.dropped > 0
    assert any(o["kind"] == 3 for o in result.outputs)


def check_lr(events, result, limit):
    answers, balance, due = two_passes(events, limit)
    answered = [o for o in result.outputs if o["kind"] not in (1, 2)]
    assert [(o["seq"], o["kind"], o["value"], o["velocity"], o["count"], o["accident"]) for o in answered] == answers
    reports = sum(map(is_report, events))
    assert Counter(o["kind"] for o in result.outputs)[1] == Counter(o["kind"] for o in result.outputs)[2] == reports
    accounts = result.state["state_account_balance"][1]
    assert {vid: row.balance for vid, row in accounts.items() if row.balance} == {v: b for v, b in balance.items() if b}
    assert {vid: row.due for vid, row in accounts.items() if row.due} == {v: d for v, d in due.items() if d}


def test_lr_history_covers_69_days():
    tolls = [[lr.past_toll(vid, day, 0) for day in range(71)] for vid in range(200)]
    assert all(row[0] == row[70] == 0 for row in tolls)
    assert {toll for row in tolls for toll in row[1:70]} == set(range(10, 100))
    assert abs(sum(map(sum, tolls)) / (200 * 69) - 54.5) < 1
    assert [lr.past_toll(7, 3, xway) for xway in range(4)] != [tolls[7][3]] * 4
