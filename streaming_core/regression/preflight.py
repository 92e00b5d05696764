"""The preflight of each host before a run: its facts, and the reason if it is unfit.

runs/<run id>/hosts.json   the preflights of a run, by connection
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from streaming_core.regression.home import Home
from streaming_core.run.cores import points
from streaming_core.storage import left_json, write_json

# How to keep the cores from exceeding their nominal frequency, by the interface that lets them.
TURBO = {
    "intel_pstate": "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo",
    "cpufreq": "echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost",
}
BUSY = 0.25  # of the cores: a load above it shows in the speeds of the cells


class Warning(NamedTuple):
    """A cause of unsteady speeds, and the command that removes it; empty if no command does."""

    what: str
    command: str


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
        cores: the number of logical cores that a cell may use.
        sockets: the number of physical cores among them, by socket.
        bound: the logical cores to which threads are bound first, such as `0-31`: one of each physical core.
        distances: the distances between NUMA nodes, as the firmware states them.
        quota: the cores' worth of time that the control group grants; None without a limit.
        governor: the governor of the cores' frequency; with their numbers if they have several.
        turbo: the interface that lets cores exceed their nominal frequency, a key of TURBO; `off`; or None if unknown.
        numa_balancing: whether the kernel moves pages to the threads that use them.
        transparent_hugepages: when the kernel gives huge pages to programs that did not ask: `always`, for example.
        perf_event_paranoid: the kernel's limit to performance counters; above 2, a cell has none.
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
    sockets: list[int] = field(default_factory=list)
    bound: str = ""
    distances: list[list[int]] = field(default_factory=list)
    quota: float | None = None
    governor: str | None = None
    turbo: str | None = None
    numa_balancing: bool | None = None
    transparent_hugepages: str | None = None
    perf_event_paranoid: int | None = None
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
    def threads(self) -> int | None:
        """The most threads of a cell that each have a core; None if unknown."""
        if self.cores is None or self.quota is None:
            return self.cores
        return max(1, min(self.cores, int(self.quota)))

    @property
    def points(self) -> list[int]:
        """The numbers of threads that `auto` stands for."""
        return points(self.sockets, self.threads) if self.sockets else [1]

    @property
    def warnings(self) -> list[Warning]:
        """The causes of unsteady speeds of its cells."""
        cores = self.cores or 0
        known = [
            (
                self.load is not None and cores > 0 and self.load > BUSY * cores,
                f"load {self.load or 0:.1f} on {cores} cores",
                "",
            ),
            (
                self.governor not in (None, "performance"),
                f"governor {self.governor}",
                "sudo cpupower frequency-set -g performance",
            ),
            (self.turbo in TURBO, "turbo on", TURBO.get(self.turbo or "", "")),
            (
                self.numa_balancing is True and len(self.distances) > 1,
                "NUMA balancing on",
                "sudo sysctl kernel.numa_balancing=0",
            ),
            (
                self.transparent_hugepages not in (None, "madvise"),
                f"transparent huge pages {self.transparent_hugepages}",
                "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
            ),
            (
                self.quota is not None and self.quota < cores,
                f"a control group grants the time of {self.quota or 0:g} of {cores} cores",
                "",
            ),
        ]
        return [Warning(what, command) for is_so, what, command in known if is_so]

    @property
    def warning(self) -> str:
        """The causes of unsteady speeds in one line; empty if there are none."""
        return ", ".join(warning.what for warning in self.warnings)


def record(home: Home, run_id: str, preflights: Iterable[Preflight]) -> None:
    """Write the preflights of a run, in place of an earlier record."""
    write_json(home.run(run_id) / "hosts.json", {preflight.host: asdict(preflight) for preflight in preflights})


def preflights_of(home: Home, run_id: str) -> list[Preflight]:
    """The preflights of a run, by name of the connection; none if no host was looked at."""
    written = left_json(home.run(run_id) / "hosts.json")
    return [Preflight(**written[host]) for host in sorted(written)]


def latest(home: Home, hosts: Iterable[str]) -> dict[str, Preflight]:
    """The preflights of hosts in the newest run that looked at each of them; hosts without one are left out."""
    missing, known = set(hosts), dict[str, Preflight]()
    for path in sorted(home.root.glob("runs/*/hosts.json"), reverse=True):
        if not missing:
            break
        seen = {
            preflight.host: preflight
            for preflight in preflights_of(home, path.parent.name)
            if preflight.machine and preflight.host in missing
        }
        known |= seen
        missing -= seen.keys()
    return known
