"""The cores of this machine: which of them threads get, their round trips of a cache line, and the longest pause."""

from __future__ import annotations

import itertools
import statistics
from typing import Any

from streaming_core.run.probe import topology

MOST_PAIRS = 64  # a measurement of one pair takes about two milliseconds
FEW_PAIRS = 8  # for a measurement that is repeated


def sockets(cores: list[dict[str, Any]]) -> list[int]:
    """The number of physical cores of each socket, among the cores of a topology."""
    of_socket: dict[int, set[int]] = {}
    for core in cores:
        of_socket.setdefault(core["socket"], set()).add(core["physical"])
    return [len(of_socket[socket]) for socket in sorted(of_socket)]


def points(sockets: list[int], most: int | None = None) -> list[int]:
    """The numbers of threads of a scaling curve: powers of two, one socket, all sockets.

    Args:
        sockets: The physical cores of each socket.
        most: The most threads; None: one per physical core.
    """
    most = min(most or sum(sockets), sum(sockets))
    powers = [1 << power for power in range(most.bit_length())]
    return sorted({*powers, min(sockets[0], most), most})


def round_trips() -> dict[str, Any] | None:
    """Measures how long a cache line takes from one core to another and back.

    Returns:
        The median, lowest and highest of the pairs, in nanoseconds; the number of `pairs` measured, and `of` how many.
        None on one core. A machine of many cores has a sample of its pairs.
    """
    every = _pairs(topology()["cores"])
    if not every:
        return None
    trips = _trips(every, MOST_PAIRS)
    return {
        "median": statistics.median(trips),
        "lowest": min(trips),
        "highest": max(trips),
        "pairs": len(trips),
        "of": len(every),
    }


def round_trip(threads: int) -> float | None:
    """Measures the median round trip, in nanoseconds, between the cores to which so many threads are bound.

    A hypervisor can move the cores of a virtual machine at any time. They may be near each other in one minute and far
    apart in the next. Returns None for a single core.
    """
    every = _pairs(topology()["cores"][:threads])
    return statistics.median(_trips(every, FEW_PAIRS)) if every else None


def _pairs(cores: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return list(itertools.combinations([core["id"] for core in cores], 2))


def _trips(pairs: list[tuple[int, int]], most: int) -> list[float]:
    """Measures the round trips of at most so many pairs."""
    from streaming_core import _runtime

    return [_runtime.round_trip(*pair) for pair in sample(pairs, most)]


def sample(every: list[Any], most: int) -> list[Any]:
    """Returns at most so many elements, at even distances, with the first and the last."""
    if len(every) <= most:
        return every
    return [every[i * (len(every) - 1) // (most - 1)] for i in range(most)]


def longest_pause(seconds: float) -> float:
    """Returns the longest pause, in seconds, of threads that spin for so long, one on each core."""
    from streaming_core import _runtime

    return _runtime.longest_pause([core["id"] for core in topology()["cores"]], seconds)
