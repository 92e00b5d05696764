"""Facts about the machine of a benchmark, and the thread counts to measure."""

from __future__ import annotations

import os
import platform
import time
from typing import Any

import psutil

from streaming_core.errors import BadInput
from streaming_core.run import engine
from streaming_core.run.disturbance import processor
from streaming_core.run.energy import Meter
from streaming_core.run.way import MAX_THREADS


def thread_counts(asked: list[int] | None, repetitions: int) -> list[int]:
    """Returns the thread counts to measure: the requested ones, or the powers of two up to all cores.

    Raises:
        BadInput: A count or the number of repetitions is out of range.
    """
    if repetitions < 1:
        raise BadInput(f"repetitions must be at least 1, got {repetitions}")
    cores = os.cpu_count() or 1
    counts = sorted(set(asked or {cores, *(1 << i for i in range(cores.bit_length()) if 1 << i <= cores)}))
    if bad := [c for c in counts if not 1 <= c <= MAX_THREADS]:
        raise BadInput(f"threads must be between 1 and {MAX_THREADS}, got {bad[0]}")
    return counts


def facts(repetitions: int) -> dict[str, Any]:
    """Returns time, build, host and topology."""
    return {
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "build": engine.build(),
        "host": {
            "cores": os.cpu_count() or 1,
            "machine": platform.machine(),
            "cpu": processor(),
            "memory_bytes": psutil.virtual_memory().total,
            "kernel": f"{platform.system()} {platform.release()}",
            "load": os.getloadavg()[0],
            "energy": Meter().why or "of all processor packages, for all processes",
        },
        "topology": engine.topology(),
        "repetitions": repetitions,
    }


def unshown(counts: list[int], papers: str) -> str:
    """Returns a note that this machine has fewer cores than that of a paper."""
    cores, most = os.cpu_count() or 1, max(counts)
    measured = f"Measured on {cores} core{'s' * (cores != 1)}, with at most {most} thread{'s' * (most != 1)}."
    return f"{measured} The growth up to the paper's {papers} is not shown."
