"""The experiments of Scaling Ordered Stream Processing (Prasaad, Ramalingam, Kaushik): strategies of a pool of workers.

Of its text only the abstract was at hand to be quoted as a claim.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from streaming_core.bench.race import Row
from streaming_core.bench.suite import Claim, Experiment, Heat, Plot, Suite
from streaming_core.runspec.spec import EXECUTORS, RunSpec

APPS = ("wc", "fd", "sd")
EXECUTOR = "pooled"
AXES = EXECUTORS[EXECUTOR].axes
ABSTRACT = "Scaling Ordered Stream Processing on Shared-Memory Multicores, abstract (arXiv:1803.11328)"

PIPELINE = Claim(
    "Heuristics that make as much use of pipeline parallelism as possible do better than those that look for data "
    "parallelism.",
    ABSTRACT,
)
NON_BLOCKING = Claim(
    "A non-blocking structure puts the outputs of concurrent workers in order at low latency.", ABSTRACT
)
IMBALANCE = Claim(
    "The proposed way of running partitioned stateful operators copes with imbalance between partitions, and mostly "
    "avoids delays due to ordering.",
    ABSTRACT,
)


def _strategies(counts: list[int]) -> tuple[list[Heat], list[str]]:
    chosen = [dict(zip(AXES, choice, strict=True)) for choice in itertools.product(*AXES.values())]
    heats = [
        Heat(app, {}, [RunSpec(app=app, executor=EXECUTOR, threads=max(counts), **way) for way in chosen])
        for app in APPS
    ]
    return heats, []


def _spread(rows: list[Row]) -> Iterator[str]:
    """The best choice of each application, and the default beside it."""
    for app in APPS:
        ways = [row for row in rows if row["app"] == app and row["result"] == "equal"]
        if not ways:
            continue
        best = max(ways, key=lambda row: row["to_loop"])
        [default] = [row for row in ways if all(row[axis] == values[0] for axis, values in AXES.items())]
        named = ", ".join(best[axis] for axis in AXES)
        yield f"{app}: {named} reaches {best['to_loop']:.2f} times the loop, the default {default['to_loop']:.2f}"


SUITE = Suite(
    "ordered",
    "Ordered stream processing: strategies of a pool of workers",
    (
        Experiment(
            "strategies",
            "sections on reorder buffers, partitioned operators and scheduling heuristics",
            "Every heuristic with every queue of partitioned operators and every reorder buffer",
            (PIPELINE, NON_BLOCKING, IMBALANCE),
            _strategies,
            (
                Plot(
                    "heuristic", "to_loop", "over the compiled loop", lines=("queue", "reorder"), kind="bar", loop=False
                ),
            ),
            events=400_000,
            conclude=_spread,
        ),
    ),
)
