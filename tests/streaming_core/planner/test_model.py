"""The model's formulas, by hand."""

import numpy as np
import pytest

from streaming_core.errors import BadInput
from streaming_core.planner.compressed import Compressed
from streaming_core.planner.graph import GROUPS, Graph, Input, Operator
from streaming_core.planner.machine import Machine
from streaming_core.planner.model import estimate


def pipeline(work: Operator, sink_ns: float = 10.0) -> Graph:
    source = Operator(name="source", kind="source", inputs=[Input(producer=None, ns=100.0)])
    sink = Operator(name="sink", kind="sink", inputs=[Input(producer=work.name, ns=sink_ns, bytes=64.0)])
    return Graph(app="a", operators=[source, work, sink])


def work(**fields) -> Operator:
    taken = {"producer": "source", "ns": 200.0, "bytes": 100.0, "selectivity": 2.0} | fields.pop("taken", {})
    return Operator(**{"name": "work", "kind": "stateless", "inputs": [Input(**taken)]} | fields)


TWO = Machine(name="two", cores=[2, 2], latency=[[0.0, 50.0], [70.0, 0.0]])


def test_a_remote_row_takes_longer():
    prediction = estimate(pipeline(work()), TWO, {"source": [0], "work": [0, 1], "sink": [1]}, 1e6)
    near, far = prediction.of("work")
    # 100 bytes are two lines.
    assert (near.time, far.time) == (200.0, 300.0)
    assert (near.rate, near.utilisation, near.over_supplied) == (5e5, 0.1, False)
    assert prediction.throughput == 2e6
    assert prediction.of("sink")[0].time == 10.0 + 50.0 / 2


def test_a_writer_pays_to_get_back_lines_that_readers_fetched():
    machine = TWO.changed(rewriting=[[None, 1e9], [4e9, None]])
    prediction = estimate(pipeline(work()), machine, {"source": [0], "work": [0, 1], "sink": [1]}, 1e6)
    near, far = prediction.of("work")
    # Two rows of 64 bytes each; half of the source's of 100 bytes go to the other socket.
    assert (near.time, far.time) == (200.0 + 2 * 64.0, 300.0)
    assert prediction.of("source")[0].time == 100.0 + 50.0
    # All replicas of windows read a row, one handles it.
    windowed = work(kind="windowed", taken={"bytes": 0.0, "read_bytes": 100.0})
    prediction = estimate(pipeline(windowed), machine, {"source": [0], "work": [0, 1], "sink": [1]}, 1e6)
    assert prediction.of("source")[0].time == 100.0 + 50.0


def test_sustained_ingress_is_the_rate_at_which_no_replica_is_over_supplied():
    prediction = estimate(pipeline(work()), TWO, {"source": [0], "work": [0], "sink": [0]})
    assert prediction.ingress == 1e7
    (replica,) = prediction.of("work")
    assert (replica.over_supplied, replica.rate, replica.utilisation) == (True, 1e7, 1.0)
    assert prediction.throughput == 1e7
    assert prediction.sustained.ingress == 5e6
    assert str(prediction.sustained.bottleneck) == "replica work 0"


def test_rows_of_two_streams_are_processed_in_proportion_to_their_rates():
    inputs = [
        Input(producer="source", ns=100.0, selectivity={"default": 1.0}),
        Input(producer="half", ns=300.0, selectivity={"default": 0.0}),
    ]
    source = Operator(name="source", kind="source", inputs=[Input(producer=None, ns=1.0)])
    half = Operator(
        name="half", kind="stateless", inputs=[Input(producer="source", ns=1.0, selectivity={"default": 0.5})]
    )
    graph = Graph(app="a", operators=[source, half, Operator(name="sink", kind="sink", inputs=inputs)])
    # 1e7 * 100 ns + 5e6 * 300 ns are 2.5 seconds.
    prediction = estimate(graph, TWO, {"source": [0], "half": [0], "sink": [1]}, 1e7)
    assert prediction.throughput == pytest.approx(1e7 / 2.5)
    assert prediction.of("sink")[0].time == pytest.approx((2 * 100 + 300) / 3)


def test_uneven_keys_load_replicas_unevenly():
    weights = [3.0] * (GROUPS // 2) + [1.0] * (GROUPS // 2)
    keyed = work(kind="partitioned", taken={"weights": weights})
    plan = {"source": [0], "work": [0, 0], "sink": [0]}
    assert [replica.rate for replica in estimate(pipeline(keyed), TWO, plan, 1e6).of("work")] == [7.5e5, 2.5e5]
    four = Machine(name="four", cores=[4], latency=[[0.0]])
    assert estimate(pipeline(keyed), four, plan).sustained.ingress == pytest.approx(1e9 / (0.75 * 200))


def test_every_windowed_replica_reads_all_rows():
    windowed = work(kind="windowed", taken={"read_ns": 30.0, "read_bytes": 8.0})
    prediction = estimate(pipeline(windowed), TWO, {"source": [0], "work": [0, 1], "sink": [0]}, 1e6)
    near, far = prediction.of("work")
    assert near.demand == pytest.approx(5e5 * 200 + 1e6 * 30)
    assert far.demand == pytest.approx(5e5 * (200 + 100) + 1e6 * (30 + 50))
    assert prediction.throughput == 2e6


def test_violated_constraints_are_named():
    small = Machine(
        name="small",
        cores=[2, 1],
        capacity=[1e8, 1e9],
        latency=[[0.0, 0.0], [0.0, 0.0]],
        bandwidth=[[1e6, 1e6], [None, None]],
    )
    prediction = estimate(pipeline(work(memory_bytes=10.0)), small, {"source": [0], "work": [0, 1], "sink": [1]}, 1e6)
    assert [str(load) for load in prediction.violated] == ["socket 0", "memory 0", "room 1", "channel 0 to 1"]
    # Socket 0 offers 1e8 ns per second, and an event needs 100 + 200 / 2 ns there.
    least = min(1e8 / 200, 1e6 / (10 * 0.5), 1e6 / (50 + 64))
    assert prediction.sustained.ingress == pytest.approx(least)
    assert str(prediction.sustained.bottleneck) == "channel 0 to 1"


def test_prediction_respects_the_ingress_and_shares_cores():
    machine = Machine.of_threads(2)
    plan = {"source": [0], "work": [0], "sink": [1]}
    assert str(estimate(pipeline(work()), machine, plan, 10.0).sustained.bottleneck) == "ingress"
    single = Machine(name="one", cores=[2], replicas_per_core=None, latency=[[0.0]])
    alone = {"source": [0], "work": [0], "sink": [0]}
    assert estimate(pipeline(work()), single, alone).sustained.ingress == pytest.approx(5e6)
    shared = estimate(pipeline(work()), single, alone, cores={"source": [0], "work": [0], "sink": [1]}).sustained
    assert (shared.ingress, str(shared.bottleneck)) == (pytest.approx(1e9 / 300), "core 0")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"source": [0], "work": [0]}, "sink must have 1 to 4096 replicas, got 0"),
        ({"source": [0], "work": [2], "sink": [0]}, "the sockets of work must be between 0 and 1, got "),
        ({"source": [0], "work": [0], "sink": [0], "more": [0]}, "unknown operator 'more'; known: source, work, sink"),
    ],
)
def test_a_plan_of_another_graph_is_refused(plan, message):
    with pytest.raises(BadInput, match=message):
        estimate(pipeline(work()), TWO, plan)


def test_a_source_without_cost_has_no_peak():
    source = Operator(name="source", kind="source", inputs=[Input(producer=None, ns=0.0)])
    sink = Operator(name="sink", kind="sink", inputs=[Input(producer="source", ns=0.0)])
    graph = Graph(app="a", operators=[source, sink])
    with pytest.raises(BadInput, match="source source has zero cost"):
        estimate(graph, TWO, {"source": [0], "sink": [0]})


def test_merge_threads_take_spare_cores_before_those_of_the_plan():
    costs = {"kind": "stateless", "others_ns": 0.0}
    source = Operator.model_validate({"name": "source", "kind": "source", "inputs": [{"producer": None, "ns": 10.0}]})
    work = Operator.model_validate(costs | {"name": "work", "inputs": [{"producer": "source", "ns": 100.0}]})
    sink = Operator.model_validate(
        {"name": "sink", "kind": "sink", "inputs": [{"producer": "work", "ns": 10.0}], "merge_ns": 40.0}
    )
    graph = Graph(app="a", operators=[source, work, sink])
    alone = {"source": [0], "work": [0], "sink": [0]}
    both = {"source": [0], "work": [0, 1], "sink": [1]}
    machine = Machine.of_threads(2)
    assert graph.mergers([1, 1, 1]) == []
    assert graph.mergers([1, 2, 1]) == [(2, 0)]  # the sink takes rows of two replicas
    prediction = estimate(graph, machine, alone, 1e6, {name: [0] * len(at) for name, at in alone.items()})
    assert prediction.sustained.ingress == pytest.approx(1e6)
    # Thread 2 shares core 0 with the source and a replica: 10 + 50 + 40 ns of an event. On a spare core it does not.
    for spare, sustained in ((0, 1e9 / 100), (1, 1e9 / 60)):
        wider = machine.changed(spare=spare)
        cores = {name: [0] * len(at) for name, at in both.items()}
        assert estimate(graph, wider, both, 1e9, cores).sustained.ingress == pytest.approx(sustained)
        compressed = Compressed(graph, wider, (1, 2, 1))
        plans = np.zeros((3, 1, 3))
        plans[0, 0, 0] = plans[1, 0, 0] = plans[1, 0, 1] = plans[2, 0, 1] = 1
        assert 1 / compressed.pressure(plans)[0] == pytest.approx(sustained)
