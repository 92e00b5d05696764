"""The experiments of TStream (ICDE 2020, section VI): schemes for concurrent access to shared state.

Every figure of the evaluation is an experiment. Its workload has the paper's parameters (section VI-A and VI-B), record
sizes included. `tstream`, `lock`, `mvlk`, `pat` and `no_lock` are the paper's schemes; `owners` and `serial` are ours.
`evaluation.py` has the paper's claims.

The sweeps have few values, because a suite should take half an hour on two cores. Notes name the values of the paper
that are left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import partial
from typing import Any

from streaming_core.bench.papers.tstream import evaluation as claims
from streaming_core.bench.papers.tstream.evaluation import APPS, BASELINES, BOUND, DEFAULT, PUBLISHED, STEPS
from streaming_core.bench.race.ratios import Row, add_multiple
from streaming_core.bench.suite import Experiment, Heat, Plot, Suite
from streaming_core.run import probe
from streaming_core.run.way import Pooled, Transactional

# Sizes of records as in the paper, and partitions that a transaction chooses at random. Other parameters have the
# paper's values by default.
PAPER: dict[str, dict[str, Any]] = {
    "gs": {"payload": 15, "mp_partitions": "any"},
    "sl": {"payload": 11, "mp_partitions": "any"},
    "ob": {"payload": 4, "mp_partitions": "any"},
    "tp": {"payload": 8, "separate": True},
    "fx": {},
}
# Punctuation intervals, and the microbenchmark of S-Store in gs.
INTERVALS = (10, 100, 500, 1000)
THREE_WRITES = {"length": 3, "read_ratio": 0.0, "mp_ratio": 0.0, "summation": False, "post_compute": 0}
SCHEMES = (PUBLISHED, *BASELINES, BOUND, DEFAULT)
FURTHER = ("fx",)  # applications of ours, beside the paper's
# Pools of the paper's figure 14: the pool, and whether threads steal.
POOLS = (
    ("shared_nothing", False),
    ("shared_everything", False),
    ("shared_everything", True),
    ("shared_per_socket", False),
    ("shared_per_socket", True),
)

Sweep = tuple[list[Heat], list[str]]


def ways(
    app: str, params: dict[str, Any], counts: Iterable[int], schemes: Iterable[str] = SCHEMES, **options: Any
) -> list[Transactional]:
    """Return a way for each scheme and thread count."""
    return [
        Transactional(app=app, params=params, scheme=scheme, threads=threads, **options)
        for scheme, threads in itertools.product(schemes, counts)
    ]


def _heat(app: str, more: dict[str, Any], counts: Iterable[int], schemes: Iterable[str] = SCHEMES) -> Heat:
    params = PAPER[app] | more
    return Heat(app, params, ways(app, params, counts, schemes))


def _contention(counts: list[int]) -> Sweep:
    return [_heat("tp", {}, counts, ("pat", PUBLISHED, DEFAULT))], []


def _schemes(counts: list[int]) -> Sweep:
    heats = []
    for app in (*APPS, *FURTHER):
        heat = _heat(app, {}, counts)
        # One thread of `owners` executes events one after the other, as `serial` does.
        serial = ways(app, heat.params, [max(counts)] if max(counts) > 1 else [], ["serial"])
        heats.append(Heat(app, heat.params, [*heat.ways, *serial]))
    return heats, [
        "no_lock is a bound, not a result. In tp, each of a report's three transactions is an event.",
        "fx is not in the paper. Its writes read other rows, as table II allows.",
    ]


def _steps(rows: list[Row]) -> None:
    """Add `steps` to the rows of `tstream`: nanoseconds of an event by step."""
    for row in rows:
        if (costs := row.get("costs")) and row.get("scheme") == PUBLISHED:
            row["steps"] = {step: costs[step] for step in STEPS}


def one_socket() -> int:
    """Return the number of cores of the first socket, in the order in which threads are bound to cores."""
    cores = probe.topology()["cores"]
    return sum(1 for _ in itertools.takewhile(lambda core: core["socket"] == cores[0]["socket"], cores))


def _breakdown(counts: list[int]) -> Sweep:
    most, socket = max(counts), min(one_socket(), max(counts))
    notes = [f"One socket means the {socket} cores of this machine's first socket; the paper's has ten."]
    if socket == most:
        notes.append("These are all threads, so part (b), all sockets, would repeat part (a).")
    schemes = (*SCHEMES, *(["serial"] if most > 1 else []))
    return [_heat("sl", {}, [threads], schemes) for threads in dict.fromkeys((socket, most))], notes


def _over(
    name: str, values: tuple[float, ...], left_out: str, fixed: dict[str, Any], schemes: tuple[str, ...],
    counts: list[int],
) -> Sweep:  # fmt: skip
    """Vary a parameter of gs; all schemes run with the most threads."""
    return [_heat("gs", fixed | {name: value}, [max(counts)], schemes) for value in values], [
        f"Left out, to save time: {left_out}. All schemes have the most threads."
    ]


def _intervals(counts: list[int]) -> Sweep:
    heats = []
    for app in APPS:
        published = [
            way
            for interval in INTERVALS
            for way in ways(app, PAPER[app], [max(counts)], [PUBLISHED], punctuation=interval)
        ]
        heats.append(Heat(app, PAPER[app], [*published, *ways(app, PAPER[app], [max(counts)], [DEFAULT])]))
    return heats, [
        "Left out, to save time: intervals 50, 250 and 750.",
        "All intervals of an application have the same rate: half of the peak rate of the slowest. At such a rate, "
        "an event waits for the rest of its interval, so latency includes the interval divided by the rate.",
    ]


def _latency(counts: list[int]) -> Sweep:
    schemes = (PUBLISHED, *BASELINES, DEFAULT)
    return [_heat(app, {}, [max(counts)], schemes) for app in APPS], [
        "All schemes have a punctuation interval of 500, and the same rate: half of the peak rate of the slowest."
    ]


def _pools(counts: list[int]) -> Sweep:
    threads, topology, notes = max(counts), probe.topology(), []
    pools = list(POOLS)
    if topology["is_mock"] or topology["sockets"] == 1:
        notes.append(
            "This machine has one socket. A mock topology of two sockets replaces it, so pools differ in what they "
            "share and not in remote memory."
        )
        if threads < 3:
            pools = [pool for pool in POOLS if pool[0] != "shared_per_socket"]
            notes.append(
                "With two threads a mock socket has one thread, so shared_per_socket equals shared_nothing, and is "
                "left out."
            )
    heats = []
    for app in APPS:
        published = [
            way
            for pool, stealing in pools
            for way in ways(app, PAPER[app], [threads], [PUBLISHED], pool=pool, stealing=stealing)
        ]
        heats.append(Heat(app, PAPER[app], [*published, *ways(app, PAPER[app], [threads], [DEFAULT])]))
    return heats, notes


def _three_writes(counts: list[int]) -> Sweep:
    return [_heat("gs", THREE_WRITES, [1], (PUBLISHED, *BASELINES, DEFAULT))], [
        "S-Store is not part of Lockstep, so the comparison is with the compiled loop: what PAT's coordination costs.",
        "On one thread, pat, lock and mvlk still insert locks, and tstream still builds chains. owners executes events "
        "one after the other.",
    ]


def _joint(counts: list[int]) -> Sweep:
    schemes = (PUBLISHED, "pat", DEFAULT)
    separate = PAPER["tp"]
    forms = (separate, separate | {"separate": False})
    return [Heat("tp", form, ways("tp", form, [max(counts)], schemes)) for form in forms], [
        "Three transactions for a report: its speed, its vehicle, its toll. The joint form is one transaction, as in "
        "TStream's code."
    ]


def _reports(rows: list[Row]) -> None:
    """Add `form` and `reports_per_s`."""
    for row in rows:
        is_separate = row["params"].get("separate", False)
        row["form"] = "separate" if is_separate else "joint"
        add_multiple(row, "reports_per_s", "events_per_s", 1 / 3 if is_separate else 1)


def _keyed(counts: list[int]) -> Sweep:
    threads = [max(counts)]
    keyed = [Pooled(app="tpk", threads=count) for count in threads]
    return [Heat("tpk", {}, keyed), Heat("tp", {}, ways("tp", {}, threads, (PUBLISHED, DEFAULT)))], [
        "Both read the same reports and emit the same tolls. With state keyed by segment, an event passes through a "
        "chain of operators. The transactional operators are fused into one joint transaction."
    ]


def _index(counts: list[int]) -> Sweep:
    schemes = (PUBLISHED, BOUND, DEFAULT)
    return [_heat("sl", {"index": index}, [max(counts)], schemes) for index in ("dense", "hash")], [
        "Dense tables have no index: the key of a row is its number. All other experiments have dense tables.",
        "Left out, to save time: gs, ob and tp with an index, and tp with rows that reports insert on first touch.",
    ]


def _curves(x: str) -> tuple[Plot, ...]:
    return Plot(x, "events_per_s", "throughput"), Plot(
        x, "to_loop", "throughput, relative to the loop of the same round", loop=False
    )


def _parts(title: str, x: str = "way", by: str = "app") -> Plot:
    return Plot(x, "breakdown", title, by=by, kind="parts", loop=False)


SUITE = Suite(
    "tstream",
    "TStream: concurrent state access on multicores (ICDE 2020)",
    ("transactions",),
    (
        Experiment(
            "contention",
            "figure 1",
            "Time of PAT by component, over threads (tp)",
            claims.CONTENTION,
            _contention,
            (_parts("time of an event, summed over threads", x="threads", by="way"),),
            needs="cores",
        ),
        Experiment(
            "schemes",
            "figure 8 (a, b, c, d)",
            "Throughput of the schemes over threads",
            claims.SCHEMES,
            _schemes,
            (
                Plot("threads", "events_per_s", "throughput"),
                Plot(
                    "threads",
                    "steps",
                    "time of a transaction of tstream, summed over threads",
                    kind="parts",
                    loop=False,
                ),
            ),
            describe=_steps,
            needs="cores",
        ),
        Experiment(
            "breakdown",
            "figure 9 (a, b)",
            "Time of a transaction by component, for all schemes (sl)",
            claims.BREAKDOWN,
            _breakdown,
            (_parts("time of a transaction, summed over threads", by="threads"),),
            needs="nodes",
        ),
        Experiment(
            "partition-ratio",
            "figure 10a",
            "Share of transactions that access six partitions (gs)",
            claims.PARTITION_RATIO,
            partial(
                _over,
                "mp_ratio",
                (0.0, 0.5, 1.0),
                "25 % and 75 %, mvlk",
                {"mp_len": 6},
                (PUBLISHED, "lock", "pat", DEFAULT),
            ),
            _curves("mp_ratio"),
            needs="cores",
        ),
        Experiment(
            "partition-length",
            "figure 10b",
            "Number of partitions that half of the transactions access (gs)",
            claims.PARTITION_LENGTH,
            partial(
                _over,
                "mp_len",
                (1, 4, 10),
                "lengths 2, 6 and 8, mvlk",
                {"mp_ratio": 0.5},
                (PUBLISHED, "lock", "pat", DEFAULT),
            ),
            _curves("mp_len"),
            needs="cores",
        ),
        Experiment(
            "read-ratio",
            "figure 11a",
            "Share of transactions that read, without sums (gs, uniform keys)",
            claims.READS,
            partial(
                _over,
                "read_ratio",
                (0.0, 0.5, 1.0),
                "25 % and 75 %",
                {"theta": 0.0, "mp_ratio": 0.5, "summation": False, "post_compute": 0},
                (PUBLISHED, *BASELINES, DEFAULT),
            ),
            _curves("read_ratio"),
            needs="cores",
        ),
        Experiment(
            "skew",
            "figure 11b",
            "Skew of the keys (gs, writes only)",
            claims.SKEW,
            partial(
                _over,
                "theta",
                (0.0, 0.6, 1.0),
                "exponents 0.2, 0.4 and 0.8",
                {"read_ratio": 0.0, "mp_ratio": 0.5},
                (PUBLISHED, *BASELINES, DEFAULT),
            ),
            _curves("theta"),
            needs="cores",
        ),
        Experiment(
            "punctuation",
            "figure 12 (a, b)",
            "Throughput and latency by punctuation interval",
            claims.PUNCTUATION,
            _intervals,
            (
                Plot("punctuation", "events_per_s", "throughput", log=True, loop=False),
                Plot("punctuation", "end_to_end_p99_us", "end-to-end p99 latency", log=True, loop=False),
            ),
            loads=(0.5,),
            needs="cores",
        ),
        Experiment(
            "latency",
            "figure 13",
            "End-to-end p99 latency of the schemes at interval 500",
            claims.LATENCY,
            _latency,
            (
                Plot("way", "end_to_end_p99_us", "end-to-end p99 latency", kind="bar", loop=False),
                Plot("way", "end_to_end_mean_us", "end-to-end mean latency", kind="bar", loop=False),
            ),
            loads=(0.5,),
            needs="cores",
        ),
        Experiment(
            "pools",
            "figure 14",
            "Pools: the threads that may evaluate an operation chain, with and without work stealing",
            claims.POOLS,
            _pools,
            (Plot("pool", "events_per_s", "throughput", lines=("scheme", "stealing"), kind="bar", loop=False),),
            needs="nodes",
        ),
        Experiment(
            "three-writes",
            "section VI-G",
            "Cost of coordination on one core, with three writes per transaction (gs)",
            claims.S_STORE,
            _three_writes,
            (Plot("way", "events_per_s", "throughput on one thread", kind="bar"),),
        ),
        Experiment(
            "joint",
            "section V",
            "Toll processing: three transactions for a report, or one",
            claims.FUSION,
            _joint,
            (Plot("form", "reports_per_s", "reports per second", kind="bar"),),
            describe=_reports,
        ),
        Experiment(
            "index",
            "section VI-D",
            "Tables with a hash index, compared with dense tables (sl)",
            claims.INDEX,
            _index,
            (Plot("index", "events_per_s", "throughput", kind="bar"),),
        ),
        Experiment(
            "keyed",
            "figure 2",
            "Toll processing keyed by segment, compared with the transactional one",
            claims.KEYED,
            _keyed,
            (Plot("app", "events_per_s", "throughput", by="", kind="bar"),),
        ),
    ),
    pinned=True,
    machine="40 cores, on four sockets",
)
