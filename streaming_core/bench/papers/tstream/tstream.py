"""The experiments of TStream (ICDE 2020, section VI): schemes for concurrent access to shared state.

Workloads have the paper's parameters (section VI-A and VI-B), record sizes included. `tstream`, `lock`, `mvlk`, `pat`
and `no_lock` are the paper's schemes; `owners` is ours. `evaluation.py` has the paper's claims.

A ratio compares one batch size. All schemes of the paper have its punctuation interval, and once more the batch of
`owners`, where that is another one. On two threads it is the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streaming_core.bench.papers.tstream import evaluation as claims
from streaming_core.bench.papers.tstream.evaluation import (
    APPS,
    BASELINES,
    BOUND,
    DEFAULT,
    INTERVAL,
    PUBLISHED,
    SHARE,
    SHORT,
)
from streaming_core.bench.suite import Experiment, Heat, Plot, Suite
from streaming_core.run import probe
from streaming_core.run.way import Transactional

# Sizes of records as in the paper, and partitions that a transaction chooses at random. Other parameters have the
# paper's values by default.
PAPER: dict[str, dict[str, Any]] = {
    "gs": {"payload": 15, "mp_partitions": "any"},
    "sl": {"payload": 11, "mp_partitions": "any"},
    "ob": {"payload": 4, "mp_partitions": "any"},
    "tp": {"payload": 8, "separate": True},
}
# Pools of the paper's figure 14 beside shared_nothing, and whether threads steal.
POOLS = tuple((pool, stealing) for pool in ("shared_everything", "shared_per_socket") for stealing in (False, True))

Sweep = tuple[list[Heat], list[str]]


def way(app: str, scheme: str, threads: int, punctuation: int = INTERVAL, **options: Any) -> Transactional:
    """Return a way of an application with the paper's parameters."""
    return Transactional(app=app, params=PAPER[app], scheme=scheme, threads=threads, punctuation=punctuation, **options)


def compared(app: str, threads: int, *further: str) -> list[Transactional]:
    """Return ours, and the schemes of the paper with its interval and with our batch."""
    ours = SHARE * threads
    published = [
        way(app, scheme, threads, interval)
        for interval in dict.fromkeys((INTERVAL, ours))
        for scheme in (PUBLISHED, *BASELINES)
    ]
    return [*published, *(way(app, scheme, threads) for scheme in further), way(app, DEFAULT, threads, ours)]


def several(counts: Iterable[int]) -> list[int]:
    """Return the numbers of threads at which schemes differ in more than what they cost one thread."""
    return [count for count in counts if count > 1] or [*counts]


def _schemes(counts: list[int]) -> Sweep:
    threads, topology, notes = max(counts), probe.topology(), []
    pools = list(POOLS)
    if topology["is_mock"] or topology["sockets"] == 1:
        notes.append("This machine has one socket, so pools differ in what they share and not in remote memory.")
        pools = [pool for pool in POOLS if pool[0] != "shared_per_socket"]
    heats = []
    for app in APPS:
        ways = [spec for count in several(counts) for spec in compared(app, count, BOUND)]
        ways.append(way(app, PUBLISHED, threads, SHORT))
        ways += [way(app, PUBLISHED, threads, pool=pool, stealing=stealing) for pool, stealing in pools]
        heats.append(Heat(app, PAPER[app], ways))
    return heats, [
        "no_lock bounds lock, mvlk and pat. tstream and owners can be faster. It is not a result.",
        "In tp, each of a report's three transactions is an event.",
        *notes,
    ]


def _contention(counts: list[int]) -> Sweep:
    ways = [way("tp", scheme, count) for scheme in ("pat", PUBLISHED, DEFAULT) for count in counts]
    return [Heat("tp", PAPER["tp"], ways)], []


def _latency(counts: list[int]) -> Sweep:
    ways = [way("tp", scheme, max(counts)) for scheme in (PUBLISHED, *BASELINES, DEFAULT)]
    return [Heat("tp", PAPER["tp"], ways)], [
        f"The schemes of the paper have a punctuation interval of {INTERVAL}. All have the same rate: half of the peak "
        "rate of the slowest. An event of tstream waits for its interval to end. owners takes events as they come.",
        "Left out, to save time: gs, sl and ob.",
    ]


SUITE = Suite(
    "tstream",
    "TStream: concurrent state access on multicores (ICDE 2020)",
    (
        Experiment(
            "schemes",
            "figures 8, 12a and 14",
            "Throughput of the schemes, and of tstream by punctuation interval and pool",
            claims.SCHEMES,
            _schemes,
            (Plot("way", "events_per_s", "throughput", lines=("threads", "punctuation"), kind="bar"),),
            needs="cores",
        ),
        Experiment(
            "contention",
            "figure 1",
            "Time of PAT by component, over threads (tp)",
            claims.CONTENTION,
            _contention,
            (Plot("threads", "breakdown", "time of an event over all threads", by="way", kind="parts", loop=False),),
            needs="cores",
        ),
        Experiment(
            "latency",
            "figures 12b and 13",
            "End-to-end latency of the schemes at interval 500 (tp)",
            claims.LATENCY,
            _latency,
            (
                Plot("way", "end_to_end_p99_us", "end-to-end p99 latency", kind="bar", loop=False),
                Plot("way", "end_to_end_mean_us", "end-to-end mean latency", kind="bar", loop=False),
            ),
            loads=(0.5,),
            needs="cores",
        ),
    ),
    pinned=True,
    machine="40 cores, on four sockets",
)
