"""The performance model once more, for searches: all plans with a replication at a time, as numbers of replicas by
socket.

Replicas of an operator that have equal shares are exchangeable, so that how many of them a socket has says all: a
*class* of them is a row of a matrix, a socket a column, and one more column, `nowhere`, has those that are not placed.
Nothing lies between nowhere and a socket: who is there fetches for nothing, and is fetched from for nothing, which is
what the paper's bound assumes of replicas not yet placed.

With every rate proportional to the ingress (model.py, sustained), what a class asks for is linear in where its
producers are: asked = base + A (O n) L, where n are the numbers, O the rows that a replica puts out, A the cache lines
that one fetches of each, L the latencies; and likewise in where its consumers are, from whom it gets back the memory
that they have fetched. So a thousand plans are a few products of small matrices. Arrays of several plans have them on
the middle axis.

A compression ratio of r puts r replicas of an operator into one *unit*, which is placed as a whole (BriskStream,
section 4, heuristic 3). Replicas of unequal shares are put together in the order of their shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from streaming_core.planner.graph import Graph
from streaming_core.planner.machine import NS, Machine
from streaming_core.planner.model import ROUNDING, peak

Array: TypeAlias = np.ndarray


@dataclass(frozen=True)
class Class:
    """Replicas of one operator that are exchangeable: their numbers, in units of `size`."""

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
        ratio: int = 1,
    ):
        self.application, self.machine, self.replicas, self.ingress = graph, machine, replicas, ingress
        self.graph = graph = graph.replicated(replicas)
        self.classes = _classes(graph, replicas, ratio)
        self.sizes = np.array([one.size for one in self.classes])
        self.totals = np.array([len(one.members) for one in self.classes])
        self.of_operator = [
            [a for a, one in enumerate(self.classes) if one.operator == index] for index in range(len(graph.operators))
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
        self.twins = machine.twins
        # Classes of producers and consumers, by pairs in topological order; and per class those of its producers.
        names = {operator.name: index for index, operator in enumerate(graph.operators)}
        self.producers: list[list[int]] = []
        for one in self.classes:
            taken = sorted({names[i.producer] for i in graph.operators[one.operator].inputs if i.producer is not None})
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
            rows = [1.0 if one.producer is None else rates[slot[one.producer, one.stream]] for one in operator.inputs]
            for one, come in zip(operator.inputs, rows, strict=True):
                for stream, out in one.selectivity.items():
                    rates[slot[operator.name, stream]] += come * out
            shares = operator.shares(self.replicas[index])
            for a in self.of_operator[index]:
                for e, (one, come) in enumerate(zip(operator.inputs, rows, strict=True)):
                    share = self.classes[a].shares[e]
                    self.base[a] += come * (share * (one.ns + operator.others_ns) + one.read_ns)
                    self._memory[a] += come * share * (operator.memory_bytes or 0.0)
                    for stream, out in one.selectivity.items():
                        self._emits[slot[operator.name, stream], a] += come * share * out
                    if one.producer is not None:
                        taken = slot[one.producer, one.stream]
                        self._units[a, taken] += share * units(one.bytes) + units(one.read_bytes)
                        self._handled[a, taken] += share * (one.bytes + one.read_bytes)
                        self._bytes[a, taken] += share * one.bytes + one.read_bytes
                mean = sum(self.classes[a].shares)
                most = max(sum(shares[member]) for member in self.classes[a].members)
                self.excess[a] = max(1.0, most / mean) if mean else 1.0
        self._merge(rates)
        self._bounded = bool(np.isfinite(self._channels).any() and self._bytes.any())
        self._remembers = bool(np.isfinite(self._memory_limit).any() and self._memory.any())

    def _merge(self, rates: Array) -> None:
        """Add up what merge threads ask for, of an event: on sockets, and at most on any other core."""
        graph, machine = self.graph, self.machine
        merging, self._least = np.zeros(self.sockets), 0.0
        apart: dict[int, float] = {}
        for number, (index, replica) in enumerate(graph.mergers(self.replicas)):
            operator = graph.operators[index]
            shares = operator.shares(self.replicas[index])[replica]
            rows = [
                0.0 if one.producer is None else rates[self.slot[one.producer, one.stream]] for one in operator.inputs
            ]
            asked = (operator.merge_ns or 0.0) * sum(r * share for r, share in zip(rows, shares, strict=True))
            self._least = max(self._least, asked)
            if (thread := machine.merge_core(number)) is not None:
                merging[machine.socket_of(thread)] += asked
            else:
                core = (machine.threads + number) % (machine.threads + machine.spare)
                apart[core] = apart.get(core, 0.0) + asked
        self.merging = merging / self.time
        self._least = max([self._least, *apart.values()]) / NS

    def nothing(self) -> Array:
        """The plan in which nobody is placed."""
        plan = np.zeros((len(self.classes), self.sockets + 1))
        plan[:, self.nowhere] = self.totals
        return plan

    def moved(self, plan: Array, unit: int, socket: int) -> Array:
        """The plan with a unit of a class more on a socket, from nowhere."""
        found = plan.copy()
        found[unit, self.nowhere] -= self.sizes[unit]
        found[unit, socket] += self.sizes[unit]
        return found

    def places(self, plan: Array) -> dict[str, list[int]]:
        """A whole plan as sockets of replicas. Those of a class are alike to the model, and not to the order: what an
        event's windows put out is delivered replica by replica. The last ones are with the sink, which has its thread
        while they wait for their turn; the first ones would keep it from what it waits for.
        """
        found = {operator.name: [0] * k for operator, k in zip(self.graph.operators, self.replicas, strict=True)}
        sink = int(np.argmax(plan[self.of_operator[-1][0], : self.sockets]))
        order = np.array([sink, *(socket for socket in range(self.sockets) if socket != sink)])
        for a, one in enumerate(self.classes):
            sockets = np.repeat(order, plan[a, order].astype(int))
            for member, socket in zip(sorted(one.members, reverse=True), sockets, strict=True):
                found[self.graph.operators[one.operator].name][member] = int(socket)
        return found

    # --- sustained -------------------------------------------------------------------------------------------------

    def asked(self, plans: Array) -> Array:
        """ns per event that a replica of each class asks for on each socket, where the others are as planned."""
        shape = plans.shape
        rows = self._emits @ plans.reshape(shape[0], -1)
        fetched = rows.reshape(-1, shape[-1]) @ self._unit_ns
        asked = self._units @ fetched.reshape(rows.shape) + self.base[:, None]
        if self._regains:
            asked += self._emits.T @ self.regaining(plans).reshape(rows.shape)
        return asked.reshape(shape)

    def regaining(self, plans: Array) -> Array:
        """ns of a row of each stream, by plan and by the socket where it was put out, to get back what its consumers
        have fetched."""
        handled = self._handled.T @ plans.reshape(plans.shape[0], -1)
        return handled.reshape(-1, *plans.shape[1:]) @ self._regaining_ns.T

    def neighbours(self, here: Array, of_asked: Array, scale: float, exponent: int) -> Array:
        """Estimate to first order what one replica more of each class changes of a sum of powers of loads.

        It counts what other replicas ask for, memories and channels, by the socket of the replica.

        Args:
            here: Numbers by class and socket.
            of_asked: The derivative of the sum by what a replica of each class asks for on each socket.
            scale: The load that counts as 1.
            exponent: The exponent of the powers.
        """
        n = self.sockets
        found = self._emits.T @ ((self._units.T @ of_asked) @ self._unit_ns[:n, :n].T)
        if self._regains:
            found += self._handled @ ((self._emits @ of_asked) @ self._regaining_ns[:n, :n])
        if self._remembers:
            load = self._memory @ here / self._memory_limit / scale
            found += self._memory[:, None] * (exponent * load ** (exponent - 1) / (self._memory_limit * scale))
        if self._bounded:
            rows, taken = self._emits @ here, self._bytes.T @ here
            by = exponent * (rows.T @ taken / self._channels / scale) ** (exponent - 1) / (self._channels * scale)
            found += self._emits.T @ (taken @ by.T) + self._bytes @ (rows @ by)
        return found

    def loads(self, plans: Array, asked: Array | None = None) -> tuple[Array, Array]:
        """Per plan the seconds, of an event, of the resources beside replicas (sockets, memory, channels), and of
        replicas (class, plan, socket), 0 where there are none. The largest of both is the inverse of the ingress
        sustained."""
        asked = self.asked(plans) if asked is None else asked
        n = self.sockets
        of_replicas = np.where(plans > 0, asked * (self.excess[:, None, None] / NS), 0.0)
        found = [np.einsum("abi,abi->bi", plans, asked)[:, :n] / self.time + self.merging]
        if self._remembers:
            found.append(np.tensordot(self._memory, plans, 1)[:, :n] / self._memory_limit)
        if self._bounded:
            shape = (-1, *plans.shape[1:])
            flat = plans.reshape(plans.shape[0], -1)
            rows = (self._emits @ flat).reshape(shape)[:, :, :n].transpose(1, 2, 0)
            taken = (self._bytes.T @ flat).reshape(shape)[:, :, :n].transpose(1, 0, 2)
            found.append((rows @ taken / self._channels).reshape(plans.shape[1], -1))
        return np.concatenate(found, axis=1), of_replicas

    def pressure(self, plans: Array) -> Array:
        """Seconds of an event where they are most: the inverse of the ingress that each plan sustains. Of those whose
        replicas are not all placed it is the paper's relaxation: they fetch for nothing and need no room."""
        shared, of_replicas = self.loads(plans)
        return self._limited(np.maximum(shared.max(axis=1), of_replicas.max(axis=(0, 2))))

    def _limited(self, pressure: Array) -> Array:
        least = max(self._least, 0.0 if self.ingress is None else 1 / self.ingress)
        return np.maximum(pressure, least) if least else pressure

    def bound(self, plans: Array) -> Array:
        """At least as little pressure as any completion of each plan has; infinite if there is none.

        Rates do not depend on places here. So placing one more replica takes nothing from what another asks for, and
        adds to it what is fetched over a distance, and got back: all terms of the pressure only grow, and what they are
        without it is a bound. Who is not placed will be on some socket with room, where he asks at least for what he
        would ask there now; and all that is asked in the end is at least what is asked now, with that, and has to fit
        in all sockets' time.
        """
        n = self.sockets
        asked = self.asked(plans)
        shared, of_replicas = self.loads(plans, asked)
        left = plans[:, :, self.nowhere]
        free = self.room[None, :] - plans[:, :, :n].sum(axis=0)
        possible = free[None, :, :] >= self.sizes[:, None, None]
        least = np.where(possible, asked[:, :, :n], np.inf).min(axis=2)
        least = np.where(left > 0, least, 0.0)
        waiting = (least * (self.excess[:, None] / NS)).max(axis=0)
        with np.errstate(invalid="ignore"):
            total = np.where(left > 0, left * least, 0.0).sum(axis=0) + (self.merging * self.time).sum()
        total = (total + np.einsum("abi,abi->b", plans[:, :, :n], asked[:, :, :n])) / self.time.sum()
        found = np.maximum(np.maximum(shared.max(axis=1), of_replicas.max(axis=(0, 2))), np.maximum(waiting, total))
        return self._limited(found)

    # --- throughput -------------------------------------------------------------------------------------------------

    def overfed(self, plans: Array) -> Overfed:
        """Rates at the ingress, who is over-supplied leaving rows; replicas nowhere fetch for nothing."""
        return Overfed(self, plans)


class Overfed:
    """The paper's estimate of several plans, whole or not.

    Attributes:
        throughput: R of each.
        processed: rows that a replica handles, per second, by class, plan and socket.
        over_supplied: by operator and plan, how many times what its replicas can process comes to them; 0 if none is
            over-supplied.
        valid: whether constraints (3) to (5) hold of each; what is nowhere needs nothing.
    """

    def __init__(self, of: Compressed, plans: Array):
        graph, n = of.graph, of.sockets
        offered = peak(graph, of.replicas[0]) if of.ingress is None else of.ingress
        several = plans.shape[1]
        self.processed = np.zeros(plans.shape)
        self.over_supplied = np.zeros((len(graph.operators), several))
        self.throughput = np.zeros(several)
        emitted: dict[tuple[str, str], Array] = {}
        regaining = of.regaining(plans) if of._regains else None
        time, memory, traffic = np.zeros((several, n)), np.zeros((several, n)), np.zeros((several, n, n))
        for index, operator in enumerate(graph.operators):
            # Per input: rows by socket and in all, and what fetching a line of each costs.
            taken: list[tuple[Array | None, Array, Array | None]] = []
            for one in operator.inputs:
                if one.producer is None:
                    taken.append((None, np.full(several, offered), None))
                else:
                    put_out = emitted[one.producer, one.stream]
                    taken.append((put_out, put_out.sum(axis=1), put_out @ of._unit_ns))
            out = {stream: np.zeros((several, n + 1)) for stream in operator.streams}
            come, kept_rows, over = np.zeros(several), np.zeros(several), np.zeros(several, dtype=bool)
            for a in of.of_operator[index]:
                number = plans[a]
                asked, rate = np.zeros((several, n + 1)), np.zeros(several)
                rows_out = {stream: np.zeros(several) for stream in operator.streams}
                moved = np.zeros((several, n + 1))
                for one, share, (rows, total, fetched) in zip(
                    operator.inputs, of.classes[a].shares, taken, strict=True
                ):
                    handled = total * share
                    rate += handled
                    asked += (handled * (one.ns + operator.others_ns) + total * one.read_ns)[:, None]
                    for stream, selectivity in one.selectivity.items():
                        rows_out[stream] += handled * selectivity
                        if regaining is not None:
                            asked += (handled * selectivity)[:, None] * regaining[of.slot[operator.name, stream]]
                    if rows is not None and fetched is not None:
                        asked += fetched * (share * of.machine.units(one.bytes) + of.machine.units(one.read_bytes))
                        moved += rows * (share * one.bytes + one.read_bytes)
                asked *= of.excess[a]
                kept = np.divide(NS, asked, out=np.ones_like(asked), where=asked > NS)
                self.processed[a] = rate[:, None] * kept
                kept_number = number * kept
                for stream, by_plan in rows_out.items():
                    out[stream] += kept_number * by_plan[:, None]
                time += (kept_number * asked)[:, :n]
                memory += kept_number[:, :n] * rate[:, None] * (operator.memory_bytes or 0.0)
                if of._bounded:
                    traffic += moved[:, :n, None] * kept_number[:, None, :n]
                come += rate * number.sum(axis=1)
                kept_rows += rate * kept_number.sum(axis=1)
                over |= ((number > 0) & (asked >= NS * (1 - ROUNDING))).any(axis=1)
            times = np.divide(come, kept_rows, out=np.ones(several), where=kept_rows > 0)
            self.over_supplied[index] = np.where(over, times, 0.0)
            for stream, by_socket in out.items():
                emitted[operator.name, stream] = by_socket
            if operator.kind == "sink":
                self.throughput += sum(by_socket.sum(axis=1) for by_socket in out.values())
        self.valid = (
            (time <= of.time * (1 + ROUNDING)).all(axis=1)
            & (memory <= of._memory_limit * (1 + ROUNDING)).all(axis=1)
            & (traffic <= of._channels * (1 + ROUNDING)).all(axis=(1, 2))
        )


def _classes(graph: Graph, replicas: tuple[int, ...], ratio: int) -> list[Class]:
    found = []
    for index, (operator, number) in enumerate(zip(graph.operators, replicas, strict=True)):
        shares = [tuple(round(share, 15) for share in one) for one in operator.shares(number)]
        ordered = sorted(range(number), key=lambda member: (shares[member], member), reverse=True)
        units: dict[tuple[tuple[float, ...], int], list[int]] = {}
        for start in range(0, number, ratio):
            unit = ordered[start : start + ratio]
            mean = tuple(round(sum(column) / len(unit), 15) for column in zip(*(shares[m] for m in unit), strict=True))
            units.setdefault((mean, len(unit)), []).extend(unit)
        found += [Class(index, mean, size, tuple(members)) for (mean, size), members in units.items()]
    return found
