"""The operators of the regression: a job, a core run, and the server they share.

A task is tried again only for a lost connection (`RETRIES`); a mismatch, a failed run and bad input never are.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from airflow.sdk import BaseHook, BaseOperator, BaseOperatorLink, ExceptionRetryPolicy, RetryAction, RetryRule
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dags.lib.hosts import AttemptLost, Host, abandon, next_attempt
from infra.checkout import ROOT, home
from infra.services.process import Process
from infra.services.spark import Server, ServerLost
from jobs.run_folder import read_complaints, read_oracles
from streaming_core.errors import BadInput
from streaming_core.interruption import Interrupted
from streaming_core.regression.status import recorded
from streaming_core.run.way import RunSpec
from streaming_core.storage import write_json

RETRIES = {
    "retries": 2,
    "retry_delay": timedelta(seconds=5),
    "retry_policy": ExceptionRetryPolicy(
        rules=[RetryRule(exception=ConnectionError, action=RetryAction.RETRY, reason="connection lost")],
        default=RetryAction.FAIL,
    ),
}


class ReportLink(BaseOperatorLink):
    """To the report of the task's run."""

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key) -> str:
        """Address below Airflow's own, where the plugin serves the pages."""
        return f"/lockstep/{operator.run}/index.html"


class EvidenceLink(BaseOperatorLink):
    """To the evidence of the task's cell."""

    name = "Evidence"

    def get_link(self, operator: BaseOperator, *, ti_key) -> str:
        """Address below Airflow's own, where the plugin serves the pages."""
        return f"/lockstep/{operator.run}/{operator.cell}.html"


class SparkServer(BaseOperator):
    """Takes the lock on LOCKSTEP_HOME and starts the run's Spark Connect server.

    The master comes from the connection. One of type `spark_connect` names a server that is there already: then only
    the lock is taken.
    """

    template_fields: Sequence[str] = ("run", "conn_id")
    ui_color = "#e8f0fe"

    def __init__(self, *, run: str, conn_id: str, **kwargs):
        super().__init__(**kwargs)
        self.run = run
        self.conn_id = conn_id

    def execute(self, context) -> None:
        from reports.publish import refresh

        with recorded(home(), self.run, self.task_id):
            start_server(self.run, self.conn_id, self.log.info)
        refresh(home())


def start_server(run: str, conn_id: str, say: Callable[..., None]) -> None:
    """Starts the server of `run` on the master, or takes the one, that the connection names.

    LOCKSTEP_WATCH, where it is set, is the process that everything belongs to: without it the server ends too.
    """
    connection = BaseHook.get_connection(conn_id)
    remote = None
    if connection.conn_type == "spark_connect":
        # Whatever else a URL may hold, a token too, would stand on command lines and in logs.
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:]+\]", connection.host or ""):
            raise BadInput(f"connection {conn_id}: its host is the name of one and no more; a token is its password")
        remote = (f"sc://{connection.host}:{connection.port or 15002}", connection.password)
    watch = os.environ.get("LOCKSTEP_WATCH")
    url = Server(home()).start(
        run,
        master=connection.host or "local[*]",
        remote=remote,
        watch=int(watch) if watch else None,
        say=say,
    )
    say(f"Spark Connect at {url}")


class Job(BaseOperator):
    """One command of this checkout, run by its interpreter, with the run's Spark server in its environment.

    An exit code other than 0 fails the task for good, with the command's last line as the reason. Where the command
    itself failed (code 3), the lines above it in the task's log say where.
    """

    template_fields: Sequence[str] = ("run", "arguments")
    operator_extra_links = (ReportLink(),)
    ui_color = "#eef7ee"

    def __init__(self, *, run: str, arguments: Sequence[str], spark: bool = True, **kwargs):
        super().__init__(**kwargs)
        self.run = run
        self.arguments = list(arguments)
        self.spark = spark
        self._process = Process()
        self._last = ""

    def execute(self, context) -> None:
        if not self.run or self.run == "None":
            raise AirflowSkipException("nothing was planned")
        environment = {"LOCKSTEP_HOME": str(home().root), "PYTHONUNBUFFERED": "1", "LOCKSTEP_TRACEBACK": "1"}
        server = Server(home())
        if self.spark:
            # A retry comes here after the server was lost: the setup task does not run again, so this restarts it.
            if server.state(self.run) is None and context["ti"].try_number > 1:
                start_server(self.run, context["params"]["spark"], self.log.info)
            environment |= server.environment(self.run)
        with recorded(home(), self.run, self.task_id):
            code = self._process.run([sys.executable, *self.arguments], self._say, environment, folder=ROOT)
            if code == 0:
                return
            if self.spark and server.state(self.run) is None:
                raise ServerLost(f"the Spark server went away during {self.task_id}: {self._last}")
            raise AirflowFailException(self._last or f"{self.task_id} ended with exit code {code}")

    def _say(self, line: str) -> None:
        if line.strip():
            self._last = line.strip()
        self.log.info(line)

    def on_kill(self) -> None:
        self._process.kill()


class CoreRun(BaseOperator):
    """One cell of the matrix: one application, executed in one way, on the host that a connection names.

    The task fails when the engine fails. `validate_outputs` compares the results of all cells and fails on its verdict.
    """

    template_fields: Sequence[str] = ("run", "host")
    operator_extra_links = (EvidenceLink(),)
    ui_color = "#fdf3e1"

    def __init__(self, *, run: str, host: str, cell: str, app: str, workload: str, spec: dict, limit: float, **kwargs):
        super().__init__(**kwargs)
        self.run = run
        self.host = host
        self.cell = cell
        self.app = app
        self.workload = workload
        self.spec = spec
        self.limit = limit
        self._host: Host | None = None
        self._attempt: Path | None = None
        self._killed = False

    def execute(self, context) -> None:
        where = home()
        # Without an oracle there is no verdict, so a cell whose workload has none is not run.
        spec = RunSpec.parse(self.spec)
        if self.workload not in read_oracles(where, self.run):
            why = read_complaints(where, self.run).get(self.workload, f"its workload {self.workload} has no oracle")
            raise AirflowFailException(f"{self.cell} is not run: {why}")
        attempt = next_attempt(where.cell(self.run, self.cell))
        if not (attempt / "spec.json").exists():
            write_json(attempt / "spec.json", spec.model_dump(mode="json"))
        self._host, self._attempt = Host.of(self.host, where), attempt
        workload = where.workload(self.app, self.workload)
        last: list[str] = []
        self.log.info("%s %s on %s", self.cell, attempt.name, self.host)

        def say(line: str) -> None:
            self.log.info(line)
            last[:] = [line]

        try:
            with recorded(where, self.run, self.task_id, self.cell):
                code = self._host.run(attempt, workload, self.limit, say)
                if self._killed:
                    raise Interrupted(signal.SIGTERM)
        except AttemptLost:
            abandon(attempt)
            raise
        except Interrupted as error:
            raise AirflowFailException(f"{self.cell}: {error}") from None
        if code:
            raise AirflowFailException(f"{self.cell}: {last[-1] if last else f'exit code {code}'}")

    def on_kill(self) -> None:
        self._killed = True
        if self._host and self._attempt:
            self._host.stop(self._attempt)


def stop_server(run: str) -> None:
    """Stops the server of `run`; nothing happens when it is gone already."""
    Server(home()).stop(run)


class Verdict(BaseOperator):
    """The last word on a run, given by `judge(context)`, which raises when the run is red."""

    template_fields: Sequence[str] = ("run",)
    operator_extra_links = (ReportLink(),)
    ui_color = "#f3e8fd"

    def __init__(self, *, run: str, judge: Callable[..., dict], **kwargs):
        super().__init__(**kwargs)
        self.run = run
        self.judge = judge

    def execute(self, context) -> dict:
        return self.judge(context)
