"""What takes turns in a race: runs of the loop, and passes of a way.

A pass is one run over the workload, or several runs one after the other, each from fresh state.
"""

from __future__ import annotations

import math
import resource
import statistics
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streaming_core.bench.race.requests import Asking
from streaming_core.run.energy import Spent
from streaming_core.run.one_pass import Beside
from streaming_core.run.report import Latency, Sample

MOST_RUNS = 1_000  # of a pass: each also takes time that is not measured


def runs(seconds: float, of_a_run: float) -> int:
    """Return the number of runs in a pass: the smallest number that takes `seconds`, but from 1 to MOST_RUNS."""
    return min(MOST_RUNS, max(1, math.ceil(seconds / of_a_run))) if of_a_run > 0 else 1


class Turn:
    """The runs of the loop in one round.

    Attributes:
        seconds: The seconds of a run.
        rate: Events per second; 0 without events.
        cpu_ns: Processor time per event; None without events or costs.
        energy_nj: Energy per event; None without a figure.
    """

    def __init__(self, events: int, seconds: list[float], costs: list[Spent]):
        """Sum up runs over so many events: their seconds, and their costs if they are known."""
        self.seconds = statistics.mean(seconds)
        self.rate = events / self.seconds if events else 0.0
        joules = [spent.joules for spent in costs]
        total, known = events * len(seconds), events > 0 and bool(costs)
        self.cpu_ns = sum(spent.cpu for spent in costs) * 1e9 / total if known else None
        self.energy_nj = sum(filter(None, joules)) * 1e9 / total if known and None not in joules else None


@dataclass
class Pass:
    """A pass.

    Attributes:
        samples: The samples of its runs.
        deliveries: The deliveries of each run, if recorded.
        voluntary: Context switches of the process in which a thread gave up its core.
        involuntary: Context switches in which a thread lost its core.
        is_right: Whether the result of every run equals the loop's.
    """

    samples: list[Sample] = field(default_factory=list)
    deliveries: list[np.ndarray] = field(default_factory=list)
    voluntary: int = 0
    involuntary: int = 0
    is_right: bool = True

    @property
    def seconds(self) -> float:
        """The active time of all runs."""
        return sum(sample.seconds for sample in self.samples)

    @property
    def events(self) -> int:
        """The events of all runs."""
        return sum(sample.events for sample in self.samples)

    @property
    def rate(self) -> float:
        """Events per second; 0 without events."""
        return self.events / self.seconds if self.events else 0.0

    @property
    def cpu_ns(self) -> float | None:
        """Processor time per event; None if a run has no figure."""
        seconds = [sample.cpu_seconds for sample in self.samples if sample.cpu_seconds is not None]
        return sum(seconds) * 1e9 / self.events if self.events and len(seconds) == len(self.samples) else None

    @property
    def energy_nj(self) -> float | None:
        """Energy per event; None if a run has no figure."""
        joules = [sample.energy_joules for sample in self.samples]
        return None if None in joules or not self.events else sum(filter(None, joules)) * 1e9 / self.events

    def processing(self, figure: str) -> float | None:
        """Return a figure of the processing latency, such as `p99` or `mean`, in microseconds."""
        return _over_runs([sample.processing for sample in self.samples], figure)

    def end_to_end(self, figure: str) -> float | None:
        """Return a figure of the latency from the intended arrival, in microseconds."""
        return _over_runs([sample.end_to_end for sample in self.samples], figure)


def _over_runs(latencies: list[Latency | None], figure: str) -> float | None:
    """Return the mean of means over runs, or the median of a percentile."""
    values = [getattr(latency, figure) for latency in latencies if latency is not None]
    known = [value for value in values if value is not None]
    return (statistics.mean if figure == "mean" else statistics.median)(known) if known else None


@contextmanager
def watching(pass_: Pass) -> Iterator[None]:
    """Add the context switches of the process inside the block to a pass."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    yield
    after = resource.getrusage(resource.RUSAGE_SELF)
    pass_.voluntary += after.ru_nvcsw - before.ru_nvcsw
    pass_.involuntary += after.ru_nivcsw - before.ru_nivcsw


def beside(pass_: Pass, asking: Asking | None) -> Beside:
    """Return the context of a run: it counts context switches, and makes requests for reconfigurations."""

    @contextmanager
    def context(runtime: Any) -> Iterator[None]:
        with watching(pass_), asking.beside(runtime) if asking is not None else nullcontext():
            yield

    return context
