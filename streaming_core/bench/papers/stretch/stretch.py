"""The experiments of STRETCH (section 8), named after its questions.

In STRETCH, all replicas of a windowed operator take every row, and each handles the keys that it owns. This is virtual
shared-nothing (VSN). Ownership of keys can change while the operator runs. `vsn_esg` is VSN as published; `vsn` is
ours.

The paper compares with another system (Flink) on 36 cores. Here a shared-nothing baseline (SN) of our own stands for
Flink. The only difference between SN and VSN is that SN copies rows, and states that change their owner. No other
executor runs windowed operators.

`switching.py` has question 4, and `elasticity.py` has controllers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streaming_core.bench.papers.stretch import elasticity, joins, switching
from streaming_core.bench.papers.stretch.vsn import CORES, MEAN, SHARE_NOTHING, SHARED, claim, ways
from streaming_core.bench.race.ratios import Row, add_multiple
from streaming_core.bench.suite import Experiment, Heat, Plot, Suite

COMPARISONS = "comparisons_per_s"
# Applications, their parameters, and their part of the events.
COUNTED: tuple[tuple[str, dict[str, Any], float], ...] = (("wordcount", {}, 1.0), ("paircount", {"level": "H"}, 0.3))
JOIN = {"keys": 1000, "size": 60_001}  # a window of a minute, not of five, fills early in a pass

Sweep = tuple[list[Heat], list[str]]


def _name_charts(rows: Iterable[Row]) -> None:
    """Add `chart`: the application, and its level if it has one."""
    for row in rows:
        row["chart"] = " ".join(filter(None, [row["app"], row["params"].get("level")]))


BATCH = "Every way runs in batches of 1, as in the paper, and of 256, our default."
NO_FLINK = (
    "SN stands for Flink. It is our own, in the runtime of VSN, and serialises nothing. So it is faster than Flink."
)
AT_LOAD = "Latencies are from an open loop, at half the peak rate of the slowest way. All ways have the same rate."


# --- questions 1 to 3 -------------------------------------------------------------------------------------------------

COUNTING = claim(
    "STRETCH has more throughput than Flink, the more so the more keys a row has, as Flink copies it for each key.",
    "section 8.1, figure 6",
    over={"parallelism": SHARE_NOTHING},
    by=("chart", "batch"),
    paper={"wordcount": 1.17, "paircount H": 3.83},
)


def _counting(counts: list[int]) -> Sweep:
    return [Heat(app, params, ways(app, params, [max(counts)]), share) for app, params, share in COUNTED], [
        BATCH,
        "A tweet counts a repeated word or pair once, as in STRETCH. Flink counts all of them, so its results differ.",
        NO_FLINK,
    ]


FORWARDING = (
    claim(
        "An operator that only forwards has 3 to 50 times the throughput of Flink.",
        "section 8.2, figure 7",
        over={"parallelism": SHARE_NOTHING},
        by=("batch",),
        paper=3.0,
    ),
    claim(
        "Its latency is lower than that of Flink.",
        "section 8.2, figure 7",
        over={"parallelism": SHARE_NOTHING},
        by=("batch",),
        column=MEAN,
        expects="<",
        paper=30 / 100,
    ),
)


def _forwarding(counts: list[int]) -> Sweep:
    params = {"copies": max(counts)}
    return [Heat("forward", params, ways("forward", params, [max(counts)]))], [
        BATCH,
        f"Every row has {max(counts)} keys, as many as threads, and leaves once for each key. So all ways and the loop "
        "have the same outputs.",
        NO_FLINK,
        AT_LOAD,
    ]


JOINING = (
    claim(
        "STRETCH has the throughput of a sequential join on one thread, and that of ScaleJoin on more threads.",
        "section 8.3, figure 8",
        over={"way": "hand-written", "parallelism": None, "batch": None},
        by=("threads", "batch"),
        expects="=",
    ),
    claim(
        "The throughput of STRETCH grows linearly with its threads.",
        "section 8.3, figure 8",
        over={"threads": 1},
        column=COMPARISONS,
        by=("batch",),
        needs=CORES,
    ),
)


def _joining(counts: list[int]) -> Sweep:
    return [Heat("scalejoin", JOIN, ways("scalejoin", JOIN, counts, SHARED), handwritten=tuple(counts))], [
        BATCH,
        "The compiled loop and the hand-written join on one thread are sequential joins. On more threads, the "
        "hand-written join is an ad-hoc ScaleJoin. Each thread stores rows in its turn, and compares every row with "
        "those that it stores.",
        "The number of comparisons is that which the rows require, computed from the workload. A window is a minute, "
        "not five as in the paper, so that it fills early.",
    ]


def _per_second(rows: list[Row]) -> None:
    """Add comparisons per second."""
    for row in rows:
        add_multiple(row, COMPARISONS, "events_per_s", row["comparisons"] / row["events"])


# --- the suite --------------------------------------------------------------------------------------------------------


def _bars(y: str, title: str, by: str = "app", x: str = "batch") -> Plot:
    return Plot(x, y, title, by, ("parallelism",), kind="bar", loop=False)


SUITE = Suite(
    "stretch",
    "STRETCH: windows over shared state, and their reconfiguration",
    (
        Experiment(
            "q1",
            "section 8.1, figure 6",
            "wordcount and paircount: shared windows (VSN) beside shared-nothing windows (SN)",
            (COUNTING,),
            _counting,
            (_bars("to_loop", "throughput, relative to the compiled loop", "chart"),),
            events=20_000,
            seconds=130.0,
            describe=_name_charts,
            needs="cores",
        ),
        Experiment(
            "q2",
            "section 8.2, figure 7",
            "The cost of sharing and order: an operator that only forwards",
            FORWARDING,
            _forwarding,
            (
                _bars("events_per_s", "rows per second"),
                _bars(MEAN, "mean latency from arrival, at half the slowest peak rate"),
            ),
            events=40_000,
            loads=(0.5,),
            seconds=100.0,
            needs="cores",
        ),
        Experiment(
            "q3",
            "section 8.3, figure 8",
            "ScaleJoin, in comparisons per second",
            JOINING,
            _joining,
            (_bars(COMPARISONS, "comparisons per second", x="threads"),),
            events=60_000,
            seconds=100.0,
            count=joins.count,
            describe=_per_second,
            needs="cores",
        ),
        *switching.EXPERIMENTS,
        *elasticity.EXPERIMENTS,
    ),
    machine="36 cores, on two sockets",
)
