"""The rounds of a race: the loop and the ways take turns, at the peak rate, at equal rates, and at changing rates."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from streaming_core.bench.race import open_loop
from streaming_core.bench.race.distance import Distance
from streaming_core.bench.race.reconfigurations import duration_columns, output_columns
from streaming_core.bench.race.requests import Requests
from streaming_core.bench.race.statistics import interval, median, summary
from streaming_core.bench.race.subject import Subject
from streaming_core.bench.race.turns import Pass, Turn, runs
from streaming_core.run.one_pass import Rates
from streaming_core.run.report import Sample, TaskCost
from streaming_core.run.way import AXES, DEFAULT_BATCH, RunSpec

Row = dict[str, Any]
# Returns the rates of an open-loop source from the workload and the peak rate of the first way.
Pace = Callable[[Subject, float], Rates]


@dataclass(frozen=True)
class OpenLoop:
    """The passes of a race with an open-loop source, in addition to those at the peak rate.

    Attributes:
        loads: Shares of the peak rate of the slowest way. At each of these rates, every way makes as many passes as the
            race has rounds. They have a row of their own.
        pace: The rates of a source whose rate changes. With a pace, every way makes such a run in each round, and only
            one run at the peak rate. The rows cover one instant after the other.
    """

    loads: Sequence[float] = ()
    pace: Pace | None = None


class Rounds:
    """The rounds of one race.

    Attributes:
        passes: The passes of each way at the peak rate, without the round that warms up.
        turns: The turns of the loop in these rounds.
        wrong: For each way, whether a result differs from the loop's.
    """

    def __init__(
        self,
        race: Subject,
        specs: Sequence[RunSpec],
        seconds: float,
        requests: Sequence[Requests | None],
        tick: Callable[[], None],
    ):
        """Take what `Race.run` takes; `specs` have the plans and bindings that the runs use."""
        self._race, self._specs, self._seconds, self._tick = race, specs, seconds, tick
        self._has_requests = bool(requests)
        self._requests = list(requests) or [None] * len(specs)
        self.passes: list[list[Pass]] = [[] for _ in specs]
        self.turns: list[Turn] = []
        self.wrong = [False] * len(specs)
        self._trips: list[list[float | None]] = [[] for _ in specs]  # round trips between cores, before each pass
        self._distance = Distance()
        self._runs = [1] * len(specs)
        self._loop_runs = 1
        # Of the hand-written loop, by threads.
        self._handwritten_runs = dict.fromkeys(race.handwritten, 1)
        self._handwritten_turns: dict[int, list[Turn]] = {threads: [] for threads in race.handwritten}
        self._handwritten_is_wrong = dict.fromkeys(race.handwritten, False)
        self._loop_seconds = 0.0  # of a run of the loop in the last round

    def at_peak(self, repetitions: int) -> None:
        """Warm up, choose the runs of each pass, and make the rounds at the peak rate."""
        if self._seconds:  # a first run is slower than others, and would tell too few runs
            self._race.turn(1)
            self._handwritten()
            for i in range(len(self._specs)):
                self._pass(i, is_first=True)
        for number in range(repetitions + 1):
            turn = self._race.turn(self._loop_runs)
            self._loop_seconds = turn.seconds
            limits = self._handwritten()
            passes = []
            for i, (spec, trips) in enumerate(zip(self._specs, self._trips, strict=True)):
                if number > 0:
                    trips.append(self._distance.trip(spec))
                # The round that warms up digests the outputs; later rounds may only count them.
                passes.append(self._pass(i, is_first=number == 0))
            if number == 0:
                self._runs = [runs(self._seconds, pass_.seconds) for pass_ in passes]
                self._loop_runs = runs(self._seconds, turn.seconds)
                self._handwritten_runs = {count: runs(self._seconds, limit.seconds) for count, limit in limits.items()}
            else:
                self.turns.append(turn)
                for threads, limit in limits.items():
                    self._handwritten_turns[threads].append(limit)
                for of_way, pass_ in zip(self.passes, passes, strict=True):
                    of_way.append(pass_)
            self._tick()

    def _handwritten(self) -> dict[int, Turn]:
        """Return the turn of the hand-written loop on each number of threads."""
        turns = {}
        for threads, times in self._handwritten_runs.items():
            turns[threads], is_right = self._race.handwritten_turn(threads, times)
            self._handwritten_is_wrong[threads] |= not is_right
        return turns

    def under_load(self, load: float, repetitions: int) -> list[Row]:
        """Make rounds at a share of the slowest way's peak rate; return the columns of each way."""
        rate = load * min(statistics.median(pass_.rate for pass_ in passes) for passes in self.passes)
        times = runs(self._seconds, self._race.events / rate)
        loaded: list[list[Pass]] = [[] for _ in self._specs]
        trips: list[list[float | None]] = [[] for _ in self._specs]
        for _ in range(repetitions):
            for i in range(len(self._specs)):
                trips[i].append(self._distance.trip(self._specs[i]))
                loaded[i].append(self._pass(i, times, rate, middle=True))
                self._tick()
        rows = []
        for i in range(len(self._specs)):
            row = open_loop.under_load(load, rate, loaded[i])
            effect = self._reconfigured(loaded, i)
            row |= _columns({"loaded_round_trip_ns": trips[i]}, row["rounds"])
            rows.append(row | {f"loaded_{name}": value for name, value in effect.items()})
        return rows

    def over_time(self, pace: Pace, repetitions: int) -> list[list[Row]]:
        """Make runs at a rate that changes; return the rows of each way, one instant after the other."""
        rates = pace(self._race, statistics.median(pass_.rate for pass_ in self.passes[0]))
        rows: list[list[Row]] = [[] for _ in self._specs]
        for number in range(repetitions):
            for i, of_way in enumerate(rows):
                [(sample, deliveries)] = zip(*_of_runs([self._pass(i, 1, rates)]), strict=True)
                of_way += open_loop.over_time(number, rates, sample, deliveries)
                self._tick()
        return rows

    def _pass(
        self,
        i: int,
        times: int | None = None,
        rate: float | Rates = 0.0,
        is_first: bool = False,
        middle: bool = False,
    ) -> Pass:
        spec = self._specs[i].model_copy(update={"sink": "digest"}) if is_first else self._specs[i]
        has_deliveries = self._has_requests or isinstance(rate, list)
        result = self._race.one_pass(
            spec, times or self._runs[i], rate, self._requests[i], self._loop_seconds, has_deliveries, middle
        )
        self.wrong[i] |= not result.is_right
        return result

    def rows(self, ways: Sequence[RunSpec]) -> list[Row]:
        """Return the rows of the loop, of the hand-written loop by threads, and of ways at peak rate.

        Args:
            ways: The ways as they were declared, which name the rows.
        """
        loop = self._row("loop", 1, self._loop_runs, [turn.rate for turn in self.turns], "yardstick")
        costs = ("cpu_ns", "energy_nj")
        rows = [loop | _columns({name: [getattr(turn, name) for turn in self.turns] for name in costs}, loop["rounds"])]
        for threads, turns in self._handwritten_turns.items():
            result = "different" if self._handwritten_is_wrong[threads] else "equal"
            rates = [turn.rate for turn in turns]
            rows.append(self._row("hand-written", threads, self._handwritten_runs[threads], rates, result))
        for i, (way, spec) in enumerate(zip(ways, self._specs, strict=True)):
            passes = self.passes[i]
            # The batch size has its own column.
            name = way.model_copy(update={"batch": DEFAULT_BATCH}).strategy
            result = "bound" if spec.is_bound else "different" if self.wrong[i] else "equal"
            row = self._row(name, spec.threads, self._runs[i], [pass_.rate for pass_ in passes], result)
            numbers = [name for name in ("partitions", "slice", "throughput_window") if name in type(spec).model_fields]
            axes = ("executor", *AXES, "stealing", "punctuation", "batch", *numbers)
            row |= {axis: value for axis in axes if (value := spec.option(axis)) is not None}
            if plan := spec.option("plan"):
                row["plan"] = plan
            samples = [sample for pass_ in passes for sample in pass_.samples]
            row["rejected"] = samples[0].rejected / self._race.events if self._race.events else None
            row["breakdown"] = self._breakdown(samples)
            if parts := self._costs(samples) or self._by_role(samples):
                row["costs"] = parts
            if crews := [sample.threads for sample in samples if sample.threads]:
                row["worked"] = statistics.median_high(crew.worked for crew in crews)
                if crews[-1].why:
                    row["why_idle"] = crews[-1].why
            if samples[0].balance:
                row["calls"] = {name: load.calls for name, load in samples[0].balance.items()}
            if samples[0].tasks:
                row["operators"] = _operators(samples)
            measured = {name: [getattr(pass_, name) for pass_ in passes] for name in costs}
            # Another engine's latencies begin elsewhere, or are those of whole runs.
            latencies = [pass_.processing("p99") if spec.is_engine else None for pass_ in passes]
            measured |= {"p99_us": latencies, "round_trip_ns": self._trips[i]}
            row |= _columns(measured, row["rounds"])
            if self._has_requests:
                row |= self._reconfigured(self.passes, i)
                if spec.threads > (os.cpu_count() or 1):
                    for name in ("voluntary", "involuntary"):
                        row[name] = statistics.median(getattr(pass_, name) for pass_ in passes)
            rows.append(row)
        return rows

    def _row(self, way: str, threads: int, times: int, rates: list[float], result: str) -> Row:
        race = self._race
        known = rates if race.events else []  # without events there is no rate
        row: Row = {
            "app": race.app.name,
            "params": race.params,
            "way": way,
            "threads": threads,
            "events": race.events,
            "runs": times,
            "rates": known,
            "outputs_per_s": None,
            "result": result,
        }
        ratios: list[float | None] = []
        if known:
            ratios += [rate / turn.rate for rate, turn in zip(known, self.turns, strict=True)]
        row |= _columns({"to_loop": ratios})
        row |= {"events_per_s": median(known), "events_per_s_range": interval(known) if known else None}
        if known:
            row["outputs_per_s"] = race.outputs_per_event * row["events_per_s"]
        return row

    def _breakdown(self, samples: list[Sample]) -> dict[str, float | None]:
        """Return nanoseconds per event and component, summed over threads."""
        events = self._race.events
        return {
            part: statistics.median(s.breakdown[part] for s in samples) * 1e9 / events if events else None
            for part in samples[0].breakdown
        }

    def _costs(self, samples: list[Sample]) -> dict[str, float | None]:
        """Return a scheme's times in nanoseconds per event, summed over threads, and counts per interval or batch."""
        events, costs = self._race.events, {}
        units, unit = ("batches", "batch") if "batches" in samples[0].costs else ("intervals", "interval")
        for name in samples[0].costs:
            median_cost = statistics.median(sample.costs[name] for sample in samples)
            if name.endswith("_ns"):
                costs[name.removesuffix("_ns")] = median_cost / events if events else None
            elif name != units:
                parts = samples[0].costs[units]
                costs[f"{name}_per_{unit}"] = median_cost / parts if parts else 0.0
        return costs

    def _by_role(self, samples: list[Sample]) -> dict[str, float]:
        """Return nanoseconds per event of the tasks of each role together; `alone`: of the longest task without equals.

        Only executor pinned has tasks.
        """
        runs_of = [
            {key: [entry.execute_ns + entry.others_ns for entry in of_key] for key, of_key in _grouped(sample).items()}
            for sample in samples
        ]
        events, costs = max(1, self._race.events), {}
        for role in dict.fromkeys(role for role, _ in runs_of[0]):
            spent = (sum(sum(times) for key, times in run.items() if key[0] == role) for run in runs_of)
            costs[role] = statistics.median(spent) / events
        if costs:
            longest = (max((sum(times) for times in run.values() if len(times) == 1), default=0) for run in runs_of)
            costs["alone"] = statistics.median(longest) / events
        return costs

    def _reconfigured(self, passes: list[list[Pass]], i: int) -> Row:
        equal = [j for j, spec in enumerate(self._specs) if spec == self._specs[i]]
        return reconfigured(passes, i, equal, self._requests)


def reconfigured(passes: list[list[Pass]], i: int, equal: list[int], requests: Sequence[Requests | None]) -> Row:
    """Return how long the reconfigurations in the passes of way `i` took, and their effect on outputs.

    For a way without requests, it looks at the events at which an equal way was reconfigured in the same round.

    Args:
        passes: The passes of each way.
        i: The way.
        equal: The ways that are equal to it.
        requests: The requests of each way.
    """
    if not any(requests):
        return {}
    where = next((passes[j] for j in (i, *equal) if requests[j] is not None), passes[i])
    samples, deliveries = _of_runs(passes[i])
    events = [[reconfiguration.event for reconfiguration in sample.reconfigurations] for sample in _of_runs(where)[0]]
    row = duration_columns(samples) if requests[i] is not None else {}
    return row | output_columns(zip(deliveries, events, strict=True))


def joined(row: Row, more: Row) -> Row:
    """Return a row with the columns of another one, and with the rounds of both."""
    return row | more | {"rounds": row["rounds"] | more.get("rounds", {})}


def _grouped(sample: Sample) -> dict[tuple[str, str], list[TaskCost]]:
    """Return the tasks of a run by role and operator."""
    groups: dict[tuple[str, str], list[TaskCost]] = {}
    for task in sample.tasks:
        groups.setdefault((task.role, task.operator), []).append(task)
    return groups


def _of_runs(passes: list[Pass]) -> tuple[list[Sample], list]:
    samples = [sample for pass_ in passes for sample in pass_.samples]
    return samples, [delivery for pass_ in passes for delivery in pass_.deliveries]


def _columns(rounds: dict[str, list[float | None]], known: dict[str, list] | None = None) -> Row:
    """Return the median and the interval of each column, and `rounds` with its values."""
    row: Row = {"rounds": (known or {}) | {name: values for name, values in rounds.items() if None not in values}}
    for name, values in rounds.items():
        row |= summary(name, values)
    return row


def _operators(samples: list[Sample]) -> dict[str, Row]:
    """Return for each operator its rows, and the nanoseconds of an input row: the median over the runs.

    All tasks of an operator count. `quantiles` are those of its first replica.
    """
    costs: dict[str, Row] = {}
    for operator in dict.fromkeys(task.operator for task in samples[0].tasks):
        tasks = [[task for task in sample.tasks if task.operator == operator] for sample in samples]
        rows_in = [sum(task.rows_in for task in run) for run in tasks]
        cost: Row = {"rows_in": rows_in[0], "rows_out": sum(task.rows_out for task in tasks[0])}
        for name in ("execute", "others"):
            spent = (sum(getattr(task, f"{name}_ns") for task in run) for run in tasks)
            cost[name] = statistics.median(ns / max(1, rows) for ns, rows in zip(spent, rows_in, strict=True))
        of_runs = zip(*(run[0].execute_quantiles for run in tasks), strict=False)
        costs[operator] = cost | {"quantiles": [statistics.median(values) for values in of_runs]}
    return costs
