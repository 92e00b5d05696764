"""An executor uses at most as many threads as there are cores. A sample says how many worked; results are the same."""

import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.kernels.program import compile_app
from streaming_core.run import one_pass
from streaming_core.run.blocks import Blocks
from streaming_core.run.one_pass import PassRequest
from streaming_core.run.report import Threads
from streaming_core.run.way import RunSpec

EVENTS = 3_000
OPEN = [
    {"app": "sl", "scheme": "auto"},
    {"app": "wc", "executor": "pooled"},
    {"app": "wc", "executor": "morsel"},
    {"app": "wc", "executor": "pinned"},
    {"app": "wordcount", "executor": "pinned"},
]
NAMED = [
    {"app": "sl", "scheme": "tstream"},
    {"app": "sl", "scheme": "owners", "pin": True},
    {"app": "wc", "executor": "pooled", "heuristic": "ct"},
    {"app": "wc", "executor": "pooled", "queue": "hybrid"},
    {"app": "wc", "executor": "pinned", "channel": "scalegate"},
    {"app": "wordcount", "executor": "pinned", "parallelism": "sn"},
]


@pytest.fixture(scope="module")
def passed(tmp_path_factory):
    """Makes a pass of a way on so many threads, on a machine with so many cores."""
    ready = {}

    def run(way, threads, cores):
        spec = RunSpec.parse({"executor": "transactional", "threads": threads} | way)
        if spec.app not in ready:
            app = registry.load(spec.app)
            folder = tmp_path_factory.mktemp("threads") / spec.app
            workload.write(app, app.bind(), EVENTS, 7, folder)
            source = workload.read(folder, app, {})
            ready[spec.app] = source, compile_app(app, source.manifest["params"])
        source, program = ready[spec.app]
        return one_pass.run(spec, program, Blocks(source, program, 1_000), PassRequest(cores=cores)).sample

    return run


@pytest.mark.parametrize("way", OPEN, ids=lambda way: "-".join(way.values()))
def test_threads_beyond_the_cores_are_idle_and_change_no_result(passed, way):
    expected = passed(way, 1, 1)
    assert expected.threads == Threads(worked=1, of=1)
    assert expected.threads.text == "1 of 1 thread worked"
    for cores, why in ((1, "1 core"), (2, "2 cores"), (3, "3 cores")):
        sample = passed(way, 16, cores)
        assert (sample.digest, sample.in_order) == (expected.digest, True)
        assert sample.threads == Threads(worked=cores, of=16, why=why)
    assert sample.threads.text == "3 of 16 threads worked: 3 cores"


@pytest.mark.parametrize("way", NAMED, ids=lambda way: "-".join(map(str, way.values())))
def test_all_threads_work_where_the_specification_names_their_work(passed, way):
    assert passed(way, 3, 2).threads == Threads(worked=3, of=3)


def test_a_plan_names_the_threads_that_work(passed):
    plan = {"source": [0], "split": [0, 1], "count": [1], "sink": [0]}
    threads = passed({"app": "wc", "executor": "pinned", "plan": plan}, 4, 8).threads
    assert threads == Threads(worked=2, of=4, why="the plan has no tasks for more")
