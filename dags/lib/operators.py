"""The operators of the regression that need no Spark: jobs, core runs and the verdict.

Airflow retries a task only after a lost connection (`RETRIES`), never after a mismatch, a failed run or bad input.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from airflow.sdk import BaseOperator, BaseOperatorLink, ExceptionRetryPolicy, RetryAction, RetryRule
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from dags.lib.hosts import AttemptLost, Host, abandon, next_attempt
from infra.checkout import ROOT, home
from infra.services.process import Process
from jobs.run_folder import read_complaints, read_oracles
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


def skip_without_plan(run: str) -> None:
    """Skip the task of a run whose request was refused."""
    if not run or run == "None":
        raise AirflowSkipException("the run has no plan: the log of plan_matrix says why")


class Job(BaseOperator):
    """Runs a Python command of this checkout.

    An exit code other than 0 fails the task without a retry. The last line of the command is the reason. After exit
    code 3, the lines above it in the task's log show where the command failed.
    """

    template_fields: Sequence[str] = ("run", "arguments")
    operator_extra_links = (ReportLink(),)
    ui_color = "#eef7ee"

    def __init__(self, *, run: str, arguments: Sequence[str], **kwargs):
        super().__init__(**kwargs)
        self.run = run
        self.arguments = list(arguments)
        self._process = Process()
        self._last = ""

    def execute(self, context) -> None:
        skip_without_plan(self.run)
        environment = self.environment(context)
        with recorded(home(), self.run, self.task_id):
            code = self._process.run([sys.executable, *self.arguments], self._say, environment, folder=ROOT)
            if code:
                raise self.failed(self._last or f"{self.task_id} ended with exit code {code}")

    def environment(self, context) -> dict[str, str]:
        """What the command's environment has beside that of this process."""
        return {"LOCKSTEP_HOME": str(home().root), "PYTHONUNBUFFERED": "1", "LOCKSTEP_TRACEBACK": "1"}

    def failed(self, reason: str) -> Exception:
        """The exception of a command that failed."""
        return AirflowFailException(reason)

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
