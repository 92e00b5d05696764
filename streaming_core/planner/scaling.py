"""Scaling: how many replicas each operator has (BriskStream, section 4 and appendix C, algorithm 1).

`topological` is the paper's algorithm. It places the replicas, and takes the first over-supplied operator in reverse
topological order. That operator gets as many more replicas as the over-supply demands, up to the room. If no placement
is valid, the operator without a place is too coarse-grained (appendix D). Its units become smaller, or, if they are
single replicas, it gets one more. The algorithm ends when no operator is over-supplied, or no room is left.

`balanced` is ours, and maximises the sustained ingress. It aims at an ingress a little above the sustained one. At its
present demand, every operator gets the replicas that this takes, and `balanced` places the new ones. It ends when it
reaches no aim. It first starts with replicas that would use a part of the room if they fetched nothing, as the paper
proposes (appendix D). Then it starts with each measured pattern. Where replications are few, it examines all of them
instead. Then its plan is the best one while the budget lasts, or one of fewer replicas that is as good within
Graph.tolerance.

For both, the cores of a socket that take any number of replicas share its load freely. placed.py later assigns replicas
to cores. Where that matters, a machine has a socket for each thread.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from streaming_core.planner.compressed import Array, Compressed
from streaming_core.planner.graph import Graph, Pattern
from streaming_core.planner.improvement import completed, improved
from streaming_core.planner.machine import NS, Machine
from streaming_core.planner.model import ROUNDING, peak
from streaming_core.planner.placement import Outcome, Search, place

# Of the paper's search.
COMPRESSION = 5  # replicas per unit at most, as in the paper
PLACEMENT_NODES = 100  # nodes per placement; the paper's search ends after a time instead
PUBLISHED_START = 0.7  # part of the room that the first replication takes
BISECTIONS = 8  # of the ingress: the last changes it by less than a hundredth of the range, in logarithms
# How much `balanced` tries.
AIMS = (1.3, 1.1, 1.03, 1.01, 1.003)  # how many times the ingress sustained so far to aim at, in this order
STARTS = (0.8, 0.95)  # parts of the room that the replicas of the first climbs take
PATTERNS = 16  # measured patterns up to which a climb starts with each; with more, only with the first two
TRIES = 16  # steps of each kind that an improvement evaluates, the most promising ones
RUINS = 10  # attempts to place parts of the best plan anew
NODES = 100  # nodes of branch and bound around the best plan
FEW = 300  # replications up to which all are looked at
NODES_OF_FEW = 20_000  # nodes of branch and bound in all of these


@dataclass(frozen=True)
class Scaled:
    """A replication with its placement.

    Attributes:
        problem: The replication.
        outcome: The outcome of its search, with a plan.
        searches: Of algorithm 1: the number of searches for a placement.
        nodes: Of algorithm 1: the nodes of the longest one.
    """

    problem: Compressed
    outcome: Outcome
    searches: int = 0
    nodes: int = 0


def limit(graph: Graph, machine: Machine) -> int:
    """Return the largest number of replicas: the room, or one of each operator per thread where room is unlimited."""
    rooms = [machine.room(socket) for socket in range(machine.sockets)]
    known = [room for room in rooms if room is not None]
    return sum(known) if len(known) == len(rooms) else machine.threads * len(graph.operators)


def topological(
    graph: Graph, machine: Machine, ingress: float | None = None, replicas: Sequence[int] | None = None
) -> Scaled | None:
    """Run algorithm 1 with appendix D; None if no replication has a valid placement.

    Args:
        graph: The application.
        machine: The machine.
        ingress: Events per second; None: as many as the source's replicas can take.
        replicas: The replication to start from; None: one replica of each operator (lines 1 and 2).
    """
    most, operators = limit(graph, machine), graph.operators
    best: Scaled | None = None
    numbers, units = list(replicas or (1,) * len(operators)), [COMPRESSION] * len(operators)
    searches = nodes = 0
    while sum(numbers) <= most:
        problem = Compressed(graph, machine, tuple(numbers), ingress, units)
        outcome = place(problem, Search("throughput", PLACEMENT_NODES))  # line 6
        searches, nodes = searches + 1, max(nodes, outcome.nodes)
        if outcome.plan is None:
            # Appendix D: the operator that failed is too coarse-grained.
            if (index := outcome.failed) is None:
                break
            if (largest := max(problem.sizes[a] for a in problem.of_operator[index])) > 1:
                units[index] = int(largest) - 1
                continue
            more = 1
        else:
            if best is None or outcome.value > best.outcome.value * (1 + ROUNDING):  # lines 7 and 8
                best = Scaled(problem, outcome)
            over = problem.over_supplied(outcome.plan)
            # Lines 11 to 15: the first bottleneck from the sink, and as many more replicas as ceil(r_i / r_o).
            growing = (i for i in reversed(range(len(over))) if over[i] and numbers[i] < operators[i].replicas)
            if (index := next(growing, None)) is None:
                break
            more = math.ceil(over[index] * (1 - ROUNDING))
        more = min(more, operators[index].replicas - numbers[index], most - sum(numbers))
        if more <= 0:  # line 19
            break
        numbers[index] += more
    return best and replace(best, searches=searches, nodes=nodes)


def attainable(graph: Graph, machine: Machine) -> Scaled | None:
    """Run algorithm 1 at the maximum attainable ingress (section 6.1).

    That is the source's own peak rate. It starts with a large replication (appendix D), else with one replica each.
    Where several replicas share a core, no plan keeps the constraints there. Then back-pressure slows the source down
    (footnote 2): a bisection searches the highest ingress for which algorithm 1 leaves nothing over-supplied.
    """
    large = _start(graph, machine, PUBLISHED_START * limit(graph, machine))
    best = topological(graph, machine, replicas=large) or topological(graph, machine)
    if best is not None:
        return best
    problem = Compressed(graph, machine, (1,) * len(graph.operators), 1.0)
    nothing = problem.nothing()
    rows = float(problem.overfed(nothing[:, None, :]).throughput[0])  # of the sinks, of an event
    singles = _placed(Compressed(graph, machine, problem.replicas), nothing)
    if singles is None:
        return None
    low, high = singles.outcome.value * (1 - 1e-6), peak(graph, 1)  # one replica each attains the lower one
    for _ in range(BISECTIONS):
        middle = low if best is None else math.sqrt(low * high)
        scaled = topological(graph, machine, middle)
        if scaled is not None and (best is None or scaled.outcome.value > best.outcome.value):
            best = scaled
        if scaled is not None and scaled.outcome.value >= middle * rows * (1 - ROUNDING):
            low = middle
        elif best is not None:
            high = middle
        else:  # the search did not reach the plan within its budget
            low, high = middle / 2, middle
    return best


def balanced(graph: Graph, machine: Machine) -> Scaled | None:
    """Search the plan that sustains most; None if there is no room for one replica of each operator."""
    most = limit(graph, machine)
    if len(graph.operators) > most:
        return None
    few = list(itertools.islice(replications(graph, most), FEW + 1))
    best: Scaled | None = None
    enough = _bound(graph) * (1 - ROUNDING)
    for within, first in _starts(graph, machine, most):
        if best is not None and best.outcome.value >= enough:
            break
        problem = Compressed(within, machine, first)
        climbed = _placed(problem, problem.nothing())
        while climbed is not None:
            if best is None or climbed.outcome.value > best.outcome.value * (1 + ROUNDING):
                best = climbed
            climbed = _grown(climbed, most)
    if best is None:
        return None
    if len(few) <= FEW:
        return _best_of_all(best, few)
    draw = random.Random(0)
    for _ in range(RUINS):
        again = _placed(best.problem, _ruined(best.problem, best.outcome.plan, draw))
        if again is not None and again.outcome.value > best.outcome.value * (1 + ROUNDING):
            best = again
    return Scaled(best.problem, place(best.problem, Search(budget=NODES), best.outcome.plan))


def _starts(graph: Graph, machine: Machine, most: int) -> Iterator[tuple[Graph, tuple[int, ...]]]:
    """Yield graphs and replications to climb from.

    A second replica may cost more than it gains, and only others make up for it. So a climb for each measured pattern
    keeps to one replica of the operators that have one in it.
    """
    for pattern in graph.patterns if len(graph.patterns) <= PATTERNS else graph.patterns[:2]:
        within = _limited(graph, pattern)
        first = tuple(min(operator.replicas, 2) for operator in within.operators)
        if sum(first) <= most:
            yield within, first
    for part in STARTS:
        yield graph, _start(graph, machine, part * most)


def _bound(graph: Graph) -> float:
    """Compute an upper bound of what plans sustain: every operator has its most replicas, at the least cost."""
    nowhere, singles = Machine.of_threads(1), (1,) * len(graph.operators)
    patterns = [pattern.operators for pattern in graph.patterns] or [graph.operators]
    bases = [Compressed(graph.changed(operators=pattern, patterns=[]), nowhere, singles).base for pattern in patterns]
    each = zip(graph.operators, np.min(bases, axis=0).tolist(), strict=True)
    return min((o.replicas * NS / ns for o, ns in each if ns), default=math.inf)


def _limited(graph: Graph, pattern: Pattern) -> Graph:
    """Return the graph with one replica at most of each operator that has one in the pattern."""
    several = {*pattern.several}
    return graph.mapped(lambda operator: operator if operator.name in several else operator.changed(most=1))


def replications(graph: Graph, most: int) -> Iterator[tuple[int, ...]]:
    """Yield all replications of at most so many replicas."""

    def of(index: int, left: int) -> Iterator[tuple[int, ...]]:
        if index == len(graph.operators):
            yield ()
            return
        after = len(graph.operators) - index - 1
        for number in range(1, min(graph.operators[index].replicas, left - after) + 1):
            for rest in of(index + 1, left - number):
                yield (number, *rest)

    return of(0, most)


def _best_of_all(climbed: Scaled, replications: list[tuple[int, ...]]) -> Scaled:
    """Search each replication whose bound allows a better plan.

    Of plans that are equally good within the tolerance, the one of fewest replicas wins.
    """
    graph, machine = climbed.problem.application, climbed.problem.machine
    margin = max(ROUNDING, graph.tolerance)
    best: Scaled | None = None
    complete, left = True, NODES_OF_FEW
    for numbers in sorted(replications, key=lambda numbers: (sum(numbers), numbers)):
        problem = Compressed(graph, machine, numbers)
        # The search may skip plans that are clearly worse than the one from climbing.
        enough = climbed.outcome.value * (1 - 3 * margin)
        if best is not None:
            more = sum(numbers) > sum(best.problem.replicas)
            enough = max(enough, best.outcome.value * (1 + (margin if more else ROUNDING)))
        if 1 / float(problem.bound(problem.nothing()[:, None, :])[0]) <= enough:
            continue
        outcome = place(problem, Search(budget=left), floor=enough)
        left -= outcome.nodes
        complete = complete and outcome.complete
        if outcome.plan is not None:
            best = Scaled(problem, outcome)
    if best is None or climbed.outcome.value > best.outcome.value * (1 + margin):
        best = climbed  # the budget did not last
    return Scaled(best.problem, replace(best.outcome, complete=complete))


def _grown(best: Scaled, most: int) -> Scaled | None:
    """Search a better plan with other replicas; None if there is none among those tried."""
    problem, plan = best.problem, best.outcome.plan
    assert plan is not None
    tried = {problem.replicas}
    for aim in AIMS:
        replicas = _wanted(best, aim)
        if replicas in tried or sum(replicas) > most:
            continue
        tried.add(replicas)
        grown = Compressed(problem.application, problem.machine, replicas)
        candidate = _placed(grown, carried(problem, plan, grown))
        if candidate is not None and candidate.outcome.value > best.outcome.value * (1 + ROUNDING):
            return candidate
    return None


def _placed(problem: Compressed, plan: Array) -> Scaled | None:
    """Complete and improve a plan; None if there is no room for it."""
    plan = completed(problem, plan)
    if plan[:, problem.nowhere].any():
        return None
    plan = improved(problem, plan, TRIES)
    return Scaled(problem, Outcome(plan, 1 / float(problem.pressure(plan[:, None, :])[0]), 0, False))


def _ruined(problem: Compressed, whole: Array | None, draw: random.Random) -> Array:
    """Return a plan without the replicas of some operators, or on some sockets."""
    assert whole is not None
    plan = whole.copy()
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
    """Return a replication of about so many replicas, in proportion to demand without fetching."""
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
    """Return the replicas needed for `aim` times the sustained ingress, at the present demand."""
    problem, plan = now.problem, now.outcome.plan
    assert plan is not None
    demand = problem.loads(plan[:, None, :])[1].max(axis=(1, 2))
    wanted = []
    for operator, classes, k in zip(problem.graph.operators, problem.of_operator, problem.replicas, strict=True):
        need = math.ceil(aim * now.outcome.value * float(demand[classes].max()) * k - ROUNDING)
        wanted.append(min(operator.replicas, max(1, need)))
    return tuple(wanted)


def carried(before: Compressed, plan: Array, problem: Compressed) -> Array:
    """Carry a plan over to another replication: replicas stay, and an operator with fewer keeps the cheapest."""
    carried_plan = problem.nothing()
    demand = before.demand(plan[:, None, :])[:, 0]
    for old, new in zip(before.of_operator, problem.of_operator, strict=True):
        there = plan[old].sum(axis=0)[: problem.sockets]
        nearest = np.argsort(demand[old[0], : problem.sockets], kind="stable").tolist()
        for unit in new:
            for socket in nearest:
                while carried_plan[unit, problem.nowhere] > 0 and there[socket] >= problem.sizes[unit]:
                    carried_plan = problem.moved(carried_plan, unit, socket)
                    there[socket] -= problem.sizes[unit]
    return carried_plan
