"""A race: the compiled sequential loop and ways of executing take turns on one workload.

Rounds are interleaved (loop, first way, second way, ..., loop, ...). Figures are medians over rounds, with 95 %
bootstrap intervals (`statistics.py`). The figure to quote is the ratio to the loop of the same round, because the speed
of a shared machine changes over time. A first round warms up; it tells how many runs make a pass (`length.py`).

A result that differs from the loop's is `different`, and fails the benchmark.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial

from streaming_core.bench.race.confinement import confined
from streaming_core.bench.race.requests import Requests
from streaming_core.bench.race.rounds import OpenLoop, Rounds, Row, joined
from streaming_core.bench.race.subject import Subject
from streaming_core.regression.lock import hold, of_host
from streaming_core.run.way import RunSpec

PEAK_ONLY = OpenLoop()


class Race(Subject):
    """A workload on which the loop and ways take turns."""

    def run(
        self,
        ways: Sequence[RunSpec],
        repetitions: int,
        seconds: float = 0.0,
        open_loop: OpenLoop = PEAK_ONLY,
        tick: Callable[[], None] = lambda: None,
        requests: Sequence[Requests | None] = (),
        pinned: bool = False,
    ) -> list[Row]:
        """Run rounds and return rows for the loop, for hand-written loops that take part, and for ways.

        The process has as many cores as the way with the most threads has threads, and the host to itself.

        Args:
            ways: The ways to run.
            repetitions: The number of rounds, after one round that warms up.
            seconds: The length of a pass. A way repeats its run until its pass lasts as long. 0: a pass is one run.
            open_loop: The passes with an open-loop source.
            tick: Called after every round, and after every pass with an open-loop source.
            requests: For each way, the requests for reconfigurations during its runs, or None. The effect on a way
                without requests is measured at the events at which an equal way was reconfigured. With requests, a
                pass is one run.
            pinned: Whether every thread is bound to a core.
        """
        specs = [self.plan(way) for way in ways]
        if pinned:
            specs = [spec.model_copy(update={"pin": True}) for spec in specs]
        host = hold(of_host(), "a benchmark", say=partial(print, file=sys.stderr))
        with host, confined(max((spec.threads for spec in specs), default=1)):
            is_repeated = bool(self.events) and not requests and open_loop.pace is None
            rounds = Rounds(self, specs, seconds if is_repeated else 0.0, requests, tick)
            rounds.at_peak(1 if open_loop.pace else repetitions)
            rows = rounds.rows(ways)
            open_rows: list[list[Row]] = [[] for _ in ways]
            for load in open_loop.loads if self.events and specs else ():
                for of_way, row in zip(open_rows, rounds.under_load(load, repetitions), strict=True):
                    of_way.append(row)
            if open_loop.pace and self.events:
                for of_way, instants in zip(open_rows, rounds.over_time(open_loop.pace, repetitions), strict=True):
                    of_way += instants
        loops, of_ways = rows[: -len(ways) or None], rows[len(rows) - len(ways) :]
        of_ways_and_loads = zip(of_ways, open_rows, strict=True)
        return [*loops, *(joined(row, more) for row, loaded in of_ways_and_loads for more in loaded or [{}])]
