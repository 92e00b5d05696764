"""How evenly keys are dealt to the replicas of a windowed operator, counted in real runs."""

import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.kernels.program import compile_app
from streaming_core.oracle import oracle
from streaming_core.run import one_pass
from streaming_core.run.blocks import Blocks
from streaming_core.run.one_pass import PassRequest
from streaming_core.run.way import CELLS, Pinned

EVENTS, COPIES = 200, 1_000
PARAMS = {"keys": COPIES}


@pytest.fixture(scope="module")
def joined(tmp_path_factory):
    """A workload of scalejoin, whose rows all have the same 1,000 keys, and its program."""
    folder = tmp_path_factory.mktemp("balance")
    app = registry.load("scalejoin")
    workload.write(app, app.bind(PARAMS), EVENTS, 7, folder)
    return workload.read(folder, app, PARAMS), compile_app(app, app.bind(PARAMS))


def passed(joined, replicas, **more):
    source, program = joined
    plan = {"from_left": [replica % 2 for replica in range(replicas)]}
    spec = Pinned(app="scalejoin", params=PARAMS, threads=2, plan=plan, **more)
    sample, _, _ = one_pass.run(spec, program, Blocks(source, program, 1_000))
    return sample


@pytest.mark.parametrize("parallelism", ["vsn", "vsn_esg", "sn"])
@pytest.mark.parametrize("replicas", [1, 2, 3, 36])
def test_replicas_differ_by_at_most_one_key_per_row(joined, replicas, parallelism):
    balance = passed(joined, replicas, parallelism=parallelism).balance["from_left"]
    assert len(balance.calls) == replicas
    assert sum(balance.calls) == EVENTS * COPIES
    assert {calls // EVENTS for calls in balance.calls} <= {COPIES // replicas, -(-COPIES // replicas)}
    assert all(calls % EVENTS == 0 for calls in balance.calls)
    assert balance.variation < 2, "in percent; the paper has at most 2"


def test_controller_balances_replicas_and_the_result_stays_equal(tmp_path):
    app = registry.load("wordcount")
    params = {"vocabulary": 300, "rate": 2_000}
    workload.write(app, params, 6_000, 7, tmp_path / "workload")
    manifest = oracle.run(tmp_path / "workload", tmp_path / "oracle")
    source = workload.read(tmp_path / "workload", app, params)
    program = compile_app(app, source.manifest["params"])
    # A replica has nearly all cells, until the controller looks, and events come for so long.
    schedule = [{"event": 0, "owners": {"count": [0, 0, 0, 0, 0, 0, 0, 1]}}]
    spec = Pinned(
        app="wordcount", params=params, threads=2, batch=32, schedule=schedule, controller="balance", rate=5_000
    )
    sample, _, _ = one_pass.run(spec, program, Blocks(source, program, 1_500), PassRequest(rate=5_000))
    assert (sample.digest, sample.in_order) == (manifest["output_digest"], True)
    first, second, *_ = sample.reconfigurations
    assert (first.by, second.by) == ("schedule", "balance")
    assert second.replicas == [0, 1]
    assert second.cause.startswith("a replica has ")
    assert second.owners.count(1) > CELLS / 8  # it gains cells


def test_owner_pattern_assigns_cells_unevenly(joined):
    schedule = [{"event": 0, "owners": {"from_left": [0, 0, 0, 1]}}]
    [most, least] = passed(joined, 2, schedule=schedule).balance["from_left"].calls
    assert (most, least) == (EVENTS * 750, EVENTS * 250)
