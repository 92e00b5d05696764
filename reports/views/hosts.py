"""The hosts of a run in words, as its preflight saw them, for its page and for `lockstep hosts`."""

from __future__ import annotations

from typing import NamedTuple

from reports.history.run import Run
from streaming_core.regression.preflight import Preflight

SHORT = 12  # digits of a build's digest


class HostRow(NamedTuple):
    """A host in a table. Texts are empty as far as the host did not answer."""

    host: str
    machine: str
    is_fit: bool
    state: str
    processor: str
    threads: str
    nodes: str
    frequency: str
    kernel: str
    load: str
    memory: str
    disk: str
    clock: str
    python: str
    build: str
    remedies: list[str]

    @classmethod
    def of(cls, one: Preflight) -> HostRow:
        """The row of a preflight."""
        isolated = f", cores {one.isolated} isolated" if one.isolated else ""
        return cls(
            one.host,
            one.machine,
            one.reason is None,
            one.reason or f"fit{f'; unsteady: {one.warning}' if one.warning else ''}",
            f"{_count(one.cores, 'core')}, {one.cpu}{isolated}" if one.cores else "",
            _threads(one) if one.cores else "",
            "; ".join(" ".join(map(str, row)) for row in one.distances),
            f"governor {_known(one.governor)}, turbo {_known(one.turbo)}" if one.cores else "",
            _kernel(one) if one.cores else "",
            "" if one.load is None else f"{one.load:.1f}",
            _size(one.memory_bytes),
            _size(one.disk_bytes),
            "" if one.skew_seconds is None else f"{one.skew_seconds:+.1f} s" if one.skew_seconds else "agrees",
            one.python,
            one.build[:SHORT] or ("checkout" if one.cores else ""),
            [f"{warning.what}: {warning.command}" for warning in one.warnings if warning.command],
        )

    @classmethod
    def of_run(cls, run: Run) -> list[HostRow]:
        """The hosts of a run."""
        return [cls.of(one) for one in run.preflights]

    @property
    def facts(self) -> list[str]:
        """The facts of the host, in the order of FACTS."""
        return [getattr(self, name) for name in FACTS]


# The titles of the columns behind host and state.
FACTS = {
    "machine": "machine",
    "processor": "processor",
    "threads": "threads",
    "nodes": "distances of nodes",
    "frequency": "frequency",
    "kernel": "kernel",
    "load": "load",
    "memory": "free memory",
    "disk": "free disk",
    "clock": "clock",
    "python": "Python",
    "build": "build",
}


def _threads(one: Preflight) -> str:
    """Where threads run: the physical cores of each socket, the cores that they get first, and the limit."""
    sockets = "+".join(map(str, one.sockets))
    twins = ", several on a physical core" if sum(one.sockets) < (one.cores or 0) else ""
    limit = "" if one.quota is None else f", time of {one.quota:g}"
    return f"{_count(len(one.sockets), 'socket')} of {sockets}{twins}, first on {one.bound}{limit}"


def _kernel(one: Preflight) -> str:
    """The settings of the kernel that matter to measurements."""
    balancing = {None: "unknown", True: "on", False: "off"}[one.numa_balancing]
    pages, paranoid = _known(one.transparent_hugepages), _known(one.perf_event_paranoid)
    return f"NUMA balancing {balancing}, huge pages {pages}, perf_event_paranoid {paranoid}"


def _known(fact: object) -> str:
    return "unknown" if fact is None else str(fact)


def _count(number: int | None, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _size(size: int | None) -> str:
    return "" if size is None else f"{size / 1e9:.1f} GB"
