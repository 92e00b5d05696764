"""Placement: branch and bound over the sockets of replicas (BriskStream, section 4 and appendix C, algorithm 2).

A node is a plan with some units placed. The search takes nodes from a stack. It makes the decisions of a node one by
one, and explores the plans of the latest first, the most promising one before the others. It prunes a node whose bound
is no better than the best plan, and keeps a complete plan that is better. Decisions at a node are about pairs of a
producer and a consumer with at least one of them unplaced (*collocation*, heuristic 1).

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
from collections.abc import Iterator
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
    branch = _Sound(problem) if search.objective == "sustained" else _Published(problem)
    best, best_value = incumbent, floor
    if incumbent is not None:
        best_value = float(branch.value(incumbent[:, None, :])[0])
    root = problem.nothing()
    stack: list[tuple[float, Array, Iterator[_Children] | None]] = [(math.inf, root, None)]
    seen = {root.tobytes()}
    nodes = 0
    failed, fewest = None, math.inf  # unplaced units at the failure
    while stack and nodes < search.budget:
        at_most, plan, decisions = stack.pop()
        if at_most <= _more(best_value):
            continue
        if decisions is None:
            nodes += 1
            decisions = branch.decisions(plan)
        children = next(decisions, None)
        if children is None:
            continue
        stack.append((at_most, plan, decisions))  # its other decisions come later
        plans, values, failure = children
        left = float(plan[:, problem.nowhere].sum())
        if failure is not None and left < fewest:
            failed, fewest = problem.classes[failure].operator, left
        open_: list[tuple[float, Array, Iterator[_Children] | None]] = []
        for index in np.flatnonzero(values > _more(best_value)).tolist():
            child = np.ascontiguousarray(plans[:, index])
            if not child[:, problem.nowhere].any():
                if values[index] > _more(best_value):
                    best, best_value = child, float(values[index])
            elif (key := child.tobytes()) not in seen:
                seen.add(key)
                open_.append((float(values[index]), child, None))
        # The search pops the last one first: that with the highest bound; of equal ones, the first child.
        stack += sorted(open_, key=lambda entry: entry[0], reverse=True)[::-1]
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
    value = (_Sound if objective == "sustained" else _Published)(problem).value
    plans = _whole(problem)
    best, best_value = None, _WORST
    while some := list(itertools.islice(plans, 512)):
        values = value(np.stack(some, axis=1))
        top = int(values.argmax())
        if values[top] > _more(best_value):
            best, best_value = some[top], float(values[top])
    return Outcome(best, 0.0 if best is None else best_value, many, True)


def _more(value: float) -> float:
    """Return the least value that is better by more than rounding."""
    return value + abs(value) * ROUNDING


class _Sound:
    """Our branching: by the sustained ingress, with a sound bound."""

    def __init__(self, problem: Compressed):
        self._problem = problem

    def value(self, plans: Array) -> Array:
        """Compute the value of whole plans."""
        return _inverse(self._problem.pressure(plans))

    def decisions(self, plan: Array) -> Iterator[_Children]:
        """Place the first open unit on each possible socket.

        Returns:
            The plans, the values of whole ones and the bounds of others, and the class that has no valid place.
        """
        problem, left = self._problem, plan[:, self._problem.nowhere] > 0
        unit = next(a if left[a] else b for a, b in problem.pairs if left[a] or left[b])
        plans = _placed(problem, plan, [((unit, socket),) for socket in _sockets(problem, plan, problem.sizes[unit])])
        if plans.shape[1]:
            is_whole = not plans[:, 0, problem.nowhere].any()
            yield plans, self.value(plans) if is_whole else _inverse(problem.bound(plans)), None


class _Published:
    """Branching of the paper: by R, on decisions about pairs (appendix C, algorithm 2, lines 15 to 32)."""

    def __init__(self, problem: Compressed):
        self._problem = problem

    def value(self, plans: Array) -> Array:
        """Compute R of whole plans; valid ones have a positive one."""
        overfed = self._problem.overfed(plans)
        return np.where(overfed.valid, overfed.throughput, _INVALID)

    def decisions(self, plan: Array) -> Iterator[_Children]:
        """Make the decisions that are open at a node, in topological order; see _Sound.decisions."""
        problem, left = self._problem, plan[:, self._problem.nowhere] > 0
        singles = set()
        for a, b in problem.pairs:
            if left[a] and left[b] and self._is_fed(plan, a) and self._is_fed(plan, b, a):
                both = problem.sizes[a] + problem.sizes[b]
                together = self._children(plan, [((a, s), (b, s)) for s in _sockets(problem, plan, both)], True)
                yield together if together[0].shape[1] else self._children(plan, self._apart(plan, a, b), True, b)
                continue
            for unit in (a, b):
                if left[unit] and unit not in singles:
                    singles.add(unit)
                    ways: list[_Way] = [((unit, s),) for s in _sockets(problem, plan, problem.sizes[unit])]
                    yield self._children(plan, ways, self._is_fed(plan, unit), unit)

    def _is_fed(self, plan: Array, consumer: int, beside: int | None = None) -> bool:
        """Whether all producers of a class are placed, except one unit of class `beside`."""
        problem = self._problem
        waiting = plan[problem.producers[consumer], problem.nowhere].sum()
        return bool(waiting == (0 if beside is None else problem.sizes[beside]))

    def _apart(self, plan: Array, a: int, b: int) -> list[_Way]:
        """Return the ways to place a unit of each class on two sockets."""
        problem, ways = self._problem, list[_Way]()
        for socket in _sockets(problem, plan, problem.sizes[a]):
            half = problem.moved(plan, a, socket)
            ways += [
                ((a, socket), (b, other)) for other in _sockets(problem, half, problem.sizes[b]) if other != socket
            ]
        return ways

    def _children(self, plan: Array, ways: list[_Way], best_fit: bool, unit: int | None = None) -> _Children:
        """Return valid plans with R; if `best_fit`, only the one in which the unit placed last puts out most.

        The paper's search skips plans that violate constraints. These may hold again when more units are placed and
        fewer rows come. So ours checks complete plans only.
        """
        problem = self._problem
        plans = _placed(problem, plan, ways)
        if not ways:
            return plans, np.empty(0), unit
        overfed = problem.overfed(plans)
        valid = np.flatnonzero(overfed.valid)
        if best_fit and len(valid):
            last = [way[-1] for way in ways]
            put_out = np.array([overfed.processed[a, i, socket] for i, (a, socket) in enumerate(last)])
            valid = valid[put_out[valid] >= put_out[valid].max() * (1 - ROUNDING)]
            room = {i: problem.room[last[i][1]] - plans[:, i, last[i][1]].sum() for i in valid.tolist()}
            valid = np.array([min(room, key=lambda i: (room[i], i))])
        return plans[:, valid], overfed.throughput[valid], None if len(valid) else unit


_INVALID = -2.0
_Children: TypeAlias = tuple[Array, Array, int | None]
_Way: TypeAlias = tuple[tuple[int, int], ...]  # the class and the socket of each unit that is placed


def _inverse(pressure: Array) -> Array:
    return np.divide(1.0, pressure, out=np.full_like(pressure, math.inf), where=pressure > 0)


def _placed(problem: Compressed, plan: Array, ways: list[_Way]) -> Array:
    """Return the plan with one or two units placed, in each of several ways."""
    plans = np.repeat(plan[:, None, :], len(ways), axis=1)
    for index, way in enumerate(ways):
        for unit, socket in way:
            plans[unit, index, problem.nowhere] -= problem.sizes[unit]
            plans[unit, index, socket] += problem.sizes[unit]
    return plans


def _sockets(problem: Compressed, plan: Array, size: int) -> list[int]:
    """Return the sockets with room for so many; of interchangeable empty ones only the first."""
    here = plan[:, : problem.sockets].sum(axis=0).tolist()
    sockets: list[int] = []
    for socket in range(problem.sockets):
        if problem.room[socket] - here[socket] < size:
            continue
        if here[socket] or not any(not here[other] and problem.interchangeable[other][socket] for other in sockets):
            sockets.append(socket)
    return sockets


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
