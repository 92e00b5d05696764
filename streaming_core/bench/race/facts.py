"""Facts about the machine of a benchmark, and the thread counts to measure."""

from __future__ import annotations

import os
import platform
import time
from typing import Any

import psutil

from streaming_core.errors import BadInput
from streaming_core.run import cores, probe, provenance
from streaming_core.run.energy import Meter
from streaming_core.run.processor import governor, processor
from streaming_core.run.way import MAX_THREADS

PROBE_SECONDS = 1.0  # how long each core is watched for pauses


def thread_counts(requested: list[int] | None, repetitions: int) -> list[int]:
    """Return the thread counts to measure: the requested ones, or the points of a scaling curve on this machine.

    Raises:
        BadInput: A count or the number of repetitions is out of range.
    """
    if repetitions < 1:
        raise BadInput(f"repetitions must be at least 1, got {repetitions}")
    counts = sorted(set(requested or cores.points(cores.sockets(probe.topology()["cores"]))))
    if bad := [c for c in counts if not 1 <= c <= MAX_THREADS]:
        raise BadInput(f"threads must be between 1 and {MAX_THREADS}, got {bad[0]}")
    return counts


def facts(repetitions: int, probe_seconds: float = PROBE_SECONDS) -> dict[str, Any]:
    """Return time, build, host and topology.

    The host's facts include measurements: the round trip of a cache line between two cores, and the longest pause.

    Args:
        repetitions: The rounds of the benchmark.
        probe_seconds: How long to watch each core for pauses.
    """
    return {
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "build": provenance.build(),
        "host": {
            "cores": os.cpu_count() or 1,
            "machine": platform.machine(),
            "cpu": processor(),
            "memory_bytes": psutil.virtual_memory().total,
            "kernel": f"{platform.system()} {platform.release()}",
            "governor": governor(),
            "load": os.getloadavg()[0],
            "energy": Meter().why or "of all processor packages, for all processes",
            "round_trip_ns": cores.round_trips(),
            "longest_pause_ms": longest_pause(probe_seconds) * 1e3,
        },
        "topology": probe.topology(),
        "repetitions": repetitions,
    }


def longest_pause(seconds: float = PROBE_SECONDS) -> float:
    """Return the longest time, in seconds, that a spinning thread did not run: the system ran something else.

    Args:
        seconds: How long to watch each core.
    """
    return cores.longest_pause(seconds)


def unshown(counts: list[int], papers: str) -> str:
    """Return a note that this machine has fewer cores than that of a paper."""
    here, most = os.cpu_count() or 1, max(counts)
    measured = f"Measured on {here} core{'s' * (here != 1)}, with at most {most} thread{'s' * (most != 1)}."
    return f"{measured} The growth up to the paper's {papers} is not shown."
