"""A suite: the comparisons of one paper as named experiments, each with what the paper says and what is plotted.

An experiment is data: a sweep, which is a list of heats (one workload, the ways that race over it), the plots to draw
of its rows, and, where the answer is a figure and not a curve, a function that concludes it from them. How heats are
run and checked is in race.py; who draws the plots is outside of this package.
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
)  # each a module of this package that defines SUITE


@dataclass(frozen=True)
class Claim:
    """What the paper says, in our words, and where."""

    says: str
    source: str


@dataclass(frozen=True)
class Heat:
    """One workload of an experiment, and who races over it; `share` of the experiment's events is what it has.

    `phases`: of an open loop whose rate changes, how long each lasts, in parts of the whole, and its share of the peak
    rate of the first way. `requests`: if there are any, for each way who asks for reconfigurations beside its passes,
    or nobody.
    """

    app: str
    params: dict[str, Any]
    ways: Sequence[RunSpec]
    share: float = 1.0
    phases: tuple[tuple[float, float], ...] = ()
    requests: tuple[Requests | None, ...] = ()


@dataclass(frozen=True)
class Plot:
    """What is plotted: column `y` over column (or parameter) `x`, one chart per value of `by`, one line per way.

    `lines`: further columns that tell lines apart. `kind`: `line`, `bar`, `parts`, a bar stacked from the breakdown, or
    `point`, beside the line where x and y are equal.
    `log`: a logarithmic x axis. `loop`: the loop is drawn too.
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
        figure: where the paper has it.
        claims: what the paper says; empty where nothing can be quoted.
        sweep: thread counts -> its heats, and remarks (what cannot be run here, say).
        loads: shares of the peak rate at which an open-loop source measures latencies; a way has a row for each.
        count: race -> columns that all rows of its heat get.
        conclude: rows -> sentences; may add columns to the rows.
        model: rows that nobody ran, or that were measured elsewhere: of no heat.
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
    """The suite `name`; raises BadInput if there is none."""
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
    """Runs a suite, or some of its experiments; returns what is written as JSON.

    `keep` is given what has been found so far after every experiment: who interrupts a suite keeps what it measured.

    Raises:
        BadInput: unknown experiment, thread counts or repetitions out of range.
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
    """The columns and parameters that tell an experiment's rows apart."""
    given = dict.fromkeys(name for row in rows for name in row["params"])
    params = [name for name in given if len({row["params"].get(name) for row in rows}) > 1]
    return list(dict.fromkeys([*params, *(x for p in experiment.plots for x in (p.by, p.x, *p.lines) if x)]))
