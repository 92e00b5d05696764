"""A plan that was made: the socket and the core of every replica, and what the model says of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from streaming_core.planner.graph import Graph
from streaming_core.planner.machine import Machine
from streaming_core.planner.model import Estimate, Places, estimate


@dataclass(frozen=True)
class Placed:
    """What a strategy gives.

    Attributes:
        graph: with its times at the machine's clock.
        sockets: per operator those of its replicas, of which the model knows; `cores`, those in their sockets.
        ingress: events per second that are offered; None: as many as can be taken.
        pinned: whether threads are bound; else the operating system decides where they run, and estimates are of where
            it is asked to begin.
        placements: how many placements were searched.
        proved: whether the search has shown that no other placement of these replicas sustains more.
    """

    strategy: str
    graph: Graph
    machine: Machine
    sockets: Places
    cores: Places
    ingress: float | None = None
    pinned: bool = True
    placements: int = 1
    proved: bool = False

    @property
    def replicas(self) -> dict[str, int]:
        """How many of each operator."""
        return {name: len(places) for name, places in self.sockets.items()}

    @cached_property
    def estimate(self) -> Estimate:
        """What the model says of it, cores included."""
        return estimate(self.graph, self.machine, self.sockets, self.ingress, self.cores)

    def as_plan(self) -> dict[str, list[int]]:
        """Per operator the threads of its replicas, as executor pinned takes them (`--plan`)."""
        return {
            name: [self.machine.thread(i, core) for i, core in zip(places, self.cores[name], strict=True)]
            for name, places in self.sockets.items()
        }


def dealt(graph: Graph, machine: Machine, sockets: Places) -> dict[str, list[int]]:
    """The core of each replica in its socket: who asks for most first, each to the core of which least is asked, of
    those that may have one more; then to the first."""
    # What replicas ask for in proportion to each other, while nothing is over-supplied.
    asked = {(r.operator, r.index): r.asked for r in estimate(graph, machine, sockets, 1.0).replicas}
    order = {name: index for index, name in enumerate(graph.by_name)}
    cores = {name: [0] * len(places) for name, places in sockets.items()}
    for socket in range(machine.sockets):
        here = [(name, index) for name, places in sockets.items() for index, s in enumerate(places) if s == socket]
        load, number = [0.0] * machine.cores[socket], [0] * machine.cores[socket]
        most = machine.replicas_per_core or len(here)
        for name, index in sorted(here, key=lambda r: (-asked[r], order[r[0]], r[1])):
            core = min((c for c in range(len(load)) if number[c] < most), key=lambda c: (load[c], c))
            load[core] += asked[name, index]
            number[core] += 1
            cores[name][index] = core
    return cores
