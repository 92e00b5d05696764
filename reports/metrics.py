"""The figures of runs as Prometheus metrics, for monitoring.

`of_run` has the figures of one run, and `latest` those of the newest run of each named matrix. The API server answers
a scrape with `Exposition.text`. The end of a run sends `of_run` to Airflow's own metrics (dags/lib/monitoring.py).

The number of series is bounded: each belongs to a named matrix, and a cell has one only in the newest run of a matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from reports import times
from reports.history import History, Run
from reports.history.load import MOST_RUNS
from reports.views.overview import line
from reports.views.stages import Stages
from streaming_core.regression.comparable import NIGHTLY, is_nightly
from streaming_core.regression.home import Home
from streaming_core.regression.plan import Plan

METRICS = {
    "lockstep_run_timestamp_seconds": "When the newest run of a matrix was requested, in Unix time.",
    "lockstep_run_green": "1 if the newest run of a matrix is green, else 0.",
    "lockstep_cells": "Cells of the newest run of a matrix, by verdict.",
    "lockstep_finds": "Faults that the search of the newest run of a matrix found.",
    "lockstep_stage_seconds": "Seconds that the tasks of a stage took together, in the newest run of a matrix.",
    "lockstep_events_per_second": "Median events per second of a cell at peak rate, in the newest run of a matrix.",
    "lockstep_newest_green_night_timestamp_seconds": "When the newest green nightly run was requested, in Unix time.",
}


class Sample(NamedTuple):
    """A value of a metric: a key of METRICS, the labels, and the value."""

    metric: str
    labels: dict[str, str]
    value: float


def of_run(run: Run) -> list[Sample]:
    """The figures of a run that is over."""
    matrix = _matrix(run.plan)
    labels, stages = {"matrix": matrix}, Stages.of(run)
    began = times.of_run(run.run_id).timestamp()
    samples = [
        Sample("lockstep_run_timestamp_seconds", labels, began),
        Sample("lockstep_run_green", labels, float(run.green)),
        *(Sample("lockstep_cells", labels | {"verdict": name}, count) for name, count in run.counts.items()),
        Sample("lockstep_finds", labels, len(run.finds)),
        *(
            Sample("lockstep_stage_seconds", labels | {"stage": stage.name}, stage.seconds)
            for stage in (stages.stages if stages else [])
        ),
        *(
            Sample("lockstep_events_per_second", labels | {"cell": cell.name}, cell.events_per_s)
            for cell in run.cells
            if cell.events_per_s is not None
        ),
    ]
    if run.green and is_nightly(run.plan):
        samples.append(Sample("lockstep_newest_green_night_timestamp_seconds", {}, began))
    return samples


def latest(history: History) -> list[Sample]:
    """The figures of the newest run of each named matrix that is over, and the newest green night.

    Raises:
        BadInput: A raw table of such a run has another schema version.
    """
    newest: dict[str, str] = {}
    green = ""
    for run_id in reversed(history.run_ids()[-MOST_RUNS:]):
        if history.is_in_progress(run_id):
            continue
        plan = history.plan(run_id)
        newest.setdefault(_matrix(plan), run_id)
        if not green and is_nightly(plan) and line(history, run_id).color in ("green", "amber"):
            green = run_id
    samples = [sample for run_id in newest.values() for sample in of_run(history.run(run_id))]
    if green:  # it may be older than the newest night
        name = "lockstep_newest_green_night_timestamp_seconds"
        samples = [sample for sample in samples if sample.metric != name]
        samples.append(Sample(name, {}, times.of_run(green).timestamp()))
    return samples


def _matrix(plan: Plan) -> str:
    """The named matrix of a plan; empty without one, or if the request overrides fields of it."""
    if is_nightly(plan):  # a refused one names no matrix
        return NIGHTLY
    matrix = plan.get("matrix") or {}
    return "" if matrix.get("overrides") else matrix.get("name", "")


class _Samples(Collector):
    def __init__(self, samples: Iterable[Sample]):
        self._samples = list(samples)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, meaning in METRICS.items():
            mine = [sample for sample in self._samples if sample.metric == name]
            if mine:
                family = GaugeMetricFamily(name, meaning, labels=list(mine[0].labels))
                for sample in mine:
                    family.add_metric(list(sample.labels.values()), sample.value)
                yield family


class Exposition:
    """The answers to scrapes. They are cheap while no run ends: the figures stay in memory."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._state: object = None
        self._samples: list[Sample] = []

    def text(self, home: Home, accept: str) -> tuple[bytes, str]:
        """The metrics in the newest text format that a client accepts.

        Args:
            home: LOCKSTEP_HOME.
            accept: The header `Accept` of the request.

        Returns:
            The text, and its media type.

        Raises:
            BadInput: As `latest`.
        """
        history = History(home)
        with self._lock:
            state = (home.root, *map(_changed, _files(home, history.run_ids()[-MOST_RUNS:])))
            if state != self._state:
                self._samples, self._state = latest(history), state
        registry = CollectorRegistry()
        registry.register(_Samples(self._samples))
        encode, kind = choose_encoder(accept)
        return encode(registry), kind


def _files(home: Home, run_ids: Iterable[str]) -> Iterator[Path]:
    """The files that change when a run begins, ends, or has new results."""
    for run_id in run_ids:
        yield home.run(run_id) / "status.json"
        yield home.report(run_id, "summary.json")
        yield home.part("cells", run_id)


def _changed(path: Path) -> tuple[str, int]:
    try:
        return str(path), path.stat().st_mtime_ns
    except FileNotFoundError:
        return str(path), 0
