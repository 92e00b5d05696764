"""How close the engine is to a limit: hand-written loops on one thread, and the compiled loop on several.

The suite has no paper. A hand-written loop is what a systems programmer would write for one application and one thread
(`handwritten.py`). The compiled loop is the yardstick of every benchmark (`oracle/loop`).
"""

from __future__ import annotations

from collections.abc import Iterator

from streaming_core.bench.claims import ANY, GOAL, Claim
from streaming_core.bench.race import handwritten
from streaming_core.bench.race.ratios import Row, equal_rows, most, pick, threads_of
from streaming_core.bench.suite import Experiment, Heat, Plot, Suite
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


def _costs(rows: list[Row]) -> Iterator[str]:
    """Say where `owners` spends its time, in nanoseconds per event summed over threads."""
    for app in TWO_THREADS:
        row = pick(rows, app=app, way="owners", threads=most(equal_rows(rows) or rows))
        if row is None or "dealing" not in row.get("costs", {}):
            continue
        times = {name: row["costs"][name] for name in ("dealing", "executing", "waiting", "delivery")}
        parts = ", ".join(f"{name} {nanoseconds:.1f}" for name, nanoseconds in times.items())
        spanning = row["costs"]["spanning_per_interval"]
        yield (
            f"{app}: owners on {threads_of(row)} spends, in nanoseconds per event: {parts}; "
            f"{spanning:.0f} events of an interval span shares"
        )


SUITE = Suite(
    "limits",
    "Limits: hand-written loops, and the compiled loop",
    ("transactions", "pooled", "limits"),
    (
        Experiment(
            "one-thread",
            "",
            "One thread of the engine, and a hand-written loop",
            tuple(
                Claim(
                    f"{app}: one thread takes at most {limit} times as long as a hand-written loop.",
                    GOAL,
                    ours={"app": app, "executor": STREAMS.get(app, "transactional")},
                    over={"way": "hand-written", "executor": ANY},
                    expects=">=",
                    paper=1 / limit,
                )
                for app, limit in ONE_THREAD.items()
            ),
            _one_thread,
            (Plot("way", "events_per_s", "throughput", "app", (), "bar"),),
        ),
        Experiment(
            "schemes",
            "",
            "Concurrent schemes, and the compiled loop",
            (
                *(
                    Claim(
                        f"{app}: two threads have at least {limit} times the throughput of the compiled loop.",
                        GOAL,
                        ours={"app": app, "scheme": SCHEMES},
                        over={"way": "loop", "scheme": ANY, "threads": 1},
                        expects=">=",
                        paper=limit,
                    )
                    for app, limit in TWO_THREADS.items()
                ),
                Claim(
                    "Scheme auto is as fast as the better of the others.",
                    GOAL,
                    ours={"scheme": "auto"},
                    over={"scheme": SCHEMES[:-1], "threads": ANY},
                    expects=">=",
                ),
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
            conclude=_costs,
        ),
    ),
    pinned=True,
)
