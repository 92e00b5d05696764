"""A run on several hosts, through a real scheduler: each host is an `sshd` on loopback, with a lock of its own.

One start of Airflow serves all scenarios:

- a night on three hosts
- a run that loses one host, and leaves out another one
- a run that a person ends while its lane is deferred
- a run whose connection breaks at 20 random moments
- the matrix `numa`
- the speed gate on a host: of a run, of the DAG `speed_gate`, and of `lockstep gate`
"""

import json
import random
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from reports.history import History, Run
from streaming_core.regression.fleet import claims, losses
from streaming_core.regression.home import Home
from streaming_core.regression.project import PREFIX
from streaming_core.regression.stages import DAG_ID
from tests.e2e.nodes import Node
from tests.e2e.scheduled import RUNS, Airflow
from tests.support.waiting import alive, wait_for

PATIENCE = 1500
NIGHT = """# The matrix of the DAG streaming_regression_nightly.
applications: [wc, gs]
executors: [pooled, transactional]
schemes: [owners, serial]
threads: [1, 2]
events: 2000
repetitions: 1
seconds: 0
hosts: all
"""
SMALL = {"applications": ["wc"], "executors": ["pooled"], "threads": [1, 2], "events": 2000, "repetitions": 1}
SMALL |= {"seconds": 0, "batches": [16, 256]}
CUTS = 20
NODES = ("node-a", "node-b", "node-c")

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def hold(tmp_path_factory) -> Path:
    """The folder of tests/e2e/held_engine.py."""
    return tmp_path_factory.mktemp("hold")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory, copied, user_environment, hold):
    """Three hosts, by name."""
    root = tmp_path_factory.mktemp("nodes")
    # What a login shell of the host's user would have.
    environment = {"LOCKSTEP_HOME": user_environment["LOCKSTEP_HOME"], "PYTHONPATH": str(copied)}
    environment["LOCKSTEP_APP_HOLD"] = str(hold)
    running = {name: Node(root / name, environment) for name in NODES}
    yield running
    for node in running.values():
        node.kill()


@pytest.fixture(scope="module")
def airflow(copied, user_environment, nodes):
    (copied / "dags" / "matrices" / "nightly.yaml").write_text(NIGHT)
    python = str(copied / ".venv" / "bin" / "python")
    engine = [python, str(copied / "tests" / "e2e" / "held_engine.py")]
    connections = {name: node.connection(engine, python) for name, node in nodes.items()}
    connections["unfit"] = nodes["node-c"].connection(engine, "/nowhere/python")
    spark = json.dumps({"conn_type": "spark", "host": "local[2]"})
    settings = {f"AIRFLOW_CONN_{name.upper()}": json.dumps(connection) for name, connection in connections.items()}
    settings |= {f"AIRFLOW_CONN_{PREFIX.upper()}SPARK_DEFAULT": spark, "LOCKSTEP_HOSTS": ", ".join(NODES)}
    environment = user_environment | settings | {"AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2"}
    with Airflow(environment, copied) as running:
        yield running


@pytest.fixture
def home(airflow) -> Home:
    return airflow.home


@pytest.fixture
def trigger(airflow) -> Callable[..., str]:
    def start(**conf: object) -> str:
        return airflow.call(RUNS, "POST", {"conf": {**SMALL, **conf}, "logical_date": None})["dag_run_id"]

    return start


def ended(airflow: Airflow, run: str, dag: str = DAG_ID) -> str | None:
    state = airflow.call(f"/api/v2/dags/{dag}/dagRuns/{run}")["state"]
    return state if state in ("success", "failed") else None


def lanes(airflow: Airflow, run: str) -> dict[str, str]:
    """Host -> state of its lane."""
    tasks = airflow.call(f"{RUNS}/{run}/taskInstances")["task_instances"]
    return {task["rendered_map_index"]: task["state"] for task in tasks if task["task_id"] == "run_core"}


def engines(hold: Path, node: str) -> list[int]:
    """The engines that began on a host and are still alive."""
    known = [int(path.name.rpartition("-")[2]) for path in hold.glob(f"{node}-*")]
    return [pid for pid in known if alive(pid)]


def latest(home: Home, origin: str) -> Run:
    history = History(home)
    return history.run(next(run_id for run_id in history.run_ids() if history.origin(run_id) == origin))


def test_nightly_uses_all_hosts_and_ends_green(airflow, home):
    dag = f"{DAG_ID}_nightly"
    airflow.call(f"/api/v2/dags/{dag}", "PATCH", {"is_paused": False})
    known = {run["dag_run_id"] for run in airflow.call(RUNS)["dag_runs"]}
    night = airflow.call(f"/api/v2/dags/{dag}/dagRuns", "POST", {"conf": {}, "logical_date": None})["dag_run_id"]
    (started,) = wait_for(lambda: {run["dag_run_id"] for run in airflow.call(RUNS)["dag_runs"]} - known, PATIENCE)
    assert wait_for(lambda: ended(airflow, started), PATIENCE) == "success"
    assert wait_for(lambda: ended(airflow, night, dag), PATIENCE) == "success"
    run = latest(home, started)
    assert run.green
    assert lanes(airflow, started) == dict.fromkeys(NODES, "success")
    known_claims = claims(home, run.run_id)
    assert set(known_claims) == {cell.name for cell in run.cells}
    assert {claim.host for claim in known_claims.values()} == set(NODES)
    page = home.report(run.run_id, "index.html").read_text()
    assert all(f">{name}<" in page for name in NODES)


def test_healthy_host_takes_the_cells_of_lost_and_unfit_hosts(airflow, home, nodes, hold, trigger):
    (hold / "hold").touch()
    started = trigger(hosts=["node-a", "node-b", "unfit"])
    healthy, doomed = (
        wait_for(lambda name=name: engines(hold, name) or ended(airflow, started), PATIENCE)
        for name in ("node-a", "node-b")
    )
    assert isinstance(healthy, list)
    assert isinstance(doomed, list)
    wait_for(lambda: lanes(airflow, started) == dict.fromkeys(("node-a", "node-b"), "deferred"), PATIENCE)
    run = latest(home, started)
    page = airflow.call(f"/lockstep/{run.run_id}/index.html", raw=True)
    assert "left out: " in page
    assert page.count("▶") == 2, "the page of a run in progress shows which cells run"

    sessions = {process.pid for process in nodes["node-a"].sessions()}
    nodes["node-a"].cut()
    wait_for(lambda: {process.pid for process in nodes["node-a"].sessions()} - sessions, PATIENCE)
    assert engines(hold, "node-a") == healthy, "the engine goes on without its connection"

    nodes["node-b"].kill()
    assert wait_for(lambda: losses(home, run.run_id), PATIENCE).keys() == {"node-b"}
    wait_for(lambda: lanes(airflow, started)["node-b"] == "failed", PATIENCE)
    assert not [pid for pid in doomed if alive(pid)]

    # The host was restarted: its processes are gone, and nothing tells how the cell ended.
    for process in nodes["node-a"].engines():
        process.kill()
    wait_for(lambda: set(engines(hold, "node-a")) - set(healthy), PATIENCE)

    (hold / "hold").unlink()
    assert wait_for(lambda: ended(airflow, started), PATIENCE) == "success"
    run = latest(home, started)
    assert run.green, run.sentence
    assert {claim.host for claim in claims(home, run.run_id).values()} == {"node-a"}
    assert lanes(airflow, started) == {"node-a": "success", "node-b": "failed"}
    page = airflow.call(f"/lockstep/{run.run_id}/index.html", raw=True)
    assert "left out: " in page
    assert "lost: " in page


def test_manual_end_of_a_run_stops_the_engine_of_a_deferred_lane(airflow, home, hold, trigger):
    (hold / "hold").touch()
    started = trigger(hosts=["node-a"])
    before = set(engines(hold, "node-a"))
    (engine,) = wait_for(lambda: set(engines(hold, "node-a")) - before, PATIENCE)
    wait_for(lambda: lanes(airflow, started) == {"node-a": "deferred"}, PATIENCE)
    family = [psutil.Process(engine), *psutil.Process(engine).parents()[:1]]
    airflow.call(f"{RUNS}/{started}", "PATCH", {"state": "failed"})
    wait_for(lambda: not any(alive(process.pid) for process in family), PATIENCE)
    (hold / "hold").unlink()
    assert wait_for(lambda: ended(airflow, started), PATIENCE) == "failed"
    assert latest(home, started).status.state == "stopped"


def test_connection_that_breaks_at_random_moments_loses_nothing(airflow, home, nodes, trigger):
    """The moments fall into transfers of workloads, into cells, and into transfers of results."""
    chance, cuts = random.Random(63), 0
    started = trigger(hosts=["node-a"], events=400_000, batches=[256, 512, 1024])
    while not ended(airflow, started):
        threading.Event().wait(chance.uniform(0.05, 1.5))
        if cuts < CUTS and nodes["node-a"].sessions():
            nodes["node-a"].cut()
            cuts += 1
    assert cuts == CUTS
    run = latest(home, started)
    assert run.green, run.sentence
    assert not list((nodes["node-a"].folder / "data" / "runs").rglob("attempt-*"))


def test_matrix_numa_draws_a_curve_of_a_host_that_shares_nothing(airflow, home, trigger):
    conf = {"matrix": "numa", "hosts": ["node-a"], "applications": ["wc", "gs"], "events": 2000, "seconds": 0.05}
    started = airflow.call(RUNS, "POST", {"conf": conf | {"repetitions": 1}, "logical_date": None})["dag_run_id"]
    assert wait_for(lambda: ended(airflow, started), PATIENCE) == "success"
    run = latest(home, started)
    assert run.green, run.sentence
    (seen,) = run.preflights
    assert {cell.spec.threads for cell in run.cells} == set(seen.points)
    assert all(cell.spec.pin for cell in run.cells)
    page = home.report(run.run_id, "performance.html").read_text()
    assert "Throughput by threads" in page
    page = home.report(run.run_id, "index.html").read_text()
    assert f"first on {seen.bound}" in page
    page = home.report(run.run_id, f"{run.cells[0].name}.html").read_text()
    assert "estimated: " in page
    assert "counted: " in page


@pytest.fixture(scope="module")
def gated(airflow, nodes):
    """A green run with a speed gate, on `stored`, a host that only Airflow's database knows. Its passes are short.

    A command of a task cannot read that database.
    """
    connection = json.loads(airflow.environment["AIRFLOW_CONN_NODE-C"])
    stored = connection | {"connection_id": "stored", "extra": json.dumps(connection["extra"])}
    airflow.call("/api/v2/connections", "POST", stored)
    return small_run(airflow, hosts=["stored"], gate_minutes=10, gate_against="HEAD")


def small_run(airflow: Airflow, **conf: object) -> Run:
    """A green run of one cell, whose passes are too short to compare: the gate measures one pair."""
    conf = SMALL | {"threads": [1], "batches": [16], "events": 50} | conf
    started = airflow.call(RUNS, "POST", {"conf": conf, "logical_date": None})["dag_run_id"]
    assert wait_for(lambda: ended(airflow, started), PATIENCE) == "success"
    return latest(airflow.home, started)


def verdicts(run: Run) -> list[tuple[str | None, str | None]]:
    """The gate's verdict on each cell of a run, with its reason."""
    return [(cell.gate and cell.gate.verdict, cell.gate and cell.gate.reason) for cell in run.cells]


def test_speed_gate_of_a_run_measures_on_the_host_that_ran_the_cell(gated, nodes):
    assert verdicts(gated) == [("too_short", None)]
    names = {path.read_text().strip() for path in (nodes["node-c"].folder / "builds").glob("*/streaming_core/BUILD")}
    assert {gated.cells[0].gate.baseline, gated.build} <= names


def test_gate_command_measures_on_the_host_and_reports_an_unreachable_one(airflow, copied, gated, nodes):
    command = [str(copied / ".venv" / "bin" / "lockstep"), "gate", "--against", "HEAD", gated.run_id, "--json"]

    def gate() -> dict:
        done = subprocess.run(command, env=airflow.environment, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        (verdict,) = json.loads(done.stdout)["gate"]
        return verdict

    assert gate()["verdict"] == "too_short"
    nodes["node-c"].kill()
    away = gate()
    assert away["verdict"] == "not_judged"
    assert away["reason"].startswith("host stored cannot measure it: lost the SSH connection to 127.0.0.1: ")
    assert away["reason"].endswith("check that it is up, and the address, login and keys of the connection")
