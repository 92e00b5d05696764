"""The experiments of STRETCH (section 8), named after its questions.

In STRETCH, all replicas of a windowed operator take every row, and each handles the keys that it owns. This is virtual
shared-nothing (VSN). Ownership of keys can change while the operator runs.

The paper compares with another system (Flink) on 36 cores. Here the yardstick is the compiled loop, and a
shared-nothing baseline (SN) of our own stands for Flink. The only difference between SN and VSN is that SN copies rows,
and states that change their owner.

`switching.py` has question 4, `elasticity.py` has controllers, `resident.py` has memory. `stretch_sentences.py` makes
the texts of the claims.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from streaming_core.bench import banded, elasticity, host, joins, resident, switching
from streaming_core.bench import stretch_sentences as sentences
from streaming_core.bench.race import Race
from streaming_core.bench.ratios import Row, add_multiple, equal_rows, quantity, threads_of
from streaming_core.bench.stretch_sentences import COMPARISONS, LATENCY, OURS, PARALLELISMS, PUBLISHED, THROUGHPUT
from streaming_core.bench.suite import Claim, Experiment, Heat, Plot, Suite, Text
from streaming_core.run.way import CELLS, Pinned

LEVELS = ("L", "M", "H")  # of paircount
JOIN = {"keys": 1000, "size": 300_001}  # as in the paper: five minutes, both ends included
LOAD = 0.5  # of the slowest way's peak rate, at which latencies are measured
PAPERS_CORES = "36 cores, on two sockets"
NO_FLINK = "SN is our own, in the same runtime as VSN. It serialises nothing, so it is faster than Flink."

Sweep = tuple[list[Heat], list[str]]


def _beside(says: str, source: str, numbers: str, text: Any, host: Text = "") -> Claim:
    """Return a claim with the same text about VSN as published and about ours."""
    return Claim(says, source, numbers, published=text(PUBLISHED), ours=text(OURS), host=host)


def _cores(rows: list[Row]) -> str:
    return host.unshown([row["threads"] for row in rows], PAPERS_CORES)


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


# --- question 1 -------------------------------------------------------------------------------------------------------

COUNTING = (
    _beside(
        "wordcount: STRETCH and Flink are comparable. At its peak, STRETCH has more throughput and less latency.",
        "section 8.1, figure 6",
        "+17 % throughput, -94 % latency",
        lambda of: sentences.over_nothing_shared(of, THROUGHPUT, *LATENCY, apps=("wordcount",)),
        host=NO_FLINK,
    ),
    _beside(
        "paircount: the more keys a row has, the more STRETCH gains over Flink, which copies the row for each key.",
        "section 8.1, figure 6",
        "L, M, H: +137 %, +237 %, +283 % throughput; -89 %, -94 %, -94 % latency",
        lambda of: sentences.over_nothing_shared(of, THROUGHPUT, *LATENCY, apps=("paircount",)),
        host=NO_FLINK,
    ),
    _beside(
        "Throughput falls with the level of duplication. In wordcount it degrades after its peak, as threads contend.",
        "section 8.1, figure 6",
        "",
        lambda of: sentences.figures(of, THROUGHPUT),
        host=_cores,
    ),
)


def _counting(counts: list[int]) -> Sweep:
    heats = [_scaling("wordcount", {}, counts, PARALLELISMS)]
    heats += [_scaling("paircount", {"level": level}, counts, PARALLELISMS) for level in LEVELS]
    return heats, [
        "A tweet counts a repeated word or pair once, as in STRETCH. Flink counts all of them, so its results differ.",
        "Flink differs from STRETCH in everything else too, so the paper's ratios say nothing about ours.",
        AT_LOAD,
        host.unshown(counts, PAPERS_CORES),
    ]


def _counted(rows: list[Row]) -> Iterator[str]:
    """Name charts, and yield the throughput of each way beside the compiled loop."""
    sentences.name_charts(rows)
    for row in equal_rows(rows):
        yield (
            f"{row['chart']}, {row['parallelism'].upper()}, {threads_of(row)}: {quantity(row)}, "
            f"{quantity(row, 'to_loop')} times the compiled loop"
        )


# --- question 2 -------------------------------------------------------------------------------------------------------

FORWARDING = (
    _beside(
        "The throughput of an operator that only forwards falls slowly as threads are added, because they synchronise.",
        "section 8.2, figure 7",
        "120,000 to 100,000 rows/s, from few to most threads",
        lambda of: sentences.figures(of, THROUGHPUT),
        host=_cores,
    ),
    _beside(
        "STRETCH has a higher throughput than Flink, which falls faster.",
        "section 8.2, figure 7",
        "3 to 50 times; Flink 40,000 to 2,000 rows/s",
        lambda of: sentences.over_nothing_shared(of, THROUGHPUT),
        host=NO_FLINK,
    ),
    _beside(
        "The latency of STRETCH is lower than that of Flink, on any number of threads.",
        "section 8.2, figure 7",
        "below 30 ms; Flink above 100 ms",
        lambda of: sentences.figures(of, *LATENCY),
        host=NO_FLINK,
    ),
)


def _forwarding(counts: list[int]) -> Sweep:
    copies = max(counts)
    return [_scaling("forward", {"copies": copies}, counts, PARALLELISMS)], [
        f"Every row has {copies} keys, as many as the most threads, and leaves once for each key. So all ways and the "
        "loop have the same outputs.",
        AT_LOAD,
        host.unshown(counts, PAPERS_CORES),
    ]


# --- question 3 -------------------------------------------------------------------------------------------------------

JOINING = (
    _beside(
        "On one thread, STRETCH and ScaleJoin have about the throughput of an optimised sequential join (1T).",
        "section 8.3, figure 8",
        "",
        lambda of: sentences.over_joins(of, is_sequential=True),
    ),
    _beside(
        "The throughput of STRETCH grows linearly with its threads.",
        "section 8.3, figure 8",
        "linear up to 36 cores",
        lambda of: sentences.speed_up(of, COMPARISONS),
        host=_cores,
    ),
    _beside(
        "STRETCH matches ScaleJoin, which is made for this join alone.",
        "section 8.3, figure 8",
        "",
        lambda of: sentences.over_joins(of, is_sequential=False),
        host="The ad-hoc join reads its rows from memory. ScaleJoin gets them from a ScaleGate, so this is a bound.",
    ),
    _beside(
        "The latency of STRETCH is a little higher than that of ScaleJoin. That of 1T is lower than both.",
        "section 8.3, figure 8",
        "in the order of 10 ms more",
        lambda of: sentences.figures(of, *LATENCY),
        host=sentences.row_times,
    ),
    Claim(
        "Few pairs meet.",
        "section 8.3",
        "one output in 250,000 comparisons",
        published=sentences.selectivity,
    ),
)


def _joining(counts: list[int]) -> Sweep:
    return [_scaling("scalejoin", JOIN, counts, PARALLELISMS, handwritten=True)], [
        "The compiled loop and the hand-written join on one thread are sequential joins. On more threads, the "
        "hand-written join is an ad-hoc ScaleJoin. Each thread stores rows in its turn, and compares every row with "
        "those that it stores.",
        "The number of comparisons is that which the rows require, computed from the workload.",
        AT_LOAD,
        host.unshown(counts, PAPERS_CORES),
    ]


def _per_second(rows: list[Row]) -> Iterator[str]:
    """Add comparisons per second, and yield them."""
    sentences.name_charts(rows)
    for row in rows:
        add_multiple(row, COMPARISONS, "events_per_s", row["comparisons"] / row["events"])
    for row in rows:
        if row["result"] in ("equal", "yardstick"):
            name = row.get("parallelism", row["way"])
            yield (
                f"{name} on {threads_of(row)}: {row[COMPARISONS] / 1e6:,.0f} M comparisons/s and "
                f"{row['events_per_s'] / 1e3:,.1f} k rows/s, {quantity(row, 'to_loop')} times the compiled loop"
            )


# --- balance ----------------------------------------------------------------------------------------------------------

REPLICAS = (2, 3, 36)
BALANCE = Claim(
    "The load of threads is balanced when a reconfiguration begins.",
    "section 8.4, figure 9",
    "a coefficient of variation of at most 2 %",
    ours=sentences.imbalance,
    host="Load is the number of calls and comparisons of a replica, because 36 replicas share the cores of this host.",
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


def _balanced(rows: list[Row]) -> Iterator[str]:
    """Add the variations of calls and comparisons, and yield them."""
    for row in rows:
        compared = row.pop("compared", {})
        calls = row.get("calls", {}).get("from_left")
        if not calls:
            continue
        row |= {"replicas": len(calls), "compared": compared[len(calls)]}
        row |= {"variation": variation(calls), "compared_variation": variation(row["compared"])}
        yield (
            f"{row['replicas']} replicas: each reads {row['events']:,} rows; {min(calls):,} to {max(calls):,} calls, "
            f"variation {row['variation']:.2f} %; {min(row['compared']):,} to {max(row['compared']):,} comparisons, "
            f"variation {row['compared_variation']:.2f} %"
        )


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
    (
        Experiment(
            "q1",
            "section 8.1, figure 6",
            "wordcount and paircount: shared windows (VSN), shared-nothing windows (SN), and the loop",
            COUNTING,
            _counting,
            (*_rates(("to_loop", "throughput, relative to the compiled loop"), by="chart"), *_latencies("chart")),
            loads=(LOAD,),
            conclude=_counted,
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
            conclude=_counted,
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
            conclude=_per_second,
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
            conclude=_balanced,
        ),
        *elasticity.EXPERIMENTS,
        resident.EXPERIMENT,
    ),
)
