"""The operators of the regression: jobs, core runs, and the Spark server that they share.

Airflow retries a task only after a lost connection (`RETRIES`), never after a mismatch, a failed run or bad input.
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
        rules=[RetryRule(exception=ConnectionError, action=RetryAction.RETRY, reason="the connection was lost")],
        default=RetryAction.FAIL,
    ),
}


class ReportLink(BaseOperatorLink):
    """Links a task to the report of its run."""

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key) -> str:
        """The path of the page, which the plugin serves."""
        return f"/lockstep/{operator.run}/index.html"


class EvidenceLink(BaseOperatorLink):
    """Links a task to the page of its cell."""

    name = "Evidence"

    def get_link(self, operator: BaseOperator, *, ti_key) -> str:
        """The path of the page, which the plugin serves."""
        return f"/lockstep/{operator.run}/{operator.cell}.html"


class SparkServer(BaseOperator):
    """Takes the lock on LOCKSTEP_HOME, and starts the run's Spark Connect server.

    The connection names the Spark master. A connection of type `spark_connect` names an existing server: then the task
    only takes the lock.
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
    """Start the Spark server of a run, or use the existing server that the connection names.

    The server ends with the process whose id is in LOCKSTEP_WATCH, if that is set.

    Args:
        run: The id of the run.
        conn_id: The Airflow connection.
        say: Takes lines for the log.

    Raises:
        BadInput: The connection's host is not a bare host name.
    """
    connection = BaseHook.get_connection(conn_id)
    remote = None
    if connection.conn_type == "spark_connect":
        # Other parts of a URL, such as a token, would appear on command lines and in logs.
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:]+\]", connection.host or ""):
            raise BadInput(
                f"connection {conn_id}: the host must be a bare host name; put the port in the port field, and a token "
                "in the password field"
            )
        remote = (f"sc://{connection.host}:{connection.port or 15002}", connection.password)
    watch = os.environ.get("LOCKSTEP_WATCH")
    url = Server(home()).start(
        run,
        master=connection.host or "local[*]",
        remote=remote,
        watch=int(watch) if watch else None,
        say=say,
    )
    say(f"the Spark server of this run is {url}")


class Job(BaseOperator):
    """Runs a Python command of this checkout, with the run's Spark server in its environment.

    An exit code other than 0 fails the task without a retry. The last line of the command is the reason. After exit
    code 3, the lines above it in the task's log show where the command failed.
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
            raise AirflowSkipException("the run has no plan: the log of plan_matrix says why")
        environment = {"LOCKSTEP_HOME": str(home().root), "PYTHONUNBUFFERED": "1", "LOCKSTEP_TRACEBACK": "1"}
        server = Server(home())
        if self.spark:
            # After the server was lost, Airflow retries this task but not the setup task, so this task restarts the
            # server.
            if server.state(self.run) is None and context["ti"].try_number > 1:
                start_server(self.run, context["params"]["spark"], self.log.info)
            environment |= server.environment(self.run)
        with recorded(home(), self.run, self.task_id):
            code = self._process.run([sys.executable, *self.arguments], self._say, environment, folder=ROOT)
            if code == 0:
                return
            if self.spark and server.state(self.run) is None:
                raise ServerLost(f"the Spark server ended during {self.task_id}: {self._last}")
            raise AirflowFailException(self._last or f"{self.task_id} ended with exit code {code}")

    def _say(self, line: str) -> None:
        if line.strip():
            self._last = line.strip()
        self.log.info(line)

    def on_kill(self) -> None:
        self._process.kill()


class CoreRun(BaseOperator):
    """Runs one cell of the matrix on the host that a connection names.

    The task fails if the engine fails. The task `validate_outputs` compares the results of all cells.
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
        # Without an oracle there can be no verdict, so the cell does not run.
        spec = RunSpec.parse(self.spec)
        if self.workload not in read_oracles(where, self.run):
            why = read_complaints(where, self.run).get(self.workload, f"its workload {self.workload} has no oracle")
            raise AirflowFailException(f"{self.cell} did not run: {why}")
        attempt = next_attempt(where.cell(self.run, self.cell))
        if not (attempt / "spec.json").exists():
            write_json(attempt / "spec.json", spec.model_dump(mode="json"))
        self._host, self._attempt = Host.of(self.host, where), attempt
        workload = where.workload(self.app, self.workload)
        last: list[str] = []
        self.log.info("running %s, %s, on host %s", self.cell, attempt.name, self.host)

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
            raise AirflowFailException(f"{self.cell}: {last[-1] if last else f'exit code {code} without a message'}")
        self.log.info("%s ended; validate_outputs will check its result", self.cell)

    def on_kill(self) -> None:
        self._killed = True
        if self._host and self._attempt:
            self._host.stop(self._attempt)


def stop_server(run: str) -> None:
    """Stop the Spark server of a run, if it still runs."""
    Server(home()).stop(run)


class Verdict(BaseOperator):
    """Judges a run with `judge(context)`, which raises if the run is red."""

    template_fields: Sequence[str] = ("run",)
    operator_extra_links = (ReportLink(),)
    ui_color = "#f3e8fd"

    def __init__(self, *, run: str, judge: Callable[..., dict], **kwargs):
        super().__init__(**kwargs)
        self.run = run
        self.judge = judge

    def execute(self, context) -> dict:
        return self.judge(context)
