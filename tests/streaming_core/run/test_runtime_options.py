"""The runtime's options and strategies equal their declaration in Python."""

import json
import re

import pytest

from streaming_core import _runtime
from streaming_core.apps import registry
from streaming_core.kernels.program import compile_app
from streaming_core.run import probe
from streaming_core.run.way import (
    ENGINE_EXECUTORS,
    MAX_PARTITIONS,
    MAX_SLICE,
    MAX_THREADS,
    NOT_FOR_RUNTIME,
    SPEC_FIELDS,
    literal_values,
)

APPS = {"transaction": "sl", "dataflow": "wc", "windowed": "wordcount"}
AXES = [(name, axis) for name, executor in ENGINE_EXECUTORS.items() for axis in executor.axes()]


@pytest.fixture(scope="module")
def programs():
    """Kind of application -> a compiled program, as JSON."""
    apps = {kind: registry.load(name) for kind, name in APPS.items()}
    return {kind: compile_app(app, app.bind()).json() for kind, app in apps.items()}


def error(program, **options):
    """The runtime's error for invalid options."""
    with pytest.raises(ValueError, match=r"nonsense|must be between") as refusal:
        _runtime.Engine(program, json.dumps(options))
    return str(refusal.value)


def test_the_runtime_takes_its_fields_of_a_spec(programs):
    known = re.findall(r"`(\w+)`", error(programs["dataflow"], nonsense=1).partition("expected one of")[2])
    assert sorted(known) == sorted(SPEC_FIELDS.keys() - NOT_FOR_RUNTIME | {"cores", "deliveries", "latencies", "share"})


def test_the_runtime_has_the_declared_executors(programs):
    known = error(programs["dataflow"], executor="nonsense").partition("known: ")[2].split(", ")
    # A task of executor spark runs its share of the keys.
    assert sorted(known) == sorted([*ENGINE_EXECUTORS, "share"])


@pytest.mark.parametrize(("executor", "axis"), AXES)
def test_the_runtime_has_the_declared_strategies_and_the_same_default(programs, executor, axis):
    kind = ENGINE_EXECUTORS[executor].application_kinds[-1]
    # Some options have an effect only beside another option.
    requirement = ENGINE_EXECUTORS[executor].requirements().get(axis)
    beside = {requirement.option: min(requirement.values)} if requirement else {}
    message = error(programs[kind], executor=executor, **beside, **{axis: "nonsense"})
    known = message.partition("known: ")[2].split(", ")
    declared = [value for value in ENGINE_EXECUTORS[executor].axes()[axis] if (axis, value) != ("controller", "none")]
    assert known == declared


@pytest.mark.parametrize("name", ["idle", "sink"])
def test_the_runtime_has_the_declared_values_of_every_executor(programs, name):
    known = error(programs["dataflow"], executor="pooled", **{name: "nonsense"}).partition("expected one of")[2]
    assert sorted(re.findall(r"`(\w+)`", known)) == sorted(literal_values(SPEC_FIELDS[name]))


@pytest.mark.parametrize(
    ("name", "most"),
    [("threads", MAX_THREADS), ("partitions", MAX_PARTITIONS), ("slice", MAX_SLICE), ("throughput_window", MAX_SLICE)],
)
def test_the_runtime_has_the_declared_limits(programs, name, most):
    assert f"between 1 and {most}" in error(programs["dataflow"], executor="pooled", **{name: most + 1})
    assert f"between 1 and {most}" in error(programs["dataflow"], executor="pooled", **{name: 0})
    (limit,) = [constraint.le for constraint in SPEC_FIELDS[name].metadata if hasattr(constraint, "le")]
    assert limit == most


def test_two_threads_on_two_simulated_sockets_share_no_pool():
    def pools(name: str) -> list[int]:
        return [len(set(_runtime.pools(name, threads))) for threads in (1, 2, 4)]

    assert (pools("shared_nothing"), pools("shared_everything")) == ([1, 2, 4], [1, 1, 1])
    if probe.topology()["is_mock"]:
        assert pools("shared_per_socket") == [1, 2, 2]
    with pytest.raises(ValueError, match='unknown pool "puddle"'):
        _runtime.pools("puddle", 2)
