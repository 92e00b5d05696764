"""Placement: branch and bound over the sockets of replicas (BriskStream, section 4 and appendix C, algorithm 2).

A node is a plan with some units placed. The search takes nodes from a stack, deepest and most promising first. It
prunes a node whose bound is no better than the best plan, and keeps a complete plan that is better. The heuristics
decide the children of a node:

- *collocation* (heuristic 1): decisions are about pairs of a producer and a consumer with at least one of them
  unplaced. If both are, and all their other producers are placed, one child has both on one socket. If no socket has
  room for both, it has them on two. Otherwise there is a child for each way of placing one of the two. Without
  collocation, decisions are about single units.
- *best fit* (heuristic 2): if all producers of a unit are placed, only its best socket remains. That is the one where
  the unit puts out most; then the one with least room left. Without best fit all sockets remain, and the order of
  decisions does not matter. Every completion of a node lies behind one of its children, so the search is complete.
- *compression* (heuristic 3) is in the problem (compressed.py).

The search never repeats equal nodes. A plan is the number of replicas of each class on each socket. Of empty sockets
that differ only in their number it takes the first.

The *objective* ranks plans: `sustained`, or `throughput`, the paper's R. For R, a plan is valid only if constraints (3)
to (5) hold at its rates. There are two bounds. With `paper`, all unplaced replicas fetch for nothing. `sound` is a true
bound. Both are equal for `sustained`, where the paper's relaxation is sound (compressed.py, `bound`).

For R it is not sound. An operator that two streams over-supply divides its time between them as rows come. If the
producers of one stream are nearer, more of its rows come in and take time from the other. If the other has the greater
selectivity, the operator puts out less. With `sound`, every replica chooses its rows (`most`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from streaming_core.errors import BadInput
from streaming_core.planner.compressed import Array, Compressed
from streaming_core.planner.machine import NS
from streaming_core.planner.model import ROUNDING, peak

LARGEST = 300_000  # plans that an exhaustive search examines
_WORST = -1.0  # the value without a plan


@dataclass(frozen=True)
class Search:
    """How to search.

    Attributes:
        objective: `sustained` or `throughput`.
        bound: `sound` or `paper`.
        collocation: Whether heuristic 1 is on.
        best_fit: Whether heuristic 2 is on.
        budget: The number of nodes after which the search ends with the best plan so far.
    """

    objective: str = "sustained"
    bound: str = "sound"
    collocation: bool = True
    best_fit: bool = True
    budget: int = 100_000


@dataclass(frozen=True)
class Outcome:
    """The outcome of a search.

    Attributes:
        plan: The best plan, as numbers by class and socket; None if no plan is valid.
        value: Its value by the objective; 0 without a plan.
        nodes: The number of nodes that the search examined.
        complete: Whether the search ended within its budget. Then, without heuristics and with a sound bound, no plan
            is better.
        failed: The operator that no socket could take, in the node with the most units placed; None if none failed.
    """

    plan: Array | None
    value: float
    nodes: int
    complete: bool
    failed: int | None = None


def place(problem: Compressed, search: Search, incumbent: Array | None = None, floor: float = _WORST) -> Outcome:
    """Search a plan that is better than the incumbent, or than a floor."""
    value, bound = _values(problem, search)
    best, best_value = incumbent, floor
    if incumbent is not None:
        best_value = float(value(incumbent[:, None, :])[0])
    root = problem.nothing()
    stack = [(math.inf, root)]
    seen = {root.tobytes()}
    nodes = 0
    failed, fewest = None, math.inf  # unplaced units at the failure
    while stack and nodes < search.budget:
        at_most, plan = stack.pop()
        if at_most <= _more(best_value):
            continue
        nodes += 1
        children = []
        kept, failures = _kept(problem, search, _decisions(problem, search, plan))
        left = float(plan[:, problem.nowhere].sum())
        if failures and left < fewest:
            failed, fewest = problem.classes[failures[0]].operator, left
        for child in kept:
            if (key := child.tobytes()) not in seen:
                seen.add(key)
                children.append(child)
        if not children:
            continue
        together = np.stack(children, axis=1)
        whole = together[:, :, problem.nowhere].sum(axis=0) == 0
        if whole.any():
            for index, child_value in zip(np.flatnonzero(whole).tolist(), value(together[:, whole]), strict=True):
                if child_value > _more(best_value):
                    best, best_value = children[index], float(child_value)
        if not whole.all():
            open_ = np.flatnonzero(~whole)
            # The search pops the last one first: that with the highest bound; of equal ones, the first child.
            pairs = zip(bound(together[:, open_]).tolist(), open_.tolist(), strict=True)
            stack += [(b, children[c]) for b, c in sorted(pairs, key=lambda p: (p[0], -p[1])) if b > _more(best_value)]
    return Outcome(best, 0.0 if best is None else best_value, nodes, not stack, failed)


def number(problem: Compressed) -> int:
    """Count the placements of a problem's replicas, also those without room."""
    return math.prod(math.comb(unit + problem.sockets - 1, problem.sockets - 1) for unit in _units(problem))


def _units(problem: Compressed) -> list[int]:
    return [int(total) // int(size) for total, size in zip(problem.totals, problem.sizes, strict=True)]


def exhaustive(problem: Compressed, objective: str = "sustained") -> Outcome:
    """Examine all plans.

    Raises:
        BadInput: There are too many plans.
    """
    if (many := number(problem)) > LARGEST:
        raise BadInput(
            f"strategy exhaustive can try at most {LARGEST} placements, got {many} for {sum(problem.replicas)} replicas"
            "; choose another strategy"
        )
    value, _ = _values(problem, Search(objective))
    plans = _whole(problem)
    best, best_value = None, _WORST
    while some := list(itertools.islice(plans, 512)):
        values = value(np.stack(some, axis=1))
        top = int(values.argmax())
        if values[top] > _more(best_value):
            best, best_value = some[top], float(values[top])
    return Outcome(best, 0.0 if best is None else best_value, many, True)


_INVALID = -2.0
Values: TypeAlias = Callable[[Array], Array]


def _more(value: float) -> float:
    """Return the least value that is better by more than rounding."""
    return value + abs(value) * ROUNDING


def _values(problem: Compressed, search: Search) -> tuple[Values, Values]:
    """Return the objective and the bound, both functions of several plans."""

    def inverse(pressure: Array) -> Array:
        return np.divide(1.0, pressure, out=np.full_like(pressure, math.inf), where=pressure > 0)

    def throughput(plans: Array) -> Array:
        overfed = problem.overfed(plans)
        return np.where(overfed.valid, overfed.throughput, _INVALID)

    if search.objective == "sustained":
        relaxed = problem.bound if search.bound == "sound" else problem.pressure
        return lambda plans: inverse(problem.pressure(plans)), lambda plans: inverse(relaxed(plans))
    if search.bound == "sound":
        return throughput, lambda plans: np.array([most(problem, plans[:, i]) for i in range(plans.shape[1])])
    return throughput, lambda plans: problem.overfed(plans).throughput


def most(problem: Compressed, plan: Array) -> float:
    """Compute an upper bound of the throughput of all completions of a plan.

    In topological order, the rows that come are at most the most that their producers can put out. Whatever their
    proportions, a replica works no more than a second per second. So it puts out no more than if it chose the rows
    with most output for their time, and the bound counts these. Replicas without a socket fetch for nothing.
    """
    machine, n = problem.machine, problem.sockets
    offered = peak(problem.graph, problem.replicas[0]) if problem.ingress is None else problem.ingress
    emitted: dict[tuple[str, str], Array] = {}
    total = 0.0
    for index, operator in enumerate(problem.graph.operators):
        out = {stream: np.zeros(n + 1) for stream in operator.streams}
        for a in problem.of_operator[index]:
            for socket in np.flatnonzero(plan[a]).tolist():
                rows: list[tuple[float, float, Mapping[str, float]]] = []
                for one, share in zip(operator.inputs, problem.classes[a].shares, strict=True):
                    if not share:
                        continue
                    come = np.zeros(n + 1)
                    if one.producer is None:
                        come[socket] = offered
                    else:
                        come = emitted[one.producer, one.stream]
                    for place in np.flatnonzero(come).tolist():
                        time = one.ns + operator.others_ns + one.read_ns / share
                        if n not in (place, socket):
                            time += machine.fetch(one.bytes, place, socket)
                            time += machine.fetch(one.read_bytes, place, socket) / share
                        rows.append((come[place] * share, time, one.selectivity))
                for stream, by_socket in out.items():
                    by_socket[socket] += plan[a, socket] * _chosen(rows, stream)
        for stream, by_socket in out.items():
            emitted[operator.name, stream] = by_socket
        if operator.kind == "sink":
            total += float(sum(by_socket.sum() for by_socket in out.values()))
    return total


def _chosen(rows: list[tuple[float, float, Mapping[str, float]]], stream: str) -> float:
    """Compute the most output in a second, from rows per second, the ns of one, and its outputs by stream."""
    left, output = NS, 0.0
    for come, time, selectivity in sorted(
        rows, key=lambda r: r[1] / gain if (gain := r[2].get(stream, 0.0)) else math.inf
    ):
        taken = min(come, left / time) if time else come
        left = max(0.0, left - taken * time)
        output += taken * selectivity.get(stream, 0.0)
    return output


# --- children ---------------------------------------------------------------------------------------------------------


@dataclass
class _Decision:
    """A decision at a node.

    Attributes:
        ways: Plans, each with the class and the socket of the unit placed last.
        unit: The class that fails if no way is valid.
        best_fit: Whether to keep only the best fit.
        otherwise: Makes the decision to try if no way is valid.
    """

    ways: list[tuple[Array, int, int]]
    unit: int
    best_fit: bool
    otherwise: Callable[[], _Decision] | None = None


def _decisions(problem: Compressed, search: Search, plan: Array) -> list[_Decision]:
    """Return the decisions at a node."""
    left = plan[:, problem.nowhere] > 0
    if not search.collocation:
        return [_placing(problem, search, plan, int(np.flatnonzero(left)[0]))]
    decisions = []
    for producer, consumer in problem.pairs:
        if not (left[producer] or left[consumer]):
            continue
        if not search.best_fit:
            return [_placing(problem, search, plan, producer if left[producer] else consumer)]
        both = left[producer] and left[consumer]
        if both and _fed(problem, plan, producer) and _fed(problem, plan, consumer, producer):
            decisions.append(_collocating(problem, plan, producer, consumer))
        else:
            decisions += [_placing(problem, search, plan, unit) for unit in (producer, consumer) if left[unit]]
    return decisions


def _fed(problem: Compressed, plan: Array, consumer: int, beside: int | None = None) -> bool:
    """Whether all producers of a class are placed, except one unit of class `beside`."""
    waiting = plan[problem.producers[consumer], problem.nowhere].sum()
    return bool(waiting == (0 if beside is None else problem.sizes[beside]))


def _placing(problem: Compressed, search: Search, plan: Array, unit: int) -> _Decision:
    """Place a unit on each possible socket; on the best one if all its producers are placed."""
    sockets = _sockets(problem, plan, problem.sizes[unit])
    ways = [(problem.moved(plan, unit, socket), unit, socket) for socket in sockets]
    return _Decision(ways, unit, search.best_fit and _fed(problem, plan, unit))


def _collocating(problem: Compressed, plan: Array, producer: int, consumer: int) -> _Decision:
    """Place a unit of each class on one socket, else on two, in the best way."""

    def separately() -> _Decision:
        ways = []
        for one in _sockets(problem, plan, problem.sizes[producer]):
            half = problem.moved(plan, producer, one)
            others = _sockets(problem, half, problem.sizes[consumer])
            ways += [(problem.moved(half, consumer, other), consumer, other) for other in others if other != one]
        return _Decision(ways, consumer, True)

    sockets = _sockets(problem, plan, problem.sizes[producer] + problem.sizes[consumer])
    ways = [(problem.moved(problem.moved(plan, producer, s), consumer, s), consumer, s) for s in sockets]
    return _Decision(ways, consumer, True, separately)


def _sockets(problem: Compressed, plan: Array, size: int) -> list[int]:
    """Return the sockets with room for so many; of interchangeable empty ones only the first."""
    here = plan[:, : problem.sockets].sum(axis=0)
    sockets: list[int] = []
    for socket in range(problem.sockets):
        if problem.room[socket] - here[socket] < size:
            continue
        if here[socket] or not any(not here[other] and problem.interchangeable[other][socket] for other in sockets):
            sockets.append(socket)
    return sockets


def _kept(problem: Compressed, search: Search, decisions: list[_Decision]) -> tuple[list[Array], list[int]]:
    """Return the plans that remain of decisions, and the classes without a valid place for a unit.

    The paper's search skips plans that violate constraints. These may hold again when more units are placed and fewer
    rows come. So a search with a sound bound checks complete plans only.
    """
    ways = [way for decision in decisions for way in decision.ways]
    if search.bound == "sound" and not any(decision.best_fit for decision in decisions):
        return [plan for plan, _, _ in ways], []
    valid, rates = _judged(problem, search, ways)
    plans, failures, at = list[Array](), list[int](), 0
    for decision in decisions:
        places = [i for i in range(at, at + len(decision.ways)) if valid[i]]
        at += len(decision.ways)
        if not places and decision.otherwise is not None:
            more, failed = _kept(problem, search, [decision.otherwise()])
            plans, failures = plans + more, failures + failed
        elif not places:
            failures.append(decision.unit)
        elif decision.best_fit and places:
            # The way with the most output; of equal ones, that with the least room left on its socket.
            enough = max(rates[i] for i in places) * (1 - ROUNDING)
            room = {i: problem.room[ways[i][2]] - ways[i][0][:, ways[i][2]].sum() for i in places if rates[i] >= enough}
            plans.append(ways[min(room, key=lambda i: (room[i], i))][0])
        else:
            plans += [ways[i][0] for i in places]
    return plans, failures


def _judged(problem: Compressed, search: Search, ways: list[tuple[Array, int, int]]) -> tuple[Array, Array]:
    """Return whether constraints hold, and a rate that ranks the output of the unit placed last, by way."""
    if not ways:
        return np.empty(0), np.empty(0)
    plans = np.stack([plan for plan, _, _ in ways], axis=1)
    last = [unit for _, unit, _ in ways], range(len(ways)), [socket for _, _, socket in ways]
    if search.objective == "sustained":
        return np.full(len(ways), True), 1 / np.maximum(problem.demand(plans)[last], 1e-300)
    overfed = problem.overfed(plans)
    return np.logical_or(overfed.valid, search.bound == "sound"), overfed.processed[last]


def _whole(problem: Compressed) -> Iterator[Array]:
    """Yield all plans with enough room."""
    ways = [list(_distributions(unit, problem.sockets)) for unit in _units(problem)]
    for chosen in itertools.product(*ways):
        plan = np.zeros((len(ways), problem.sockets + 1))
        plan[:, : problem.sockets] = np.array(chosen) * problem.sizes[:, None]
        if (plan[:, : problem.sockets].sum(axis=0) <= problem.room).all():
            yield plan


def _distributions(number: int, sockets: int) -> Iterator[tuple[int, ...]]:
    """Yield all distributions of so many units over sockets."""
    if sockets == 1:
        yield (number,)
        return
    for first in range(number, -1, -1):
        for rest in _distributions(number - first, sockets - 1):
            yield (first, *rest)
