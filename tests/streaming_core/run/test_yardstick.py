"""Repetitions that alternate with the compiled loop: what they measure, and that no wrong result is lost."""

from __future__ import annotations

import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.data.parts import Parts
from streaming_core.errors import CommandFailed, RunFailed
from streaming_core.run import engine, yardstick
from streaming_core.run.disturbance import Disturbance
from streaming_core.run.one_pass import PassEngine
from streaming_core.run.passes import RERUNS
from streaming_core.run.report import Latency, Sample
from streaming_core.run.way import Transactional
from streaming_core.run.yardstick import Turns
from tests.support.draws import some


def sample(seconds: float, digest: str = "1:aa", in_order: bool = True) -> Sample:
    figures = {"repetition": 1, "events": 1, "outputs": 1, "events_per_s": 1 / seconds, "breakdown": {}}
    latency = Latency(p50=1, p95=1, p99=1, p999=1, max=1)
    return Sample(
        kind="peak", digest=digest, in_order=in_order, seconds=seconds, processing=latency, cpu_seconds=1, **figures
    )


class Loop:
    """A loop with fixed durations that logs its turns."""

    name = "loop"

    def __init__(self, turns: list[str], *seconds: float):
        self.turns, self.seconds = turns, list(seconds)

    def one_pass(self) -> float:
        self.turns.append("loop")
        return self.seconds.pop(0)


def measured(turns: Turns, log: list[str], *passes: Sample) -> Sample:
    left = list(passes)

    def next_pass() -> Sample:
        log.append("way")
        return left.pop(0)

    measurement = turns.repetition(next_pass, sample(1.0))
    assert not left, "no pass fewer than it takes"
    return measurement


def test_passes_alternate_with_the_loop_after_a_warm_up_of_each():
    log: list[str] = []
    turns = Turns(1.0, lambda: Loop(log, 9.0, 0.1, 0.3, 0.2, 0.4))
    measurement = measured(turns, log, sample(9.0), sample(0.2), sample(0.1), sample(0.3))
    assert (measurement.seconds, measurement.passes, measurement.loop_seconds) == (0.2, 3, 0.2)
    assert log == ["loop", "way"] * 4
    # The second repetition needs no warm-up.
    measurement = measured(turns, log, sample(0.7))
    assert (measurement.seconds, measurement.passes, measurement.loop_seconds) == (0.7, 1, 0.4)
    assert turns.yardstick == "loop"
    assert {"steal", "others", "preempted", "mhz_before", "mhz_after"} == turns.host.keys()


@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("wrong", [sample(0.2, digest="1:bb"), sample(0.2, in_order=False)])
def test_a_pass_with_a_different_result_is_the_one_reported(wrong, at):
    log: list[str] = []
    passes = [sample(0.5), sample(0.5), sample(0.1)]
    passes[at] = wrong
    measurement = measured(Turns(1.0, lambda: Loop(log, 0.1, 0.2, 0.2)), log, *passes)
    assert (measurement.digest, measurement.in_order) == (wrong.digest, wrong.in_order)


@pytest.mark.parametrize("seconds", [0.0, 1.0])
@pytest.mark.parametrize("error", [CommandFailed("it cannot be compiled"), RunFailed("out of memory")])
def test_a_repetition_without_a_loop_is_one_pass_and_gives_the_reason(seconds, error):
    def fails() -> Loop:
        raise error

    log: list[str] = []
    turns = Turns(seconds, fails)
    measurement = measured(turns, log, sample(0.1))
    assert (turns.yardstick, measurement.passes, measurement.loop_seconds) == (None, 1, None)
    assert turns.host.get("yardstick") == (f"the loop was not measured: {error}" if seconds else None)


def test_a_repetition_ends_although_most_of_its_passes_are_unmeasured(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(yardstick.time, "monotonic", lambda: next(clock))
    log: list[str] = []
    turns = Turns(1.0, lambda: Loop(log, *[0.01] * 9))
    turns._disturbance = Disturbance()
    turns._loop = turns._make()
    measurement = measured(turns, log, *[sample(0.01)] * 3)
    assert measurement.passes == 3


def test_a_run_reports_the_loop_with_its_passes(tmp_path, monkeypatch):
    monkeypatch.setattr(yardstick, "SHORTEST", 0.0)
    app = registry.load("sl")
    workload.write(app, app.bind(), 2000, 1, tmp_path / "workload")
    spec = Transactional(app="sl", repetitions=2, seconds=0.01)
    report = engine.run(spec, tmp_path / "workload", None)
    assert len({sample.digest for sample in report.samples}) == 1
    first, *repetitions = report.samples
    assert (first.passes, first.loop_seconds) == (1, None)
    assert len(repetitions) == 2
    for measurement in repetitions:
        assert measurement.passes > 1
        assert measurement.loop_seconds > 0
    assert report.host["others"] >= 0
    # The same loop has the same name, another one has another.
    again = engine.run(spec, tmp_path / "workload", None)
    assert again.yardstick == report.yardstick
    other = registry.load("gs")
    workload.write(other, other.bind(), 2000, 1, tmp_path / "other")
    spec = spec.model_copy(update={"app": "gs"})
    assert engine.run(spec, tmp_path / "other", None).yardstick not in (None, report.yardstick)


def test_a_pass_too_short_to_compare_is_reported_without_a_ratio(tmp_path, monkeypatch):
    monkeypatch.setattr(yardstick, "SHORTEST", 1.0)  # s; on a busy machine, ten events may take more than a millisecond
    app = registry.load("sl")
    workload.write(app, app.bind(), 10, 1, tmp_path / "workload")
    report = engine.run(Transactional(app="sl", repetitions=1), tmp_path / "workload", None)
    assert report.yardstick is None
    assert report.host["yardstick"] == "the loop was not measured: a pass takes less than 1000 ms"
    assert [sample.passes for sample in report.samples] == [1, 1]


@pytest.mark.parametrize(("again", "checkpoint"), some([(3, "500"), (0, "0"), (3, "0")]))
def test_a_pass_whose_result_differs_is_made_again_with_its_rows(tmp_path, monkeypatch, again, checkpoint):
    app = registry.load("sl")
    workload.write(app, app.bind(), 200, 1, tmp_path / "workload")
    original, passes = PassEngine.process, iter(range(100))
    faulty = {2, 2 + again} if again else {2}

    def process(self, rows, text):
        return original(self, rows[:-1] if next(passes) in faulty else rows, text)

    monkeypatch.setattr(PassEngine, "process", process)
    spec = Transactional(app="sl", sink="parquet", repetitions=2, seconds=0.0, checkpoint=checkpoint)
    report = engine.run(spec, tmp_path / "workload", tmp_path / "run")
    assert [sample.digest == report.verified.digest for sample in report.samples] == [True, True, False]
    assert (report.rerun.kind, report.rerun.repetition, report.rerun.differs) == ("peak", 2, again > 0)
    assert report.rerun.passes == (again or RERUNS)
    kept = tmp_path / "run" / "rerun" / "outputs"
    assert kept.exists() == (again > 0)
    if again:
        assert 0 < Parts.of(kept).rows < Parts.of(tmp_path / "run" / "outputs").rows
