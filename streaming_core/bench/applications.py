"""The benchmark of applications: every way of executing each of them, with default parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streaming_core.apps import registry
from streaming_core.bench import host
from streaming_core.bench.race import Race
from streaming_core.run import engine
from streaming_core.run.way import EXECUTORS, RunSpec, executors_of

# All others have 1,000,000. A line of wc has ten words, a tweet has thirty pairs, a trade meets hundreds of trades.
EVENTS = {"wc": 200_000, "matrix": 200_000, "paircount": 100_000, "hedge": 100_000}


def run(
    names: list[str] | None,
    events: int | None,
    threads: list[int] | None,
    repetitions: int,
    progress: engine.Progress | None = None,
) -> dict[str, Any]:
    """Benchmarks applications; returns the host, the settings and one result per application and way.

    Raises:
        BadInput: An application is unknown, or thread counts or repetitions are out of range.
    """
    counts = host.thread_counts(threads, repetitions)
    results = []
    for app in [registry.load(name) for name in names or registry.names()]:
        ways = []
        for name in executors_of(app.kind):
            for scheme in EXECUTORS[name].axes().get("scheme", (None,)):
                ways += [
                    RunSpec.parse({"app": app.name, "executor": name, "scheme": scheme, "threads": c}) for c in counts
                ]
        rounds = iter(range(repetitions + 1))
        size = EVENTS.get(app.name, 1_000_000) if events is None else events

        def tick(name: str = app.name, rounds: Iterator[int] = rounds) -> None:
            if progress:
                progress(f"bench {name}", next(rounds), repetitions)

        results += Race(app.name, {}, size).run(
            [spec for spec in ways if not spec.is_unsafe(app)],
            repetitions,
            tick=tick,
        )
    return host.facts(repetitions) | {"results": results}
