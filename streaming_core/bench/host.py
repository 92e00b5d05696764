"""What a benchmark says about where and how it was made."""

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
    """The thread counts to measure: those asked for, else powers of two up to all cores.

    Raises:
        BadInput: a count, or the number of repetitions, is out of range.
    """
    if repetitions < 1:
        raise BadInput("repetitions must be at least 1")
    cores = os.cpu_count() or 1
    counts = sorted(set(asked or {cores, *(1 << i for i in range(cores.bit_length()) if 1 << i <= cores)}))
    if bad := [c for c in counts if not 1 <= c <= MAX_THREADS]:
        raise BadInput(f"threads must lie in 1..{MAX_THREADS}, got {bad[0]}")
    return counts


def facts(repetitions: int) -> dict[str, Any]:
    """Time, build, host, topology."""
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
            "energy": Meter().why or "of all processor packages, for whomever",
        },
        "topology": engine.topology(),
        "repetitions": repetitions,
    }


def unshown(counts: list[int], papers: str) -> str:
    """What these threads on this machine cannot show of what a paper does."""
    cores, most = os.cpu_count() or 1, max(counts)
    said = f"On {cores} core{'s' * (cores != 1)}, with {most} thread{'s' * (most != 1)} at most"
    return f"{said}: how it grows up to the paper's {papers}, is not shown."
