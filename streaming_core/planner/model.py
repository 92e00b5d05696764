"""The performance model: what a plan is estimated to do, replica by replica (BriskStream, sections 3.1 and 3.2).

This file is the formulas, to be read; searches use another evaluation of them (compressed.py), and a property test
holds one against the other. Two estimates are made of a plan:

- *throughput*, the paper's R at an ingress: who is over-supplied processes what he can, in proportion to what comes,
  and the rest is nobody's. Constraints (3) to (5) are held against these rates;
- *sustained*, what a run with back-pressure does: the source is slowed until nothing is over-supplied and no constraint
  is violated. No replica leaves rows then, so that every rate, and with it every load, is proportional to the ingress,
  and the ingress is the least of limit / load.

Past the paper, a producer pays too: who has fetched its rows has their cache lines, and it gets them back when it
writes its next rows there. The paper's machines have no figure for that, and their producers pay nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streaming_core.errors import BadInput, unknown
from streaming_core.planner.graph import Graph, Operator
from streaming_core.planner.machine import NS, Machine

Places = Mapping[str, Sequence[int]]  # per operator the socket, or the core in it, of each replica
ROUNDING = 1e-9  # by which sums of the same terms may differ


@dataclass(frozen=True)
class Load:
    """What is asked of a resource, and what it has: ns or bytes per second, or replicas.

    Attributes:
        resource: `replica`, `core`, `socket` (3), `memory` (4), `channel` (5), `room` (of a socket), `ingress`.
            Also `merge`, a merge thread, and `merge core`, a core with merge threads alone.
        where: Which one.
    """

    resource: str
    where: str
    asked: float
    limit: float

    @property
    def violated(self) -> bool:
        """Whether more is asked than there is."""
        return self.asked > self.limit * (1 + ROUNDING)

    def __str__(self) -> str:
        return f"{self.resource} {self.where}".strip()


@dataclass(frozen=True)
class Replica:
    """One replica of an operator.

    Attributes:
        rate: rows that come to be handled, per second (r_i).
        time: ns of a row handled (T); of it `fetching` (T_f), and what reading others' rows costs, and getting back
            memory that consumers have fetched.
        asked: ns per second that handling all rows would take; over-supplied if that is a second or more.
        processed: rows handled, per second (p).
        emitted: rows put out, per second, by stream.
    """

    operator: str
    index: int
    socket: int
    rate: float
    asked: float
    fetching: float
    emitted: Mapping[str, float]

    @property
    def over_supplied(self) -> bool:
        """Whether more comes than it can process: a bottleneck."""
        return self.asked >= NS * (1 - ROUNDING)

    @property
    def kept(self) -> float:
        """Share of the rows that it processes."""
        return min(1.0, NS / self.asked) if self.asked else 1.0

    @property
    def processed(self) -> float:
        return self.rate * self.kept

    @property
    def time(self) -> float:
        return self.asked / self.rate if self.rate else 0.0

    @property
    def utilisation(self) -> float:
        """Share of a core's time that it works."""
        return min(1.0, self.asked / NS)


@dataclass(frozen=True)
class Sustained:
    """What is kept up while nothing is over-supplied: events and rows of the sinks per second, and what limits them."""

    ingress: float
    throughput: float
    bottleneck: Load


@dataclass(frozen=True)
class Estimate:
    """What a plan does at an ingress.

    Attributes:
        throughput: R, rows that sinks put out, per second.
        violated: constraints that do not hold at these rates.
        fetching: ns, by socket of the producer and of the consumer: sum of T_f over pairs of replicas (figure 15).
        traffic: bytes per second, likewise.
    """

    ingress: float
    throughput: float
    replicas: tuple[Replica, ...]
    violated: tuple[Load, ...]
    fetching: tuple[tuple[float, ...], ...]
    traffic: tuple[tuple[float, ...], ...]
    sustained: Sustained

    def of(self, operator: str) -> list[Replica]:
        """The replicas of an operator."""
        return [replica for replica in self.replicas if replica.operator == operator]


def estimate(
    graph: Graph, machine: Machine, sockets: Places, ingress: float | None = None, cores: Places | None = None
) -> Estimate:
    """Both estimates of a plan.

    Args:
        sockets: per operator those of its replicas.
        ingress: events per second; None: as many as the source's replicas can take.
        cores: per operator the cores of its replicas, within their sockets; None: replicas get in no one's way there.

    Raises:
        BadInput: a plan of other operators or sockets, or with more replicas than an operator may have.
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
        fetching=tuple(map(tuple, flow.fetching)),
        traffic=tuple(map(tuple, flow.traffic)),
        sustained=_sustained(graph, machine, sockets, ingress, cores),
    )


def peak(graph: Graph, replicas: int) -> float:
    """Events per second that so many replicas of the source can take.

    Raises:
        BadInput: a source that costs nothing.
    """
    source = graph.operators[0]
    time = source.inputs[0].ns + source.others_ns
    if not time:
        raise BadInput(f"source {source.name} has zero cost; set the input rate (ingress)")
    return replicas * NS / time


def _sustained(
    graph: Graph, machine: Machine, sockets: Places, ingress: float | None, cores: Places | None
) -> Sustained:
    flow = _Flow(graph, machine, sockets, 1.0, overfed=False)
    loads = [load for load in flow.loads(cores) if load.resource != "room"]
    if ingress is not None:
        loads.append(Load("ingress", "", 1.0, ingress))
    least = min(loads, key=lambda load: load.limit / load.asked if load.asked else math.inf)
    if not least.asked:
        raise BadInput("all operators have zero cost; set the input rate (ingress)")
    rows = sum(sum(r.emitted.values()) for r in flow.replicas if graph.by_name[r.operator].kind == "sink")
    events = least.limit / least.asked
    asked = Load(least.resource, least.where, least.asked * events, least.limit)
    return Sustained(events, rows * events, asked)


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

    `overfed`: who is over-supplied leaves rows; else he takes all, however long that is.
    """

    graph: Graph
    machine: Machine
    sockets: Places
    ingress: float
    overfed: bool
    replicas: list[Replica] = field(default_factory=list)

    def __post_init__(self) -> None:
        n = self.machine.sockets
        self.fetching = [[0.0] * n for _ in range(n)]
        self.traffic = [[0.0] * n for _ in range(n)]
        self.made: dict[str, list[Replica]] = {}
        self.regaining = self._regaining()
        for operator in self.graph.operators:
            places = self.sockets[operator.name]
            shares = operator.shares(len(places))
            self.made[operator.name] = [self._replica(operator, i, places[i], shares[i]) for i in range(len(places))]
            self.replicas += self.made[operator.name]

    def _sources(self, producer: str | None, stream: str, socket: int) -> list[tuple[int, float]]:
        """Who puts out the rows of a stream, as socket and rows per second; events lie where they are read."""
        if producer is None:
            return [(socket, self.ingress)]
        return [(r.socket, r.emitted[stream]) for r in self.made[producer]]

    def _regaining(self) -> dict[tuple[str | None, str], list[float]]:
        """By producer and stream, and by the socket where a row of it is put out: ns to get back what its consumers
        have fetched. Of all that read it the one that handles it is charged for, because a line is got back once."""
        found: dict[tuple[str | None, str], list[float]] = {}
        for taker in self.graph.operators:
            places = self.sockets[taker.name]
            for place, shares in zip(places, taker.shares(len(places)), strict=True):
                for one, share in zip(taker.inputs, shares, strict=True):
                    by_socket = found.setdefault((one.producer, one.stream), [0.0] * self.machine.sockets)
                    for socket, row in enumerate(self.machine.regaining_ns):
                        by_socket[socket] += share * (one.bytes + one.read_bytes) * row[place]
        return found

    def _replica(self, operator: Operator, index: int, socket: int, shares: list[float]) -> Replica:
        machine = self.machine
        asked = fetching = rate = 0.0
        emitted = dict.fromkeys(operator.streams, 0.0)
        moved = []
        for one, share in zip(operator.inputs, shares, strict=True):
            for place, rows in self._sources(one.producer, one.stream, socket):
                fetch = machine.fetch(one.bytes, place, socket)  # (2)
                read = machine.fetch(one.read_bytes, place, socket)
                handled = rows * share
                rate += handled
                asked += handled * (one.ns + operator.others_ns + fetch) + rows * (one.read_ns + read)  # (1)
                fetching += handled * fetch + rows * read
                for stream, rows_out in one.selectivity.items():
                    emitted[stream] += handled * rows_out
                    if (operator.name, stream) in self.regaining:  # somebody takes it
                        asked += handled * rows_out * self.regaining[operator.name, stream][socket]
                if place != socket:
                    self.fetching[place][socket] += fetch + read
                    moved.append((place, handled * one.bytes + rows * one.read_bytes))
        made = Replica(operator.name, index, socket, rate, asked, fetching / rate if rate else 0.0, emitted)
        kept = made.kept if self.overfed else 1.0
        for place, size in moved:
            self.traffic[place][socket] += size * kept
        put_out = {stream: rate_out * kept for stream, rate_out in emitted.items()}
        return Replica(operator.name, index, socket, rate, asked, made.fetching, put_out)

    def _merging(self) -> list[tuple[str, float, int | None]]:
        """The merge threads: name, ns per second, and the thread of the plan whose core each shares, if any."""
        found = []
        mergers = self.graph.mergers([len(self.sockets[name]) for name in self.graph.by_name])
        for number, (index, replica) in enumerate(mergers):
            operator = self.graph.operators[index]
            asked = self.made[operator.name][replica].rate * (operator.merge_ns or 0.0)
            found.append((f"{operator.name} {replica}", asked, self.machine.merge_core(number)))
        return found

    def _merge_loads(self, merging: list[tuple[str, float, int | None]], extra: list[float]) -> list[Load]:
        """The loads of merge threads and of the cores that they have to themselves; adds the rest to sockets."""
        apart: dict[int, float] = {}
        for number, (_, asked, thread) in enumerate(merging):
            if thread is not None:
                extra[self.machine.socket_of(thread)] += asked
            else:
                core = (self.machine.threads + number) % (self.machine.threads + self.machine.spare)
                apart[core] = apart.get(core, 0.0) + asked
        found = [Load("merge", name, asked, NS) for name, asked, _ in merging]
        return found + [Load("merge core", f"{core}", asked, NS) for core, asked in sorted(apart.items())]

    def loads(self, cores: Places | None) -> list[Load]:
        """What is asked of everything that has a limit."""
        machine, n = self.machine, self.machine.sockets
        kept = {id(r): r.kept if self.overfed else 1.0 for r in self.replicas}
        found = [Load("replica", f"{r.operator} {r.index}", r.asked, NS) for r in self.replicas]
        merging, extra = self._merging(), [0.0] * n
        found += self._merge_loads(merging, extra)
        if cores is not None:
            threads: dict[int, float] = {}
            for r in self.replicas:
                thread = machine.thread(r.socket, cores[r.operator][r.index])
                threads[thread] = threads.get(thread, 0.0) + r.asked * kept[id(r)]
            for _, asked, merged in merging:
                if merged is not None:
                    threads[merged] = threads.get(merged, 0.0) + asked
            found += [Load("core", f"{thread}", asked, NS) for thread, asked in sorted(threads.items())]
        for i in range(n):
            here = [r for r in self.replicas if r.socket == i]
            if (room := machine.room(i)) is not None:
                found.append(Load("room", f"{i}", len(here), room))
            found.append(
                Load("socket", f"{i}", sum(r.asked * kept[id(r)] for r in here) + extra[i], machine.time(i))
            )  # (3)
            if (memory := machine.memory(i)) is not None:  # (4)
                moved = sum(r.rate * kept[id(r)] * (self.graph.by_name[r.operator].memory_bytes or 0.0) for r in here)
                found.append(Load("memory", f"{i}", moved, memory))
        for i in range(n):
            for j in range(n):
                if i != j and (channel := machine.channel(i, j)) is not None:  # (5)
                    found.append(Load("channel", f"{i} to {j}", self.traffic[i][j], channel))
        return found
