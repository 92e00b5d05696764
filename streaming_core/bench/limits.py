"""How close the engine is to a limit: hand-written loops on one thread, and the compiled loop on several.

The suite has no paper. A hand-written loop is what a systems programmer would write for one application and one thread
(`handwritten.py`). The compiled loop is the yardstick of every benchmark (`oracle/loop`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from streaming_core.bench import handwritten
from streaming_core.bench.ratios import Row, best, compare, equal_rows, pick, threads_of
from streaming_core.bench.suite import Claim, Experiment, Heat, Plot, Suite
from streaming_core.run.way import RunSpec

# Of how many times the hand-written loop's time one thread may take.
ONE_THREAD = {"gs": 1.15, "sl": 1.3, "ob": 1.3, "wc": 1.3, "fd": 1.3, "sd": 1.3, "scalejoin": 2.0, "wordcount": 1.3}
# The throughput of the best scheme on two threads, relative to the compiled loop.
TWO_THREADS = {"gs": 1.3, "ob": 1.2, "sl": 1.0, "tp": 1.3, "fx": 1.1, "tb": 0.5}
SCHEMES = ("owners", "serial", "auto")
STREAMS = {"wc": "pooled", "fd": "pooled", "sd": "pooled", "scalejoin": "pinned", "wordcount": "pinned"}


def _one_thread(counts: list[int]) -> tuple[list[Heat], list[str]]:
    heats = []
    for app in handwritten.APPS:
        executor = STREAMS.get(app, "transactional")
        heats.append(Heat(app, {}, [RunSpec.parse({"app": app, "executor": executor})], handwritten=(1,)))
    return heats, [
        "All loops read the same rows in memory and digest their outputs. The hand-written loops have the default "
        "parameters built in."
    ]


def _time(app: str, rows: list[Row]) -> str:
    """Return the time of one thread relative to the hand-written loop; "" if a row is missing."""
    theirs = pick(rows, app=app, way="hand-written")
    ours = next(
        (row for row in equal_rows(rows) if row["app"] == app and row["way"] not in ("hand-written", "loop")), None
    )
    return compare(theirs, ours).text if theirs and ours else ""


def _times(rows: list[Row]) -> Iterator[str]:
    for app in handwritten.APPS:
        if text := _time(app, rows):
            yield f"{app}: time of one thread of the engine relative to the hand-written loop: {text}"


def _schemes(counts: list[int]) -> tuple[list[Heat], list[str]]:
    return [
        Heat(
            app,
            {},
            [
                RunSpec.parse({"app": app, "executor": "transactional", "scheme": scheme, "threads": count})
                for scheme in SCHEMES
                for count in counts
            ],
        )
        for app in TWO_THREADS
    ], []


def _of_app(app: str, rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows of an application with right results, and those of them on the most threads."""
    of_app = [row for row in equal_rows(rows) if row["app"] == app]
    most = max((row["threads"] for row in of_app), default=0)
    return of_app, [row for row in of_app if row["threads"] == most]


def _best(app: str, rows: list[Row]) -> str:
    """Return the throughput of the best scheme on the most threads relative to the compiled loop."""
    loop, row = pick(rows, "yardstick", app=app), best(_of_app(app, rows)[1])
    if loop is None or row is None:
        return ""
    return f"{row['way']} on {threads_of(row)} has {compare(row, loop, over_threads=True).text} its throughput"


def _autos(rows: list[Row]) -> Iterator[str]:
    for app in TWO_THREADS:
        of_app, on_most = _of_app(app, rows)
        auto = next((row for row in on_most if row["scheme"] == "auto"), None)
        others = best(row for row in of_app if row["scheme"] != "auto")
        if auto and others:
            text = compare(auto, others, over_threads=True).text
            yield f"{app}: throughput of auto relative to {others['way']} on {threads_of(others)}: {text}"


def _costs(rows: list[Row]) -> Iterator[str]:
    """Say where `owners` spends its time, in nanoseconds per event summed over threads."""
    for app in TWO_THREADS:
        row = pick(_of_app(app, rows)[1], way="owners")
        if row is None or "dealing" not in row.get("costs", {}):
            continue
        times = {name: row["costs"][name] for name in ("dealing", "executing", "waiting", "delivery")}
        parts = ", ".join(f"{name} {nanoseconds:.1f}" for name, nanoseconds in times.items())
        spanning = row["costs"]["spanning_per_interval"]
        yield (
            f"{app}: owners on {threads_of(row)} spends, in nanoseconds per event: {parts}; "
            f"{spanning:.0f} events of an interval span shares"
        )


def _conclusions(rows: list[Row]) -> Iterator[str]:
    yield from _autos(rows)
    yield from _costs(rows)


SUITE = Suite(
    "limits",
    "Limits: hand-written loops, and the compiled loop",
    (
        Experiment(
            "one-thread",
            "",
            "One thread of the engine, and a hand-written loop",
            tuple(
                Claim(
                    f"{app}: one thread takes at most {limit} times as long as a hand-written loop.",
                    "a goal of this project",
                    ours=functools.partial(_time, app),
                )
                for app, limit in ONE_THREAD.items()
            ),
            _one_thread,
            (Plot("way", "events_per_s", "throughput", "app", (), "bar"),),
            conclude=_times,
        ),
        Experiment(
            "schemes",
            "",
            "Concurrent schemes, and the compiled loop",
            tuple(
                Claim(
                    f"{app}: two threads have at least {limit} times the throughput of the compiled loop.",
                    "a goal of this project",
                    ours=functools.partial(_best, app),
                )
                for app, limit in TWO_THREADS.items()
            ),
            _schemes,
            (
                Plot("threads", "events_per_s", "throughput", "app", ("scheme",)),
                Plot(
                    "threads",
                    "end_to_end_p99_us",
                    "p99 latency from arrival, at half the slowest peak rate",
                    "app",
                    ("scheme",),
                    loop=False,
                ),
            ),
            loads=(0.5,),
            needs="cores",
            conclude=_conclusions,
        ),
    ),
    pinned=True,
)
