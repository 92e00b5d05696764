"""Placement: branch and bound over the sockets of replicas (BriskStream, section 4 and appendix C, algorithm 2).

A node is a plan with some units placed. The search takes nodes from a stack, deepest and most promising first. It
prunes a node whose bound is no better than the best plan, and keeps a complete plan that is better. Decisions at a node
are about pairs of a producer and a consumer with at least one of them unplaced (*collocation*, heuristic 1).

The *objective* ranks plans, and decides the search:

- `sustained`, ours: a child for each way of placing the first open unit, on each socket. Every completion of a node
  lies behind one of its children, and the bound is sound (compressed.py, `bound`), so the search is complete.
- `throughput`, the paper's R: a plan is valid only if constraints (3) to (5) hold at its rates. If both units of a pair
  are open, and all their other producers are placed, one child has both on one socket. If no socket has room for both,
  it has them on two. Otherwise there is a child for each way of placing one of the two. If all producers of a unit are
  placed, only its best socket remains (*best fit*, heuristic 2). That is the one where the unit puts out most, then the
  one with least room left. In the bound, all unplaced replicas fetch for nothing. It is not sound: an operator that two
  streams over-supply divides its time between them as rows come. Rows of the nearer producers take time from the other
  stream, which may have the greater selectivity.

*Compression* (heuristic 3) is in the problem (compressed.py). The search never repeats equal nodes. A plan is the
number of replicas of each class on each socket. Of empty sockets that differ only in their number it takes the first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from streaming_core.errors import BadInput
from streaming_core.planner.compressed import Array, Compressed
from streaming_core.planner.model import ROUNDING

LARGEST = 300_000  # plans that an exhaustive search examines
_WORST = -1.0  # the value without a plan


@dataclass(frozen=True)
class Search:
    """How to search.

    Args:
        budget: The number of nodes after which the search ends with the best plan so far.
    """

    objective: Literal["sustained", "throughput"] = "sustained"
    budget: int = 100_000


@dataclass(frozen=True)
class Outcome:
    """The outcome of a search.

    Attributes:
        plan: The best plan, as numbers by class and socket; None if no plan is valid.
        value: Its value by the objective; 0 without a plan.
        complete: Whether the search ended within its budget. Then no plan sustains more.
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


def exhaustive(problem: Compressed, objective: Literal["sustained", "throughput"] = "sustained") -> Outcome:
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
        return lambda plans: inverse(problem.pressure(plans)), lambda plans: inverse(problem.bound(plans))
    return throughput, lambda plans: problem.overfed(plans).throughput


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
    decisions = []
    for producer, consumer in problem.pairs:
        if not (left[producer] or left[consumer]):
            continue
        if search.objective == "sustained":
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
    return _Decision(ways, unit, search.objective == "throughput" and _fed(problem, plan, unit))


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
    rows come. So ours checks complete plans only.
    """
    ways = [way for decision in decisions for way in decision.ways]
    if search.objective == "sustained":
        return [plan for plan, _, _ in ways], []
    valid, rates = _judged(problem, ways)
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


def _judged(problem: Compressed, ways: list[tuple[Array, int, int]]) -> tuple[Array, Array]:
    """Return whether constraints hold, and a rate that ranks the output of the unit placed last, by way."""
    if not ways:
        return np.empty(0), np.empty(0)
    plans = np.stack([plan for plan, _, _ in ways], axis=1)
    last = [unit for _, unit, _ in ways], range(len(ways)), [socket for _, _, socket in ways]
    overfed = problem.overfed(plans)
    return np.asarray(overfed.valid), overfed.processed[last]


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
