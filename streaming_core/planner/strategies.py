"""Strategies: ways to find a plan, by name.

- `balanced`, the default and ours, maximises the sustained ingress. It scales by demand, and places by local
  improvement, then branch and bound.
- `rlas` runs algorithms 1 and 2 of the paper with appendix D, with its bound and all its heuristics. It maximises R at
  the peak ingress. R judges the strategies of the paper; the sustained ingress judges ours.
- `rlas_fix_l` and `rlas_fix_u` run `rlas` for a machine that fetches every row over the greatest distance, or none.
- `first_fit` takes the replicas of `rlas`, in topological order, each on the first socket with room.
- `round_robin` takes the replicas of `rlas`, on the sockets in turn.
- `os` takes the replicas of `rlas`, and the operating system places their threads.
- `exhaustive` examines all plans: the reference for the others, on small instances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from streaming_core.errors import BadInput, unknown
from streaming_core.planner import placement, scaling
from streaming_core.planner.compressed import Compressed
from streaming_core.planner.graph import Graph, Operator
from streaming_core.planner.machine import Machine
from streaming_core.planner.model import ROUNDING, Places, peak
from streaming_core.planner.placed import Placed, assign_cores
from streaming_core.planner.scaling import Scaled

DEFAULT = "balanced"
# Strategies of the paper, for which a profile states the median of T_e. Others get the mean.
PUBLISHED = ("rlas", "rlas_fix_l", "rlas_fix_u", "first_fit", "round_robin", "os")
RELAXATION = 1.25  # the factor by which first fit relaxes a constraint that it cannot keep


@dataclass(frozen=True)
class Task:
    """The input of a strategy: the application and the machine."""

    graph: Graph
    machine: Machine

    @cached_property
    def published(self) -> Scaled:
        """The plan of the paper's search, whose replicas others take too."""
        scaled = scaling.attainable(self.graph, self.machine)
        if scaled is None:
            raise _no_room(self)
        return scaled


def plan(strategy: str, graph: Graph, machine: Machine) -> Placed:
    """Find a plan. The same input gives the same plan."""
    check(strategy)
    peak(graph, 1)  # a source without cost has no plan
    return STRATEGIES[strategy](Task(graph, machine))


def check(strategy: str) -> None:
    """Raise BadInput unless there is a strategy of this name."""
    if strategy not in STRATEGIES:
        raise BadInput(unknown("strategy", strategy, STRATEGIES))


def balanced(task: Task) -> Placed:
    """Maximise the sustained ingress; see scaling.balanced."""
    scaled = scaling.balanced(task.graph, task.machine)
    if scaled is None:
        raise _no_room(task)
    return _from_scaled("balanced", task, scaled)


def rlas(task: Task) -> Placed:
    """Run the paper's algorithms: by R, with its bound."""
    return _from_scaled("rlas", task, task.published, proved=False)


def rlas_fix_l(task: Task) -> Placed:
    """Run `rlas` with the greatest T_f between all replicas."""
    return _fixed("rlas_fix_l", task, max(map(max, task.machine.unit_ns)))


def rlas_fix_u(task: Task) -> Placed:
    """Run `rlas` with T_f = 0."""
    return _fixed("rlas_fix_u", task, 0.0)


def first_fit(task: Task) -> Placed:
    """Put each replica on the first socket where constraints hold, at the ingress sustained without fetching.

    If there is none, relax the violated constraints of the first socket with room, and pack everything anew.
    """
    replication = task.published.problem
    problem = Compressed(task.graph, task.machine, replication.replicas)
    # The ingress that the replicas sustain without fetching, on evenly loaded sockets.
    nothing = problem.nothing()[:, None, :]
    ingress = 1 / float(problem.bound(nothing)[0])
    units = [unit for unit, total in enumerate(problem.totals.tolist()) for _ in range(total)]
    slack = np.ones(problem.loads(problem.nothing()[:, None, :])[0].shape[1])
    while True:
        current, violated = problem.nothing(), None
        for unit in units:
            here = current[:, : problem.sockets].sum(axis=0)
            sockets = np.flatnonzero(problem.room - here >= 1).tolist()
            plans = np.stack([problem.moved(current, unit, socket) for socket in sockets], axis=1)
            loads = problem.loads(plans)[0] * ingress
            exceeded = loads > slack * (1 + ROUNDING)
            fitting = np.flatnonzero(~exceeded.any(axis=1))
            if not len(fitting):
                violated = exceeded[0]
                break
            current = np.ascontiguousarray(plans[:, fitting[0]])
        if violated is None:
            return _plan_of("first_fit", task, problem.places(current), ingress=replication.ingress)
        slack = np.where(violated, slack * RELAXATION, slack)


def round_robin(task: Task) -> Placed:
    """Put replica n of all on socket n modulo their number, else on the next with room."""
    sockets, ingress = _in_turn(task)
    return _plan_of("round_robin", task, sockets, ingress=ingress)


def os(task: Task) -> Placed:
    """Assign tasks to threads in turn, and bind no thread to a core."""
    sockets, ingress = _in_turn(task)
    return _plan_of("os", task, sockets, pinned=False, ingress=ingress)


def exhaustive(task: Task) -> Placed:
    """Find a plan of fewest replicas among all that sustain most."""
    most = scaling.limit(task.graph, task.machine)
    problems, plans = [], 0
    for replicas in scaling.replications(task.graph, most):
        problems.append(Compressed(task.graph, task.machine, replicas))
        plans += placement.number(problems[-1])
        if plans > placement.LARGEST:
            raise BadInput(
                f"strategy exhaustive can try at most {placement.LARGEST} plans, but up to {most} replicas have more; "
                "choose another strategy"
            )
    best: Scaled | None = None
    for problem in problems:
        outcome = placement.exhaustive(problem)
        fewer = best is not None and sum(problem.replicas) < sum(best.problem.replicas)
        enough = 0.0 if best is None else best.outcome.value * (1 + (-ROUNDING if fewer else ROUNDING))
        if outcome.plan is not None and (best is None or outcome.value > enough):
            best = Scaled(problem, outcome)
    if best is None:
        raise _no_room(task)
    return _from_scaled("exhaustive", task, best)


STRATEGIES: Mapping[str, Callable[[Task], Placed]] = {
    "balanced": balanced,
    "rlas": rlas,
    "rlas_fix_l": rlas_fix_l,
    "rlas_fix_u": rlas_fix_u,
    "first_fit": first_fit,
    "round_robin": round_robin,
    "os": os,
    "exhaustive": exhaustive,
}


def _fixed(name: str, task: Task, unit_ns: float) -> Placed:
    """Plan for a machine with the same fetch time everywhere; the estimate is for the true machine."""
    n, units = task.machine.sockets, task.machine.units

    def fixed(operator: Operator) -> Operator:
        inputs = [
            port
            if port.producer is None
            else port.model_copy(
                update={
                    "ns": port.ns + units(port.bytes) * unit_ns,
                    "read_ns": port.read_ns + units(port.read_bytes) * unit_ns,
                }
            )
            for port in operator.inputs
        ]
        return operator.model_copy(update={"inputs": inputs})

    graph = task.graph.mapped(fixed)
    machine = task.machine.changed(streams=None, rewriting=None, latency=[[0.0] * n for _ in range(n)])
    return _from_scaled(name, task, replace(task, graph=graph, machine=machine).published, proved=False)


def _in_turn(task: Task) -> tuple[dict[str, list[int]], float | None]:
    """Return the sockets in turn of the replicas of `rlas`, and its ingress."""
    problem = task.published.problem
    left = _rooms(task.machine)
    sockets: dict[str, list[int]] = {operator.name: [] for operator in task.graph.operators}
    turn = 0
    for operator, number in zip(task.graph.operators, problem.replicas, strict=True):
        for _ in range(number):
            while not left[turn % len(left)] > 0:
                turn += 1
            left[turn % len(left)] -= 1
            sockets[operator.name].append(turn % len(left))
            turn += 1
    return sockets, problem.ingress


def _rooms(machine: Machine) -> list[float]:
    rooms = (machine.room(socket) for socket in range(machine.sockets))
    return [math.inf if room is None else room for room in rooms]


def _from_scaled(name: str, task: Task, scaled: Scaled, proved: bool | None = None) -> Placed:
    outcome, problem = scaled.outcome, scaled.problem
    assert outcome.plan is not None
    shown = outcome.complete if proved is None else proved
    return _plan_of(name, task, problem.places(outcome.plan), proved=shown, ingress=problem.ingress)


def _plan_of(
    name: str, task: Task, sockets: Places, pinned: bool = True, proved: bool = False, ingress: float | None = None
) -> Placed:
    cores = assign_cores(task.graph, task.machine, sockets)
    by_output = name in PUBLISHED
    return Placed(name, task.graph, task.machine, sockets, cores, pinned, proved, by_output, ingress)


def _no_room(task: Task) -> BadInput:
    most = scaling.limit(task.graph, task.machine)
    operators = len(task.graph.operators)
    return BadInput(
        f"machine {task.machine.name} has no room for {task.graph.app}: {operators} operators need {operators} places, "
        f"but it has {most}"
    )
