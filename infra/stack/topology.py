"""Bring a stack up, tell its state, and take it down."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from infra.airflow.api import USER, Api, healthy
from infra.services.lock import holder, signature
from infra.stack import folder as folders
from infra.stack import release
from infra.stack.folder import Folder
from infra.stack.programs import (
    SPARK_WORKERS,
    STOP_ORDER,
    WORKERS,
    Program,
    airflow_settings,
    configure,
    create_database,
    programs,
    run,
)
from infra.stack.supervisor import State, Supervisor
from streaming_core.errors import BadInput, CommandFailed, RunFailed
from streaming_core.regression.stages import DAG_ID
from streaming_core.storage import Lock

POLL_SECONDS = 0.2
Say = Callable[[str, float, str], None]  # the name of a step, its seconds, a note


class Row(NamedTuple):
    """A program in the table of `lockstep stack status`."""

    name: str
    state: str
    pid: int
    address: str


@dataclass(frozen=True)
class Step:
    """A step of the start: programs, the check that they are ready, and the seconds that they have for it."""

    label: str
    names: tuple[str, ...]
    ready: Callable[[], bool]
    seconds: float
    note: str = ""


class Stack:
    """One stack."""

    def __init__(self, root: Path):
        """Look at the folder of the stack.

        Raises:
            BadInput: a stack cannot work there.
        """
        self.folder = Folder.at(root)
        self.supervisor = Supervisor(self.folder)
        self._lock = Lock(self.folder.root / "lock.json")

    @property
    def ports(self) -> dict[str, int]:
        """The ports of the running stack.

        Raises:
            BadInput: the stack is not up.
        """
        if not self.supervisor.up:
            raise BadInput(f"no stack is up in {self.folder.root}: type `lockstep stack up`")
        return self.folder.state["ports"]

    @property
    def url(self) -> str:
        """The address of Airflow's pages."""
        return f"http://localhost:{self.ports['api']}"

    def api(self) -> Api:
        """Airflow's API, with the administrator's login."""
        url = self.url
        passwords = json.loads((self.folder.airflow / "passwords.json").read_text())
        return Api(url, USER, passwords[USER])

    def status(self) -> list[Row]:
        """The programs; [] if the stack is not up."""
        states = self.supervisor.states()
        if not states:
            return []
        known = programs(self.folder, self.ports)
        return [Row(one.name, *states.get(one.name, State("UNKNOWN", 0)), one.address) for one in known]

    def up(self, port: int | None, say: Say) -> None:
        """Start every program, in the order in which they need each other.

        Args:
            port: the port of Airflow's pages; None for a free one.
            say: takes each step when it is done.

        Raises:
            BadInput: the stack is up already, or the machine or the folder does not fit.
            RunFailed: a program did not become ready in time. Everything is stopped.
        """
        folders.check_machine()
        folders.check_path(self.folder)
        if self.supervisor.up:
            raise BadInput(f"a stack is up in {self.folder.root}: {self.url}; `lockstep stack down` ends it")
        ports = folders.free_ports(port)
        self.folder.make()
        self._take_lock()
        before = signal.signal(signal.SIGTERM, _interrupt)
        try:
            self.supervisor.end(STOP_ORDER)  # what a supervisor that was killed has left
            started = time.monotonic()
            release.make(self.folder.release)
            configure(self.folder, ports)
            known = programs(self.folder, ports)
            self.supervisor.launch(known, ports)
            say("copy of checkout", time.monotonic() - started, str(self.folder.root))
            for step in self._steps(known, ports):
                started = time.monotonic()
                for name in step.names:
                    self.supervisor.start(name)
                self._await(step)
                say(step.label, time.monotonic() - started, step.note)
        except BaseException:
            self.supervisor.end(STOP_ORDER)
            raise
        finally:
            signal.signal(signal.SIGTERM, before)
            self._lock.leave()

    def down(self) -> bool:
        """End every process of the stack; returns whether there was one. The files stay.

        Raises:
            RunFailed: a process does not end.
        """
        if not self.folder.state:
            return False
        self._take_lock()
        try:
            self.supervisor.end(STOP_ORDER)
        finally:
            self._lock.leave()
        return True

    def _take_lock(self) -> None:
        if not self._lock.take(signature("stack")):
            pid = holder(self._lock).get("pid", "?")
            raise BadInput(f"another command starts or ends the stack in {self.folder.root} (process {pid})")

    def _steps(self, known: list[Program], ports: Mapping[str, int]) -> list[Step]:
        address = {one.name: one.address for one in known}
        url = f"http://localhost:{ports['api']}"
        airflow = ("api-server", "scheduler", "dag-processor", "triggerer")
        return [
            Step("PostgreSQL", ("postgres",), lambda: self._database(ports["postgres"]), 60, address["postgres"]),
            Step("Redis", ("redis",), lambda: _answer(ports["redis"], b"PING\r\n").startswith(b"-NOAUTH"), 30),
            Step("SSH server", ("sshd",), lambda: _answer(ports["ssh"]).startswith(b"SSH-2.0"), 30, address["sshd"]),
            Step("Airflow's tables", (), self._prepared, 300),
            Step("Spark master", ("spark-master",), lambda: _answers(ports["spark"]), 60, address["spark-master"]),
            Step("Spark workers", SPARK_WORKERS, lambda: spark_workers(ports) == len(SPARK_WORKERS), 90),
            Step("Airflow", airflow, lambda: healthy(url), 240, url),
            Step("Celery workers", WORKERS, self._workers_ready, 180),
            Step("the DAG", (), self._dag_is_known, 180, DAG_ID),
            Step("all programs", (), self._all_run, 60, f"{len(known)} of {len(known)}"),
        ]

    def _await(self, step: Step) -> None:
        deadline = time.monotonic() + step.seconds
        while not step.ready():
            states = self.supervisor.states()
            name = next((name for name in step.names if states.get(name, State("", 0)).word == "FATAL"), None)
            if name or time.monotonic() > deadline:
                log = self.folder.log(name or (step.names or ("api-server",))[0])
                fault = f"{name} ends again and again" if name else f"{step.label}: not ready after {step.seconds} s"
                raise RunFailed(f"{fault}; its log says why: {log}")
            time.sleep(POLL_SECONDS)

    def _database(self, port: int) -> bool:
        if not _answers(port):
            return False
        programs_of_postgres = folders.postgres_bin()
        assert programs_of_postgres is not None
        ready = [str(programs_of_postgres / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        if subprocess.run(ready, check=False).returncode:
            return False
        create_database(self.folder, port)
        return True

    def _prepared(self) -> bool:
        """Migrate Airflow's database, and fail the runs that an earlier stack left: they belong to its release."""
        self.airflow("db", "check")
        self._run(str(self.folder.environment / "python"), "-m", "infra.airflow.run_dag", "--end-stale-runs")
        return True

    def _workers_ready(self) -> bool:
        try:
            known = json.loads(self.airflow("celery", "list-workers", "--output", "json"))
        except (RunFailed, ValueError):
            return False
        return {row["worker_name"].partition("@")[2] for row in known} >= set(WORKERS)

    def _dag_is_known(self) -> bool:
        try:
            return not self.api().call(f"/api/v2/dags/{DAG_ID}")["is_paused"]
        except (OSError, KeyError):
            return False

    def _all_run(self) -> bool:
        return {state.word for state in self.supervisor.states().values()} == {"RUNNING"}

    def airflow(self, *arguments: str) -> str:
        """The output of `lockstep airflow ARGUMENTS` in the environment of the stack.

        Raises:
            RunFailed: the command failed.
        """
        return self._run(str(self.folder.environment / "lockstep"), "airflow", *arguments)

    def _run(self, *command: str) -> str:
        settings = airflow_settings(self.folder, self.ports)
        try:
            return run(command, settings, folder=self.folder.release, timeout=240, label=" ".join(command[1:]))
        except CommandFailed as error:
            raise RunFailed(str(error)) from None

    def kill(self, name: str) -> int:
        """Kill a program with its process group, as a machine that fails does; returns the id of the process."""
        pid = self.supervisor.states()[name].pid
        os.killpg(pid, signal.SIGKILL)
        return pid

    def process(self, name: str) -> psutil.Process | None:
        """The process of a program; None while it has none."""
        pid = self.supervisor.states().get(name, State("", 0)).pid
        try:
            return psutil.Process(pid) if pid else None
        except psutil.NoSuchProcess:
            return None


def spark_workers(ports: Mapping[str, int]) -> int:
    """The number of workers that the Spark master counts as alive."""
    answer = _answer(ports["spark_ui"], b"GET /json/ HTTP/1.0\r\n\r\n", whole=True)
    try:
        return int(json.loads(answer.partition(b"\r\n\r\n")[2])["aliveworkers"])
    except (ValueError, KeyError):
        return 0


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _answer(port: int, question: bytes = b"", whole: bool = False) -> bytes:
    """The answer of a server on a port; empty without an answer.

    Args:
        port: the port, on loopback.
        question: what to send first.
        whole: read until the server closes the connection, not its first bytes alone.
    """
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(question)
            while data := connection.recv(65536):
                answer += data
                if not whole:
                    break
    except OSError:
        return b""
    return answer
