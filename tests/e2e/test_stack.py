"""The production topology, as a user runs it: `infra/stack/start`, and supervisorctl. Runs survive what fails in it."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from infra.airflow.api_server import Api, healthy
from reports.history import History
from streaming_core.regression.home import Home
from streaming_core.regression.stages import Stage
from tests.e2e.scheduled import RUNS, free_port
from tests.support import checkout
from tests.support.programs import require
from tests.support.waiting import alive, wait_for

PATIENCE = 1200
SMALL = {"applications": ["wc", "gs"], "executors": ["pooled", "transactional"], "schemes": ["tstream"]}
SMALL |= {"threads": [1, 2], "events": 5000, "repetitions": 1}
# Enough that a stage of Spark goes on for seconds.
LARGE = {"applications": ["wc"], "executors": ["pooled"], "threads": [1], "events": 1_000_000, "repetitions": 1}
TASK_LOST = "failed because while it was being computed, its executor exited"  # in the log of a Spark driver
pytestmark = [pytest.mark.e2e, pytest.mark.slow]


class Stack:
    """A stack that is up, in a copy of the checkout."""

    def __init__(self, root: Path):
        """Start it from a shell with a secret and variables of other programs, which it must not inherit."""
        self.root, self.files, port = root, root / ".stack", free_port()
        self.url = f"http://localhost:{port}"
        self.history = History(Home(self.files / "lockstep"))
        shell = os.environ | checkout.FOREIGN | {"MY_TOKEN": "a secret of this shell"}
        shell["LOCKSTEP_HOST_LOCK"] = str(root / "host.lock")
        subprocess.run([root / "infra" / "stack" / "start", str(port)], env=shell, check=True, timeout=PATIENCE)
        wait_for(lambda: healthy(self.url), PATIENCE)
        self.api = Api(self.url, "admin", self.secrets("airflow/passwords.json")["admin"])
        wait_for(self.spark_workers, PATIENCE)

    def control(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["supervisorctl", "--configuration", str(self.root / "infra" / "stack" / "supervisord.conf"), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)

    def family(self) -> list[psutil.Process]:
        """The supervisor, and every process below it."""
        supervisor = psutil.Process(int(self.control("pid").stdout))
        return [supervisor, *supervisor.children(recursive=True)]

    def secrets(self, name: str) -> dict[str, str]:
        return json.loads((self.files / name).read_text())

    def spark_workers(self) -> bool:
        """Whether both workers of Spark are there."""
        with urllib.request.urlopen("http://127.0.0.1:18081/json/", timeout=60) as answer:
            return json.load(answer)["aliveworkers"] == 2

    def trigger(self, conf: dict) -> str:
        return self.api.call(RUNS, "POST", {"conf": conf, "logical_date": None})["dag_run_id"]

    def run_id(self, run: str) -> str:
        return next(run_id for run_id in self.history.run_ids() if self.history.origin(run_id) == run)

    def check_green(self, run: str) -> None:
        """Wait for the end of a run: every cell equals the oracle."""
        state = wait_for(lambda: {"running": "", "queued": ""}.get(state := self.state(run), state), PATIENCE)
        result = self.history.run(self.run_id(run))
        assert (state, result.green, bool(result.cells)) == ("success", True, True), result.sentence

    def state(self, run: str) -> str:
        time.sleep(1)  # the run needs the processor
        return self.api.call(f"{RUNS}/{run}")["state"]

    def tasks(self, run: str) -> set[tuple[str, str]]:
        instances = self.api.call(f"{RUNS}/{run}/taskInstances")["task_instances"]
        return {(task["task_id"], task["state"]) for task in instances}

    def kill(self, program: str) -> int:
        """Kill a program with its process group, as a machine that fails does."""
        pid = int(self.control("pid", program).stdout)
        os.killpg(pid, signal.SIGKILL)
        return pid

    def executes_python(self, program: str) -> bool:
        """Whether a Python worker of an executor below this Spark worker uses a CPU."""
        for process in psutil.Process(int(self.control("pid", program).stdout)).children(recursive=True):
            with suppress(psutil.Error):  # it has just ended
                if "pyspark.daemon" in process.cmdline() and process.cpu_percent(0.2) > 10:
                    return True
        return False


@pytest.fixture(scope="module")
def stack(with_compiled):
    for package in ("postgresql", "redis-server", "supervisor"):
        require(package)
    root = Path(tempfile.mkdtemp(prefix="stack-"))
    root.chmod(0o755)  # unlike pytest's own folders, it lets the user of the database through
    checkout.copy(root)
    with_compiled(root / ".stack" / "lockstep")
    try:
        yield (running := Stack(root))
        running.control("shutdown")
    finally:
        shutil.rmtree(root, ignore_errors=True)


def test_every_program_runs_and_a_second_start_is_refused(stack):
    status = stack.control("status")
    assert status.returncode == 0
    assert [line.split()[1] for line in status.stdout.splitlines()] == ["RUNNING"] * 11
    again = subprocess.run([stack.root / "infra" / "stack" / "start"], capture_output=True, text=True)
    assert again.returncode == 2
    assert "Another program is already listening" in again.stderr


def test_run_is_green_on_both_workers(stack):
    stack.check_green(stack.trigger(SMALL))
    for worker in ("worker-0", "worker-1"):
        assert "execute_workload" in (stack.files / "logs" / f"{worker}.log").read_text()


def test_run_survives_the_end_of_a_spark_worker_in_the_middle_of_a_stage(stack):
    run, program = stack.trigger(LARGE), "spark-worker:spark-worker-0"
    wait_for(lambda: stack.executes_python(program) or stack.state(run) == "failed", PATIENCE)
    stack.kill(program)
    stack.check_green(run)
    assert TASK_LOST in Home(stack.files / "lockstep").log(f"spark-{stack.run_id(run)}").read_text()
    wait_for(stack.spark_workers, PATIENCE)


def test_run_survives_the_end_of_its_scheduler(stack):
    run = stack.trigger(SMALL)
    wait_for(lambda: (Stage.RUN_CORE, "running") in stack.tasks(run), PATIENCE)
    killed = stack.kill("scheduler")
    stack.check_green(run)
    assert stack.control("pid", "scheduler").stdout.strip() not in ("0", str(killed))


def test_nothing_listens_beyond_loopback(stack):
    connections = []
    for process in stack.family():
        with suppress(psutil.Error):  # it has just ended
            connections += process.net_connections("tcp")
    addresses = {
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in connections
        if connection.status == psutil.CONN_LISTEN
    }
    assert addresses
    assert addresses <= {"127.0.0.1", "::1"}


def test_no_secret_is_in_a_command_line_environment_or_log(stack):
    secrets = [word for name in ("secrets", "passwords") for word in stack.secrets(f"airflow/{name}.json").values()]
    secrets += ["a secret of this shell", (stack.files / "secrets" / "redis.conf").read_text().split()[1]]
    shown = []
    for process in stack.family():
        with suppress(psutil.Error):  # it has just ended
            shown += [*process.cmdline(), *process.environ().values()]
    assert any("celery" in word for word in shown)
    logs = [path for folder in ("logs", "airflow/logs") for path in (stack.files / folder).rglob("*") if path.is_file()]
    assert len(logs) > 12
    shown += [path.read_text(errors="replace") for path in logs]
    assert not [text[:200] for text in shown if any(secret in text for secret in secrets)]
    assert not [path for path in (stack.files / "secrets").iterdir() if path.stat().st_mode & 0o077]


def test_no_process_outlives_the_stack(stack):
    stack.trigger(SMALL)
    (lease,) = wait_for(lambda: [*(stack.files / "lockstep" / "spark-scratch").glob("*.json")], PATIENCE)
    server = json.loads(lease.read_text())["pid"]
    family = [server, *(process.pid for process in stack.family())]
    subprocess.run([stack.root / "infra" / "stack" / "stop"], check=True, timeout=PATIENCE)
    wait_for(lambda: not any(map(alive, family)), 60)
