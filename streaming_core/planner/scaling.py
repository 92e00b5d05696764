"""Scaling: how many replicas each operator has (BriskStream, section 4 and appendix C, algorithm 1).

`topological` is the paper's: place; in reverse topological order, the first operator that is over-supplied gets as many
replicas more as it is over-supplied times, or one more; until none is, until there is no room, or until no placement is
valid.

`balanced` is ours, for what a plan sustains. It goes the other way round: it aims at an ingress a little above what is
sustained, gives every operator the replicas that it takes for that by what they ask for now, and places them, most
where they were or all anew; until no aim is reached. It begins where replicas that fetch nothing would take a part of
the room, as the paper proposes (appendix D), because from one replica of each it takes many steps and ends in worse
plans. Where replications are few, it looks at all of them instead, and its plan is the best there is while the budget
lasts, or one of fewer replicas that is as good as can be told (Graph.tolerance).

To both, cores of a socket that take any number of replicas share what is asked of it as they like; which replica is on
which of them is decided afterwards (placed.py). Where this matters, a machine has a socket for each thread.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from streaming_core.planner.compressed import Array, Compressed
from streaming_core.planner.graph import Graph, Pattern
from streaming_core.planner.improvement import completed, improved
from streaming_core.planner.machine import NS, Machine
from streaming_core.planner.model import ROUNDING
from streaming_core.planner.placement import Found, Search, place

AIMS = (1.3, 1.1, 1.03, 1.01, 1.003)  # times the ingress sustained so far
STARTS = (0.4, 0.6)  # parts of the room
GAIN = 0.005  # by one replica more where none is the bottleneck; for less it is not worth its bookkeeping
LEAVING = 3  # operators of which that is tried
PATTERNS = 16  # where each is climbed from; of many operators, a climb is long and finds little more
STEPS = 40  # of improvement of a placement
RUINS = 10  # attempts to place parts of the best plan anew
FEW = 300  # replications of which all are looked at
BUDGET = 300  # nodes of branch and bound, of many replications
SMALL_BUDGET = 20_000  # of few


@dataclass(frozen=True)
class Scaled:
    """A replication with its placement. `value`: by the objective it was made for; `placements`: how many were
    searched."""

    problem: Compressed
    found: Found
    placements: int


def limit(graph: Graph, machine: Machine) -> int:
    """Replicas in all: what there is room for; where a thread takes any number, one of each operator on each."""
    rooms = [machine.room(socket) for socket in range(machine.sockets)]
    known = [room for room in rooms if room is not None]
    return sum(known) if len(known) == len(rooms) else machine.threads * len(graph.operators)


def topological(
    graph: Graph, machine: Machine, search: Search, ingress: float | None, ratio: int, by_one: bool = False
) -> Scaled | None:
    """Algorithm 1. None if not even one replica of each operator can be placed."""
    most, best, placements = limit(graph, machine), None, 0
    replicas = [1] * len(graph.operators)
    while True:
        problem = Compressed(graph, machine, tuple(replicas), ingress, ratio)
        found = place(problem, search)
        placements += 1
        if found.plan is None:
            return best
        if best is None or found.value > best.found.value * (1 + ROUNDING):
            best = Scaled(problem, found, placements)
        over = problem.overfed(found.plan[:, None, :]).over_supplied[:, 0].tolist()
        over = [times if replicas[i] < graph.operators[i].replicas else 0.0 for i, times in enumerate(over)]
        index = next((i for i in reversed(range(len(over))) if over[i]), None)
        if index is None:
            return best
        more = 1 if by_one else math.ceil(over[index] * (1 - ROUNDING))
        replicas[index] = min(replicas[index] + more, graph.operators[index].replicas)
        if sum(replicas) > most:
            return best


def balanced(graph: Graph, machine: Machine, ingress: float | None = None) -> Scaled | None:
    """The plan that sustains most, of those tried. None if not even one replica of each operator can be placed."""
    most = limit(graph, machine)
    if len(graph.operators) > most:
        return None
    few = list(itertools.islice(replications(graph, most), FEW + 1))
    best, placements = None, 0
    starts = [(graph, _start(graph, machine, start * most)) for start in STARTS]
    # A second replica may cost more than it gains, and only others make up for it: where that has been measured, a
    # climb for each pattern begins with it, and keeps to one replica of those that have one in it.
    for pattern in graph.patterns if len(graph.patterns) <= PATTERNS else []:
        within = _limited(graph, pattern)
        first = tuple(min(operator.replicas, 2) for operator in within.operators)
        if sum(first) <= most:
            starts.append((within, first))
    for within, first in starts:
        problem = Compressed(within, machine, first, ingress)
        climbed = _placed(problem, problem.nothing())
        while climbed is not None:
            placements += climbed.placements
            if best is None or climbed.found.value > best.found.value * (1 + ROUNDING):
                best = climbed
            climbed = _grown(climbed, most)
    if best is None:
        return None
    if len(few) <= FEW:
        return _best_of_all(best, few, placements)
    draw = random.Random(0)
    for _ in range(RUINS):
        again = _placed(best.problem, _ruined(best.problem, best.found.plan, draw))
        placements += 1
        if again is not None and again.found.value > best.found.value * (1 + ROUNDING):
            best = again
    found = place(best.problem, Search(best_fit=False, budget=BUDGET), best.found.plan)
    return Scaled(best.problem, found, placements + 1)


def _limited(graph: Graph, pattern: Pattern) -> Graph:
    """The graph of operators of which those have one replica that have one in the pattern."""
    several = {*pattern.several}
    return graph.mapped(lambda operator: operator if operator.name in several else operator.changed(most=1))


def replications(graph: Graph, most: int) -> Iterator[tuple[int, ...]]:
    """All that have at most so many replicas."""

    def of(index: int, left: int) -> Iterator[tuple[int, ...]]:
        if index == len(graph.operators):
            yield ()
            return
        after = len(graph.operators) - index - 1
        for number in range(1, min(graph.operators[index].replicas, left - after) + 1):
            for rest in of(index + 1, left - number):
                yield (number, *rest)

    return of(0, most)


def _best_of_all(climbed: Scaled, replications: list[tuple[int, ...]], placements: int) -> Scaled:
    """Branch and bound of each replication whose bound leaves hope; of plans that are as good, as far as can be told,
    that of fewest replicas."""
    graph, machine, ingress = climbed.problem.application, climbed.problem.machine, climbed.problem.ingress
    margin = max(ROUNDING, graph.tolerance)
    best: Scaled | None = None
    complete, left = True, SMALL_BUDGET
    for numbers in sorted(replications, key=lambda numbers: (sum(numbers), numbers)):
        problem = Compressed(graph, machine, numbers, ingress)
        # What is clearly worse than the plan that climbing has found need not be found.
        enough = climbed.found.value * (1 - 3 * margin)
        if best is not None:
            more = sum(numbers) > sum(best.problem.replicas)
            enough = max(enough, best.found.value * (1 + (margin if more else ROUNDING)))
        if 1 / float(problem.bound(problem.nothing()[:, None, :])[0]) <= enough:
            continue
        found = place(problem, Search(best_fit=False, budget=left), floor=enough)
        placements, left = placements + 1, left - found.nodes
        complete = complete and found.complete
        if found.plan is not None:
            best = Scaled(problem, found, placements)
    if best is None or climbed.found.value > best.found.value * (1 + margin):
        best = climbed  # the budget did not last
    return Scaled(best.problem, replace(best.found, complete=complete), placements)


def _grown(best: Scaled, most: int) -> Scaled | None:
    """A better plan with other replicas; None if none was found."""
    problem, plan = best.problem, best.found.plan
    assert plan is not None
    tried = 0
    for replicas, anew, gain in _replications(best):
        may = all(k <= operator.replicas for k, operator in zip(replicas, problem.graph.operators, strict=True))
        if replicas == problem.replicas or sum(replicas) > most or not may:
            continue
        grown = Compressed(problem.application, problem.machine, replicas, problem.ingress)
        tried += 1
        found = _placed(grown, grown.nothing() if anew else carried(problem, plan, grown))
        if found is not None and found.found.value > best.found.value * (1 + gain):
            return replace(found, placements=tried)
    return None


def _replications(best: Scaled) -> Iterator[tuple[tuple[int, ...], bool, float]]:
    """Those to try next, whether to place all anew, and the part that is to be gained."""
    problem, plan = best.problem, best.found.plan
    assert plan is not None
    for aim in AIMS:
        wanted = _wanted(best, aim)
        yield tuple(max(pair) for pair in zip(wanted, problem.replicas, strict=True)), False, ROUNDING
        yield wanted, False, ROUNDING
        yield wanted, True, ROUNDING
    shared, of_replicas = problem.loads(plan[:, None, :])
    if shared.max() > of_replicas.max():
        # No replica is the bottleneck, but a socket or a channel: a part of what is on the busiest socket may leave it.
        busy = int(shared[0, : problem.sockets].argmax())
        asked = (plan * problem.asked(plan[:, None, :])[:, 0])[:, busy]
        by_operator = np.array([asked[classes].sum() for classes in problem.of_operator])
        for index in np.argsort(-by_operator, kind="stable").tolist()[:LEAVING]:
            more = (*problem.replicas[:index], problem.replicas[index] + 1, *problem.replicas[index + 1 :])
            yield more, False, GAIN


def _placed(problem: Compressed, plan: Array) -> Scaled | None:
    """A plan completed and improved; None if there is no room for it."""
    plan = completed(problem, plan)
    if plan[:, problem.nowhere].any():
        return None
    plan = improved(problem, plan, STEPS)
    return Scaled(problem, Found(plan, 1 / float(problem.pressure(plan[:, None, :])[0]), 0, False), 1)


def _ruined(problem: Compressed, given: Array | None, draw: random.Random) -> Array:
    """A plan without what is of some operators, or on some sockets."""
    assert given is not None
    plan = given.copy()
    if draw.random() < 0.5:
        sockets = draw.sample(range(problem.sockets), max(1, problem.sockets // 4))
        rows = [*range(len(problem.classes))]
    else:
        sockets = [*range(problem.sockets)]
        chosen = draw.sample(range(len(problem.of_operator)), max(1, len(problem.of_operator) // 3))
        rows = [a for index in chosen for a in problem.of_operator[index]]
    for socket in sockets:
        plan[rows, problem.nowhere] += plan[rows, socket]
        plan[rows, socket] = 0
    return plan


def _start(graph: Graph, machine: Machine, most: float) -> tuple[int, ...]:
    """About so many replicas in all, in proportion to what operators ask for that fetch nothing."""
    problem = Compressed(graph, machine, (1,) * len(graph.operators))
    base = [float(problem.base[classes].max()) for classes in problem.of_operator]

    def needed(ingress: float) -> tuple[int, ...]:
        each = zip(graph.operators, base, strict=True)
        return tuple(min(o.replicas, max(1, math.ceil(ingress * ns / NS - ROUNDING))) for o, ns in each)

    low, high = 0.0, min((o.replicas * NS / ns for o, ns in zip(graph.operators, base, strict=True) if ns), default=0.0)
    for _ in range(60):
        middle = (low + high) / 2
        if sum(needed(middle)) <= max(most, len(base)):
            low = middle
        else:
            high = middle
    return needed(low)


def _wanted(now: Scaled, aim: float) -> tuple[int, ...]:
    """Replicas that it takes to sustain so many times the ingress, by what those that there are ask for."""
    problem, plan = now.problem, now.found.plan
    assert plan is not None
    asked = problem.loads(plan[:, None, :])[1].max(axis=(1, 2))
    wanted = []
    for operator, classes, k in zip(problem.graph.operators, problem.of_operator, problem.replicas, strict=True):
        need = math.ceil(aim * now.found.value * float(asked[classes].max()) * k - ROUNDING)
        wanted.append(min(operator.replicas, max(1, need)))
    return tuple(wanted)


def carried(before: Compressed, plan: Array, problem: Compressed) -> Array:
    """Another replication's plan with the operators' replicas where they were; of fewer, where they ask for least."""
    made = problem.nothing()
    asked = before.asked(plan[:, None, :])[:, 0]
    for old, new in zip(before.of_operator, problem.of_operator, strict=True):
        there = plan[old].sum(axis=0)[: problem.sockets]
        nearest = np.argsort(asked[old[0], : problem.sockets], kind="stable").tolist()
        for unit in new:
            for socket in nearest:
                while made[unit, problem.nowhere] > 0 and there[socket] >= problem.sizes[unit]:
                    made = problem.moved(made, unit, socket)
                    there[socket] -= problem.sizes[unit]
    return made
