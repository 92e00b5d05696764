"""A suite: the comparisons of one paper as named experiments, with the paper's claims and the plots to draw.

An experiment is data. It has a sweep, plots, and possibly a function that draws conclusions from the rows. A sweep is a
list of heats; a heat is one workload and the ways that race on it. `race.py` runs and checks heats. `reports` draws the
plots.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from streaming_core.bench import host
from streaming_core.bench.race import Race, Row
from streaming_core.bench.report import VERSION
from streaming_core.bench.requests import Requests
from streaming_core.errors import BadInput
from streaming_core.run import engine
from streaming_core.run.way import RunSpec

SUITES = (
    "tstream",
    "ordered",
    "viper",
    "briskstream",
    "rlas",
    "stretch",
)  # modules of this package that define SUITE


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, in our words, and its source."""

    says: str
    source: str


@dataclass(frozen=True)
class Heat:
    """One workload of an experiment, and the ways that race on it.

    Attributes:
        app: The application.
        params: Its parameters.
        ways: The ways of executing.
        share: The part of the experiment's events in this workload.
        phases: The phases of an open-loop source whose rate changes. Each has a length, as a part of the whole, and a
            share of the first way's peak rate.
        requests: For each way, the requests for reconfigurations during its passes, or None.
    """

    app: str
    params: dict[str, Any]
    ways: Sequence[RunSpec]
    share: float = 1.0
    phases: tuple[tuple[float, float], ...] = ()
    requests: tuple[Requests | None, ...] = ()


@dataclass(frozen=True)
class Plot:
    """A plot of column `y` over column (or parameter) `x`.

    Attributes:
        x: The column or parameter of the x axis.
        y: The column of the y axis.
        title: The title.
        by: The column with a chart for each of its values.
        lines: The columns with a line for each combination of their values.
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
        events: The events of a heat with share 1.
        loads: Shares of the peak rate at which an open-loop source measures latencies; a way has a row for each.
        count: Returns columns for all rows of a heat.
        conclude: Returns conclusions from the rows; may add columns to them.
        model: Returns rows that come from a simulation or from another measurement.
    """

    name: str
    figure: str
    title: str
    claims: tuple[Claim, ...]
    sweep: Callable[[list[int]], tuple[list[Heat], list[str]]]
    plots: tuple[Plot, ...]
    events: int = 500_000
    loads: tuple[float, ...] = ()
    count: Callable[[Race], dict[str, Any]] = lambda race: {}
    conclude: Callable[[list[Row]], Iterator[str]] = lambda rows: iter(())
    model: Callable[[], Iterator[Row]] = lambda: iter(())


@dataclass(frozen=True)
class Suite:
    """The experiments of a paper."""

    name: str
    title: str
    experiments: tuple[Experiment, ...] = field(default_factory=tuple)


def load(name: str) -> Suite:
    """Returns a suite by its name; raises BadInput if there is none."""
    if name not in SUITES:
        raise BadInput(f"unknown suite {name!r}; known: {', '.join(SUITES)}")
    return importlib.import_module(f"{__package__}.{name}").SUITE


def run(
    suite: Suite,
    only: list[str] | None,
    events: int | None,
    threads: list[int] | None,
    repetitions: int,
    progress: engine.Progress | None = None,
    keep: Callable[[dict[str, Any]], object] = lambda found: None,
) -> dict[str, Any]:
    """Runs a suite, or some of its experiments, and returns the report as JSON.

    Args:
        suite: The suite.
        only: The names of the experiments to run; all if None or empty.
        events: Events per heat instead of each experiment's own number.
        threads: Thread counts.
        repetitions: Rounds.
        progress: Called with the name of an experiment, the finished steps and all steps.
        keep: Called with the report so far after every experiment, so that an interrupted suite keeps its results.

    Raises:
        BadInput: An experiment is unknown, or thread counts or repetitions are out of range.
    """
    counts = host.thread_counts(threads, repetitions)
    known = {experiment.name: experiment for experiment in suite.experiments}
    if unknown := [name for name in only or [] if name not in known]:
        raise BadInput(f"unknown experiment {unknown[0]!r} of suite {suite.name}; known: {', '.join(known)}")
    found = host.facts(repetitions) | {
        "version": VERSION,
        "suite": suite.name,
        "title": suite.title,
        "order": list(known),
        "threads": counts,
        "experiments": [],
    }
    for experiment in suite.experiments:
        if not only or experiment.name in only:
            size = events or experiment.events
            found["experiments"].append(_experiment(experiment, size, counts, repetitions, progress))
            keep(found)
    return found


def _experiment(experiment: Experiment, events: int, counts: list[int], repetitions: int, progress) -> dict[str, Any]:
    heats, notes = experiment.sweep(counts)
    total = sum(
        repetitions + 2 + len(heat.ways) * repetitions * (len(experiment.loads) + bool(heat.phases)) for heat in heats
    )
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(experiment.name, done, total)

    rows: list[Row] = list(experiment.model())
    for heat in heats:
        size = max(1, round(events * heat.share))
        race = Race(heat.app, heat.params, size)
        tick()
        counted = experiment.count(race)
        found = race.run(heat.ways, repetitions, experiment.loads, tick, heat.phases, heat.requests)
        rows += [row | counted for row in found]
    conclusions = list(experiment.conclude(rows))
    return {
        "name": experiment.name,
        "figure": experiment.figure,
        "title": experiment.title,
        "claims": [vars(claim) for claim in experiment.claims],
        "plots": [{**vars(plot), "lines": list(plot.lines)} for plot in experiment.plots],
        "varies": _varies(experiment, rows),
        "notes": notes,
        "conclusions": conclusions,
        "rows": rows,
    }


def _varies(experiment: Experiment, rows: list[Row]) -> list[str]:
    """Returns the columns and parameters that distinguish the rows of an experiment."""
    given = dict.fromkeys(name for row in rows for name in row["params"])
    params = [name for name in given if len({row["params"].get(name) for row in rows}) > 1]
    return list(dict.fromkeys([*params, *(x for p in experiment.plots for x in (p.by, p.x, *p.lines) if x)]))
