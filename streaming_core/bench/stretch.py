"""The experiments of STRETCH (section 8), named after its questions.

In STRETCH, all replicas of a windowed operator take every row, and each handles the keys that it owns. This is virtual
shared-nothing (VSN). Ownership of keys can change while the operator runs.

The paper compares with another system (Flink) on 36 cores. Here the yardstick is the compiled loop, and figures of the
paper are quoted as such. Questions 1 and 4 also compare VSN with a shared-nothing baseline (SN) of our own. The only
difference is that SN copies rows, and states that change their owner. `switching.py` has question 4.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_core.bench import host, switching
from streaming_core.bench.race import Race
from streaming_core.bench.ratios import Row, compare, right, scaled, threads_of
from streaming_core.bench.suite import Claim, Experiment, Heat, Plot, Suite
from streaming_core.run import engine
from streaming_core.run.way import AXES, Pinned, RunSpec

LEVELS = ("L", "M", "H")  # of paircount
JOIN = {"keys": 1000, "size": 300_001}  # as in the paper: five minutes, both ends included
HEDGE = {"keys": 1000, "size": 30_001}
PARALLELISMS = ("vsn", "sn")
PAPERS_CORES = "36 cores, on two sockets"

VSN = Claim(
    "wordcount: STRETCH has 1.17 times the throughput of Flink, and 6 % of its latency, on 36 cores.",
    "STRETCH, section 8.1",
)
VSN_PAIRS = Claim(
    "paircount: STRETCH has 2.4 (L), 3.4 (M) and 3.8 (H) times the throughput of Flink. A shared-nothing system copies "
    "a row more often if it has more keys.",
    "STRETCH, section 8.1",
)
FORWARD = Claim(
    "An operator that only forwards has 120,000 to 100,000 rows/s, from few to most threads; Flink 40,000 to 2,000.",
    "STRETCH, section 8.2",
)
LINEAR = Claim(
    "The join scales linearly with its threads and is as fast as a dedicated implementation. On one thread, it is "
    "about as fast as a sequential join.",
    "STRETCH, section 8.3",
)
PROVISIONED = Claim(
    "When load rises from 70 % to 120 % of capacity, 1, 5, 9, 18, 30, 40 threads become 2, 9, 16, 31, 52, 69. When it "
    "falls from 70 % to 30 %, 5, 9, 18, 30, 40, 60, 70 threads become 2, 3, 7, 12, 17, 25, 30.",
    "STRETCH, section 8.4, Table IV",
)
FOLLOWED = Claim(
    "Over 20 minutes of abrupt changes of the rate, the number of threads follows. The average latency stays at about "
    "20 ms, and spikes end within 10 seconds.",
    "STRETCH, section 8.5, Figure 11",
)
HEDGES = Claim(
    "A self-join of up to 7,600 trades per second has an average latency of 1 ms, and 21 ms at the peak.",
    "STRETCH, section 8.6",
)

Sweep = tuple[list[Heat], list[str]]


def _way(app: str, params: dict[str, Any], threads: int, **how: Any) -> RunSpec:
    return Pinned(app=app, params=params, threads=threads, **how)


def _scaling(
    app: str,
    params: dict[str, Any],
    counts: list[int],
    parallelisms: tuple[str, ...] = PARALLELISMS[:1],
) -> Heat:
    ways = [_way(app, params, count, parallelism=one) for count in counts for one in parallelisms]
    return Heat(app, params, ways)


def _ratio(row: Row) -> str:
    low, high = row["to_loop_range"]
    return f"{row['to_loop']:.2f} times the compiled loop ({low:.2f} to {high:.2f})"


# --- question 1 -------------------------------------------------------------------------------------------------------


def _counting(counts: list[int]) -> Sweep:
    heats = [_scaling("wordcount", {}, counts, PARALLELISMS)]
    heats += [_scaling("paircount", {"level": level}, counts, PARALLELISMS) for level in LEVELS]
    return heats, [
        "A tweet counts a repeated word or pair once, as in STRETCH. Flink counts all of them, so its results differ.",
        "SN is our own baseline in the same runtime as VSN. The only difference is that SN copies rows and their keys "
        "into queues of the owners.",
        "Flink differs from STRETCH in everything else too, so the paper's ratios say nothing about ours.",
        host.unshown(counts, PAPERS_CORES),
    ]


PAPER = {"wordcount": 1.17, "paircount L": 2.4, "paircount M": 3.4, "paircount H": 3.8}


def _vsn(rows: list[Row]) -> Iterator[str]:
    """Names charts, and compares numbers of threads, and VSN with SN."""
    for row in rows:
        row["chart"] = " ".join([row["app"], *row["params"].values()])
    for chart in dict.fromkeys(row["chart"] for row in rows):
        here = {(row["parallelism"], row["threads"]): row for row in right(rows) if row["chart"] == chart}
        found = [f"{threads_of(row)} {_ratio(row)}" for (shared, _), row in here.items() if shared == "vsn"]
        if found:
            yield f"{chart}, VSN: {'; '.join(found)}"
        over = [
            f"{threads_of(row)} {compare(row, other).text}, processor time per event "
            f"{compare(row, other, 'cpu_ns').text}"
            for (shared, count), row in here.items()
            if shared == "vsn" and (other := here.get(("sn", count)))
        ]
        if over:
            yield (
                f"{chart}, throughput of VSN relative to SN: {'; '.join(over)}. The paper's {PAPER[chart]} compares "
                "STRETCH with Flink on 36 cores"
            )


# --- question 2 -------------------------------------------------------------------------------------------------------


def _forwarding(counts: list[int]) -> Sweep:
    copies = max(counts)
    notes = [
        f"Every row has {copies} keys, as many as the most threads, and leaves once for each key. So all ways and the "
        "loop have the same outputs.",
        host.unshown(counts, PAPERS_CORES),
    ]
    return [_scaling("forward", {"copies": copies}, counts)], notes


def _forwarded(rows: list[Row]) -> Iterator[str]:
    for row in right(rows):
        yield (
            f"{threads_of(row)}: {row['events_per_s'] / 1e6:.2f} M rows/s, {_ratio(row)}; the paper's 0.10 to 0.12 M "
            "rows/s are for up to 72 threads on 36 cores"
        )


# --- questions 3 and 6 ------------------------------------------------------------------------------------------------


def comparisons(ts: np.ndarray, is_right: np.ndarray, size: int) -> int:
    """Counts the pairs that a join of two streams compares.

    Each row meets the rows of the other stream that came before it and are less than `size` older.

    Args:
        ts: The times of the rows, in the order of the rows.
        is_right: Whether a row belongs to the right stream.
        size: The size of the window, in the unit of `ts`.
    """
    made = 0
    for side in (False, True):
        own, other = is_right == side, is_right != side
        came = np.cumsum(other)[own]
        gone = np.searchsorted(ts[other], ts[own] - size, side="right")
        made += int((came - gone).sum())
    return made


def _compared(race: Race) -> dict[str, Any]:
    """Counts the comparisons of a pass. A trade is a row of both streams, first of the left one."""
    events = pa.concat_tables(race.source.blocks(1 << 20))
    size = race.app.bind(race.given)["size"]
    ts = events["ts"].to_numpy()
    if race.app.name == "hedge":
        ts = np.repeat(ts[events["average"].to_numpy() > 0], 2)
        return {"comparisons": comparisons(ts, np.arange(len(ts)) % 2 == 1, size)}
    return {"comparisons": comparisons(ts, events["stream"].to_numpy() == 1, size)}


def _joining(counts: list[int]) -> Sweep:
    return [_scaling("scalejoin", JOIN, counts)], [
        "The loop is the sequential join. There is no dedicated parallel implementation of ScaleJoin to compare with.",
        "The number of comparisons is that which the rows require, computed from the workload.",
        host.unshown(counts, PAPERS_CORES),
    ]


def _hedging(counts: list[int]) -> Sweep:
    return [_scaling("hedge", HEDGE, counts)], [
        "Trades are generated, because the paper's may not be passed on. They come at the peak rate.",
        host.unshown(counts, PAPERS_CORES),
    ]


UNSHOWN = {
    "scalejoin": "the paper's linear scaling, up to 36 cores",
    "hedge": "trades at their own rate, with a number of threads that follows the rate",
}


def _per_second(rows: list[Row]) -> Iterator[str]:
    """Returns comparisons per second."""
    for row in rows:
        scaled(row, "comparisons_per_s", "events_per_s", row["comparisons"] / row["events"])
    loop = next(row for row in rows if row["way"] == "loop")
    for row in right(rows):
        yield (
            f"{row['app']}, {threads_of(row)}: {row['comparisons_per_s'] / 1e6:,.0f} M comparisons/s and "
            f"{row['events_per_s'] / 1e3:,.1f} k rows/s, {_ratio(row)}, whose rate is "
            f"{loop['comparisons_per_s'] / 1e6:,.0f} M comparisons/s; not shown here: {UNSHOWN[row['app']]}"
        )


# --- question 5 -------------------------------------------------------------------------------------------------------

STARTING = (1, 5, 9, 18, 30, 40, 60, 70)  # threads in Table IV, for a machine with 72
PHASES = ((1.0, 0.25), (1.0, 0.85), (1.0, 0.5), (1.0, 0.1), (1.0, 0.7), (1.0, 0.3))


def provisioned(starting: int, load: float, most: int = 72) -> int | None:
    """Returns the number of replicas that controller `threshold` chooses at a load; None: no change."""
    period = 100_000_000
    seen = {"at": period, "period": period, "replicas": starting, "most": most, "pending": 0}
    seen |= {"worked": round(load * starting * period), "arrived": 1000, "dealt": 1000}
    return engine.decided("threshold", seen)


def _followed(counts: list[int]) -> Sweep:
    threads = max(2, *counts)
    ways = [
        _way("scalejoin", switching.JOIN, threads, batch=switching.SMALL, controller=name)
        for name in AXES["controller"]
    ]
    return [Heat("scalejoin", switching.JOIN, ways, phases=PHASES)], [
        "The rate has six phases of equal length, at "
        + ", ".join(f"{share:.0%}" for _, share in PHASES)
        + " of the peak rate of all replicas, with abrupt changes. The paper's phases take 100 to 300 seconds each.",
        "A window is a minute of event time, which does not depend on the rates.",
        host.unshown(counts, PAPERS_CORES),
    ]


def _following(rows: list[Row]) -> Iterator[str]:
    """Summarises the decisions of controllers as rates changed, and Table IV."""
    for way in dict.fromkeys(row["way"] for row in right(rows)):
        passes = {row["pass"]: row for row in right(rows) if row["way"] == way and "pass" in row}
        if passes:
            middle = {name: statistics.median(row[name] for row in passes.values()) for name in FIGURES}
            yield (
                f"{way}: {middle['reconfigurations']:g} reconfigurations in {len(PHASES)} phases, "
                f"with {middle['turns']:g} changes of direction; latency p50 "
                f"{middle['end_to_end_p50_us'] / 1000:.1f}, p99 {middle['end_to_end_p99_us'] / 1000:.1f} ms; "
                f"{middle['cpu_s']:.2f} s of processor time"
            )
    for load, said in ((1.2, "up"), (0.3, "down")):
        found = ", ".join("-" if n is None else str(n) for n in (provisioned(n, load) for n in STARTING))
        yield f"Table IV, load {said} to {load:.0%}, from {', '.join(map(str, STARTING))}: {found}{ROUNDED[said]}"


FIGURES = ("reconfigurations", "turns", "end_to_end_p50_us", "end_to_end_p99_us", "cpu_s")
ROUNDED = {
    "up": " (the paper has no 60 and 70, because its machine has 72)",
    "down": ": the smallest numbers that stay below 70 %. The paper's 2, 3, 7, 12, 17, 25, 30 are rounded down, so "
    "all but the last exceed 70 %",
}


# --- the suite --------------------------------------------------------------------------------------------------------


def _rates(*ys: tuple[str, str], by: str = "app") -> tuple[Plot, ...]:
    return tuple(Plot("threads", y, title, by) for y, title in ys)


SUITE = Suite(
    "stretch",
    "STRETCH: windows over shared state, and their reconfiguration",
    (
        Experiment(
            "q1",
            "section 8.1, Figure 6",
            "wordcount and paircount: shared windows (VSN), shared-nothing windows (SN), and the loop",
            (VSN, VSN_PAIRS),
            _counting,
            _rates(("to_loop", "throughput, relative to the compiled loop"), by="chart"),
            conclude=_vsn,
            needs="cores",
        ),
        Experiment(
            "q2",
            "section 8.2, Figure 7",
            "The cost of sharing and order: an operator that only forwards",
            (FORWARD,),
            _forwarding,
            _rates(("events_per_s", "rows per second")),
            conclude=_forwarded,
            needs="cores",
        ),
        Experiment(
            "q3",
            "section 8.3, Figure 8",
            "ScaleJoin, in comparisons per second",
            (LINEAR,),
            _joining,
            _rates(("comparisons_per_s", "comparisons per second")),
            events=50_000,
            count=_compared,
            conclude=_per_second,
            needs="cores",
        ),
        *switching.EXPERIMENTS,
        Experiment(
            "q5",
            "sections 8.4 and 8.5, Table IV, Figure 11",
            "Controllers that follow a changing rate",
            (PROVISIONED, FOLLOWED),
            _followed,
            tuple(
                Plot("at_s", y, title, by="", loop=False)
                for y, title in (
                    ("offered_per_s", "offered rows per second"),
                    ("replicas", "replicas with keys"),
                    ("work", "load of the replicas"),
                    ("pending", "backlog in seconds"),
                )
            ),
            events=200_000,
            conclude=_following,
        ),
        Experiment(
            "q6",
            "section 8.6, Figure 13",
            "Trades that hedge each other (hedge)",
            (HEDGES,),
            _hedging,
            _rates(("events_per_s", "trades per second"), ("comparisons_per_s", "comparisons per second")),
            events=20_000,
            count=_compared,
            conclude=_per_second,
        ),
    ),
)
