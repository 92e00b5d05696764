"""Other engines beside Lockstep: our executors, the installed engines and the hand-written loop on the same events.

The suite has no paper. In a round, each engine is called once: it starts, warms up, and makes the runs of its pass.
Starting and warming up are not measured. All processes of a heat have as many cores as the heat has threads.
"""

from __future__ import annotations

from collections.abc import Iterator

from streaming_core.apps import registry as apps
from streaming_core.bench.ratios import Row, best, compare, pick, right, versus
from streaming_core.bench.suite import Experiment, Heat, Plot, Suite
from streaming_core.engines import environment, registry
from streaming_core.errors import BadInput
from streaming_core.run.way import ENGINE_EXECUTORS, RunSpec, executors_of

APPS = ("wc", "sd", "wordcount", "scalejoin")
LIMIT = "handwritten"  # the engine that runs the loops which take part in each heat anyway


def _sweep(counts: list[int]) -> tuple[list[Heat], list[str]]:
    """One heat for each application and number of threads, so that each has its own cores."""
    names = [name for name in registry.names() if name != LIMIT]
    missing = [name for name in names if environment.complaint(registry.load(name))]
    installed = [name for name in names if name not in missing]
    heats = [
        Heat(app, {}, [*_ours(app, count), *_theirs(app, count, installed)], handwritten=(1,))
        for app in APPS
        for count in counts
    ]
    notes = [
        "A heat has as many cores as threads, for all processes and threads of an engine. The hand-written loop has "
        "one thread. Other engines give no final state, so the benchmark checks their outputs only.",
    ]
    notes += [f"Left out, because not installed: {', '.join(missing)}."] if missing else []
    for name in installed:
        if loose := [app for app in APPS if registry.load(name).manifest.applications.get(app) == "none"]:
            notes.append(f"{name} gives no order for {', '.join(loose)}; Lockstep keeps it.")
    return heats, notes


def _ours(app: str, threads: int) -> list[RunSpec]:
    """Our executors of an application, without baselines."""
    able = [name for name in executors_of(apps.load(app).kind) if name in ENGINE_EXECUTORS]
    able = [name for name in able if not ENGINE_EXECUTORS[name].is_baseline]
    return [RunSpec.parse({"app": app, "executor": name, "threads": threads}) for name in able]


def _theirs(app: str, threads: int, names: list[str]) -> Iterator[RunSpec]:
    """The engines of these names that run the application on so many threads."""
    for name in names:
        way = RunSpec.parse({"app": app, "executor": name, "threads": threads, "sink": "parquet"})
        try:
            way.check(apps.load(app))
        except BadInput:
            continue
        yield way


def _conclude(rows: list[Row]) -> Iterator[str]:
    """Compares the right rows of each heat with our best and with the loop; adds columns `to_best` and `to_limit`."""
    for heat in dict.fromkeys(row["heat"] for row in rows):
        same = right(row for row in rows if row["heat"] == heat)
        ours = best(row for row in same if row.get("executor") in ENGINE_EXECUTORS)
        limit = pick(same, way="hand-written")
        for row in same:
            for name, other in (("to_best", ours), ("to_limit", limit)):
                if other is not None and row["rates"]:
                    ratio = compare(row, other, over_threads=True)
                    row[name], row[f"{name}_range"] = ratio.median, [ratio.low, ratio.high]
        pairs = [*((row, ours) for row in same if row.get("engine")), (ours, limit)]
        for one, other in pairs:
            if text := versus(one, other, over_threads=True):
                yield f"{same[0]['app']}: {text}"
    known = {row["way"]: row["engine"] for row in rows if row.get("engine")}
    for way, engine in known.items():
        versions = ", ".join(f"{name} {version}" for name, version in engine.items() if name != "system")
        yield f"{way} is {engine['system']}" + (f" ({versions})" if versions else "")


SUITE = Suite(
    "engines",
    "Other engines",
    (
        Experiment(
            "engines",
            "",
            "Lockstep, other engines and the hand-written loop",
            (),
            _sweep,
            (Plot("threads", "events_per_s", "throughput", kind="bar"),),
            conclude=_conclude,
        ),
    ),
)
