"""The performance model once more, for searches: evaluates many plans of one replication at a time, as matrices.

Replicas of an operator with equal shares are exchangeable, so a plan is the number of them on each socket. A *class* of
such replicas is a row of the matrix, and a socket is a column. One more column, `nowhere`, holds the replicas without a
socket. Fetching between nowhere and a socket costs nothing, as the paper's bound assumes of replicas not yet placed.

Every rate is proportional to the ingress (model.py, sustained). So the demand of a class is linear in the places of its
producers: demand = base + A (O n) L. Here n are the numbers, O the rows that a replica puts out, A the cache lines that
it fetches of each, L the latencies. It is likewise linear in the places of its consumers, because a producer regains
the memory that they have fetched. A thousand plans are therefore a few products of small matrices. Arrays of several
plans have the plans on the middle axis.

A compression ratio of r puts up to r replicas of an operator into one *unit*, which has one socket (BriskStream,
section 4, heuristic 3). Replicas of unequal shares form units in the order of their shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from streaming_core.planner.graph import Graph
from streaming_core.planner.machine import NS, Machine
from streaming_core.planner.model import ROUNDING, peak

Array: TypeAlias = np.ndarray


@dataclass(frozen=True)
class Class:
    """Exchangeable replicas of one operator, by number, in units of `size`."""

    operator: int
    shares: tuple[float, ...]
    size: int
    members: tuple[int, ...]


class Compressed:
    """A graph with a number of replicas for each operator, on a machine."""

    def __init__(
        self,
        graph: Graph,
        machine: Machine,
        replicas: tuple[int, ...],
        ingress: float | None = None,
        ratios: Sequence[int] | None = None,
    ):
        self.application, self.machine, self.replicas, self.ingress = graph, machine, replicas, ingress
        self.graph = graph = graph.replicated(replicas)
        self.classes = _classes(graph, replicas, ratios or (1,) * len(replicas))
        self.sizes = np.array([class_.size for class_ in self.classes])
        self.totals = np.array([len(class_.members) for class_ in self.classes])
        self.of_operator = [
            [a for a, class_ in enumerate(self.classes) if class_.operator == index]
            for index in range(len(graph.operators))
        ]
        n = self.sockets = machine.sockets
        self.nowhere = n
        self.room = np.array([np.inf if machine.room(i) is None else machine.room(i) for i in range(n)])
        self._unit_ns = np.zeros((n + 1, n + 1))
        self._unit_ns[:n, :n] = machine.unit_ns
        self._regaining_ns = np.zeros((n + 1, n + 1))
        self._regaining_ns[:n, :n] = machine.regaining_ns
        self._regains = bool(self._regaining_ns.any())
        self.time = np.array([machine.time(i) for i in range(n)])
        self._memory_limit = np.array([machine.memory(i) or np.inf for i in range(n)])
        self._channels = np.array([[machine.channel(i, j) or np.inf for j in range(n)] for i in range(n)])
        np.fill_diagonal(self._channels, np.inf)
        self.interchangeable = machine.interchangeable
        # Classes of producers and consumers, by pairs in topological order; and per class those of its producers.
        names = {operator.name: index for index, operator in enumerate(graph.operators)}
        self.producers: list[list[int]] = []
        for class_ in self.classes:
            taken = sorted(
                {names[i.producer] for i in graph.operators[class_.operator].inputs if i.producer is not None}
            )
            self.producers.append([a for index in taken for a in self.of_operator[index]])
        self.pairs = [(a, b) for b in range(len(self.classes)) for a in self.producers[b]]
        self._matrices()

    def _matrices(self) -> None:
        graph, units = self.graph, self.machine.units
        streams = [(operator.name, stream) for operator in graph.operators for stream in operator.streams]
        self.slot = slot = {stream: i for i, stream in enumerate(streams)}  # by operator and stream
        classes = len(self.classes)
        rates = np.zeros(len(streams))  # rows of a stream, of an event
        self.base = np.zeros(classes)  # ns of a replica, of an event
        self._units = np.zeros((classes, len(streams)))  # fetched by a replica, of a row of the stream
        self._bytes = np.zeros((classes, len(streams)))
        self._handled = np.zeros((classes, len(streams)))  # bytes of the rows that a replica handles, of a row
        self._emits = np.zeros((len(streams), classes))  # rows of a replica, of an event
        self._memory = np.zeros(classes)
        self.excess = np.ones(classes)  # the largest share of a unit to the mean one
        for index, operator in enumerate(graph.operators):
            rows = [
                1.0 if port.producer is None else rates[slot[port.producer, port.stream]] for port in operator.inputs
            ]
            for port, come in zip(operator.inputs, rows, strict=True):
                for stream, out in port.selectivity.items():
                    rates[slot[operator.name, stream]] += come * out
            shares = operator.shares(self.replicas[index])
            for a in self.of_operator[index]:
                for e, (port, come) in enumerate(zip(operator.inputs, rows, strict=True)):
                    share = self.classes[a].shares[e]
                    self.base[a] += come * (share * (port.ns + operator.others_ns) + port.read_ns)
                    self._memory[a] += come * share * (operator.memory_bytes or 0.0)
                    for stream, out in port.selectivity.items():
                        self._emits[slot[operator.name, stream], a] += come * share * out
                    if port.producer is not None:
                        taken = slot[port.producer, port.stream]
                        self._units[a, taken] += share * units(port.bytes) + units(port.read_bytes)
                        self._handled[a, taken] += share * (port.bytes + port.read_bytes)
                        self._bytes[a, taken] += share * port.bytes + port.read_bytes
                mean = sum(self.classes[a].shares)
                most = max(sum(shares[member]) for member in self.classes[a].members)
                self.excess[a] = max(1.0, most / mean) if mean else 1.0
        self._memory_of_row = np.array(
            [graph.operators[class_.operator].memory_bytes or 0.0 for class_ in self.classes]
        )
        self._merge(rates)
        self._bounded = bool(np.isfinite(self._channels).any() and self._bytes.any())
        self._remembers = bool(np.isfinite(self._memory_limit).any() and self._memory.any())

    def _merge(self, rates: Array) -> None:
        """Add up the demand of merge threads per event: on each socket, and the most on any other core."""
        graph, machine = self.graph, self.machine
        merging, self._least = np.zeros(self.sockets), 0.0
        apart: dict[int, float] = {}
        for number, (index, replica) in enumerate(graph.mergers(self.replicas)):
            operator = graph.operators[index]
            shares = operator.shares(self.replicas[index])[replica]
            rows = [
                0.0 if port.producer is None else rates[self.slot[port.producer, port.stream]]
                for port in operator.inputs
            ]
            demand = (operator.merge_ns or 0.0) * sum(r * share for r, share in zip(rows, shares, strict=True))
            self._least = max(self._least, demand)
            if (thread := machine.merge_core(number)) is not None:
                merging[machine.socket_of(thread)] += demand
            else:
                core = (machine.threads + number) % (machine.threads + machine.spare)
                apart[core] = apart.get(core, 0.0) + demand
        self.merging = merging / self.time
        self._least = max([self._least, *apart.values()]) / NS

    def nothing(self) -> Array:
        """Return the plan without any placed replica."""
        plan = np.zeros((len(self.classes), self.sockets + 1))
        plan[:, self.nowhere] = self.totals
        return plan

    def moved(self, plan: Array, unit: int, socket: int) -> Array:
        """Return the plan with one more unit of a class on a socket, from nowhere."""
        moved = plan.copy()
        moved[unit, self.nowhere] -= self.sizes[unit]
        moved[unit, socket] += self.sizes[unit]
        return moved

    def places(self, plan: Array) -> dict[str, list[int]]:
        """Return the sockets of replicas, by operator, of a plan that places all of them.

        Replicas of a class are alike to the model, but not to the runtime, which delivers the windows of an event
        replica by replica. The last replicas share the sink's socket, because they wait for their turn while the sink
        works. The first ones would keep the sink from the rows that it waits for.
        """
        sockets_of = {operator.name: [0] * k for operator, k in zip(self.graph.operators, self.replicas, strict=True)}
        sink = int(np.argmax(plan[self.of_operator[-1][0], : self.sockets]))
        order = np.array([sink, *(socket for socket in range(self.sockets) if socket != sink)])
        for a, class_ in enumerate(self.classes):
            members_sockets = np.repeat(order, plan[a, order].astype(int))
            for member, socket in zip(sorted(class_.members, reverse=True), members_sockets, strict=True):
                sockets_of[self.graph.operators[class_.operator].name][member] = int(socket)
        return sockets_of

    # --- sustained -------------------------------------------------------------------------------------------------

    def demand(self, plans: Array) -> Array:
        """Compute the demand of a replica of each class on each socket, in ns per event, with the others as planned."""
        shape = plans.shape
        rows = self._emits @ plans.reshape(shape[0], -1)
        fetched = rows.reshape(-1, shape[-1]) @ self._unit_ns
        demand = self._units @ fetched.reshape(rows.shape) + self.base[:, None]
        if self._regains:
            demand += self._emits.T @ self.regaining(plans).reshape(rows.shape)
        return demand.reshape(shape)

    def regaining(self, plans: Array) -> Array:
        """Compute the ns per row of each stream to regain the lines that consumers have fetched.

        The result is by stream, plan and the socket of the producer.
        """
        handled = self._handled.T @ plans.reshape(plans.shape[0], -1)
        return handled.reshape(-1, *plans.shape[1:]) @ self._regaining_ns.T

    def neighbours(self, here: Array, by_demand: Array, scale: float, exponent: int) -> Array:
        """Estimate to first order what one replica more of each class changes of a sum of powers of loads.

        It counts what other replicas ask for, memories and channels, by the socket of the replica.

        Args:
            here: Numbers by class and socket.
            by_demand: The derivative of the sum by what a replica of each class asks for on each socket.
            scale: The load that counts as 1.
            exponent: The exponent of the powers.
        """
        n = self.sockets
        change = self._emits.T @ ((self._units.T @ by_demand) @ self._unit_ns[:n, :n].T)
        if self._regains:
            change += self._handled @ ((self._emits @ by_demand) @ self._regaining_ns[:n, :n])
        if self._remembers:
            load = self._memory @ here / self._memory_limit / scale
            change += self._memory[:, None] * (exponent * load ** (exponent - 1) / (self._memory_limit * scale))
        if self._bounded:
            rows, taken = self._emits @ here, self._bytes.T @ here
            by = exponent * (rows.T @ taken / self._channels / scale) ** (exponent - 1) / (self._channels * scale)
            change += self._emits.T @ (taken @ by.T) + self._bytes @ (rows @ by)
        return change

    def loads(self, plans: Array, demand: Array | None = None) -> tuple[Array, Array]:
        """Compute the loads of resources, in seconds per event.

        Args:
            plans: The plans.
            demand: Their demand, if it is known.

        Returns:
            By plan and resource the loads of sockets, memory and channels; by class, plan and socket those of
            replicas, 0 where there are none. The largest of both is the inverse of the sustained ingress.
        """
        demand = self.demand(plans) if demand is None else demand
        n = self.sockets
        of_replicas = np.where(plans > 0, demand * (self.excess[:, None, None] / NS), 0.0)
        shared = [np.einsum("abi,abi->bi", plans, demand)[:, :n] / self.time + self.merging]
        if self._remembers:
            shared.append(np.tensordot(self._memory, plans, 1)[:, :n] / self._memory_limit)
        if self._bounded:
            shape = (-1, *plans.shape[1:])
            flat = plans.reshape(plans.shape[0], -1)
            rows = (self._emits @ flat).reshape(shape)[:, :, :n].transpose(1, 2, 0)
            taken = (self._bytes.T @ flat).reshape(shape)[:, :, :n].transpose(1, 0, 2)
            shared.append((rows @ taken / self._channels).reshape(plans.shape[1], -1))
        return np.concatenate(shared, axis=1), of_replicas

    def pressure(self, plans: Array) -> Array:
        """Compute the highest load of each plan, in seconds per event: the inverse of the ingress that it sustains.

        For a plan with replicas nowhere, this is the paper's relaxation: these fetch for nothing and need no room.
        """
        shared, of_replicas = self.loads(plans)
        return self._limited(np.maximum(shared.max(axis=1), of_replicas.max(axis=(0, 2))))

    def _limited(self, pressure: Array) -> Array:
        least = max(self._least, 0.0 if self.ingress is None else 1 / self.ingress)
        return np.maximum(pressure, least) if least else pressure

    def bound(self, plans: Array) -> Array:
        """Compute a lower bound of the pressure of all completions of each plan; infinite if there is none.

        Rates do not depend on places here. Placing one more replica adds to the demand of others the rows fetched over
        a distance, and lines regained. It takes nothing away. So all terms of the pressure only grow, and their values
        without the replica are a bound. A replica without a socket will be on some socket with room, and its demand
        there is at least that of now. The final demand is at least the sum of both, and has to fit in all sockets'
        time.
        """
        n = self.sockets
        demand = self.demand(plans)
        shared, of_replicas = self.loads(plans, demand)
        left = plans[:, :, self.nowhere]
        free = self.room[None, :] - plans[:, :, :n].sum(axis=0)
        possible = free[None, :, :] >= self.sizes[:, None, None]
        least = np.where(possible, demand[:, :, :n], np.inf).min(axis=2)
        least = np.where(left > 0, least, 0.0)
        waiting = (least * (self.excess[:, None] / NS)).max(axis=0)
        with np.errstate(invalid="ignore"):
            total = np.where(left > 0, left * least, 0.0).sum(axis=0) + (self.merging * self.time).sum()
        total = (total + np.einsum("abi,abi->b", plans[:, :, :n], demand[:, :, :n])) / self.time.sum()
        pressure = np.maximum(np.maximum(shared.max(axis=1), of_replicas.max(axis=(0, 2))), np.maximum(waiting, total))
        return self._limited(pressure)

    # --- throughput -------------------------------------------------------------------------------------------------

    @cached_property
    def _steps(self) -> list[_Step]:
        """What each operator does with its rows, in topological order: the constants of `overfed`."""
        steps = []
        for index, operator in enumerate(self.graph.operators):
            classes, inputs = self.of_operator[index], operator.inputs
            shares = np.array([self.classes[a].shares for a in classes])
            ns = shares * [port.ns + operator.others_ns for port in inputs] + [port.read_ns for port in inputs]
            out = [shares * [port.selectivity.get(stream, 0.0) for port in inputs] for stream in operator.streams]
            steps.append(
                _Step(
                    rows=slice(classes[0], classes[-1] + 1),
                    inputs=[self.slot[port.producer, port.stream] for port in inputs if port.producer is not None],
                    outputs=slice(first := self.slot[operator.name, operator.streams[0]], first + len(out)),
                    per_row=np.stack([ns, shares, *out]),
                    units=self._units[classes],
                    excess=self.excess[classes][:, None, None],
                    is_sink=operator.kind == "sink",
                )
            )
        return steps

    def overfed(self, plans: Array) -> Overfed:
        """Estimate rates at the ingress; over-supplied replicas leave rows, and replicas nowhere fetch for nothing."""
        n, several, slots = self.sockets, plans.shape[1], len(self.slot)
        offered = peak(self.graph, self.replicas[0]) if self.ingress is None else self.ingress
        regaining = self.regaining(plans) if self._regains else None
        rows = np.empty((slots, several, n + 1))  # of each stream, by plan and socket of the producer
        fetched = np.zeros_like(rows)  # ns to fetch a unit of each of these rows, by socket of the consumer
        come = np.empty((slots, several))
        demand, kept, handled = np.empty(plans.shape), np.empty(plans.shape), np.empty((len(plans), several, 1))
        throughput = np.zeros(several)
        for step in self._steps:
            totals = come[step.inputs] if step.inputs else np.full((1, several), offered)
            ns, rates, *out = step.per_row @ totals
            need, keeps = demand[step.rows], kept[step.rows]
            np.matmul(step.units, fetched.reshape(slots, -1), out=need.reshape(len(need), -1))
            need += ns[:, :, None]
            if regaining is not None:
                for emitted, by_socket in zip(out, regaining[step.outputs], strict=True):
                    need += emitted[:, :, None] * by_socket
            need *= step.excess
            np.divide(NS, np.maximum(need, NS, out=keeps), out=keeps)
            handled[step.rows, :, 0] = rates
            working = keeps * plans[step.rows]
            put_out = rows[step.outputs]
            for slot, emitted in enumerate(out):
                np.einsum("abi,ab->bi", working, emitted, out=put_out[slot])
            come[step.outputs] = put_out.sum(axis=2)
            if step.is_sink:
                throughput += come[step.outputs].sum(axis=0)
            else:
                np.matmul(put_out, self._unit_ns, out=fetched[step.outputs])
        working = kept * plans
        valid = (np.einsum("abi,abi->bi", working, demand)[:, :n] <= self.time * (1 + ROUNDING)).all(axis=1)
        if self._remembers:
            memory = np.einsum("a,abi->bi", self._memory_of_row, working * handled)[:, :n]
            valid &= (memory <= self._memory_limit * (1 + ROUNDING)).all(axis=1)
        if self._bounded:
            taken = (self._bytes.T @ working.reshape(len(working), -1)).reshape(rows.shape)
            traffic = rows[:, :, :n].transpose(1, 2, 0) @ taken[:, :, :n].transpose(1, 0, 2)
            valid &= (traffic <= self._channels * (1 + ROUNDING)).all(axis=(1, 2))
        return Overfed(throughput, handled * kept, demand, valid)

    def over_supplied(self, plan: Array) -> list[float]:
        """Return r_i / r_o by operator: rows that come divided by rows that replicas process; 0 if all keep up."""
        overfed, times = self.overfed(plan[:, None, :]), []
        for step in self._steps:
            demand, processed = overfed.demand[step.rows, 0], overfed.processed[step.rows, 0] * plan[step.rows]
            is_over = bool(((plan[step.rows] > 0) & (demand >= NS * (1 - ROUNDING))).any())
            come = float((processed * np.maximum(1.0, demand / NS)).sum())
            times.append(come / float(processed.sum()) if is_over and come else float(is_over))
        return times


@dataclass(frozen=True)
class _Step:
    """The constants of an operator.

    Attributes:
        rows: Its classes.
        inputs: The slots of the streams that it takes.
        outputs: The slots of its streams.
        per_row: By class and input: ns, the share of a replica, and rows of each output stream.
        units: By class and slot: fetched by a replica, of a row of the stream.
        excess: By class: the largest share of a unit to the mean one.
        is_sink: Whether its rows count for R.
    """

    rows: slice
    inputs: list[int]
    outputs: slice
    per_row: Array
    units: Array
    excess: Array
    is_sink: bool


@dataclass(frozen=True)
class Overfed:
    """The paper's estimate of several plans, whole or not.

    Attributes:
        throughput: R of each.
        processed: Rows that a replica handles, per second, by class, plan and socket.
        demand: ns per second that a replica needs for all rows that come, likewise.
        valid: Whether constraints (3) to (5) hold of each; replicas nowhere need nothing.
    """

    throughput: Array
    processed: Array
    demand: Array
    valid: Array


def _classes(graph: Graph, replicas: tuple[int, ...], ratios: Sequence[int]) -> list[Class]:
    """Divide the replicas of each operator into the fewest units of at most so many replicas, of about equal size."""
    classes = []
    for index, (operator, number, ratio) in enumerate(zip(graph.operators, replicas, ratios, strict=True)):
        shares = [tuple(round(share, 15) for share in weights) for weights in operator.shares(number)]
        ordered = sorted(range(number), key=lambda member: (shares[member], member), reverse=True)
        several = -(-number // ratio)
        units: dict[tuple[tuple[float, ...], int], list[int]] = {}
        for at in range(several):
            unit = ordered[at * number // several : (at + 1) * number // several]
            mean = tuple(round(sum(column) / len(unit), 15) for column in zip(*(shares[m] for m in unit), strict=True))
            units.setdefault((mean, len(unit)), []).extend(unit)
        classes += [Class(index, mean, size, tuple(members)) for (mean, size), members in units.items()]
    return classes
