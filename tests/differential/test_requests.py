"""Requests of threads and controllers add and remove replicas during a run; the result equals the oracle's."""

import itertools
import threading
from contextlib import contextmanager

import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.kernels.program import compile_app
from streaming_core.oracle import oracle
from streaming_core.run import one_pass
from streaming_core.run.blocks import Blocks
from streaming_core.run.one_pass import PassRequest
from streaming_core.run.way import Pinned

EVENTS = 6_000
PARAMS = {"vocabulary": 300, "rate": 2_000}


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """A workload of wordcount, its program, and the digest of the oracle's outputs."""
    folder = tmp_path_factory.mktemp("requests")
    app = registry.load("wordcount")
    workload.write(app, PARAMS, EVENTS, 7, folder / "workload")
    manifest = oracle.run(folder / "workload", folder / "oracle")
    source = workload.read(folder / "workload", app, PARAMS)
    return source, compile_app(app, source.manifest["params"]), manifest["output_digest"]


def passed(counted, beside=None, rate=0.0, **way):
    source, program, digest = counted
    spec = Pinned(app="wordcount", params=PARAMS, batch=32, rate=rate, **way)
    blocks = Blocks(source, program, 1_500)
    sample, _, _ = one_pass.run(spec, program, blocks, PassRequest(rate=rate, beside=beside, cores=spec.threads))
    assert (sample.digest, sample.in_order) == (digest, True)
    return sample


@pytest.mark.parametrize("threads", [2, 3])
def test_requests_from_another_thread_change_no_result(counted, threads):
    shares = [[0], list(range(threads)), [threads - 1], [threads - 1, 0]]

    @contextmanager
    def asking(runtime):
        over, control, begun = threading.Event(), runtime.control("count"), threading.Event()

        def ask():
            for share in itertools.cycle(shares):
                control.request(share)
                begun.set()
                if over.is_set():
                    return

        thread = threading.Thread(target=ask)
        thread.start()
        begun.wait()
        yield
        over.set()
        thread.join()

    reconfigurations = passed(counted, asking, threads=threads).reconfigurations
    assert reconfigurations
    for reconfiguration in reconfigurations:
        assert reconfiguration.by == "request"
        assert reconfiguration.owners in shares
        assert reconfiguration.requested <= reconfiguration.posted
    assert [reconfiguration.event for reconfiguration in reconfigurations] == sorted(
        reconfiguration.event for reconfiguration in reconfigurations
    )


def test_runtime_applies_every_request_that_waits_for_the_previous_one(counted):
    requested = []

    @contextmanager
    def asking(runtime):
        over, control, shares = threading.Event(), runtime.control("count"), itertools.cycle([[0], [1], [0, 1]])

        def ask():
            while not over.is_set():
                if control.is_settled():
                    control.request(share := next(shares))
                    requested.append(share)

        assert control.is_settled()
        control.request(share := next(shares))
        requested.append(share)
        assert not control.is_settled()
        thread = threading.Thread(target=ask)
        thread.start()
        yield
        over.set()
        thread.join()

    reconfigurations = passed(counted, asking, threads=2).reconfigurations
    # The last one may have come when nothing was dealt any more.
    assert [reconfiguration.replicas for reconfiguration in reconfigurations] in (requested, requested[:-1])
    assert reconfigurations[0].requested == 0
    for earlier, following in itertools.pairwise(reconfigurations):
        assert max(over.at for over in earlier.gone_over) <= following.requested


@pytest.mark.parametrize("rate", [0.0, 1e6])
def test_run_records_deliveries_on_request(counted, rate):
    source, program, _ = counted
    spec = Pinned(app="wordcount", params=PARAMS, threads=2, batch=32)
    blocks = Blocks(source, program, 1_500)
    sample, _, more = one_pass.run(spec, program, blocks, PassRequest(rate=rate, records_deliveries=True))
    deliveries = more["deliveries"]
    events, times = [delivery["event"] for delivery in deliveries], [delivery["at"] for delivery in deliveries]
    # A gate hands on some batches together; at the end of a block all are delivered.
    assert {1_499, 2_999, 4_499, EVENTS - 1} <= {*events}
    assert events == sorted({*events})
    assert times == sorted(times)
    assert times[-1] <= sample.seconds * 1e9
    for delivery in deliveries:
        assert (delivery["latency"] is None) == (rate == 0)
        # Before it was there nothing of it can have been delivered.
        assert rate == 0 or 0 <= delivery["latency"] <= delivery["at"]
    _, _, more = one_pass.run(spec, program, blocks)
    assert more["deliveries"] is None


def test_request_for_an_unknown_operator_or_replica_is_refused(counted):
    @contextmanager
    def asking(runtime):
        for pattern in ([], [2], [0] * 1025):
            with pytest.raises(ValueError, match=r"^count has replicas 0 to 1: name the owners of its cells"):
                runtime.control("count").request(pattern)
        with pytest.raises(ValueError, match=r"^split is not a windowed operator of this run$"):
            runtime.control("split")
        yield

    assert not passed(counted, asking, threads=2).reconfigurations


@pytest.mark.parametrize("controller", ["threshold", "model"])
def test_controller_releases_idle_replicas(counted, controller):
    # The rate spreads some milliseconds of work over more than a second.
    sample = passed(counted, threads=2, controller=controller, rate=EVENTS / 1.2)
    (operator_loads,) = sample.loads.items()
    assert operator_loads[0] == "count"
    assert [load.most for load in operator_loads[1]] == [2] * len(operator_loads[1])
    first = sample.reconfigurations[0]
    assert (first.by, first.replicas) == (controller, [0])
    assert first.cause.startswith("load ")
    assert first.cause.endswith({"threshold": " % below 45 %", "model": " % below 70 %"}[controller])
