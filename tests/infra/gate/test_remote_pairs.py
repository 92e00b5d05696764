"""Cells that ran on another host are measured there: a real SSH server, real wheels, and a small engine."""

import json
import sys
from pathlib import Path
from socket import gethostname

import pytest

from dags.lib.operators import connections_of
from infra.gate import measurement, pairs
from infra.gate.pairs import Request
from infra.gate.remote_pairs import measure
from infra.hosts import build
from infra.hosts.build import Build
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from tests.infra.gate import measured_run
from tests.infra.gate.test_pairs import SPEC, answering
from tests.support.sshd import Sshd

BASELINE = "abc1234"
# The wrapper of the connection: a program in place of the engine, which answers for the build that the wheel names.
ENGINE = """
import os, sys
from pathlib import Path

name = Path(os.environ["PYTHONPATH"], "streaming_core", "BUILD").read_text().strip()
sys.path.insert(0, str(Path(__file__).with_name(name)))
sys.argv = ["streaming-core", *sys.argv[-6:]]
from streaming_core.cli import main
main()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Sshd(tmp_path_factory.mktemp("host") / "sshd") as running:
        yield running


@pytest.fixture(scope="module")
def builds(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("host") / "builds"


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "lockstep"))
    return Home(tmp_path / "lockstep")


@pytest.fixture
def cells(home) -> tuple[str, list[dict]]:
    """A run whose cells ran on the host `node`: its id, and the two cells to measure. Their passes are short."""
    run_id, names = measured_run.make(home, events=50)
    measured_run.run_on(home, run_id, "node", names)
    return run_id, measurement.cells_of(home, run_id, None)


@pytest.fixture
def connect(server, builds, tmp_path, monkeypatch):
    """Makes the connection `node` with these fields in its extra."""
    (tmp_path / "engine.py").write_text(ENGINE)
    answering(tmp_path / BASELINE, seconds=0.5, steal=0.25)
    answering(tmp_path / build.checkout().name, seconds=0.25)

    def set_connection(**extra):
        extra = {
            "python": sys.executable,
            "folder": str(builds.parent),
            "wrapper": [sys.executable, str(tmp_path / "engine.py")],
        } | extra
        monkeypatch.setenv("AIRFLOW_CONN_NODE", json.dumps(server.connection(**extra)))

    set_connection()
    return set_connection


@pytest.mark.slow
def test_cell_is_measured_on_the_host_that_ran_it(home, cells, connect, server, builds):
    run_id, (cell, _) = cells
    lines: list[str] = []
    rows = measurement.measure(home, run_id, [cell], Build(BASELINE, build.ROOT), lines.append)
    assert lines == [f"measuring cell 1 of 1: {cell['cell']}, on host node"]
    assert [row["pair"] for row in rows] == list(range(pairs.PAIRS))
    assert {(row["baseline_seconds"], row["build_seconds"], row["steal"]) for row in rows} == {(0.5, 0.25, 0.25)}
    assert {(row["baseline"], row["build"], row["host"]) for row in rows} == {
        (BASELINE, build.checkout().name, gethostname())
    }
    assert {(path / "streaming_core" / "BUILD").read_text().strip() for path in builds.iterdir()} == {
        BASELINE,
        build.checkout().name,
    }
    assert (server.folder / "host.lock").exists(), "it took the lock on that host"


@pytest.fixture
def request_of(home):
    sides = {"baseline": (BASELINE, str(build.ROOT)), "build": ("def5678", str(build.ROOT))}
    return Request("cell", SPEC.model_dump(mode="json"), str(home.workload("wc", "w")), "", None, [], sides)


@pytest.mark.usefixtures("hasty")
def test_unreachable_host_has_a_reason_and_a_remedy(home, request_of, connect, monkeypatch, server):
    monkeypatch.setenv("AIRFLOW_CONN_NODE", json.dumps(server.connection() | {"port": 1}))
    line = r"lost the SSH connection to 127\.0\.0\.1: .*; check that it is up, and the address, login and keys of the "
    with pytest.raises(BadInput, match=line):
        measure("node", gethostname(), request_of)


def test_connection_to_another_machine_is_refused(home, request_of, connect):
    line = f"the cell ran on numa-7, but the connection leads to {gethostname()} now: run the cell again"
    with pytest.raises(BadInput, match=line):
        measure("node", "numa-7", request_of)


def test_host_without_a_connection_is_refused(home, request_of):
    with pytest.raises(BadInput, match="Airflow has no connection 'nosuch'; add it under Admin, Connections"):
        measure("nosuch", gethostname(), request_of)


def test_task_passes_host_connections_to_its_command(home, cells, connect, server):
    run_id, _ = cells
    (variable,) = connections_of(run_id).items()
    assert variable[0] == "AIRFLOW_CONN_NODE"
    connection = json.loads(variable[1])
    assert (connection["conn_type"], connection["port"], connection["extra"]["python"]) == (
        "ssh",
        server.port,
        sys.executable,
    )
