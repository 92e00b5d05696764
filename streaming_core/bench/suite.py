"""A suite: the comparisons of one paper as named experiments, with the paper's claims and the plots to draw.

An experiment is data. It has a sweep, plots, claims (`claims.py`), and possibly a function that draws conclusions. A
sweep is a list of heats; a heat is one workload and the ways that race on it. A suite sets nothing about how it is
measured: `length.py` chooses the length of passes and workloads, and `race.py` runs and checks heats. `reports` draws
the plots.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from streaming_core.bench.claims import Claim
from streaming_core.bench.race import facts, handwritten, length, ratios
from streaming_core.bench.race.race import Race
from streaming_core.bench.race.requests import Requests
from streaming_core.bench.race.results import Record
from streaming_core.bench.race.rounds import OpenLoop, Pace, Row
from streaming_core.errors import BadInput
from streaming_core.run.one_pass import Progress
from streaming_core.run.way import RunSpec

_PAPERS = f"{__package__}.papers"


def _suites() -> dict[str, str]:
    """Return the module of each suite; none without the folder `papers`, which a project may leave out."""
    if importlib.util.find_spec(_PAPERS) is None:
        return {}
    return getattr(importlib.import_module(_PAPERS), "SUITES", {})


SUITES = _suites()


@dataclass(frozen=True)
class Heat:
    """One workload of an experiment, and the ways that race on it.

    Attributes:
        app: The application.
        params: Its parameters.
        ways: The ways of executing.
        share: The part of the experiment's events in this workload. A pilot that chooses the events ignores it.
        pace: The rates of an open-loop source whose rate changes. With a pace, passes at the peak rate only tell the
            rate and check the result.
        requests: For each way, the requests for reconfigurations during its passes, or None.
        handwritten: The numbers of threads of the application's hand-written loop that take part.
    """

    app: str
    params: dict[str, Any]
    ways: Sequence[RunSpec]
    share: float = 1.0
    pace: Pace | None = None
    requests: tuple[Requests | None, ...] = ()
    handwritten: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plot:
    """A plot of column `y` over column (or parameter) `x`.

    Attributes:
        x: The column or parameter of the x axis.
        y: The column of the y axis.
        title: The title.
        by: The column with a chart for each of its values.
        lines: The columns with a line for each combination of their values.
        dashed: The column that a dashed line shows beside each line: what a model expects of `y`.
        kind: `line`; `bar`; `parts`, a stacked bar of the breakdown; or `point`, with the line x = y.
        log: Whether the x axis is logarithmic.
        loop: Whether the plot shows the loop too.
    """

    x: str
    y: str
    title: str
    by: str = "app"
    lines: tuple[str, ...] = ("way",)
    kind: str = "line"
    log: bool = False
    loop: bool = True
    dashed: str = ""


@dataclass(frozen=True)
class Experiment:
    """One comparison.

    Attributes:
        name: The name on the command line.
        figure: The figure or section of the paper.
        title: The title.
        claims: The paper's claims; empty if none can be quoted.
        sweep: Returns the heats for some thread counts, and notes, for example on what this machine cannot show.
        plots: The plots.
        events: The events of a heat with share 1, if their number is part of the experiment. None: a pilot chooses it.
        loads: Shares of the slowest way's peak rate at which an open-loop source measures latencies. All ways of a heat
            get the same rate; a way has a row for each.
        seconds: The time that the experiment may take, once its loops are built. Its passes are shorter for it.
        count: Returns columns for all rows of a heat.
        describe: Adds columns to the rows.
        conclude: Returns conclusions from the rows; may add columns to them.
        model: Returns rows that come from a simulation or from another measurement.
        rounds: The least number of rounds of a heat, unless passes are quick.
        needs: What the experiment needs that a small host lacks: `cores`, or NUMA `nodes`.
        has_operators: Whether rows of executor pinned keep the costs of each operator.
    """

    name: str
    figure: str
    title: str
    claims: tuple[Claim, ...]
    sweep: Callable[[list[int]], tuple[list[Heat], list[str]]]
    plots: tuple[Plot, ...]
    events: int | None = None
    loads: tuple[float, ...] = ()
    seconds: float = math.inf
    count: Callable[[Race], dict[str, Any]] = lambda race: {}
    describe: Callable[[list[Row]], None] = lambda rows: None
    conclude: Callable[[list[Row]], Iterator[str]] = lambda rows: iter(())
    model: Callable[[], Iterator[Row]] = lambda: iter(())
    needs: Literal["cores", "nodes"] | None = None
    has_operators: bool = False
    rounds: int = 1


@dataclass(frozen=True)
class Suite:
    """The experiments of a paper.

    Attributes:
        name: The name on the command line.
        title: The title.
        experiments: The experiments.
        pinned: Whether every thread is bound to a core.
        machine: The machine of the paper, if a note should compare it with this one.
    """

    name: str
    title: str
    experiments: tuple[Experiment, ...]
    pinned: bool = False
    machine: str = ""


def load(name: str) -> Suite:
    """Return a suite by its name; raise BadInput if there is none."""
    if name not in SUITES:
        raise BadInput(f"unknown suite {name!r}; {known()}")
    return importlib.import_module(f"{_PAPERS}.{SUITES[name]}").SUITE


def known() -> str:
    """Return the names of all suites, for errors."""
    if not SUITES:
        return "there are no suites, because streaming_core/bench/papers is missing"
    return f"known: {', '.join(SUITES)}"


def run(
    suite: Suite,
    only: list[str] | None,
    events: int | None,
    threads: list[int] | None,
    repetitions: int,
    progress: Progress | None = None,
    keep: Callable[[dict[str, Any]], object] = lambda results: None,
    quick: bool = False,
) -> dict[str, Any]:
    """Run a suite, or some of its experiments, and return the results as JSON values.

    Args:
        suite: The suite.
        only: The names of the experiments to run; all if None or empty.
        events: Events per heat with share 1, instead of those that a pilot or the experiment chooses.
        threads: Thread counts.
        repetitions: Rounds.
        progress: Called with the name of an experiment, the finished steps and all steps.
        keep: Called with the results so far after every experiment, so that an interrupted suite keeps them.
        quick: Whether a pass is a single run over few events.

    Raises:
        BadInput: An experiment is unknown, or thread counts or repetitions are out of range.
    """
    counts = facts.thread_counts(threads, repetitions)
    known = {experiment.name: experiment for experiment in suite.experiments}
    if unknown := [name for name in only or [] if name not in known]:
        raise BadInput(f"unknown experiment {unknown[0]!r} of suite {suite.name}; known: {', '.join(known)}")
    record = Record(repetitions, quick, suite.pinned)
    about = {"suite": suite.name, "title": suite.title, "order": list(known), "threads": counts}
    experiments: list[dict[str, Any]] = []
    results = record.results(about | {"experiments": experiments})
    for experiment in suite.experiments:
        if not only or experiment.name in only:
            heats = Heats(experiment, suite.pinned, suite.machine, events, record.pass_seconds, repetitions, quick)
            experiments.append(heats.run(counts, progress))
            results = record.results(about | {"experiments": experiments})
            keep(results)
    return results


@dataclass(frozen=True)
class Heats:
    """The heats of an experiment, and how they run.

    Attributes:
        experiment: The experiment.
        pinned: Whether every thread is bound to a core.
        machine: The machine of the paper.
        events: Events per heat with share 1; None: those that a pilot or the experiment chooses.
        seconds: The length of a pass.
        repetitions: Rounds.
        quick: Whether a workload has few events.
    """

    experiment: Experiment
    pinned: bool
    machine: str
    events: int | None
    seconds: float
    repetitions: int
    quick: bool

    def run(self, counts: list[int], progress: Progress | None) -> dict[str, Any]:
        """Run all heats and return the experiment with its rows and conclusions, as JSON values."""
        experiment = self.experiment
        repetitions = self.repetitions if self.quick else max(self.repetitions, experiment.rounds)
        heats, notes = experiment.sweep(counts)
        open_loops = [OpenLoop(experiment.loads, heat.pace) for heat in heats]
        in_open_loop = [repetitions * len(heat.ways) * (len(experiment.loads) + bool(heat.pace)) for heat in heats]
        passes = [
            (repetitions + 1) * (1 + len(heat.ways) + len(heat.handwritten)) + more
            for heat, more in zip(heats, in_open_loop, strict=True)
        ]
        total = sum(2 + (1 if heat.pace else repetitions) for heat in heats) + sum(in_open_loop)
        done = 0

        def tick() -> None:
            nonlocal done
            done += 1
            if progress is not None:
                progress(experiment.name, done, total)

        rows: list[Row] = list(experiment.model())
        if any(heat.handwritten for heat in heats):
            handwritten.executable()
        end, prepared, lengths = time.monotonic() + experiment.seconds, [], []
        for number, heat in enumerate(heats):
            began = time.monotonic()
            if began > end:
                notes = [
                    *notes,
                    f"left out, because the time was over: {', '.join(heat.app for heat in heats[number:])}",
                ]
                break
            race = Race(heat.app, heat.params, self._events(heat), handwritten=heat.handwritten)
            tick()
            prepared.append(time.monotonic() - began)
            lengths.append(min(self.seconds, length.shared(end - time.monotonic(), prepared, passes[number:])))
            columns = experiment.count(race) | {"heat": number}
            measured = race.run(
                heat.ways,
                repetitions,
                lengths[-1],
                open_loops[number],
                tick,
                heat.requests,
                self.pinned,
            )
            rows += [row | columns for row in measured]
        if not experiment.has_operators:
            for row in rows:
                row.pop("operators", None)
        if lengths and min(lengths) < self.seconds:
            ends = f"{min(lengths):.2g} to {max(lengths):.2g} s"
            notes = [*notes, f"Passes last {ends}, because the experiment may take {experiment.seconds:.0f} s."]
        experiment.describe(rows)
        conclusions = list(experiment.conclude(rows))
        if self.machine and heats:
            notes = [*notes, facts.unshown(counts, self.machine)]
        return {
            "name": experiment.name,
            "figure": experiment.figure,
            "title": experiment.title,
            "needs": experiment.needs,
            "plots": [{**vars(plot), "lines": list(plot.lines)} for plot in experiment.plots],
            "varies": _varies(experiment, rows),
            "notes": [*notes, *moved_cores(rows)],
            "conclusions": conclusions,
            "rows": rows,
        }

    def _events(self, heat: Heat) -> int:
        """Return the events of a heat."""
        events = self.events or self.experiment.events
        if self.quick and not self.events:
            events = min(events or length.QUICK_EVENTS, length.QUICK_EVENTS)
        if events is None:
            return length.chosen(heat.app, heat.params, heat.ways, self.seconds)
        return max(1, round(events * heat.share))


def moved_cores(rows: list[Row]) -> Iterator[str]:
    """Yield a note if the cores of the machine were much farther apart in some passes than in others."""
    trips = [trip for row in rows for trip in row.get("rounds", {}).get("round_trip_ns", ())]
    if trips and not ratios.is_same_distance(max(trips), min(trips)):
        yield (
            f"Before the passes, a cache line took {min(trips):.0f} to {max(trips):.0f} ns from core to core and back. "
            "The host moves the cores of this virtual machine. A ratio of ways on several threads has only the rounds "
            "in which both ran at the same distance."
        )


def _varies(experiment: Experiment, rows: list[Row]) -> list[str]:
    """Return the columns and parameters that distinguish the rows of an experiment."""
    names = dict.fromkeys(name for row in rows for name in row["params"])
    params = [name for name in names if len({row["params"].get(name) for row in rows}) > 1]
    return list(dict.fromkeys([*params, *(x for p in experiment.plots for x in (p.by, p.x, *p.lines) if x)]))
