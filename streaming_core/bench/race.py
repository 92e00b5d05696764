"""A race: the compiled sequential loop and ways of executing take turns on one workload.

Rounds are interleaved (loop, first way, second way, ..., loop, ...), and figures are medians over rounds. The figure to
quote is the ratio to the loop of the same round, because the speed of a shared machine changes over time. The interval
of a median spans the lowest and the highest round. With five rounds, it contains the true median 15 times out of 16.

Both sides run from decoded rows to encoded outputs and a digest. Both use memory that the process has used before. New
pages can cost more than the work on them, and malloc may or may not return the loop's memory to the system.

A result that differs from the loop's is `different`, and fails the benchmark.
"""

from __future__ import annotations

import itertools
import os
import resource
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streaming_core import interruption
from streaming_core.apps import registry
from streaming_core.bench.reconfigurations import columns, seen, switched
from streaming_core.bench.requests import Requests
from streaming_core.data import workload
from streaming_core.data.agreement import outputs_digest, states_digest
from streaming_core.data.digest import add, format_digest
from streaming_core.kernels.program import compile_app
from streaming_core.regression.home import Home
from streaming_core.run import engine
from streaming_core.run.energy import Meter, Spent
from streaming_core.run.way import AXES, DEFAULT_BATCH, RunSpec
from streaming_core.run.yardstick import keep_memory

SEED = 1
INSTANTS = 40

Row = dict[str, Any]


class Pass(NamedTuple):
    """A pass of a way: its sample, its deliveries if recorded, and the context switches of the process meanwhile."""

    sample: engine.Sample
    deliveries: np.ndarray
    voluntary: int
    involuntary: int


class Race:
    """One workload, generated and decoded, with its compiled program, for any number of passes."""

    def __init__(self, app: str, params: dict[str, Any], events: int, meter: Meter | None = None):
        from streaming_core.oracle.loop import Loop

        keep_memory()
        self.app, self.given, self.events = registry.load(app), params, events
        bound = self.app.bind(params)
        folder = Home().workload(app, workload.address(self.app, bound, events, SEED))
        workload.write(self.app, bound, events, SEED, folder)
        self.source = workload.read(folder, self.app)
        self.loop, self.program = Loop(self.app, bound), compile_app(self.app, bound)
        self._decoded = [self.loop.decode(table) for table in self.source.blocks(engine.BLOCK)]
        self._blocks: dict[int, engine.Blocks] = {}
        self._expected: dict[str, tuple[str, str]] = {}  # digests of outputs and final state, by order
        self._meter = meter or Meter()

    def run(
        self,
        ways: Sequence[RunSpec],
        repetitions: int,
        loads: Sequence[float] = (),
        tick: Callable[[], None] = lambda: None,
        phases: Sequence[tuple[float, float]] = (),
        requests: Sequence[Requests | None] = (),
    ) -> list[Row]:
        """Runs rounds and returns a row for the loop and rows for each way.

        Args:
            ways: The ways to run.
            repetitions: The number of rounds, after one round that warms up.
            loads: Shares of a way's peak rate. At each of them, every way also makes `repetitions` passes with an
                open-loop source, which have a row of their own. End-to-end latencies start at an event's intended
                arrival. Equal ways have the rate of the slowest of them.
            tick: Called after every round, and after every pass with an open-loop source.
            phases: The phases of an open-loop source whose rate changes. Each has a length, as a part of the whole,
                and a share of the first way's peak rate. With phases, every way also makes `repetitions` such
                passes. Their rows cover one instant after the other.
            requests: For each way, the requests for reconfigurations during its passes, or None. The effect on a way
                without requests is measured at the events at which an equal way was reconfigured.
        """
        asked = list(requests) or [None] * len(ways)
        yard: list[tuple[float, Spent]] = []
        passes: list[list[Pass]] = [[] for _ in ways]
        wrong = [False] * len(ways)

        def one(i: int, rate: float | engine.Rates = 0.0) -> Pass:
            # The warm-up round digests the outputs; later rounds may only count them.
            spec = ways[i].model_copy(update={"sink": "digest"}) if not passes[i] else ways[i]
            made, is_right = self._one(spec, rate, asked[i], yard[-1][0], deliveries=bool(requests))
            wrong[i] |= not is_right
            return made

        for _ in range(repetitions + 1):
            yard.append(self._yardstick())
            for i in range(len(ways)):
                passes[i].append(one(i))
            tick()
        passes = [of_way[1:] for of_way in passes]
        seconds = [statistics.median(made.sample.seconds for made in of_way) for of_way in passes]
        equal = [[j for j, way in enumerate(ways) if way == spec] for spec in ways]
        open_loop: list[list[Row]] = [[] for _ in ways]
        for load in loads:
            rates = [load * self.events / max(seconds[j] for j in equal[i]) for i in range(len(ways))]
            loaded: list[list[Pass]] = [[] for _ in ways]
            for _ in range(repetitions):  # interleaved, as the rounds are
                for i, rate in enumerate(rates):
                    loaded[i].append(one(i, rate))
                    tick()
            for i, rate in enumerate(rates):
                row = _under_load(load, rate, [made.sample for made in loaded[i]])
                found = _reconfigured(loaded, i, equal[i], asked)
                open_loop[i].append(row | {f"loaded_{name}": value for name, value in found.items()})
        if phases:
            rates_in_turn = phased(phases, self.events / seconds[0], self.events)
            for number in range(repetitions):  # interleaved, as the rounds are
                for i in range(len(ways)):
                    open_loop[i] += _over_time(number, rates_in_turn, one(i, rates_in_turn).sample)
                    tick()
        yard_seconds = [seconds for seconds, _ in yard[1:]]
        rows = [self._row(None, yard_seconds, yard_seconds, [], "yardstick") | self._spent([s for _, s in yard[1:]])]
        for i, spec in enumerate(ways):
            result = "bound" if spec.is_bound else "different" if wrong[i] else "equal"
            samples = [made.sample for made in passes[i]]
            row = self._row(spec, [sample.seconds for sample in samples], yard_seconds, samples, result)
            if requests:
                row |= _reconfigured(passes, i, equal[i], asked)
                row["switched"] = "no" if (asking := asked[i]) is None else asking.kind
                if spec.threads > (os.cpu_count() or 1):
                    for name in ("voluntary", "involuntary"):
                        row[name] = statistics.median(getattr(made, name) for made in passes[i])
            rows += [row | found for found in open_loop[i] or [{}]]
        return rows

    def _one(
        self, spec: RunSpec, rate: float | engine.Rates, asking: Requests | None, loop_seconds: float, deliveries: bool
    ) -> tuple[Pass, bool]:
        """Makes one pass; also returns whether its result is right."""
        usage = []

        @contextmanager
        def beside(runtime: Any) -> Iterator[None]:
            usage.append(resource.getrusage(resource.RUSAGE_SELF))
            with asking.beside(loop_seconds)(runtime) if asking is not None else nullcontext():
                yield
            usage.append(resource.getrusage(resource.RUSAGE_SELF))

        sample, state, more = engine.one_pass(
            spec,
            self.program,
            self._blocks_of(spec),
            rate=rate,
            meter=self._meter,
            beside=beside,
            deliveries=deliveries,
        )
        order = spec.order
        assert order is not None  # every RunSpec has an order
        outputs, final = self._expected[order]
        made = sample.digest
        if spec.sink == "count":
            outputs, made = (digest.partition(":")[0] for digest in (outputs, made))
        is_right = (made, states_digest(self.app, order, state)) == (outputs, final)
        is_right &= sample.in_order or order == "none"
        before, after = usage
        switches = after.ru_nvcsw - before.ru_nvcsw, after.ru_nivcsw - before.ru_nivcsw
        return Pass(sample, columns(more["deliveries"] or ()), *switches), is_right

    def outputs(self) -> pa.Table:
        """Returns the outputs of the loop, from one pass without timing."""
        self.loop.reset()
        made = [self.loop.process(table) for table in self.source.blocks(engine.BLOCK)]
        return pa.concat_tables([self.loop.output_schema.empty_table(), *made])

    def _yardstick(self) -> tuple[float, Spent]:
        """Runs the loop once: returns its seconds and its cost, and keeps the expected results."""
        self.loop.reset()
        spent = Spent(self._meter)
        self.loop.running = spent.counting
        for rows, text in self._decoded:
            interruption.check()
            self.loop.run(rows, text, keep=False)
        self.loop.finish(self.events)
        seconds = self.loop.seconds
        if "total" not in self._expected:
            state = self.loop.state()
            self._expected["total"] = format_digest(*self.loop.digest), states_digest(self.app, "total", state)
            if self.app.unordered is not None:
                parts = [
                    outputs_digest(self.app, "none", table) for table in [self.outputs(), self.loop.finish(self.events)]
                ]
                unordered = format_digest(*add(*parts))
                self._expected["none"] = unordered, states_digest(self.app, "none", state)
        return seconds, spent

    def _blocks_of(self, spec: RunSpec) -> engine.Blocks:
        size = engine.block_size(spec)
        if size not in self._blocks:
            self._blocks[size] = engine.Blocks(self.source, self.program, size, keep=1 << 30)
        return self._blocks[size]

    def _spent(self, passes: list[Spent]) -> Row:
        return {
            "cpu_ns": self._each(statistics.median(spent.cpu for spent in passes) * 1e9),
            "energy_nj": _median(None if s.joules is None else self._each(s.joules * 1e9) for s in passes),
        }

    def _each(self, total: float) -> float | None:
        """Divides by the number of events; None if there are none."""
        return total / self.events if self.events else None

    def _row(self, spec: RunSpec | None, seconds, yard, samples: list[engine.Sample], result: str) -> Row:
        median = statistics.median(seconds)
        row: Row = {
            "app": self.app.name,
            "params": self.given,
            # The batch size has its own column.
            "way": "loop" if spec is None else spec.model_copy(update={"batch": DEFAULT_BATCH}).strategy,
            "threads": 1 if spec is None else spec.threads,
            "events": self.events,
            "seconds": seconds,
            "events_per_s": None,
            "outputs_per_s": None,
            "to_loop": None,
            "to_loop_range": None,
            "p99_us": None,
            "result": result,
        }
        if self.events:  # without events there is no rate
            row["events_per_s"] = self.events / median
            row["outputs_per_s"] = int(self._expected["total"][0].partition(":")[0]) / median
            ratios = [y / s for y, s in zip(yard, seconds, strict=True)]
            row["to_loop"], row["to_loop_range"] = statistics.median(ratios), [min(ratios), max(ratios)]
        if spec is not None:
            axes = ("executor", *AXES, "stealing", "punctuation", "batch")
            row |= {axis: value for axis in axes if (value := spec.option(axis)) is not None}
            if plan := spec.option("plan"):
                row["plan"] = plan
            row["cpu_ns"] = _median(s.cpu_ns for s in samples)
            row["energy_nj"] = _median(s.energy_nj for s in samples)
            row["p99_us"] = statistics.median(s.processing.p99 for s in samples)
            row["rejected"] = self._each(samples[0].rejected)
            # Nanoseconds per event and component, summed over threads.
            row["breakdown"] = {
                part: self._each(statistics.median(s.breakdown[part] for s in samples) * 1e9)
                for part in samples[0].breakdown
            }
        return row


def faster(row: Row, other: Row) -> float:
    """Returns how many times faster a way is than another of its race: the median over rounds."""
    return statistics.median(gains(row, other))


def gains(row: Row, other: Row) -> list[float]:
    """Returns how many times faster a way was than another of its race, for each round."""
    return [b / a for a, b in zip(row["seconds"], other["seconds"], strict=True)]


def right(rows: list[Row]) -> list[Row]:
    """Returns the rows whose results equal the loop's."""
    return [row for row in rows if row["result"] == "equal"]


def interval(found: Sequence[float]) -> str:
    """Returns `LOWEST to HIGHEST`."""
    return f"{min(found):.2f} to {max(found):.2f}"


def threads_of(row: Row) -> str:
    """Returns `1 thread`, `2 threads` and so on."""
    return f"{row['threads']} thread{'s' * (row['threads'] != 1)}"


def _reconfigured(passes: list[list[Pass]], i: int, equal: list[int], asked: list[Requests | None]) -> Row:
    """Returns how long the reconfigurations in the passes of way `i` took, and their effect on outputs.

    For a way without requests, it looks at the events at which an equal way was reconfigured in the same round.
    """
    if not any(asked):
        return {}
    where = next((passes[j] for j in (i, *equal) if asked[j] is not None), [])
    events = [[one.event for one in made.sample.reconfigurations] for made in where] or [[] for _ in passes[i]]
    found = switched([made.sample for made in passes[i]]) if asked[i] is not None else {}
    return found | seen(zip([made.deliveries for made in passes[i]], events, strict=True))


def _under_load(load: float, rate: float, samples: list[engine.Sample]) -> Row:
    """Returns the columns of passes with an open-loop source; latencies are in microseconds."""
    found = [s.end_to_end for s in samples if s.end_to_end is not None]
    passes = [latency.p99 for latency in found]
    return {
        "load": load,
        "offered_per_s": rate,
        "end_to_end_p50_us": statistics.median(latency.p50 for latency in found),
        "end_to_end_p99_us": statistics.median(passes),
        "end_to_end_p99s_us": passes,
        "processing_p99_us": statistics.median(s.processing.p99 for s in samples),
    }


def phased(phases: Sequence[tuple[float, float]], peak: float, events: int) -> engine.Rates:
    """Returns the rates, each with its first event, that spread all events over consecutive phases."""
    parts = [lasts * share for lasts, share in phases]
    rates: engine.Rates = []
    for (_, share), before in zip(phases, itertools.accumulate([0.0, *parts]), strict=False):
        first = round(events * before / sum(parts))
        if not rates or first > rates[-1][0]:
            rates.append((first, share * peak))
    return rates


def _over_time(number: int, rates: engine.Rates, sample: engine.Sample) -> list[Row]:
    """Returns the rows of a pass whose rate changes: about INSTANTS rows for the first pass, one for others.

    Latencies cover the whole pass, in microseconds. `replicas` counts the replicas that have keys, and `work` is the
    share of their time that they work. `pending` is the backlog in seconds, at the present rate.
    """
    begins, at = [], 0.0
    for (first, rate), (then, _) in itertools.pairwise([*rates, (sample.events, 0.0)]):
        begins.append((at, rate))
        at += (then - first) / rate
    assert sample.end_to_end is not None
    whole: Row = {
        "pass": number,
        "end_to_end_p50_us": sample.end_to_end.p50,
        "end_to_end_p99_us": sample.end_to_end.p99,
        "cpu_s": sample.cpu_seconds,
        "reconfigurations": len(sample.reconfigurations),
        "turns": turns([len(one.replicas) for one in sample.reconfigurations]),
    }
    periods = [load for loads in sample.loads.values() for load in loads]
    found = []
    every = max(1, len(periods) // INSTANTS)
    for some in (periods[i : i + every] for i in range(0, len(periods), every)):
        seconds = some[-1].at / 1e9
        offered = next(rate for begin, rate in reversed(begins) if begin <= seconds)
        worked = sum(load.worked for load in some)
        able = sum(load.period * load.replicas for load in some)
        found.append(
            whole
            | {
                "at_s": seconds,
                "offered_per_s": offered,
                "replicas": statistics.mean(load.replicas for load in some),
                "work": worked / able,
                "pending": some[-1].pending / offered,
            }
        )
    return [whole, *(found if number == 0 else [])]


def turns(counts: Sequence[int]) -> int:
    """Counts how often a rising sequence of numbers starts to fall, or the other way round."""
    steps = [b - a for a, b in itertools.pairwise(counts) if a != b]
    return sum((a > 0) != (b > 0) for a, b in itertools.pairwise(steps))


def _median(values: Iterable[float | None]) -> float | None:
    """Returns the median, or None if a value is None."""
    found = list(values)
    known = [value for value in found if value is not None]
    return statistics.median(known) if len(known) == len(found) else None
