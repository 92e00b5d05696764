"""A result of the benchmark in words: its machine and its figures.

docs/benchmarks.md (benchmarks_page.py) and the page of benchmarks (infra/benchmarks) use the same words.
"""

from __future__ import annotations

from typing import Any


def machine(result: dict[str, Any]) -> str:
    """The machine of a result in a few words: `AMD EPYC, 2 cores, 1 socket, 8 GiB of memory`.

    Results with the same text count as results of one machine.
    """
    host, topology = result["host"], result["topology"]
    parts = [processor(host)]
    if topology.get("sockets"):
        parts.append(_count(topology["sockets"], "socket") + " (mock topology)" * bool(topology.get("is_mock")))
    if len(topology.get("nodes", ())) > 1:
        parts.append(_count(len(topology["nodes"]), "memory node"))
    if host.get("memory_bytes"):
        parts.append(f"{host['memory_bytes'] / 2**30:.0f} GiB of memory")
    return ", ".join(parts)


def processor(host: dict[str, Any]) -> str:
    """The processor of a machine and its cores: `AMD EPYC, 2 cores`."""
    return f"{host['cpu']}, {_count(host['cores'], 'core')}"


def round_trip(host: dict[str, Any]) -> str:
    """The round trip of a cache line between two cores: `92 ns (85 to 110), 1 pair of cores`."""
    trip = host.get("round_trip_ns")
    if trip is None:
        return "not measured: one core"
    ends = f"{trip['median']:.0f} ns ({trip['lowest']:.0f} to {trip['highest']:.0f})"
    if trip["pairs"] < trip["of"]:
        return f"{ends}, a sample of {trip['pairs']} of {trip['of']} pairs of cores"
    return f"{ends}, {_count(trip['pairs'], 'pair')} of cores"


def passes(result: dict[str, Any]) -> str:
    """The passes and rounds of a result: `passes of 1 s, 5 rounds`."""
    length = (
        "single runs of few events" if result["quick"] else f"passes of {result['conditions']['pass_seconds']:.2g} s"
    )
    pinned = ", threads bound to cores" * bool(result["conditions"].get("pinned"))
    return f"{length}, {_count(result['repetitions'], 'round')}{pinned}"


def size(result: dict[str, Any]) -> str:
    """The cells of a result, and the time they took: `240 cells in 52 min`."""
    seconds = result["seconds"]
    lasted = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    return f"{_count(result['cells'], 'cell')} in {lasted}"


def interval(row: dict[str, Any], column: str) -> tuple[float, float] | None:
    """The 95 % interval of a column; None if it was not measured in several rounds."""
    ends = row.get(f"{column}_range")
    return (ends[0], ends[1]) if ends and None not in ends and len(row.get("rates") or (0, 0)) > 1 else None


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
