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
    def of(cls, preflight: Preflight) -> HostRow:
        """The row of a preflight."""
        isolated = f", cores {preflight.isolated} isolated" if preflight.isolated else ""
        return cls(
            preflight.host,
            preflight.machine,
            preflight.reason is None,
            preflight.reason or f"fit{f'; unsteady: {preflight.warning}' if preflight.warning else ''}",
            f"{_count(preflight.cores, 'core')}, {preflight.cpu}{isolated}" if preflight.cores else "",
            _threads(preflight) if preflight.cores else "",
            "; ".join(" ".join(map(str, row)) for row in preflight.distances),
            f"governor {_known(preflight.governor)}, turbo {_known(preflight.turbo)}" if preflight.cores else "",
            _kernel(preflight) if preflight.cores else "",
            "" if preflight.load is None else f"{preflight.load:.1f}",
            _size(preflight.memory_bytes),
            _size(preflight.disk_bytes),
            ""
            if preflight.skew_seconds is None
            else f"{preflight.skew_seconds:+.1f} s"
            if preflight.skew_seconds
            else "agrees",
            preflight.python,
            preflight.build[:SHORT] or ("checkout" if preflight.cores else ""),
            [f"{warning.what}: {warning.command}" for warning in preflight.warnings if warning.command],
        )

    @classmethod
    def of_run(cls, run: Run) -> list[HostRow]:
        """The hosts of a run."""
        return [cls.of(preflight) for preflight in run.preflights]

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


def _threads(preflight: Preflight) -> str:
    """Where threads run: the physical cores of each socket, the cores that they get first, and the limit."""
    sockets = "+".join(map(str, preflight.sockets))
    twins = ", several on a physical core" if sum(preflight.sockets) < (preflight.cores or 0) else ""
    limit = "" if preflight.quota is None else f", time of {preflight.quota:g}"
    return f"{_count(len(preflight.sockets), 'socket')} of {sockets}{twins}, first on {preflight.bound}{limit}"


def _kernel(preflight: Preflight) -> str:
    """The settings of the kernel that matter to measurements."""
    balancing = {None: "unknown", True: "on", False: "off"}[preflight.numa_balancing]
    pages, paranoid = _known(preflight.transparent_hugepages), _known(preflight.perf_event_paranoid)
    return f"NUMA balancing {balancing}, huge pages {pages}, perf_event_paranoid {paranoid}"


def _known(fact: object) -> str:
    return "unknown" if fact is None else str(fact)


def _count(number: int | None, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _size(size: int | None) -> str:
    return "" if size is None else f"{size / 1e9:.1f} GB"
