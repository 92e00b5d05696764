"""How evenly keys are dealt to the replicas of a windowed operator, counted in real runs."""

import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.kernels.program import compile_app
from streaming_core.run import engine
from streaming_core.run.way import Pinned

EVENTS, COPIES = 200, 1_000
PARAMS = {"copies": COPIES, "once": True}


@pytest.fixture(scope="module")
def forwarded(tmp_path_factory):
    """A workload of forward, whose rows all have the same 1,000 keys, and its program."""
    folder = tmp_path_factory.mktemp("balance")
    app = registry.load("forward")
    workload.write(app, app.bind(PARAMS), EVENTS, 7, folder)
    return workload.read(folder, app, PARAMS), compile_app(app, app.bind(PARAMS))


def passed(forwarded, replicas, **more):
    source, program = forwarded
    plan = {"forward": [replica % 2 for replica in range(replicas)]}
    spec = Pinned(app="forward", params=PARAMS, threads=2, plan=plan, **more)
    sample, _, _ = engine.one_pass(spec, program, engine.Blocks(source, program, 1_000))
    return sample


@pytest.mark.parametrize("parallelism", ["vsn", "sn"])
@pytest.mark.parametrize("replicas", [1, 2, 3, 36])
def test_replicas_differ_by_at_most_one_of_the_keys_that_every_row_has(forwarded, replicas, parallelism):
    balance = passed(forwarded, replicas, parallelism=parallelism).balance["forward"]
    assert len(balance.calls) == replicas
    assert sum(balance.calls) == EVENTS * COPIES
    assert {calls // EVENTS for calls in balance.calls} <= {COPIES // replicas, -(-COPIES // replicas)}
    assert all(calls % EVENTS == 0 for calls in balance.calls)
    assert balance.variation < 2, "in percent; the paper has at most 2"


def test_a_pattern_gives_a_replica_more_cells_than_another(forwarded):
    schedule = [{"event": 0, "owners": {"forward": [0, 0, 0, 1]}}]
    [most, least] = passed(forwarded, 2, schedule=schedule).balance["forward"].calls
    assert (most, least) == (EVENTS * 750, EVENTS * 250)
