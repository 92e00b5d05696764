"""Lockstep beside other engines, and beside a hand-written loop as the limit.

The suite has no paper. It has an experiment for each application, with a heat for each number of cores. All ways of a
heat may use the same cores. Each external engine that is installed takes part (`streaming_core/engines`). Engine
`handwritten` is one of them: what a systems programmer would write for one application and one thread.

In each round, every external engine is called once. Its process starts anew, warms up with one pass, and then repeats
the pass until it has measured as long as the others.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from streaming_core.apps import registry as apps
from streaming_core.bench.race.ratios import Row, best, equal_rows, most, rounds_of, versus
from streaming_core.bench.race.statistics import summary
from streaming_core.bench.suite import Experiment, Heat, Plot, Suite
from streaming_core.engines import environment, registry
from streaming_core.errors import BadInput
from streaming_core.run.way import RunSpec

LIMIT = "handwritten"  # the engine to which column `to_handwritten` relates
CONDITIONS = (
    "All ways of a heat may use the same cores. External engines start anew in each round, and warm up with a pass "
    "that does not count. The time to start them, and to read and convert the events, does not count either."
)
# For each application: our executor with the highest throughput, and the events. Events are fixed, because a pilot
# would have to start every engine several times. A pass of the fastest way takes a fraction of a second.
OURS = {
    "wc": ("pooled", 40_000),
    "sd": ("pooled", 300_000),
    "wordcount": ("pinned", 20_000),
    "scalejoin": ("pinned", 50_000),
    "nexmark_q1": ("pooled", 1_000_000),
    "nexmark_q2": ("pooled", 1_000_000),
    "nexmark_q5": ("pinned", 1_000_000),
    "nexmark_q7": ("pinned", 1_000_000),
    "nexmark_q8": ("pinned", 1_000_000),
}
NEXMARK = "nexmark_"


def _sweep(app: str, counts: list[int]) -> tuple[list[Heat], list[str]]:
    engines, notes = _engines(app)
    heats = []
    for cores in counts:
        ways = [_spec(app, OURS[app][0], cores, "digest")]
        for engine in engines:
            ways.append(_spec(app, engine.name, min(cores, engine.manifest.max_threads), "parquet"))
        heats.append(Heat(app, {}, ways))
    return heats, notes


def _engines(app: str) -> tuple[list[registry.Engine], list[str]]:
    """Return the installed engines that run an application, and notes on these and on the others that do."""
    able, systems, notes = [], [], []
    for name in registry.names():
        try:
            engine = registry.load(name)
            order = engine.manifest.applications.get(app)
            if order is None:
                continue
            environment.check(engine)
            _spec(app, name, 1, "parquet").check(apps.load(app))
        except BadInput as error:
            notes.append(f"left out: {error}")
            continue
        able.append(engine)
        systems.append(f"{name} is {engine.manifest.system}, and its outputs have {_order(order)}")
    return able, [CONDITIONS, *systems, *notes]


def _spec(app: str, executor: str, threads: int, sink: str) -> RunSpec:
    return RunSpec.parse({"app": app, "executor": executor, "threads": threads, "sink": sink})


def _order(order: str) -> str:
    return "a total order" if order == "total" else "no order"


def _conclude(rows: list[Row]) -> Iterator[str]:
    """Add columns `cores` and `to_handwritten`. Yields, for each heat, our throughput relative to every engine's."""
    for heat in dict.fromkeys(row["heat"] for row in rows):
        of_heat = [row for row in rows if row["heat"] == heat]
        correct = equal_rows(of_heat)
        limit = next((row for row in correct if row["executor"] == LIMIT), None)
        for row in of_heat:
            row["cores"] = most(of_heat)
            if limit:
                pairs = zip(rounds_of(row, "events_per_s"), rounds_of(limit, "events_per_s"), strict=True)
                ratios = [rate / of_limit for rate, of_limit in pairs]
                row |= summary("to_handwritten", ratios)
                row["rounds"] = row.get("rounds", {}) | {"to_handwritten": ratios}
        ours = best(row for row in correct if row["executor"] == OURS[row["app"]][0])
        for row in correct:
            if row is not ours and (text := versus(ours, row, over_threads=True)):
                yield f"{row['app']} on {row['cores']} core{'s' * (row['cores'] != 1)}: {text}"


def experiment(app: str) -> Experiment:
    """The experiment of an application."""
    return Experiment(
        app,
        "",
        f"{app} on Lockstep and on other engines",
        (),
        functools.partial(_sweep, app),
        (Plot("cores", "events_per_s", "throughput", "app"),),
        events=OURS[app][1],
        needs="cores",
        conclude=_conclude,
    )


SUITE = Suite(
    "engines",
    "Engines: Lockstep, others, and hand-written loops",
    tuple(experiment(app) for app in OURS if not app.startswith(NEXMARK)),
)
