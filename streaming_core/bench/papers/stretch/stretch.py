"""The experiments of STRETCH (section 8), named after its questions.

In STRETCH, all replicas of a windowed operator take every row, and each handles the keys that it owns. This is virtual
shared-nothing (VSN). Ownership of keys can change while the operator runs.

The paper compares with another system (Flink) on 36 cores. Here the yardstick is the compiled loop, and a
shared-nothing baseline (SN) of our own stands for Flink. The only difference between SN and VSN is that SN copies rows,
and states that change their owner.

`switching.py` has question 4, `elasticity.py` has controllers, `resident.py` has memory. `vsn.py` has what they share.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from streaming_core.bench.claims import Claim
from streaming_core.bench.papers.stretch import banded, elasticity, joins, resident, switching
from streaming_core.bench.papers.stretch.vsn import MEAN, OURS, P99, PARALLELISMS, PUBLISHED, SHARE_NOTHING
from streaming_core.bench.race.race import Race
from streaming_core.bench.race.ratios import Row, add_multiple
from streaming_core.bench.suite import Experiment, Heat, Plot, Suite
from streaming_core.run.way import CELLS, Pinned

COMPARISONS, LATENCY = "comparisons_per_s", (MEAN, P99)
LEVELS = ("L", "M", "H")  # of paircount
JOIN = {"keys": 1000, "size": 300_001}  # as in the paper: five minutes, both ends included
LOAD = 0.5  # of the slowest way's peak rate, at which latencies are measured

Sweep = tuple[list[Heat], list[str]]


def _claim(
    says: str, source: str, having: dict[str, Any] | None = None, over: dict[str, Any] | None = None, **more: Any
) -> Claim:
    """Return a claim on VSN as published and on ours, relative to SN on as many threads, or to other rows."""
    published, ours = ({"parallelism": one} | (having or {}) for one in (PUBLISHED, OURS))
    over = {"parallelism": SHARE_NOTHING} if over is None else over
    return Claim(says, source, published, ours, over, **{"by": ("chart", "threads")} | more)


def _name_charts(rows: Iterable[Row]) -> None:
    """Add `chart`: the application, and its level if it has one."""
    for row in rows:
        row["chart"] = " ".join(filter(None, [row["app"], row["params"].get("level")]))


def _scaling(
    app: str, params: dict[str, Any], counts: list[int], parallelisms: tuple[str, ...], handwritten: bool = False
) -> Heat:
    ways = [
        Pinned.model_validate({"app": app, "params": params, "threads": count, "parallelism": one})
        for count in counts
        for one in parallelisms
    ]
    return Heat(app, params, ways, handwritten=tuple(counts) if handwritten else ())


AT_LOAD = (
    "Latencies are from an open loop, at half the peak rate of the slowest way. All ways of a workload have the same "
    "rate. The first and the last fifth are left out."
)
NO_FLINK = (
    "SN stands for Flink. It is our own, in the runtime of VSN, and serialises nothing. So it is faster than Flink."
)


# --- question 1 -------------------------------------------------------------------------------------------------------

COUNTING = (
    _claim(
        "STRETCH has more throughput than Flink, the more so the more keys a row has, as Flink copies it for each key.",
        "section 8.1, figure 6",
        paper={"wordcount": 1.17, "paircount L": 2.37, "paircount M": 3.37, "paircount H": 3.83},
    ),
    _claim(
        "STRETCH has a lower latency than Flink.",
        "section 8.1, figure 6",
        column=MEAN,
        expects="<",
        paper={"wordcount": 0.06, "paircount L": 0.11, "paircount M": 0.06, "paircount H": 0.06},
    ),
    _claim(
        "Throughput falls with the level of duplication.",
        "section 8.1, figure 6",
        {"level": "H"},
        {"level": "L"},
        by=("threads",),
        expects="<",
    ),
)


def _counting(counts: list[int]) -> Sweep:
    heats = [_scaling("wordcount", {}, counts, PARALLELISMS)]
    heats += [_scaling("paircount", {"level": level}, counts, PARALLELISMS) for level in LEVELS]
    return heats, [
        "A tweet counts a repeated word or pair once, as in STRETCH. Flink counts all of them, so its results differ.",
        NO_FLINK,
        AT_LOAD,
    ]


# --- question 2 -------------------------------------------------------------------------------------------------------

FORWARDING = (
    _claim(
        "The throughput of an operator that only forwards falls slowly as threads are added, because they synchronise.",
        "section 8.2, figure 7",
        over={"threads": 1},
        by=("app",),
        expects="<",
        paper=100 / 120,
    ),
    _claim("STRETCH has 3 to 50 times the throughput of Flink.", "section 8.2, figure 7", paper=3.0),
    _claim(
        "The latency of STRETCH is lower than that of Flink, on any number of threads.",
        "section 8.2, figure 7",
        column=MEAN,
        expects="<",
        paper=30 / 100,
    ),
)


def _forwarding(counts: list[int]) -> Sweep:
    copies = max(counts)
    return [_scaling("forward", {"copies": copies}, counts, PARALLELISMS)], [
        f"Every row has {copies} keys, as many as the most threads, and leaves once for each key. So all ways and the "
        "loop have the same outputs.",
        NO_FLINK,
        AT_LOAD,
    ]


# --- question 3 -------------------------------------------------------------------------------------------------------

JOINING = (
    _claim(
        "STRETCH has the throughput of a sequential join on one thread, and that of ScaleJoin on more threads.",
        "section 8.3, figure 8",
        over={"way": "hand-written", "parallelism": None},
        expects="=",
    ),
    _claim(
        "The throughput of STRETCH grows linearly with its threads.",
        "section 8.3, figure 8",
        over={"threads": 1},
        column=COMPARISONS,
    ),
    _claim(
        "The latency of STRETCH is a little higher than that of ScaleJoin.",
        "section 8.3, figure 8",
        over={},
        column=MEAN,
        needs="an open loop of ScaleJoin",
    ),
)


def _joining(counts: list[int]) -> Sweep:
    return [_scaling("scalejoin", JOIN, counts, PARALLELISMS, handwritten=True)], [
        "The compiled loop and the hand-written join on one thread are sequential joins. On more threads, the "
        "hand-written join is an ad-hoc ScaleJoin. Each thread stores rows in its turn, and compares every row with "
        "those that it stores.",
        "The number of comparisons is that which the rows require, computed from the workload.",
        AT_LOAD,
    ]


def _per_second(rows: list[Row]) -> None:
    """Name charts, and add comparisons per second."""
    _name_charts(rows)
    for row in rows:
        add_multiple(row, COMPARISONS, "events_per_s", row["comparisons"] / row["events"])


# --- balance ----------------------------------------------------------------------------------------------------------

REPLICAS = (2, 3, 36)
BALANCE = Claim(
    "The load of threads is balanced when a reconfiguration begins.",
    "section 8.4, figure 9",
    {"app": "scalejoin"},
    column="variation",
    by=("replicas",),
    expects="<=",
    paper=2.0,
)


def _balancing(counts: list[int]) -> Sweep:
    threads = max(counts)
    ways = [
        Pinned(
            app="scalejoin",
            params=switching.JOIN,
            threads=threads,
            plan={"from_left": [replica % threads for replica in range(replicas)]},
        )
        for replicas in REPLICAS
    ]
    return [Heat("scalejoin", switching.JOIN, ways)], [
        f"Every row has {switching.JOIN['keys']:,} keys. Key k lies in key cell k mod {CELLS:,}, and replicas own the "
        "cells in turn.",
        "A call is a row that meets a key of the replica, as the run's report has it. Comparisons are computed from "
        "the workload: each key compares a row with the rows that it stores.",
    ]


def _by_replica(race: Race) -> dict[str, Any]:
    return {"compared": {replicas: joins.by_replica(race, replicas) for replicas in REPLICAS}}


def variation(numbers: list[int]) -> float:
    """Return the coefficient of variation in percent; 0 if all are 0."""
    mean = statistics.mean(numbers)
    return 100 * statistics.pstdev(numbers) / mean if mean else 0.0


def _balanced(rows: list[Row]) -> None:
    """Add the variations of calls and comparisons."""
    for row in rows:
        compared = row.pop("compared", {})
        if calls := row.get("calls", {}).get("from_left"):
            row |= {"replicas": len(calls), "compared": compared[len(calls)]}
            row |= {"variation": variation(calls), "compared_variation": variation(row["compared"])}


# --- the suite --------------------------------------------------------------------------------------------------------


def _rates(*ys: tuple[str, str], by: str = "app", loop: bool = True) -> tuple[Plot, ...]:
    return tuple(Plot("threads", y, title, by, loop=loop) for y, title in ys)


def _latencies(by: str = "app") -> tuple[Plot, ...]:
    return tuple(
        Plot("threads", y, f"{title}, at half the slowest peak rate", by, ("parallelism",), loop=False)
        for y, title in zip(LATENCY, ("mean latency from arrival", "p99 latency from arrival"), strict=True)
    )


SUITE = Suite(
    "stretch",
    "STRETCH: windows over shared state, and their reconfiguration",
    ("pinned", "channels", "windows", "limits"),
    (
        Experiment(
            "q1",
            "section 8.1, figure 6",
            "wordcount and paircount: shared windows (VSN), shared-nothing windows (SN), and the loop",
            COUNTING,
            _counting,
            (*_rates(("to_loop", "throughput, relative to the compiled loop"), by="chart"), *_latencies("chart")),
            loads=(LOAD,),
            describe=_name_charts,
            needs="cores",
        ),
        Experiment(
            "q2",
            "section 8.2, figure 7",
            "The cost of sharing and order: an operator that only forwards",
            FORWARDING,
            _forwarding,
            (*_rates(("events_per_s", "rows per second")), *_latencies()),
            loads=(LOAD,),
            describe=_name_charts,
            needs="cores",
        ),
        Experiment(
            "q3",
            "section 8.3, figure 8",
            "ScaleJoin, in comparisons per second",
            JOINING,
            _joining,
            (*_rates((COMPARISONS, "comparisons per second")), *_latencies()),
            events=60_000,
            loads=(LOAD,),
            count=joins.count,
            describe=_per_second,
            needs="cores",
        ),
        banded.EXPERIMENT,
        *switching.EXPERIMENTS,
        Experiment(
            "balance",
            "section 8.4, figure 9, right",
            "How evenly the keys are dealt to replicas",
            (BALANCE,),
            _balancing,
            (
                Plot("replicas", "variation", "variation of calls in percent", lines=(), kind="bar", loop=False),
                Plot(
                    "replicas",
                    "compared_variation",
                    "variation of comparisons in percent",
                    lines=(),
                    kind="bar",
                    loop=False,
                ),
            ),
            events=50_000,
            count=_by_replica,
            describe=_balanced,
        ),
        *elasticity.EXPERIMENTS,
        resident.EXPERIMENT,
    ),
    machine="36 cores, on two sockets",
)
