"""STRETCH's question 4: how requests reconfigure a running pass, and which figures the suite derives."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

from streaming_core.bench.papers.stretch.vsn import SHARED
from streaming_core.bench.race import requests
from streaming_core.bench.race.race import Race
from streaming_core.bench.race.reconfigurations import columns, duration_columns, output_columns
from streaming_core.bench.race.requests import Asking, Requests
from streaming_core.bench.race.rounds import OpenLoop, reconfigured
from streaming_core.bench.race.turns import Pass
from streaming_core.cli import main
from streaming_core.run.report import Reconfiguration, Sample
from streaming_core.run.way import Pinned


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))


def test_switches_alternate_between_two_shares():
    assert Requests("count", 2, 4).shares() == [[0], [0, 1]]
    assert Requests("count", 5, 4).shares() == [[0, 1], [0, 1, 2, 3, 4]]


def test_the_next_request_waits_until_the_last_is_settled(monkeypatch):
    monkeypatch.setattr(requests, "SOONEST", 0)
    requested, enough = [], threading.Event()

    class Control:
        """Reports every request twice as not settled."""

        polls = 0

        def request(self, share):
            requested.append((share, self.polls))
            self.polls = 0
            if len(requested) == 5:
                enough.set()

        def is_settled(self):
            self.polls += 1
            return self.polls > 2

    class Runtime:
        def control(self, operator):
            assert operator == "count"
            return Control()

    with Asking(Requests("count", 4, 1), 0.0).beside(Runtime()):
        assert requested[0] == ([0, 1], 0), "the first request precedes the pass"
        assert enough.wait(600)
    assert requested[1:5] == [([0, 1, 2, 3], 3), ([0, 1], 3), ([0, 1, 2, 3], 3), ([0, 1], 3)]
    assert not [thread for thread in threading.enumerate() if "ask" in thread.name], "the thread ends with the pass"


def test_switch_figures_summarise_all_switches():
    def switch(event, requested, posted, *gone_over, copied=0):
        over = [{"replica": i, "at": at, "waited": waited} for i, (at, waited) in enumerate(gone_over)]
        fields = {"operator": "count", "event": event, "owners": [event % 2], "moved": 1, "cells": 2, "bytes": copied}
        return Reconfiguration(**fields, requested=requested, posted=posted, gone_over=over)

    def sample(*switches):
        return Sample.model_construct(reconfigurations=list(switches))

    result = sample(
        switch(1, 500, 1_000, (2_000, 0), (4_000, 500), copied=8),
        switch(2, 4_000, 5_000, (6_000, 0), copied=4),
        switch(3, 4_000, 5_000),  # no replica lost or gained a cell
    )
    other = sample(switch(1, 0, 1_000, (1_900_000, 7_000), copied=6))
    figures = duration_columns([result, other])
    assert figures["switches"] == 3
    assert figures["switch_p50_us"] == 3.5  # the last replica concerned
    assert figures["switch_p99_us"] == figures["switch_max_us"] == 1_900.0
    assert figures["switch_over_1ms"] == 1
    assert figures["switch_largest"] == [(1_900.0, 1), (3.5, 1), (2.0, 2)]
    assert figures["switch_p50s_us"] == [2.0, 1_900.0]
    assert (figures["heard_p50_us"], figures["heard_max_us"]) == (1.0, 1.0)
    assert (figures["waited_p50_us"], figures["waited_max_us"]) == (0.0, 7.0)
    assert (figures["copied_p50_bytes"], figures["copied_max_bytes"]) == (6, 8)
    nothing = duration_columns([sample()])
    assert (nothing["switches"], nothing["switch_p50_us"], nothing["switch_max_us"]) == (0, None, None)


def test_figures_near_a_switch_cover_a_tenth_of_a_second():
    def delivered(*deliveries):
        return columns([{"at": round(at * 1e6), "event": event, "latency": late} for at, event, late in deliveries])

    # The fourth delivery finishes event 25 at 300 ms.
    times = [(0, 9, 90_000), (150, 19, 80_000), (210, 24, 1_000), (300, 29, 2_000), (400, 39, 3_000), (500, 49, 70_000)]
    pass_ = delivered(*times)
    assert output_columns([(pass_, [25])]) == {"gap_max_us": 100_000, "gaps_us": [100_000], "near_p99_us": 3.0}
    # Those between a delivery that is near and one that is not count.
    assert output_columns([(delivered(*times[:1], *times[3:]), [25])])["gap_max_us"] == 300_000
    # Of two events, and of two passes; an event that was not finished is near nothing.
    assert output_columns([(pass_, [25, 40])])["near_p99_us"] == 70.0
    both = output_columns([(pass_, [25]), (pass_, [9]), (pass_, [50])])
    assert (both["gaps_us"], both["near_p99_us"]) == ([100_000, 150_000], 90.0)
    closed = columns([{"at": at, "event": at, "latency": None} for at in (1_000, 4_000)])
    assert output_columns([(closed, [1])]) == {"gap_max_us": 3.0, "gaps_us": [3.0]}
    assert output_columns([(columns([]), [1])]) == {"gap_max_us": None, "gaps_us": []}


def test_every_switch_of_every_pass_counts(monkeypatch):
    monkeypatch.setattr(requests, "SOONEST", 0)
    race = Race("wordcount", {}, 3000)
    spec = Pinned(app="wordcount", threads=2, batch=16)
    many = Requests("count", 2, 10**9)
    taken = []
    one_pass = race.one_pass

    def noting(spec, runs, rate, requests, *more):
        pass_ = one_pass(spec, runs, rate, requests, *more)
        [sample] = pass_.samples
        taken.append((rate > 0, requests, sample.reconfigurations))
        return pass_

    monkeypatch.setattr(race, "one_pass", noting)
    loop, still, row = race.run([spec, spec], 2, open_loop=OpenLoop(loads=(0.5,)), requests=[None, many])
    assert still["result"] == row["result"] == "equal"
    for is_loaded, name in ((False, "switches"), (True, "loaded_switches")):
        # The first round does not count.
        counted = [len(changes) for loaded, requests, changes in taken if requests and loaded == is_loaded][-2:]
        assert row[name] == sum(counted) >= 2
        assert name not in still
    assert len(row["switch_p50s_us"]) == 2
    assert 0 <= row["switch_p50_us"] <= row["switch_p99_us"] <= row["switch_max_us"] == row["switch_largest"][0][0]
    assert row["offered_per_s"] == still["offered_per_s"] == min(row["events_per_s"], still["events_per_s"]) / 2
    for each in (still, row):
        assert len(each["gaps_us"]) == len(each["loaded_gaps_us"]) == 2
        assert each["loaded_near_p99_us"] > 0
        assert "voluntary" not in each, "there are enough cores"
    assert "switches" not in loop
    low, high = row["to_loop_range"]
    assert low <= row["to_loop"] <= high


def test_context_switches_are_counted_when_threads_exceed_cores(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    race = Race("wordcount", {}, 3000)
    spec = Pinned(app="wordcount", threads=2, batch=16)
    _, row = race.run([spec], 1, requests=[Requests("count", 2, 1)])
    assert row["voluntary"] >= 0
    assert row["involuntary"] >= 0


@pytest.mark.slow
def test_the_command_runs_question_four(monkeypatch, capsys):
    arguments = (
        "--suite",
        "stretch",
        "--only",
        "q4",
        "--events",
        "3000",
        "--threads",
        "2",
        "--repetitions",
        "1",
        "--json",
    )
    monkeypatch.setattr("sys.argv", ["streaming-core", "bench", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    [experiment] = json.loads(capsys.readouterr().out)["experiments"]
    assert experiment["name"] == "q4"
    rows = experiment["rows"]
    assert [(row["result"], row.get("batch"), row.get("parallelism")) for row in rows] == [
        ("yardstick", None, None),
        *(("equal", batch, parallelism) for batch in (1, 256) for parallelism in SHARED),
    ]
    for row in rows[1:]:
        # The first request precedes the first event.
        assert row["switches"] > 0
        assert row["loaded_switches"] > 0
        assert row["gap_max_us"] > 0
        assert row["loaded_near_p99_us"] > 0


def test_gaps_and_latencies_without_switches_come_from_equal_ways():
    def pass_of(events, *times):
        changes = [
            Reconfiguration(operator="count", event=event, owners=[0], moved=0, cells=2, posted=0, gone_over=[])
            for event in events
        ]
        deliveries = columns([{"at": at * 10**6, "event": at, "latency": at} for at in times])
        return Pass([Sample.model_construct(reconfigurations=changes)], [deliveries])

    still, switching_way = pass_of([], 0, 90, 500, 700), pass_of([500], 0, 20, 450, 500)
    requests = [None, Requests("count", 2, 1)]
    row = reconfigured([[still], [switching_way]], 0, [0, 1], requests)
    assert (row["gap_max_us"], "switches" in row) == (410_000, False)
    row = reconfigured([[still], [switching_way]], 1, [0, 1], requests)
    assert (row["gap_max_us"], row["switches"]) == (430_000, 0)
    # Without requests there are no figures.
    assert reconfigured([[still]], 0, [0], [None]) == {}
    assert np.isnan(columns([{"at": 1, "event": 1, "latency": None}])["latency"]).all()
