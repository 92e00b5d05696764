"""Placement: branch and bound over the sockets of replicas (BriskStream, section 4 and appendix C, algorithm 2).

A node is a plan in which some units are placed; they come off a stack, deepest and most promising first. A node whose
bound is no better than the best plan is pruned, a whole one that is better is the best plan. What a node's children
are:

- *collocation* (heuristic 1): decisions are about pairs of a producer and a consumer, of which one at least is not
  placed. Where neither is and all others that feed them are, one child has them on one socket, or on two if none has
  room for both; else there is a child for each way of placing one of the two. Without it, decisions are about single
  units.
- *best fit* (heuristic 2): of the ways of placing a unit whose producers are all placed only that is kept with which it
  puts out most; then that with least room left. Without it all are, and one decision is as good as another: whatever is
  decided next, every completion of the node lies behind one of its children, so that the search is complete.
- *compression* (heuristic 3) is in the problem (compressed.py).

Redundant nodes are left out always: a plan is what classes have on sockets, whichever replica, in whatever order; and
of empty sockets that are the same but for their number the first is taken.

What is best is said by an *objective*: `sustained`, or `throughput`, the paper's R, for which a plan is valid only if
constraints (3) to (5) hold at its rates. Bounds of it: `paper`, all that is not placed fetches for nothing; and
`sound`. They are one for `sustained`, where the paper's relaxation is sound (compressed.py, `bound`). For R it is not:
an operator that is over-supplied by two streams shares its time between them as they come; nearer producers of the one
let more of it in, take time from the other, and if that has the greater selectivity, less comes out. `sound` lets every
replica choose (`most`).
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

LARGEST = 300_000  # plans that an exhaustive search looks at
_WORST = -1.0  # of no plan


@dataclass(frozen=True)
class Search:
    """How to search.

    Attributes:
        budget: nodes after which the search ends with what it has.
    """

    objective: str = "sustained"
    bound: str = "sound"
    collocation: bool = True
    best_fit: bool = True
    budget: int = 100_000


@dataclass(frozen=True)
class Found:
    """The best plan found.

    Attributes: plan: numbers by class and socket; None if there is none that is valid. value: by the objective; 0 if
        there is none. nodes: how many were looked at. complete: whether the search ended by itself: with neither
        heuristic, and a sound bound, the plan is the best then. failed: the operator that no socket could take, where
        most units were placed; None if none failed.
    """

    plan: Array | None
    value: float
    nodes: int
    complete: bool
    failed: int | None = None


def place(problem: Compressed, search: Search, incumbent: Array | None = None, floor: float = _WORST) -> Found:
    """Searches a plan that is better than the incumbent, or than a floor."""
    value, bound = _values(problem, search)
    best, best_value = incumbent, floor
    if incumbent is not None:
        best_value = float(value(incumbent[:, None, :])[0])
    root = problem.nothing()
    stack = [(math.inf, root)]
    seen = {root.tobytes()}
    nodes = 0
    failed, fewest = None, math.inf  # units left where it failed
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
        for made in kept:
            if (key := made.tobytes()) not in seen:
                seen.add(key)
                children.append(made)
        if not children:
            continue
        together = np.stack(children, axis=1)
        whole = together[:, :, problem.nowhere].sum(axis=0) == 0
        if whole.any():
            for child, found in zip(np.flatnonzero(whole).tolist(), value(together[:, whole]), strict=True):
                if found > _more(best_value):
                    best, best_value = children[child], float(found)
        if not whole.all():
            open_ = np.flatnonzero(~whole)
            # The last one is looked at first: the one of the highest bound; of equal ones, that which was made first.
            pairs = zip(bound(together[:, open_]).tolist(), open_.tolist(), strict=True)
            stack += [(b, children[c]) for b, c in sorted(pairs, key=lambda p: (p[0], -p[1])) if b > _more(best_value)]
    return Found(best, 0.0 if best is None else best_value, nodes, not stack, failed)


def number(problem: Compressed) -> int:
    """Placements of a problem's replicas, whether there is room for them or not."""
    return math.prod(math.comb(unit + problem.sockets - 1, problem.sockets - 1) for unit in _units(problem))


def _units(problem: Compressed) -> list[int]:
    return [int(total) // int(size) for total, size in zip(problem.totals, problem.sizes, strict=True)]


def exhaustive(problem: Compressed, objective: str = "sustained") -> Found:
    """The best of all plans.

    Raises:
        BadInput: there are too many to look at.
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
    return Found(best, 0.0 if best is None else best_value, many, True)


_INVALID = -2.0
Values: TypeAlias = Callable[[Array], Array]


def _more(value: float) -> float:
    """What is better than a value by more than its rounding."""
    return value + abs(value) * ROUNDING


def _values(problem: Compressed, search: Search) -> tuple[Values, Values]:
    """The objective, and the bound: of several plans each."""

    def inverse(pressure: Array) -> Array:
        return np.divide(1.0, pressure, out=np.full_like(pressure, math.inf), where=pressure > 0)

    def throughput(plans: Array) -> Array:
        found = problem.overfed(plans)
        return np.where(found.valid, found.throughput, _INVALID)

    if search.objective == "sustained":
        relaxed = problem.bound if search.bound == "sound" else problem.pressure
        return lambda plans: inverse(problem.pressure(plans)), lambda plans: inverse(relaxed(plans))
    if search.bound == "sound":
        return throughput, lambda plans: np.array([most(problem, plans[:, i]) for i in range(plans.shape[1])])
    return throughput, lambda plans: problem.overfed(plans).throughput


def most(problem: Compressed, plan: Array) -> float:
    """At least as much throughput as any completion of a plan has.

    In topological order, rows that come are at most those that producers can put out at most; and what a replica
    processes of them takes no more than a second per second, whatever the proportions. So it puts out no more than if
    it chose those of most output for their time, which is what is counted; fetching from, and by, replicas not yet
    placed counts nothing.
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
    """The most that can be put out in a second: of rows per second, ns of one, and what comes of it."""
    left, found = NS, 0.0
    for come, time, selectivity in sorted(
        rows, key=lambda r: r[1] / gain if (gain := r[2].get(stream, 0.0)) else math.inf
    ):
        taken = min(come, left / time) if time else come
        left = max(0.0, left - taken * time)
        found += taken * selectivity.get(stream, 0.0)
    return found


# --- children ---------------------------------------------------------------------------------------------------------


@dataclass
class _Decision:
    """Ways of carrying out a decision: plans, each with the class of which a unit was placed last, and where; the class
    that fails if none is valid; whether only the best fit is kept; and what to do if none is valid."""

    ways: list[tuple[Array, int, int]]
    unit: int
    best_fit: bool
    otherwise: Callable[[], _Decision] | None = None


def _decisions(problem: Compressed, search: Search, plan: Array) -> list[_Decision]:
    """What there is to decide at a node."""
    left = plan[:, problem.nowhere] > 0
    if not search.collocation:
        return [_placing(problem, search, plan, int(np.flatnonzero(left)[0]))]
    found = []
    for producer, consumer in problem.pairs:
        if not (left[producer] or left[consumer]):
            continue
        if not search.best_fit:
            return [_placing(problem, search, plan, producer if left[producer] else consumer)]
        both = left[producer] and left[consumer]
        if both and _fed(problem, plan, producer) and _fed(problem, plan, consumer, producer):
            found.append(_collocating(problem, plan, producer, consumer))
        else:
            found += [_placing(problem, search, plan, unit) for unit in (producer, consumer) if left[unit]]
    return found


def _fed(problem: Compressed, plan: Array, consumer: int, beside: int | None = None) -> bool:
    """Whether all that feeds a class is placed, beside one unit of a class."""
    waiting = plan[problem.producers[consumer], problem.nowhere].sum()
    return bool(waiting == (0 if beside is None else problem.sizes[beside]))


def _placing(problem: Compressed, search: Search, plan: Array, unit: int) -> _Decision:
    """A unit of a class on each socket that it may be on; on the best one if all that feeds it is placed."""
    sockets = _sockets(problem, plan, problem.sizes[unit])
    ways = [(problem.moved(plan, unit, socket), unit, socket) for socket in sockets]
    return _Decision(ways, unit, search.best_fit and _fed(problem, plan, unit))


def _collocating(problem: Compressed, plan: Array, producer: int, consumer: int) -> _Decision:
    """A unit of each on one socket, else on two; the best way."""

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
    """Those with room for so many; of empty ones that are the same, the first."""
    here = plan[:, : problem.sockets].sum(axis=0)
    found: list[int] = []
    for socket in range(problem.sockets):
        if problem.room[socket] - here[socket] < size:
            continue
        if here[socket] or not any(not here[other] and problem.twins[other][socket] for other in found):
            found.append(socket)
    return found


def _kept(problem: Compressed, search: Search, decisions: list[_Decision]) -> tuple[list[Array], list[int]]:
    """The plans that decisions come to, and the classes without a valid place for a unit.

    The paper's search looks at no plan of which constraints do not hold. They may hold again when more is placed and
    less comes: a search with a sound bound asks of whole plans only.
    """
    ways = [way for decision in decisions for way in decision.ways]
    if search.bound == "sound" and not any(decision.best_fit for decision in decisions):
        return [plan for plan, _, _ in ways], []
    valid, rates = _judged(problem, search, ways)
    found, failures, at = list[Array](), list[int](), 0
    for decision in decisions:
        places = [i for i in range(at, at + len(decision.ways)) if valid[i]]
        at += len(decision.ways)
        if not places and decision.otherwise is not None:
            more, failed = _kept(problem, search, [decision.otherwise()])
            found, failures = found + more, failures + failed
        elif not places:
            failures.append(decision.unit)
        elif decision.best_fit and places:
            # What puts out most; of several, what has least room left on its socket.
            enough = max(rates[i] for i in places) * (1 - ROUNDING)
            room = {i: problem.room[ways[i][2]] - ways[i][0][:, ways[i][2]].sum() for i in places if rates[i] >= enough}
            found.append(ways[min(room, key=lambda i: (room[i], i))][0])
        else:
            found += [ways[i][0] for i in places]
    return found, failures


def _judged(problem: Compressed, search: Search, ways: list[tuple[Array, int, int]]) -> tuple[Array, Array]:
    """Whether constraints hold of each way, and what the unit that was placed last puts out, in any unit."""
    if not ways:
        return np.empty(0), np.empty(0)
    plans = np.stack([plan for plan, _, _ in ways], axis=1)
    last = [unit for _, unit, _ in ways], range(len(ways)), [socket for _, _, socket in ways]
    if search.objective == "sustained":
        return np.full(len(ways), True), 1 / np.maximum(problem.asked(plans)[last], 1e-300)
    overfed = problem.overfed(plans)
    return np.logical_or(overfed.valid, search.bound == "sound"), overfed.processed[last]


def _whole(problem: Compressed) -> Iterator[Array]:
    """All plans that there is room for."""
    ways = [list(_dealt(unit, problem.sockets)) for unit in _units(problem)]
    for chosen in itertools.product(*ways):
        plan = np.zeros((len(ways), problem.sockets + 1))
        plan[:, : problem.sockets] = np.array(chosen) * problem.sizes[:, None]
        if (plan[:, : problem.sockets].sum(axis=0) <= problem.room).all():
            yield plan


def _dealt(number: int, sockets: int) -> Iterator[tuple[int, ...]]:
    """All ways of dealing so many to sockets."""
    if sockets == 1:
        yield (number,)
        return
    for first in range(number, -1, -1):
        for rest in _dealt(number - first, sockets - 1):
            yield (first, *rest)
