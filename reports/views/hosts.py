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
    governor: str
    load: str
    memory: str
    disk: str
    clock: str
    python: str
    build: str

    @classmethod
    def of(cls, one: Preflight) -> HostRow:
        """The row of a preflight."""
        processor = f"{_count(one.cores, 'core')}, {_count(one.nodes, 'node')}, {one.cpu}" if one.cores else ""
        isolated = f", cores {one.isolated} isolated" if one.isolated else ""
        return cls(
            one.host,
            one.machine,
            one.reason is None,
            one.reason or f"fit{f'; unsteady: {one.warning}' if one.warning else ''}",
            processor + isolated,
            one.governor or ("unknown" if one.cores else ""),
            "" if one.load is None else f"{one.load:.1f}",
            _size(one.memory_bytes),
            _size(one.disk_bytes),
            "" if one.skew_seconds is None else f"{one.skew_seconds:+.1f} s" if one.skew_seconds else "agrees",
            one.python,
            one.build[:SHORT] or ("checkout" if one.cores else ""),
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
    "governor": "governor",
    "load": "load",
    "memory": "free memory",
    "disk": "free disk",
    "clock": "clock",
    "python": "Python",
    "build": "build",
}


def _count(number: int | None, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _size(size: int | None) -> str:
    return "" if size is None else f"{size / 1e9:.1f} GB"
