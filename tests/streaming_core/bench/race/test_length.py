"""The length of passes and workloads, and the cores that a race may use."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core.bench.race import length
from streaming_core.bench.race.confinement import confined
from streaming_core.bench.race.race import Race
from streaming_core.bench.race.rounds import OpenLoop
from streaming_core.bench.race.turns import MOST_RUNS, Pass, runs
from streaming_core.run import one_pass, probe
from streaming_core.run.report import Latency, Sample
from streaming_core.run.way import Pinned, Transactional


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize(("pause", "seconds"), [(0.0, 1.0), (0.01, 1.0), (0.02, 2.0), (0.05, 2.0), (1.0, 2.0)])
def test_a_pass_lasts_a_hundred_pauses_within_its_limits(pause, seconds):
    assert length.pass_seconds(pause) == seconds


def test_a_pass_has_the_fewest_runs_that_last_long_enough():
    assert [runs(1.0, run) for run in (2.0, 1.0, 0.9, 0.5, 0.3)] == [1, 1, 2, 2, 4]
    assert runs(0.0, 0.5) == 1, "quick"
    assert runs(1.0, 0.0) == 1, "without events"
    assert runs(1.0, 1e-9) == MOST_RUNS


@given(st.floats(0, 5), st.floats(1e-6, 10))
def test_runs_exceed_the_target_by_at_most_one_run(seconds, run):
    number = runs(seconds, run)
    assert number == MOST_RUNS or number * run >= seconds * (1 - 1e-12)
    assert number == 1 or (number - 1) * run < seconds * (1 + 1e-12)


class MadeUp:
    """A race whose slowest way processes a rate of events per second, after a constant time to start."""

    def __init__(self, rate, start=0.0, bytes_per_event=100.0, prepared_per_s=1e9):
        self._rate, self._start = rate, start
        self.bytes_per_event, self._prepared_per_s = bytes_per_event, prepared_per_s
        self.sizes = []

    def __call__(self, app, params, events):
        self.sizes.append(events)
        self.preparation = events / self._prepared_per_s
        self._seconds = self._start + events / self._rate
        return self

    def slowest(self, ways):
        assert [way.threads for way in ways] == [2], "a way whose plan has to be found is no part of the pilot"
        return self._seconds


def chosen(monkeypatch, race, seconds=1.0, free=1 << 40):
    monkeypatch.setattr(length, "Race", race)
    monkeypatch.setattr(length.psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
    ways = [Pinned(app="wc", threads=2), Pinned(app="wc", threads=2, plan="auto")]
    return length.chosen("wc", {}, ways, seconds)


@pytest.mark.parametrize("rate", [50.0, 1e4, 3e6, 8e7])
def test_a_workload_reaches_the_target_on_the_slowest_way(monkeypatch, rate):
    race = MadeUp(rate)
    limit = length.BYTES / race.bytes_per_event
    assert chosen(monkeypatch, race, 2.0) == pytest.approx(min(2 * rate * length.SLACK, limit), abs=1)
    assert race.sizes[0] == length.PILOT_EVENTS
    assert race.sizes == sorted(set(race.sizes))
    assert race.sizes[-1] / rate >= length.PILOT_SECONDS


def test_a_pilot_grows_until_startup_is_negligible(monkeypatch):
    # A small pilot would tell 2 M events/s.
    assert chosen(monkeypatch, MadeUp(1e7, start=0.002)) == pytest.approx(1e7 * length.SLACK, rel=0.03)


def test_memory_and_the_time_to_generate_events_bound_a_workload(monkeypatch):
    assert chosen(monkeypatch, MadeUp(1e7), free=400 * 100_000) == 100_000
    assert chosen(monkeypatch, MadeUp(1e7, prepared_per_s=1e4)) == 1e4 * length.PREPARATION


@pytest.mark.slow
def test_a_pilot_determines_the_events_of_a_workload():
    way = Transactional(app="sl", scheme="tstream")
    events = length.chosen("sl", {}, [way], 0.01)
    assert 0 < events < 10_000_000


def sample(seconds, events=100, mean=1.0, p99=2.0):
    latency = Latency(p50=1, p95=1, p99=p99, p999=9, max=9, mean=mean)
    return Sample.model_construct(
        seconds=seconds, events=events, cpu_seconds=2 * seconds, energy_joules=None, processing=latency, end_to_end=None
    )


def test_a_pass_sums_its_runs():
    pass_ = Pass([sample(1.0), sample(3.0, mean=3.0, p99=8.0), sample(1.0, p99=3.0)])
    assert (pass_.seconds, pass_.events, pass_.rate) == (5.0, 300, 60.0)
    assert pass_.cpu_ns == pytest.approx(10e9 / 300)
    assert pass_.energy_nj is None
    assert (pass_.processing("mean"), pass_.processing("p99")) == (pytest.approx(5 / 3), 3.0)
    assert pass_.end_to_end("p99") is None
    assert Pass([sample(0.0, events=0)]).rate == 0.0


@pytest.mark.slow
def test_faster_ways_repeat_their_runs(monkeypatch):
    race = Race("sl", {}, 500)
    passes = []
    one_pass = Race.one_pass

    def noted(race, spec, times, *more):
        pass_ = one_pass(race, spec, times, *more)
        passes.append((spec.scheme, times, len(pass_.samples)))
        # A run of `tstream` lasts three times that of `serial`.
        for run in pass_.samples:
            run.seconds = 0.03 if spec.scheme == "tstream" else 0.01
        return pass_

    monkeypatch.setattr(Race, "one_pass", noted)
    ways = [Transactional(app="sl", scheme=scheme) for scheme in ("tstream", "serial")]
    _, slow, fast = race.run(ways, 2, 0.03, OpenLoop(loads=[0.5]))
    assert (slow["runs"], fast["runs"], slow["events"], fast["events"]) == (1, 3, 500, 500)
    assert slow["rates"] == pytest.approx([500 / 0.03] * 2)
    assert fast["rates"] == pytest.approx([500 / 0.01] * 2)
    # Two runs warm up; at half the slowest rate, one run lasts longer than a pass.
    warm, peak, loaded = passes[:4], passes[4:8], passes[8:]
    assert warm == [("tstream", 1, 1), ("serial", 1, 1)] * 2
    assert peak == [("tstream", 1, 1), ("serial", 3, 3)] * 2
    assert loaded == [("tstream", 1, 1), ("serial", 1, 1)] * 2


@pytest.mark.parametrize("wrong_run", [0, 1])
def test_a_wrong_result_of_any_run_is_detected(monkeypatch, wrong_run):
    truth, calls = one_pass.run, []

    def broken(spec, program, blocks, request):
        sample, state, more = truth(spec, program, blocks, request)
        calls.append(request.exports_state)
        if len(calls) == 3 + wrong_run:  # the first two runs warm up
            sample = sample.model_copy(update={"digest": "1:0000000000000000"})
        return sample.model_copy(update={"seconds": 0.01}), state, more

    monkeypatch.setattr(one_pass, "run", broken)
    _, row = Race("sl", {}, 200).run([Transactional(app="sl", scheme="serial")], 1, 0.02)
    assert (row["result"], row["runs"]) == ("different", 2)
    assert calls == [True, True, False, True], "the last run of a pass exports its state"


def test_a_race_removes_its_workload(home):
    race = Race("sl", {}, 100)
    assert len(list(home.glob("bench-*"))) == 1
    del race
    assert not list(home.glob("bench-*"))


def test_the_process_has_as_many_cores_as_threads():
    usual = os.sched_getaffinity(0)
    first = probe.topology()["cores"][0]["id"]
    began, noted, over = (threading.Event() for _ in range(3))
    seen = []

    def older():
        began.wait()
        seen.append(os.sched_getaffinity(0))
        noted.set()
        over.wait()
        seen.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=older)
    thread.start()
    with confined(1) as cores:
        assert cores == [first]
        assert os.sched_getaffinity(0) == {first}
        began.set()
        noted.wait()
        younger = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
        younger.start()
        younger.join()
    assert os.sched_getaffinity(0) == usual
    over.set()
    thread.join()
    assert seen[:2] == [{first}, {first}]
    assert seen[2] == usual
    with confined(len(usual) + 1):
        assert os.sched_getaffinity(0) == usual


def test_a_race_is_confined_to_its_cores_and_binds_its_threads(monkeypatch):
    cores = probe.topology()["cores"]
    seen = []
    truth = one_pass.run

    def noted(spec, *arguments, **options):
        sample, state, more = truth(spec, *arguments, **options)
        seen.append((spec.threads, len(os.sched_getaffinity(0)), more["binding"]))
        return sample, state, more

    monkeypatch.setattr(one_pass, "run", noted)
    ways = [Transactional(app="sl", scheme="serial", threads=1)]
    _, row = Race("sl", {}, 200).run(ways, 1, pinned=True)
    assert set(map(str, seen)) == {str((1, 1, [cores[0]["id"]]))}
    assert (row["way"], row["result"]) == ("serial", "equal"), "binding does not change the name of a way"
