"""The preflight of each host before a run: its facts, and the reason if it is unfit.

runs/<run id>/hosts.json   the preflights of a run, by connection
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from streaming_core.regression.home import Home
from streaming_core.storage import left_json, write_json

BUSY = 0.25  # of the cores: a load above it shows in the speeds of the cells


@dataclass(frozen=True)
class Preflight:
    """A host before a run. Facts are None, or empty, as far as the host did not answer.

    Attributes:
        host: the id of its connection.
        reason: The reason and the remedy if it cannot run cells, in one line without the connection; else None.
        machine: the machine, as it names itself.
        build: the digest of the build that its cells run; empty on this machine, which runs the checkout.
        python: the version of the interpreter.
        cpu: the name of the processor.
        cores: the number of cores.
        nodes: the number of NUMA nodes.
        governor: the governor of the cores' frequency.
        isolated: the cores that the scheduler of the system leaves alone, such as `2-7`.
        load: the load average of the last minute.
        memory_bytes: available memory.
        disk_bytes: free disk of LOCKSTEP_HOME.
        skew_seconds: The lead of its clock over this one, less the time of the answer.
    """

    host: str
    reason: str | None = None
    machine: str = ""
    build: str = ""
    python: str = ""
    cpu: str = ""
    cores: int | None = None
    nodes: int | None = None
    governor: str | None = None
    isolated: str = ""
    load: float | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    skew_seconds: float | None = None

    @property
    def is_remote(self) -> bool:
        """Whether it is another machine, which runs cells from a build that was shipped there."""
        return bool(self.build)

    @property
    def warning(self) -> str:
        """The causes of unsteady speeds of its cells; empty if there are none."""
        parts = []
        if self.load is not None and self.cores and self.load > BUSY * self.cores:
            parts.append(f"load {self.load:.1f} on {self.cores} cores")
        if self.governor not in (None, "performance"):
            parts.append(f"governor {self.governor}")
        return ", ".join(parts)


def record(home: Home, run_id: str, preflights: Iterable[Preflight]) -> None:
    """Write the preflights of a run, in place of an earlier record."""
    write_json(home.run(run_id) / "hosts.json", {one.host: asdict(one) for one in preflights})


def preflights_of(home: Home, run_id: str) -> list[Preflight]:
    """The preflights of a run, by name of the connection; none if no host was looked at."""
    written = left_json(home.run(run_id) / "hosts.json")
    return [Preflight(**written[host]) for host in sorted(written)]
