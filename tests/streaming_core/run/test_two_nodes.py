"""The engine on two memory nodes: one boot of an emulated machine runs every cell, and its kernel is the witness.

Cores, pages and results are tested. Emulated memory has one speed, so nothing here says what placement gains.

Booting and running takes three to four minutes on two cores.
"""

import json
import platform
import subprocess
import sys

import pyarrow as pa
import pytest

from infra.checkout import ROOT
from streaming_core.apps import registry
from streaming_core.data.agreement import outputs_digest, states_digest
from streaming_core.data.digest import format_digest
from streaming_core.oracle.interpreter import Interpreter
from tests.streaming_core.run import in_guest
from tests.streaming_core.run.in_guest import CELLS, PLAN
from tests.support import guest

pytestmark = pytest.mark.slow

# One hardware thread of each physical core first, node by node. Threads 0 and 1 of a core have consecutive numbers.
ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
NODES = [0, 0, 1, 1, 0, 0, 1, 1]
PAGES = in_guest.PARAMS["gs"]["n_items"] * 32 // 4096  # a row has a value and three words


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    """The facts that the guest writes (in_guest.py)."""
    if platform.machine() != "x86_64":
        pytest.skip("the guest is an x86-64 machine, and runs the programs of this one")
    guest.require_packages()
    folder = tmp_path_factory.mktemp("guest")
    variables = {"LOCKSTEP_HOME": str(folder), "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    command = [sys.executable, in_guest.__file__]
    subprocess.run([*command, "compile"], env=variables, check=True)
    return json.loads(guest.run(command, variables, folder))


@pytest.fixture(params=CELLS)
def cell(request, facts):
    """A cell, and the facts about it."""
    return CELLS[request.param], facts["cells"][request.param]


def test_probe_reads_sockets_nodes_distances_and_order_of_cores(facts):
    topology = facts["topology"]
    assert (topology["sockets"], topology["nodes"], topology["is_mock"]) == (2, [0, 1], False)
    assert topology["distances"] == [[10, 21], [21, 10]]
    assert [core["id"] for core in topology["cores"]] == ORDER
    assert [core["node"] for core in topology["cores"]] == NODES
    assert [core["socket"] for core in topology["cores"]] == NODES


def test_planner_takes_each_node_for_a_socket(facts):
    machine = facts["machine"]
    assert (machine["cores"], machine["numbers"], machine["spare"]) == ([4, 2], [[0, 1, 4, 5], [2, 3]], 2)


def test_rows_with_owners_lie_on_the_nodes_of_their_owners(facts):
    owners = facts["cells"]["owners"]
    assert owners["pages"] == [["prefer:0", {"N0": PAGES // 2}], ["prefer:1", {"N1": PAGES // 2}]]
    assert (owners["memory"]["nodes"], owners["memory"]["tables"]) == (NODES[:4], "with their threads")


def test_rows_without_owners_are_spread_over_both_nodes(facts):
    tstream = facts["cells"]["tstream"]
    # The memory of an earlier table keeps its policy.
    spread = [counts for policy, counts in tstream["pages"] if policy == "interleave:0-1"]
    assert spread == [{"N0": PAGES // 2, "N1": PAGES // 2}]
    assert (tstream["memory"]["nodes"], tstream["memory"]["tables"]) == (NODES, "on all nodes in turn")


def test_each_thread_runs_on_its_core_alone(cell):
    spec, facts = cell
    cores = ORDER[: spec["threads"]]
    assert facts["allowed"] == [[core] for core in cores]
    assert facts["used"] == cores
    assert facts["binding"] == cores


def test_only_threads_that_the_plan_names_work(facts):
    pinned = facts["cells"]["pinned"]
    planned = sorted([operator, thread] for operator, threads in PLAN.items() for thread in threads)
    assert sorted(pinned["tasks"]) == planned
    busy = {thread for _, thread in planned}
    times = pinned["nanoseconds"]
    assert min(times[thread] for thread in busy) > 2 * max(times[thread] for thread in {*range(8)} - busy)


def test_threads_of_a_socket_share_a_pool(facts):
    memory = facts["cells"]["tstream"]["memory"]
    assert memory["pools"] == NODES
    assert "sockets" not in memory


@pytest.fixture(scope="module")
def expected():
    """The oracle's digests of outputs and state, by application."""
    digests = {}
    for name, params in in_guest.PARAMS.items():
        app, events = registry.load(name), in_guest.events(name)
        oracle = Interpreter(app, app.bind(params))
        outputs = pa.concat_tables([oracle.process(events), oracle.finish(events.num_rows)])
        state = states_digest(app, "total", oracle.state())
        digests[name] = [format_digest(*outputs_digest(app, "total", outputs)), state]
    return digests


def test_results_equal_the_oracle(cell, expected):
    spec, facts = cell
    assert facts["results"] == [*expected[spec["app"]], True]
