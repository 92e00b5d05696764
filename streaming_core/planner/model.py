"""The performance model: estimates what a plan does, replica by replica (BriskStream, sections 3.1 and 3.2).

Read this file for the formulas. Searches evaluate them in another way (compressed.py), and a property test compares
both. There are two estimates of a plan:

- *throughput*, the paper's R at an ingress. An over-supplied replica processes what it can, in proportion to its
  inputs, and leaves the rest. Constraints (3) to (5) hold or fail at these rates.
- *sustained*, the rates of a run with back-pressure: the source slows down until no replica is over-supplied and all
  constraints hold. No replica leaves rows then. Every rate, and with it every load, is proportional to the ingress, and
  the ingress is the least of limit / load.

The model goes beyond the paper in one point. Consumers fetch the cache lines of a producer's rows, and the producer
pays to regain them when it writes its next rows there. The paper's machines have no figure for that, and their
producers pay nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streaming_core.errors import BadInput, unknown
from streaming_core.planner.graph import Graph, Operator
from streaming_core.planner.machine import NS, Machine

Places = Mapping[str, Sequence[int]]  # the socket, or the core in it, of each replica, by operator
ROUNDING = 1e-9  # by which sums of the same terms may differ


@dataclass(frozen=True)
class Load:
    """The demand on a resource and its limit: ns or bytes per second, or replicas.

    Attributes:
        resource: `replica`, `core`, `socket` (3), `memory` (4), `channel` (5), `room` (of a socket), `ingress`.
            Also `merge`, a merge thread, and `merge core`, a core with merge threads alone.
    """

    resource: str
    where: str
    demand: float
    limit: float

    @property
    def violated(self) -> bool:
        """Whether the demand exceeds the limit."""
        return self.demand > self.limit * (1 + ROUNDING)

    def __str__(self) -> str:
        return f"{self.resource} {self.where}".strip()


@dataclass(frozen=True)
class Replica:
    """One replica of an operator.

    Attributes:
        operator: Its operator.
        index: Its number in the operator.
        socket: Its socket.
        rate: Rows per second that it should handle (r_i).
        demand: ns per second to handle all of them; the replica is over-supplied if that is a second or more.
        emitted: Rows per second that it puts out, by stream.
    """

    operator: str
    index: int
    socket: int
    rate: float
    demand: float
    emitted: Mapping[str, float]

    @property
    def over_supplied(self) -> bool:
        """Whether more rows come than it can process: a bottleneck."""
        return self.demand >= NS * (1 - ROUNDING)

    @property
    def kept(self) -> float:
        """The share of the rows that it processes."""
        return min(1.0, NS / self.demand) if self.demand else 1.0

    @property
    def time(self) -> float:
        """Time per handled row in ns (T): with fetching, reading the rows of others, and regaining lines."""
        return self.demand / self.rate if self.rate else 0.0

    @property
    def utilisation(self) -> float:
        """The share of a core's time that it works."""
        return min(1.0, self.demand / NS)


@dataclass(frozen=True)
class Sustained:
    """The rates without over-supply: events and rows of the sinks per second, and the load that limits them."""

    ingress: float
    throughput: float
    bottleneck: Load


@dataclass(frozen=True)
class Estimate:
    """The estimate of a plan at an ingress.

    Attributes:
        ingress: Events per second.
        throughput: R, the rows that sinks put out per second.
        replicas: All replicas, in topological order.
        violated: Constraints that do not hold at these rates.
    """

    ingress: float
    throughput: float
    replicas: tuple[Replica, ...]
    violated: tuple[Load, ...]
    sustained: Sustained

    def of(self, operator: str) -> list[Replica]:
        """Return the replicas of an operator."""
        return [replica for replica in self.replicas if replica.operator == operator]


def estimate(
    graph: Graph, machine: Machine, sockets: Places, ingress: float | None = None, cores: Places | None = None
) -> Estimate:
    """Make both estimates of a plan.

    Args:
        graph: The application.
        machine: The machine.
        sockets: The sockets of replicas, by operator.
        ingress: Events per second; None: as many as the source's replicas can take.
        cores: The cores of replicas within their sockets, by operator; None: replicas of a socket share its time.

    Raises:
        BadInput: A plan of other operators or sockets, or with more replicas than an operator may have.
    """
    _check(graph, machine, sockets)
    graph = graph.replicated([len(sockets[name]) for name in graph.by_name])
    offered = peak(graph, len(sockets[graph.operators[0].name])) if ingress is None else ingress
    flow = _Flow(graph, machine, sockets, offered, overfed=True)
    throughput = sum(sum(r.emitted.values()) for r in flow.replicas if graph.by_name[r.operator].kind == "sink")
    loads = [load for load in flow.loads(cores) if load.resource != "replica"]
    return Estimate(
        ingress=offered,
        throughput=throughput,
        replicas=tuple(flow.replicas),
        violated=tuple(load for load in loads if load.violated),
        sustained=_sustained(graph, machine, sockets, ingress, cores),
    )


def peak(graph: Graph, replicas: int) -> float:
    """Return the events per second that so many replicas of the source can take.

    Raises:
        BadInput: A source that costs nothing.
    """
    source = graph.operators[0]
    time = source.inputs[0].ns + source.others_ns
    if not time:
        raise BadInput(f"source {source.name} has zero cost; measure it over more events")
    return replicas * NS / time


def _sustained(
    graph: Graph, machine: Machine, sockets: Places, ingress: float | None, cores: Places | None
) -> Sustained:
    flow = _Flow(graph, machine, sockets, 1.0, overfed=False)
    loads = [load for load in flow.loads(cores) if load.resource != "room"]
    if ingress is not None:
        loads.append(Load("ingress", "", 1.0, ingress))
    least = min(loads, key=lambda load: load.limit / load.demand if load.demand else math.inf)
    if not least.demand:
        raise BadInput("all operators have zero cost; set the input rate (ingress)")
    rows = sum(sum(r.emitted.values()) for r in flow.replicas if graph.by_name[r.operator].kind == "sink")
    events = least.limit / least.demand
    load = Load(least.resource, least.where, least.demand * events, least.limit)
    return Sustained(events, rows * events, load)


def _check(graph: Graph, machine: Machine, sockets: Places) -> None:
    for name in sockets:
        if name not in graph.by_name:
            raise BadInput(f"plan: {unknown('operator', name, graph.by_name)}")
    for name, operator in graph.by_name.items():
        places = sockets.get(name, ())
        if not 1 <= len(places) <= operator.replicas:
            raise BadInput(f"plan: {name} must have 1 to {operator.replicas} replicas, got {len(places)}")
        if not all(0 <= socket < machine.sockets for socket in places):
            wrong = next(socket for socket in places if not 0 <= socket < machine.sockets)
            raise BadInput(f"plan: the sockets of {name} must be between 0 and {machine.sockets - 1}, got {wrong}")


@dataclass
class _Flow:
    """Rates of all replicas, in topological order.

    If `overfed`, an over-supplied replica leaves rows; else it takes all, however long that is.
    """

    graph: Graph
    machine: Machine
    sockets: Places
    ingress: float
    overfed: bool
    replicas: list[Replica] = field(default_factory=list)

    def __post_init__(self) -> None:
        n = self.machine.sockets
        self.traffic = [[0.0] * n for _ in range(n)]
        self.by_operator: dict[str, list[Replica]] = {}
        self.regaining = self._regaining()
        for operator in self.graph.operators:
            places = self.sockets[operator.name]
            shares = operator.shares(len(places))
            self.by_operator[operator.name] = [
                self._replica(operator, i, places[i], shares[i]) for i in range(len(places))
            ]
            self.replicas += self.by_operator[operator.name]

    def _sources(self, producer: str | None, stream: str, socket: int) -> list[tuple[int, float]]:
        """Return the producers of a stream, as socket and rows per second; events lie on the socket of their reader."""
        if producer is None:
            return [(socket, self.ingress)]
        return [(r.socket, r.emitted[stream]) for r in self.by_operator[producer]]

    def _regaining(self) -> dict[tuple[str | None, str], list[float]]:
        """Compute the ns to regain a row from its consumers, by producer and stream, and by the producer's socket.

        Only the replica that handles a row counts, not those that read it: a producer regains a line once.
        """
        regaining: dict[tuple[str | None, str], list[float]] = {}
        for taker in self.graph.operators:
            places = self.sockets[taker.name]
            for place, shares in zip(places, taker.shares(len(places)), strict=True):
                for port, share in zip(taker.inputs, shares, strict=True):
                    by_socket = regaining.setdefault((port.producer, port.stream), [0.0] * self.machine.sockets)
                    for socket, row in enumerate(self.machine.regaining_ns):
                        by_socket[socket] += share * (port.bytes + port.read_bytes) * row[place]
        return regaining

    def _replica(self, operator: Operator, index: int, socket: int, shares: list[float]) -> Replica:
        machine = self.machine
        demand = rate = 0.0
        emitted = dict.fromkeys(operator.streams, 0.0)
        moved = []
        for port, share in zip(operator.inputs, shares, strict=True):
            for place, rows in self._sources(port.producer, port.stream, socket):
                fetch = machine.fetch(port.bytes, place, socket)  # (2)
                read = machine.fetch(port.read_bytes, place, socket)
                handled = rows * share
                rate += handled
                demand += handled * (port.ns + operator.others_ns + fetch) + rows * (port.read_ns + read)  # (1)
                for stream, rows_out in port.selectivity.items():
                    emitted[stream] += handled * rows_out
                    if (operator.name, stream) in self.regaining:  # an operator consumes it
                        demand += handled * rows_out * self.regaining[operator.name, stream][socket]
                if place != socket:
                    moved.append((place, handled * port.bytes + rows * port.read_bytes))
        replica = Replica(operator.name, index, socket, rate, demand, emitted)
        kept = replica.kept if self.overfed else 1.0
        for place, size in moved:
            self.traffic[place][socket] += size * kept
        put_out = {stream: rate_out * kept for stream, rate_out in emitted.items()}
        return Replica(operator.name, index, socket, rate, demand, put_out)

    def _merging(self) -> list[tuple[str, float, int | None]]:
        """Return the merge threads: name, ns per second, and the thread of the plan on the same core, if any."""
        merging = []
        mergers = self.graph.mergers([len(self.sockets[name]) for name in self.graph.by_name])
        for number, (index, replica) in enumerate(mergers):
            operator = self.graph.operators[index]
            demand = self.by_operator[operator.name][replica].rate * (operator.merge_ns or 0.0)
            merging.append((f"{operator.name} {replica}", demand, self.machine.merge_core(number)))
        return merging

    def _merge_loads(self, merging: list[tuple[str, float, int | None]], extra: list[float]) -> list[Load]:
        """Return the loads of merge threads, and of cores with merge threads alone; add the others to sockets."""
        apart: dict[int, float] = {}
        for number, (_, demand, thread) in enumerate(merging):
            if thread is not None:
                extra[self.machine.socket_of(thread)] += demand
            else:
                core = (self.machine.threads + number) % (self.machine.threads + self.machine.spare)
                apart[core] = apart.get(core, 0.0) + demand
        loads = [Load("merge", name, demand, NS) for name, demand, _ in merging]
        return loads + [Load("merge core", f"{core}", demand, NS) for core, demand in sorted(apart.items())]

    def loads(self, cores: Places | None) -> list[Load]:
        """Return the load of every resource with a limit."""
        machine, n = self.machine, self.machine.sockets
        kept = {id(r): r.kept if self.overfed else 1.0 for r in self.replicas}
        loads = [Load("replica", f"{r.operator} {r.index}", r.demand, NS) for r in self.replicas]
        merging, extra = self._merging(), [0.0] * n
        loads += self._merge_loads(merging, extra)
        if cores is not None:
            threads: dict[int, float] = {}
            for r in self.replicas:
                thread = machine.thread(r.socket, cores[r.operator][r.index])
                threads[thread] = threads.get(thread, 0.0) + r.demand * kept[id(r)]
            for _, demand, merged in merging:
                if merged is not None:
                    threads[merged] = threads.get(merged, 0.0) + demand
            loads += [Load("core", f"{thread}", demand, NS) for thread, demand in sorted(threads.items())]
        for i in range(n):
            here = [r for r in self.replicas if r.socket == i]
            if (room := machine.room(i)) is not None:
                loads.append(Load("room", f"{i}", len(here), room))
            loads.append(
                Load("socket", f"{i}", sum(r.demand * kept[id(r)] for r in here) + extra[i], machine.time(i))
            )  # (3)
            if (memory := machine.memory(i)) is not None:  # (4)
                moved = sum(r.rate * kept[id(r)] * (self.graph.by_name[r.operator].memory_bytes or 0.0) for r in here)
                loads.append(Load("memory", f"{i}", moved, memory))
        for i in range(n):
            for j in range(n):
                if i != j and (channel := machine.channel(i, j)) is not None:  # (5)
                    loads.append(Load("channel", f"{i} to {j}", self.traffic[i][j], channel))
        return loads
