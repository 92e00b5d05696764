"""search/ways.py: random ways of executing."""

import random

import pytest

from streaming_core.apps import registry
from streaming_core.run.way import ENGINE_EXECUTORS, RunSpec, engine_executors_of
from streaming_core.search.ways import ways

ROUNDS = 40


def rounds(name, count=6, events=100):
    """Every way of some rounds."""
    app = registry.load(name)
    drawn = [ways(app, app.bind(), events, random.Random(f"{name} {number}"), count) for number in range(ROUNDS)]
    return app, drawn


@pytest.mark.parametrize("name", ["wc", "hedge", "sl", "lr"])
def test_each_round_has_every_executor_and_some_rounds_every_strategy(name):
    app, drawn = rounds(name)
    for specs in drawn:
        assert {spec.executor for spec in specs} == set(engine_executors_of(app.kind))
        for spec in specs:
            spec.check(app)
            assert not spec.is_bound
            assert RunSpec.parse(spec.model_dump(mode="json")) == spec
    every = [spec for specs in drawn for spec in specs]
    for executor in engine_executors_of(app.kind):
        for axis, values in ENGINE_EXECUTORS[executor].axes().items():
            met = {getattr(spec, axis) for spec in every if spec.executor == executor}
            if axis == "channel" and app.unordered is None:
                values = ["gate"] if app.kind == "windowed" else ["gate", "scalegate", "merge_sort"]
            if axis in ("controller", "parallelism") and app.kind != "windowed":
                values = values[:1]
            if axis == "order" and app.unordered is None:
                values = values[:1]
            assert met >= set(values) - {"no_lock"}, (executor, axis)


def test_half_of_the_ways_have_default_strategies_and_most_have_several_threads():
    _, drawn = rounds("wc")
    every = [spec for specs in drawn for spec in specs]
    plain = [
        all(getattr(spec, axis) in (None, values[0]) for axis, values in type(spec).axes().items() if axis != "order")
        for spec in every
    ]
    assert 0.4 < sum(plain) / len(plain) < 0.9
    assert sum(spec.threads > 1 for spec in every) > 0.8 * len(every)
    assert {spec.threads for spec in every} == set(range(1, 9))
    assert sum(spec.checkpoint != "0" for spec in every) > 0.1 * len(every)
    faults = {entry.partition("@")[0] for spec in every for entry in spec.faults.split(",")}
    assert faults == {"", "kill", "stall", "full-disk", "clock"}


def test_draws_follow_from_the_seed_and_exist_without_events():
    app = registry.load("scalejoin")
    for events in (0, 1, 1000):
        once, again = (ways(app, app.bind(), events, random.Random(events), 6) for _ in range(2))
        assert once == again
