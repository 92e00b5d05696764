"""The benchmark of applications: every way of executing each of them, with default parameters.

Executor `pinned` takes part twice: with the replicated plan, and with the plan that the planner finds, which is the
default of `streaming-core run`.
"""

from __future__ import annotations

from typing import Any

from streaming_core.apps import registry
from streaming_core.bench.race import facts, length
from streaming_core.bench.race.race import Race
from streaming_core.bench.race.results import Record
from streaming_core.bench.race.rounds import Row
from streaming_core.errors import BadInput
from streaming_core.language.application import App
from streaming_core.run.one_pass import Progress
from streaming_core.run.way import AUTO_PLAN, ENGINE_EXECUTORS, RunSpec, engine_executors_of


def run(
    names: list[str] | None,
    events: int | None,
    threads: list[int] | None,
    repetitions: int,
    progress: Progress | None = None,
    quick: bool = False,
) -> dict[str, Any]:
    """Benchmark applications; return the host, the settings and one result per application and way.

    Raises:
        BadInput: An application is unknown, or thread counts or repetitions are out of range.
    """
    counts = facts.thread_counts(threads, repetitions)
    apps = [registry.load(name) for name in names or registry.names()]
    if not names:
        apps = [app for app in apps if app.has_generator]
    record = Record(repetitions, quick)
    rows: list[Row] = []
    notes: list[str] = []
    size = length.QUICK_EVENTS if quick and events is None else events
    for app in apps:
        ways = ways_of(app, counts)
        race = Race(app.name, {}, length.chosen(app.name, {}, ways, record.pass_seconds) if size is None else size)
        done = 0

        def tick(name: str = app.name) -> None:
            nonlocal done
            if progress:
                progress(f"bench {name}", done, repetitions)
            done += 1

        able, reasons = _plannable(race, ways)
        notes += reasons
        rows += race.run(able, repetitions, record.pass_seconds, tick=tick)
    return record.results({"results": rows, "notes": notes})


def ways_of(app: App, counts: list[int]) -> list[RunSpec]:
    """Return every way in which the engine executes an application: executors, schemes, plans of several threads."""
    ways = []
    for name in engine_executors_of(app.kind):
        for scheme in ENGINE_EXECUTORS[name].axes().get("scheme", (None,)):
            options = {"app": app.name, "executor": name, "scheme": scheme}
            ways += [RunSpec.parse(options | {"threads": count}) for count in counts]
        if name == "pinned":
            planned = [count for count in counts if count > 1]
            ways += [
                RunSpec.parse({"app": app.name, "executor": name, "plan": AUTO_PLAN, "threads": count})
                for count in planned
            ]
    return ways


def _plannable(race: Race, ways: list[RunSpec]) -> tuple[list[RunSpec], list[str]]:
    """Return the ways for which a plan is found if they need one, and notes on the others."""
    able, notes = [], []
    for way in ways:
        if way.needs_plan and not race.events:
            continue  # nothing can be measured
        try:
            race.plan(way)
        except BadInput as error:
            notes.append(f"{race.app.name}, plan auto, {way.threads} threads: {error}")
        else:
            able.append(way)
    return able, notes
