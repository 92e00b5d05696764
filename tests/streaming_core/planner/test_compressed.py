"""Both evaluations of the model agree on any plan, and a bound is valid."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core.planner.compressed import Compressed
from streaming_core.planner.machine import Machine
from streaming_core.planner.model import estimate
from streaming_core.planner.placement import exhaustive
from streaming_core.planner.published import application
from tests.differential.streams import examine
from tests.streaming_core.planner import drawn


def counts(problem: Compressed, plan: dict[str, list[int]]) -> np.ndarray:
    """The number of replicas of a plan by class and socket."""
    table = np.zeros((len(problem.classes), problem.sockets + 1))
    for a, class_ in enumerate(problem.classes):
        for member in class_.members:
            table[a, plan[problem.graph.operators[class_.operator].name][member]] += 1
    return table


@examine(150)
@given(st.integers(0, 1_000_000))
def test_both_evaluations_agree(seed):
    graph, machine = drawn.graph(seed, 3 + seed % 5), drawn.machine(seed)
    graph = drawn.patterned(seed, graph) if seed % 2 else graph
    machine = drawn.streamed(seed, machine) if seed // 2 % 2 else machine
    plan = drawn.plan(seed, graph, machine, 12)
    ingress = (None, 1e5, 1e8)[seed % 3]
    problem = Compressed(graph, machine, tuple(len(plan[o.name]) for o in graph.operators), ingress)
    number = counts(problem, plan)
    plain = estimate(graph, machine, plan, ingress)
    assert 1 / problem.pressure(number[:, None, :])[0] == pytest.approx(plain.sustained.ingress, rel=1e-9)
    overfed = problem.overfed(number[:, None, :])
    assert overfed.throughput[0] == pytest.approx(plain.throughput, rel=1e-9)
    assert overfed.valid[0] == (not [load for load in plain.violated if load.resource != "room"])
    for index, operator in enumerate(graph.operators):
        assert bool(problem.over_supplied(number)[index]) == any(r.over_supplied for r in plain.of(operator.name))
    whole = estimate(graph, machine, problem.places(number), ingress)
    assert whole.sustained.ingress == pytest.approx(plain.sustained.ingress, rel=1e-9)


@examine(60)
@given(st.integers(0, 1_000_000))
def test_a_bound_is_at_least_the_best_completion(seed):
    """Bounds of partial plans of a best plan, and of other partial plans."""
    graph, machine = drawn.graph(seed, 3 + seed % 3), drawn.machine(seed, 2 + seed % 2)
    problem = Compressed(graph, machine, drawn.replicas(seed, graph, 6))
    best = exhaustive(problem)
    if best.plan is None:
        return
    draw = np.random.default_rng(seed)
    for _ in range(8):
        part = best.plan.copy()
        gone = draw.integers(0, part[:, :-1].astype(int), endpoint=True)
        part[:, :-1] -= gone
        part[:, -1] += gone.sum(axis=1)
        bound = 1 / problem.bound(part[:, None, :])[0]
        assert bound >= best.value * (1 - 1e-9)


def test_units_of_a_ratio_hold_every_replica_once():
    graph = application("lr")
    problem = Compressed(graph, Machine.named("server_a"), tuple(range(1, 13)), ratios=(5,) * 12)
    for index, classes in enumerate(problem.of_operator):
        members = [member for a in classes for member in problem.classes[a].members]
        assert sorted(members) == [*range(index + 1)]
        sizes = [problem.classes[a].size for a in classes]
        assert all(len(problem.classes[a].members) % problem.classes[a].size == 0 for a in classes)
        assert max(sizes) <= 5
        assert max(sizes) - min(sizes) <= 1


def test_sockets_are_equivalent_if_exchanging_them_changes_nothing():
    alike = Machine.of_threads(3, 80)
    assert Compressed(application("fd"), alike, (1, 1, 1, 1)).interchangeable == [[True] * 3] * 3
    other = Machine.of_threads(3, [[0, 80, 80], [80, 0, 80], [90, 80, 0]])
    assert Compressed(application("fd"), other, (1, 1, 1, 1)).interchangeable[0] == [True, False, False]
    for rates in ("streams", "rewriting"):
        other = alike.changed(**{rates: [[None, 1e9, 1e9], [1e9, None, 1e9], [2e9, 1e9, None]]})
        assert Compressed(application("fd"), other, (1, 1, 1, 1)).interchangeable[0] == [True, False, False]
