"""A graph is read strictly, and deals rows like the runtime."""

import json

import pytest

from streaming_core.errors import BadInput
from streaming_core.planner.graph import GROUPS, Graph, Input, Operator, Pattern

SOURCE = {"name": "source", "kind": "source", "inputs": [{"producer": None, "ns": 100}]}
WORK = {
    "name": "work",
    "kind": "partitioned",
    "inputs": [{"producer": "source", "ns": 50, "bytes": 64, "selectivity": 2}],
}
SINK = {"name": "sink", "kind": "sink", "inputs": [{"producer": "work", "ns": 10}]}


def read(tmp_path, *operators, **fields):
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"app": "a", "operators": operators} | fields))
    return Graph.read(path)


def test_a_graph_is_read_from_its_file(tmp_path):
    graph = read(tmp_path, SOURCE, WORK, SINK)
    assert [*graph.by_name] == ["source", "work", "sink"]
    assert graph.by_name["work"].inputs[0].selectivity == {"default": 2}
    assert (graph.by_name["work"].replicas, graph.by_name["sink"].replicas) == (GROUPS, GROUPS)
    assert Graph.model_validate_json(graph.model_dump_json()) == graph


def changed(operator, **fields):
    return operator | fields


def taking(operator, **fields):
    return operator | {"inputs": [operator["inputs"][0] | fields]}


@pytest.mark.parametrize(
    ("operators", "message"),
    [
        ([SOURCE, WORK], "the graph needs a sink"),
        ([SOURCE, WORK, WORK, SINK], "two operators have the name work"),
        ([WORK, SOURCE, SINK], "the first operator, and no other, must be the source"),
        ([SOURCE, changed(SOURCE, name="b"), SINK], "the first operator, and no other, must be the source"),
        ([SOURCE, SINK, WORK], "sink: its producer work must come before it"),
        ([SOURCE, taking(WORK, stream="x"), SINK], "work: its producer source has no stream x"),
        ([SOURCE, WORK, SINK, changed(taking(WORK, producer="sink"), name="b")],
         "b: its producer sink has no stream default"),
        ([SOURCE, taking(WORK, producer=None), SINK], "a source must have one input with producer null"),
        ([changed(SOURCE, inputs=SOURCE["inputs"] * 2), WORK, SINK], "a source must have one input"),
        ([SOURCE, changed(WORK, inputs=[]), SINK], "operators.1.inputs must have at least 1 item"),
        ([SOURCE, changed(WORK, kind="stateful", most=2), SINK], "a stateful operator must have one replica, got 2"),
        ([SOURCE, changed(WORK, most=0), SINK], "operators.1.most"),
        ([SOURCE, changed(WORK, kind="transaction"), SINK], "operators.1.kind"),
        ([SOURCE, taking(WORK, weights=[1.0]), SINK], "weights must be 4096 numbers, at least one of them positive"),
        ([SOURCE, taking(WORK, weights=[0.0] * GROUPS), SINK],
         "weights must be 4096 numbers, at least one of them positive"),
        ([SOURCE, WORK, taking(SINK, weights=[1.0] * GROUPS)], "a sink operator has no keys"),
        ([SOURCE, taking(WORK, read_ns=1), SINK], "read_ns and read_bytes are only for windowed operators"),
        ([SOURCE, taking(WORK, ns=-1), SINK], "operators.1.inputs.0.ns must be at least 0"),
        ([SOURCE, taking(WORK, selectivity={"default": -1}), SINK], "operators.1.inputs.0.selectivity.default"),
        ([SOURCE, taking(WORK, cost=1), SINK], "unknown field operators.1.inputs.0.cost"),
    ],
)  # fmt: skip
def test_a_damaged_graph_is_refused_in_one_line(tmp_path, operators, message):
    with pytest.raises(BadInput) as refused:
        read(tmp_path, *operators)
    assert message in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("number", [1, 2, 3, 7, 144, 1000])
def test_keys_are_dealt_like_the_runtimes_owner_map_deals_groups(number):
    """Group g belongs to replica g * k / 4096 (runtime/src/state/key_group.rs)."""
    weights = [float(group % 5) for group in range(GROUPS)]
    expected = [0.0] * number
    for group, weight in enumerate(weights):
        expected[group * number // GROUPS] += weight / sum(weights)
    inputs = [Input(producer="a", ns=1, weights=weights), Input(producer="b", ns=1)]
    shares = Operator(name="o", kind="partitioned", inputs=inputs).shares(number)
    assert [share[0] for share in shares] == pytest.approx(expected)
    even = [0] * number
    for group in range(GROUPS):
        even[group * number // GROUPS] += 1
    assert [share[1] * GROUPS for share in shares] == pytest.approx(even)


def test_costs_come_from_the_pattern_most_similar_to_the_replicas():
    chain = [Operator(name="source", kind="source", inputs=[Input(producer=None, ns=1)])]
    for name, producer in (("a", "source"), ("b", "a"), ("c", "b")):
        chain.append(Operator(name=name, kind="stateless", inputs=[Input(producer=producer, ns=1)]))
    chain.append(Operator(name="sink", kind="sink", inputs=[Input(producer="c", ns=1)]))

    def costing(ns):
        return [o.model_copy(update={"inputs": [o.inputs[0].model_copy(update={"ns": float(ns)})]}) for o in chain]

    measured = ([], ["a", "b", "c"], ["a"], ["c"])
    patterns = [Pattern(several=some, operators=costing(10 * (1 + i))) for i, some in enumerate(measured)]
    graph = Graph(app="chain", operators=costing(10), patterns=patterns)

    def costs(*replicas):
        return [operator.inputs[0].ns for operator in graph.replicated(replicas).operators]

    assert costs(1, 1, 1, 1, 1) == [10] * 5
    assert costs(1, 2, 3, 4, 1) == [20] * 5
    assert costs(1, 5, 1, 1, 1) == [30] * 5
    # The neighbours of a match pattern a, those of c match pattern c. All patterns match the others equally: the
    # first one counts.
    assert costs(1, 2, 1, 2, 1) == [20, 30, 20, 40, 20]
    assert graph.replicated((1, 1, 1, 1, 1)) is graph.replicated((1, 1, 1, 1, 1))
    faster = graph.mapped(lambda o: o.model_copy(update={"inputs": [o.inputs[0].model_copy(update={"ns": 1.0})]}))
    assert [operator.inputs[0].ns for operator in faster.replicated((1, 2, 2, 2, 1)).operators] == [1.0] * 5


def test_a_pattern_of_other_operators_is_refused(tmp_path):
    for pattern in (
        {"several": ["work"], "operators": [SOURCE, SINK]},
        {"several": ["other"], "operators": [SOURCE, WORK, SINK]},
    ):
        with pytest.raises(BadInput, match="patterns: each pattern must list the operators source, work, sink"):
            read(tmp_path, SOURCE, WORK, SINK, patterns=[pattern])
