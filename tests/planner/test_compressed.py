"""Both evaluations of the model say the same of any plan, and a bound bounds."""

import numpy as np
import pytest

from streaming_core.planner.compressed import Compressed
from streaming_core.planner.model import estimate
from tests.planner import drawn


def counts(problem: Compressed, plan: dict[str, list[int]]) -> np.ndarray:
    """A plan as numbers by class and socket."""
    found = np.zeros((len(problem.classes), problem.sockets + 1))
    for a, one in enumerate(problem.classes):
        for member in one.members:
            found[a, plan[problem.graph.operators[one.operator].name][member]] += 1
    return found


@pytest.mark.parametrize("seed", range(120))
def test_both_evaluations_say_the_same(seed):
    graph, machine = drawn.graph(seed, 3 + seed % 5), drawn.machine(seed)
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
        assert bool(overfed.over_supplied[index, 0]) == any(r.over_supplied for r in plain.of(operator.name))
    whole = estimate(graph, machine, problem.places(number), ingress)
    assert whole.sustained.ingress == pytest.approx(plain.sustained.ingress, rel=1e-9)
