"""Runs on an external Spark Connect server, and cells that lose their workers. test_stack.py has a cluster."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE

import psutil
import pyspark
import pytest

from infra.checkout import ROOT
from infra.spark.server import Server
from reports.history import History
from streaming_core.regression.home import Home
from tests.e2e.scheduled import free_port, of_this_checkout
from tests.support.waiting import wait_for

SPARK_HOME = Path(pyspark.__file__).parent
PATIENCE = 1200
TOKEN = "an/external+token="
SMALL = ["--applications", "wc,gs", "--executors", "pooled,transactional,spark", "--schemes", "owners"]
SMALL += ["--threads", "1,2"]
# A stage takes long enough to be in its middle.
LONG = ["--threads", "1", "--events", "300000"]

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def world(tmp_path_factory, with_compiled) -> dict[str, str]:
    """The environment of `lockstep run`."""
    root = tmp_path_factory.mktemp("spark-world")
    with_compiled(root / "lockstep")
    return of_this_checkout(root)


@pytest.fixture
def begin(world) -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts `lockstep run` on the Spark of a connection."""
    runs: list[subprocess.Popen] = []

    def start(connection: dict, *arguments: str, **variables: str) -> subprocess.Popen:
        command = [str(Path(sys.executable).parent / "lockstep"), "run", "--json", "--repetitions", "1"]
        environment = world | {"AIRFLOW_CONN_MINE": json.dumps(connection)} | variables
        pipes = {"stdout": PIPE, "stderr": PIPE}
        command += ["--spark", "mine", *SMALL, *arguments]
        runs.append(subprocess.Popen(command, env=environment, text=True, **pipes))
        return runs[-1]

    yield start
    for run in runs:
        run.terminate()
        run.wait(PATIENCE)


def result_of(run: subprocess.Popen) -> dict:
    """The result of a run, all of whose cells must be equal."""
    output, errors = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, output + errors
    result = json.loads(output)
    assert result["green"]
    assert {cell["verdict"] for cell in result["cells"]} == {"equal"}
    return result


@pytest.fixture
def external(tmp_path) -> Iterator[tuple[int, subprocess.Popen]]:
    """The port of a Spark Connect server with a token, and its process."""
    port, log = free_port(), tmp_path / "log"
    settings = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": port}
    settings |= {"spark.sql.warehouse.dir": tmp_path / "warehouse", "spark.ui.enabled": "false"}
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]", "--class"]
    command += ["org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    environment = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    environment |= {"PYTHONPATH": str(ROOT), "SPARK_CONNECT_AUTHENTICATE_TOKEN": TOKEN}
    with open(log, "wb") as out:
        process = subprocess.Popen(
            [*command, "spark-internal"], env=os.environ | environment, cwd=tmp_path, stdout=out, stderr=out
        )
    wait_for(lambda: "Connect server started at: 127.0.0.1:" in log.read_text() or process.poll(), PATIENCE)
    assert process.poll() is None, log.read_text()
    yield port, process
    process.terminate()
    process.wait(PATIENCE)


def test_run_on_an_external_server_with_a_token_is_green(external, world, begin):
    port, server = external
    connection = {"conn_type": "spark_connect", "host": "localhost", "port": port, "login": "me", "password": TOKEN}
    run_id = result_of(begin(connection, "--events", "3000"))["run_id"]
    log = Home(world["LOCKSTEP_HOME"]).log(f"spark-{run_id}")
    assert log.read_text() == "", "the run started no server"
    logs = [path.read_text(errors="replace") for path in Path(world["AIRFLOW_HOME"]).rglob("*.log")]
    assert any(f"the Spark server of this run is sc://localhost:{port} " in text for text in logs)
    for home in ("AIRFLOW_HOME", "LOCKSTEP_HOME"):
        for path in Path(world[home]).rglob("*"):
            if path.is_file() and "compiled" not in path.parts:
                content = path.read_bytes()
                assert TOKEN.encode() not in content, path
                assert b"an%2Fexternal" not in content, path

    wrong = begin(connection | {"password": "a guess"}, "--events", "3000")
    output, _ = wrong.communicate(timeout=PATIENCE)
    assert wrong.returncode == 1
    states = {stage["stage"]: stage["state"] for stage in json.loads(output)["stages"]}
    assert {states[stage] for stage in ("prepare_workloads", "validate_outputs", "dbt_build")} == {"failed"}
    failures = History(Home(world["LOCKSTEP_HOME"])).latest().status.failures
    assert "Invalid authentication token" in failures["validate_outputs"]
    assert server.poll() is None


def test_runs_at_once_and_a_later_one_share_a_server(world, begin, tmp_path):
    home = Home(world["LOCKSTEP_HOME"])
    connection = {"conn_type": "spark", "host": "local[2]", "extra": {"idle_seconds": 3600}}
    cells = ["--applications", "wc", "--executors", "pooled", "--threads", "1", "--events", "3000"]
    server = Server(home)
    try:
        # Runs of one AIRFLOW_HOME wait for each other.
        runs = [begin(connection, *cells, AIRFLOW_HOME=str(tmp_path / name)) for name in ("nightly", "review")]
        wait_for(lambda: len(list(filter(server.lease, server.owners()))) == 2, PATIENCE)
        first, second = map(server.lease, server.owners())
        assert (first.url, first.server) == (second.url, second.server)
        shared = server.lease(first.server)
        for run in runs:
            result_of(run)
        assert server.owners() == []
        result_of(begin(connection, *cells))
        assert server.lease(shared.owner) == shared
    finally:
        for path in home.root.glob("spark-scratch/shared-*.json"):
            server.stop(path.stem)


def python_workers(pid: int) -> list[psutil.Process]:
    """The Python processes that execute tasks below a process: forks of pyspark's daemon."""
    workers = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            if "pyspark.daemon" in process.cmdline() and "pyspark.daemon" in process.parent().cmdline():
                workers.append(process)
        except (psutil.Error, AttributeError):
            continue  # it has ended
    return workers


# --- the run's own server ----------------------------------------------------------------------------------------


def test_killed_server_is_restarted_and_the_run_is_green(world, begin):
    scratch = Path(world["LOCKSTEP_HOME"]) / "spark-scratch"
    run = begin({"conn_type": "spark", "host": "local[2]"}, *LONG, "--seed", "8")
    wait_for(lambda: [*scratch.glob("*.json")] or run.poll() is not None, PATIENCE)
    (lease,) = scratch.glob("*.json")
    keeper = json.loads(lease.read_text())["pid"]
    wait_for(lambda: run.poll() is not None or python_workers(keeper), PATIENCE)
    assert run.poll() is None, run.communicate()
    os.killpg(keeper, signal.SIGKILL)
    result_of(run)


STOPPED = """
import os, signal
from types import SimpleNamespace
from airflow.sdk.exceptions import AirflowFailException
from dags.lib.spark import ServerHook, SparkJob
from infra.checkout import home
from infra.spark.server import Server
RUN = "20260101T000000Z-00000000"
os.environ["LOCKSTEP_WATCH"] = str(os.getpid())
hook = ServerHook("spark_default", RUN)
hook.start(print)
def endless(run, spark):
    print("running", flush=True)
    spark.range(10**14).selectExpr("sum(id % 7)").collect()
def short(run, spark):
    return spark.range(3).count()
def task(work):
    return SparkJob(task_id="validate_outputs", run=RUN, conn_id="spark_default", python_callable=work)
long = task(endless)
signal.signal(signal.SIGTERM, lambda *_: long.on_kill())  # as Airflow's runner of tasks does
context = {"ti": SimpleNamespace(try_number=1)}
try:
    long.execute(context)
except AirflowFailException as error:
    print(error, flush=True)
print(task(short).execute(context), flush=True)  # the server has one core
Server(home()).stop(RUN)
"""


def test_stopped_task_ends_its_query_and_the_server_keeps_running(world):
    run_id = "20260101T000000Z-00000000"
    environment = world | {"AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"})}
    command = [sys.executable, "-c", STOPPED]
    stopped = subprocess.Popen(command, env=environment, stdout=PIPE, stderr=PIPE, text=True)
    try:
        log = Home(world["LOCKSTEP_HOME"]).log(f"spark-{run_id}")
        wait_for(lambda: stopped.poll() is not None or (log.exists() and "Starting task " in log.read_text()), PATIENCE)
        stopped.terminate()
        output, errors = stopped.communicate(timeout=PATIENCE)
    finally:
        stopped.kill()
    lines = [line for line in output.splitlines() if " loc=" not in line]  # the others are Airflow's
    assert lines[-3:] == ["running", "validate_outputs: stopped by SIGTERM", "3"], output + errors
    record = Home(world["LOCKSTEP_HOME"]).run(run_id) / "stages" / "validate_outputs.json"
    assert json.loads(record.read_text())["error"] is None


# --- cells on the cluster ----------------------------------------------------------------------------------------


def test_cells_with_twenty_lost_workers_equal_the_oracle():
    """A worker is killed in the middle of each kind of stage, five times (`kills.py`)."""
    command = [sys.executable, "-m", "tests.e2e.kills", "--kills", "20", "--events", "20000"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [json.loads(line)["equal"] for line in done.stdout.splitlines()] == [True] * 20
