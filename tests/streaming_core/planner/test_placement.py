"""Branch and bound finds the best of all plans; an example shows why the paper's bound may miss it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core.errors import BadInput
from streaming_core.planner.compressed import Compressed
from streaming_core.planner.graph import Graph, Input, Operator
from streaming_core.planner.improvement import completed, improved
from streaming_core.planner.machine import Machine
from streaming_core.planner.placement import Search, exhaustive, place
from streaming_core.planner.published import application
from tests.differential.streams import examine
from tests.streaming_core.planner import drawn


def problem(seed: int, most: int = 7, ratio: int = 1) -> Compressed:
    graph = drawn.graph(seed, 3 + seed % 3)
    ratios = (ratio,) * len(graph.operators)
    return Compressed(graph, drawn.machine(seed, 2 + seed % 2), drawn.replicas(seed, graph, most), ratios=ratios)


def is_a_plan(counts: np.ndarray, of: Compressed) -> bool:
    """Whether every replica has one place and no socket exceeds its room."""
    return (
        (counts[:, of.nowhere] == 0).all()
        and (counts.sum(axis=1) == of.totals).all()
        and (counts >= 0).all()
        and (counts[:, : of.sockets].sum(axis=0) <= of.room).all()
    )


@examine(60)
@given(st.integers(0, 1_000_000))
def test_search_finds_the_plan_that_sustains_most(seed):
    instance = problem(seed)
    best = exhaustive(instance)
    placement = place(instance, Search())
    assert placement.complete
    assert (placement.plan is None) == (best.plan is None)
    assert placement.value == pytest.approx(best.value, rel=1e-9)


@examine(30)
@given(st.integers(0, 1_000_000), st.sampled_from(["sustained", "throughput"]), st.sampled_from([1, 2]))
def test_search_is_deterministic(seed, objective, ratio):
    instance = problem(seed, 9, ratio)
    search = Search(objective, budget=200)
    placement, again = place(instance, search), place(problem(seed, 9, ratio), search)
    assert (placement.value, placement.nodes) == (again.value, again.nodes)
    assert (placement.plan is None) == (again.plan is None)
    if placement.plan is not None:
        assert np.array_equal(placement.plan, again.plan)
        assert is_a_plan(placement.plan, instance)
        assert objective == "sustained" or instance.overfed(placement.plan[:, None, :]).valid[0]


@examine(40)
@given(st.integers(0, 1_000_000))
def test_improvement_keeps_a_plan_valid_and_never_makes_it_worse(seed):
    instance = problem(seed, 9)
    plan = completed(instance, instance.nothing())
    if plan[:, instance.nowhere].any():
        return
    better = improved(instance, plan, 20)
    assert is_a_plan(better, instance)
    assert instance.pressure(better[:, None, :])[0] <= instance.pressure(plan[:, None, :])[0]


def test_search_returns_the_incumbent_unless_a_plan_is_better():
    instance = problem(3)
    best = exhaustive(instance)
    placement = place(instance, Search(), best.plan)
    assert np.array_equal(placement.plan, best.plan)


def test_a_search_ends_when_its_budget_is_spent():
    instance = Compressed(application("lr"), Machine.named("server_a"), (2,) * 12)
    assert place(instance, Search(budget=3)).nodes == 3
    assert not place(instance, Search(budget=3)).complete


def test_exhaustive_search_refuses_too_many_plans():
    instance = Compressed(application("lr"), Machine.named("server_a"), (2,) * 12)
    with pytest.raises(
        BadInput, match=r"strategy exhaustive can try at most 300000 placements, got \d+ for 24 replicas"
    ):
        exhaustive(instance)


def test_papers_bound_is_not_sound():
    """A minimal example: two streams of different selectivity over-supply the sink.

    On one socket, `double` emits 10^7 rows per second. They take two thirds of the sink's time and give no outputs: R
    is 3.3 million, the paper's bound of all plans. On the other socket a row costs `double` 300 ns more. It emits
    fewer rows, and R is 5.6 million.
    """
    source = Operator(name="source", kind="source", inputs=[Input(producer=None, ns=100.0)])
    taken = Input(producer="source", ns=200.0, bytes=64.0, selectivity={"default": 2.0})
    double = Operator(name="double", kind="stateless", inputs=[taken])
    none = Input(producer="double", ns=200.0, selectivity={"default": 0.0})
    sink = Operator(name="sink", kind="sink", inputs=[none, Input(producer="source", ns=100.0, bytes=64.0)])
    graph = Graph(app="smallest", operators=[source, double, sink])
    machine = Machine(name="two", cores=[4, 2], latency=[[0.0, 100.0], [300.0, 0.0]])
    instance = Compressed(graph, machine, (1, 1, 1))
    best = exhaustive(instance, "throughput")
    assert best.value == pytest.approx(1e7 * 100 / 180)
    assert instance.overfed(instance.nothing()[:, None, :]).throughput[0] == pytest.approx(1e7 / 3)
