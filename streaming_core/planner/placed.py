"""Placed plans: the socket and the core of every replica, and the estimate of the model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from streaming_core.planner.graph import Graph
from streaming_core.planner.machine import Machine
from streaming_core.planner.model import Estimate, Places, estimate


@dataclass(frozen=True)
class Placed:
    """The plan of a strategy.

    Attributes:
        sockets: The sockets of replicas, by operator; the model uses them.
        cores: The cores of replicas within their sockets, by operator.
        pinned: Whether threads have a fixed core. Else the operating system moves them, and estimates are of the cores
            where they start.
        proved: Whether the search has proved that no other placement of these replicas sustains more.
        by_output: Whether R judges the plan, as in the paper; else the sustained ingress.
        ingress: Events per second at which R counts; None: as many as the source's replicas can take.
    """

    strategy: str
    graph: Graph
    machine: Machine
    sockets: Places
    cores: Places
    pinned: bool = True
    proved: bool = False
    by_output: bool = False
    ingress: float | None = None

    @property
    def replicas(self) -> dict[str, int]:
        """The number of replicas, by operator."""
        return {name: len(places) for name, places in self.sockets.items()}

    @cached_property
    def estimate(self) -> Estimate:
        """The estimate of the model, which takes cores into account."""
        return estimate(self.graph, self.machine, self.sockets, self.ingress, self.cores)

    @property
    def rows_per_s(self) -> float:
        """Rows of the sinks per second, by the measure that judges the plan."""
        return self.estimate.throughput if self.by_output else self.estimate.sustained.throughput

    @property
    def events_per_s(self) -> float:
        """The events per second that have all these rows as outputs."""
        sustained = self.estimate.sustained
        return self.rows_per_s * sustained.ingress / sustained.throughput if sustained.throughput else sustained.ingress

    @property
    def bottleneck(self) -> str:
        """The over-supplied operators by R, else the load that limits the sustained ingress."""
        if not self.by_output:
            return str(self.estimate.sustained.bottleneck)
        return ", ".join(dict.fromkeys(r.operator for r in self.estimate.replicas if r.over_supplied)) or "the ingress"

    def as_plan(self) -> dict[str, list[int]]:
        """Return the threads of replicas, by operator, as executor pinned takes them (`--plan`)."""
        return {
            name: [self.machine.thread(i, core) for i, core in zip(places, self.cores[name], strict=True)]
            for name, places in self.sockets.items()
        }


def assign_cores(graph: Graph, machine: Machine, sockets: Places) -> dict[str, list[int]]:
    """Assign a core of its socket to each replica, in descending order of demand.

    A replica gets the core with the least demand among those with room for one more; the first of equal ones.
    """
    # At an ingress of 1 nothing is over-supplied, so the demands are in proportion.
    demand = {(r.operator, r.index): r.demand for r in estimate(graph, machine, sockets, 1.0).replicas}
    order = {name: index for index, name in enumerate(graph.by_name)}
    cores = {name: [0] * len(places) for name, places in sockets.items()}
    for socket in range(machine.sockets):
        here = [(name, index) for name, places in sockets.items() for index, s in enumerate(places) if s == socket]
        load, number = [0.0] * machine.cores[socket], [0] * machine.cores[socket]
        most = machine.replicas_per_core or len(here)
        for name, index in sorted(here, key=lambda r: (-demand[r], order[r[0]], r[1])):
            core = min((c for c in range(len(load)) if number[c] < most), key=lambda c: (load[c], c))
            load[core] += demand[name, index]
            number[core] += 1
            cores[name][index] = core
    return cores
