"""Runs on another Spark: an external Spark Connect server with a token, and a standalone cluster of two workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyspark
import pytest

from reports.history import History
from streaming_core.regression.home import Home
from tests.e2e.scheduled import free_port
from tests.support.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
PATIENCE = 600
TOKEN = "an/external+token="
SMALL = [
    "--applications",
    "wc,gs",
    "--executors",
    "pooled,transactional,spark",
    "--schemes",
    "owners",
    "--threads",
    "1,2",
]
# A stage takes long enough to be in its middle.
LONG = ["--threads", "1", "--events", "300000"]

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


class Processes:
    """JVMs of Spark's own classes, on loopback."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.started: list[subprocess.Popen] = []

    def start(self, name: str, *command: str, **environment: str) -> subprocess.Popen:
        """Start a command of Spark. Its output is in `NAME.log`."""
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / command[0]), *command[1:]],
                env={
                    **os.environ,
                    "SPARK_HOME": str(SPARK_HOME),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "PYSPARK_PYTHON": sys.executable,
                    "PYTHONPATH": str(ROOT),
                    **environment,
                },
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def await_line(self, name: str, text: str) -> None:
        """Wait for a line in the log of a process."""
        wait_for(lambda: text in self.log(name) or self.started[-1].poll() is not None, PATIENCE)
        assert text in self.log(name), self.log(name)

    def stop(self) -> None:
        for process in reversed(self.started):
            process.terminate()
            process.wait(PATIENCE)


@pytest.fixture(scope="module")
def processes(tmp_path_factory) -> Iterator[Processes]:
    processes = Processes(tmp_path_factory.mktemp("spark"))
    yield processes
    processes.stop()


@pytest.fixture(scope="module")
def world(tmp_path_factory, with_compiled) -> dict[str, str]:
    """The environment of `lockstep run`."""
    root = tmp_path_factory.mktemp("spark-world")
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "LOCKSTEP_HOME": str(with_compiled(root / "lockstep")),
        "AIRFLOW_HOME": str(root / "airflow"),
        "LOCKSTEP_HOST_LOCK": str(root / "host.lock"),
    }


@pytest.fixture
def begin(world) -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts `lockstep run` on the Spark of a connection."""
    runs: list[subprocess.Popen] = []

    def start(connection: dict, *arguments: str) -> subprocess.Popen:
        runs.append(_begin(world, connection, *arguments))
        return runs[-1]

    yield start
    for run in runs:
        run.terminate()
        run.wait(PATIENCE)


def _begin(world: dict[str, str], connection: dict, *arguments: str) -> subprocess.Popen:
    command = [str(Path(sys.executable).parent / "lockstep"), "run", "--json", "--repetitions", "1"]
    return subprocess.Popen(
        [*command, "--spark", "mine", *SMALL, *arguments],
        env=world | {"AIRFLOW_CONN_MINE": json.dumps(connection)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result_of(run: subprocess.Popen) -> dict:
    """The result of a run, all of whose cells must be equal."""
    output, errors = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, output + errors
    result = json.loads(output)
    assert result["green"]
    assert {cell["verdict"] for cell in result["cells"]} == {"equal"}
    return result


def log_of(world: dict[str, str], run_id: str) -> str:
    """The log of a run's own Spark server."""
    return Home(world["LOCKSTEP_HOME"]).log(f"spark-{run_id}").read_text()


# --- an external Spark Connect server ----------------------------------------------------------------------------


def test_run_on_an_external_server_with_a_token_is_green(processes, world, begin):
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.sql.warehouse.dir": processes.folder / "warehouse",
        "spark.ui.enabled": "false",
    }
    server = processes.start(
        "external",
        *("spark-submit", "--master", "local[2]", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *(word for name, value in settings.items() for word in ("--conf", f"{name}={value}")),
        "spark-internal",
        SPARK_CONNECT_AUTHENTICATE_TOKEN=TOKEN,
    )
    processes.await_line("external", "Spark Connect server started at: 127.0.0.1:")
    connection = {"conn_type": "spark_connect", "host": "localhost", "port": port, "login": "me", "password": TOKEN}
    run_id = result_of(begin(connection, "--events", "3000"))["run_id"]
    assert log_of(world, run_id) == "", "the run started no server"
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


# --- a standalone cluster ----------------------------------------------------------------------------------------


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
    lease = Path(world["LOCKSTEP_HOME"]) / "spark-server.json"
    run = begin({"conn_type": "spark", "host": "local[2]"}, *LONG, "--seed", "8")
    wait_for(lambda: lease.exists() or run.poll() is not None, PATIENCE)
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
from infra.services.spark import Server

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
    stopped = subprocess.Popen(
        [sys.executable, "-c", STOPPED],
        env=world | {"AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
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
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.kills", "--kills", "20", "--events", "20000"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    kills = [line for line in lines if line["kill"]]
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(kills) == 20
    assert all(line["equal"] for line in kills)
