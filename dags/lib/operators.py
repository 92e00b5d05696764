"""The operators of the regression that need no Spark: jobs, lanes, the speed gate, the search and the verdict.

Airflow retries a task only after a lost connection (`RETRIES`), never after a mismatch, a failed run or bad input.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, BaseHook, BaseOperator, BaseOperatorLink, ExceptionRetryPolicy, RetryAction, RetryRule
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException, AirflowSkipException

from dags.lib.assets import GATE, OF_GATE, built, outcome
from dags.lib.lineage import WithLineage
from dags.lib.plan import run_id_of
from infra.airflow import connections
from infra.airflow.hosts import Host, HostLost, LocalHost, SshHost, is_lost
from infra.checkout import ROOT, home
from jobs.run_folder import (
    abandon,
    abandon_stopped,
    forget_checkpoints,
    inherit,
    next_attempt,
    read_complaints,
    read_oracles,
    read_plan,
)
from reports.history import History
from streaming_core.interruption import Interrupted
from streaming_core.process import Process
from streaming_core.regression.fleet import Queue, claims, fit_hosts, record_loss
from streaming_core.regression.home import Home
from streaming_core.regression.lock import hold, of_host
from streaming_core.regression.plan import PlannedCell
from streaming_core.regression.preflight import preflights_of
from streaming_core.regression.status import forget, record_begin, record_end, recorded
from streaming_core.run.way import RunSpec
from streaming_core.storage import write_json

if TYPE_CHECKING:
    from dags.lib.triggers import LaneKey

RETRIES = {
    "retries": 2,
    "retry_delay": timedelta(seconds=5),
    "retry_policy": ExceptionRetryPolicy(
        rules=[RetryRule(exception=ConnectionError, action=RetryAction.RETRY, reason="the connection was lost")],
        default=RetryAction.FAIL,
    ),
}
MOST_ATTEMPTS = 3  # at a cell whose process is gone each time
LONGEST_WAIT = timedelta(hours=7)  # for a cell and for the host before it


class ReportLink(BaseOperatorLink):
    """Links a task to the report of its run."""

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """The path of the page, which the plugin serves."""
        return f"/lockstep/{operator.run}/index.html"


def skip_without_plan(run: str) -> None:
    """Skip the task of a run whose request was refused."""
    if not run or run == "None":
        raise AirflowSkipException("the run has no plan: the log of plan_matrix says why")


class Job(WithLineage, BaseOperator):
    """Runs a Python command of this checkout.

    An exit code other than 0 fails the task without a retry. The last line of the command is the reason. After exit
    code 3, the lines above it in the task's log show where the command failed. The task's assets tell the outcome of
    the run.
    """

    template_fields: Sequence[str] = ("run", "arguments")
    operator_extra_links = (ReportLink(),)
    ui_color = "#eef7ee"

    def __init__(self, *, run: str, arguments: Sequence[str], **kwargs: Any):
        super().__init__(**kwargs)
        self.run = run
        self.arguments = list(arguments)
        self._process = Process()
        self._last = ""

    shares_host = True  # whether the lock on the host is held while the command runs
    is_application = False  # whether the command loads applications that it did not check, so it gets no secrets

    def execute(self, context: Any) -> None:
        """Run the command to its end; raise if it fails."""
        skip_without_plan(self.run)
        environment = self.environment(context)
        with recorded(home(), self.run, self.task_id), self._host():
            command = [sys.executable, *self.arguments]
            code = self._process.run(command, self._say, environment, ROOT, is_application=self.is_application)
            if code:
                raise self.failed(self._last or f"{self.task_id} ended with exit code {code}")
        if assets := [outlet for outlet in self.outlets if isinstance(outlet, Asset)]:
            about = self._outcome()
            for asset in assets:
                context["outlet_events"][asset].extra = about

    def _host(self) -> AbstractContextManager[None]:
        if not self.shares_host:
            return nullcontext()
        return hold(of_host(), self.task_id, shared=True, say=self.log.info, run=self.run)

    def environment(self, context: Any) -> dict[str, str]:
        """The variables that the command has in addition to those of this process."""
        return {"LOCKSTEP_HOME": str(home().root), "PYTHONUNBUFFERED": "1", "LOCKSTEP_TRACEBACK": "1"}

    def _outcome(self) -> dict[str, Any]:
        return outcome(History(home()).run(self.run))

    def failed(self, reason: str) -> Exception:
        """The exception of a command that failed."""
        return AirflowFailException(reason)

    def _say(self, line: str) -> None:
        if line.strip():
            self._last = line.strip()
        self.log.info(line)

    def on_kill(self) -> None:
        """Kill the command, because a person ends the task."""
        self._process.kill()


class Measurement(Job):
    """Runs a command that measures cells of a run on the hosts that ran them. It takes each host by itself.

    If the command has built the marts, the task emits those that show what it measured.
    """

    shares_host = False

    def __init__(self, **kwargs: Any):
        super().__init__(outlets=[GATE], **kwargs)

    def execute(self, context: Any) -> None:
        """Run the command to its end; raise if it fails."""
        before = built(self.run)
        super().execute(context)
        if built(self.run) != before:
            about = self._outcome()
            for asset in OF_GATE:
                context["outlet_events"][GATE].add(asset, about)

    def environment(self, context: Any) -> dict[str, str]:
        """Beside that of every job, the connections of those hosts, because the command cannot ask Airflow."""
        return super().environment(context) | connections_of(self.run)


class SpeedGate(Measurement):
    """Runs `infra.gate.suspects` for a run whose request gives the speed gate time.

    The task comes after `stop_spark`, and not before `dbt_build`. Until then, the run has its share in LOCKSTEP_HOME.
    The gate may measure for half an hour, and backups and other commands must not wait. The price is a second build of
    the marts, of one month. A run of another DAG would need the same build, and its result would come after the alert.
    """

    def __init__(self, *, run: str, **kwargs: Any):
        """Make the task of a run."""
        super().__init__(run=run, arguments=("-m", "infra.gate.suspects", "--run", run), **kwargs)

    def execute(self, context: Any) -> None:
        """Measure, unless the gate is off; a slower cell does not fail the task."""
        if has_time(self, "gate_minutes"):
            super().execute(context)


class Search(Job):
    """Runs `infra.search` for a run whose request gives the search for faults time.

    Like the speed gate, it must not share LOCKSTEP_HOME while it works, and it takes the host by itself. It comes last,
    so that the gate judges the speed of the night even if the search is ended.
    """

    shares_host = False
    is_application = True

    def __init__(self, *, run: str, **kwargs: Any):
        """Make the task of a run."""
        super().__init__(run=run, arguments=("-m", "infra.search", "--run", run), **kwargs)

    def environment(self, context: Any) -> dict[str, str]:
        """Beside that of every job, the Java that checks the invariants."""
        return super().environment(context) | {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}

    def execute(self, context: Any) -> None:
        """Search, unless the search is off; a find does not fail the task, but the verdict."""
        if has_time(self, "find_minutes"):
            super().execute(context)


def has_time(job: Job, field: str) -> bool:
    """Whether the request of a job's run gives the job time, with this field."""
    skip_without_plan(job.run)
    # A plan that an earlier version wrote lacks later fields.
    if minutes := read_plan(home(), job.run)["regression"].get(field):
        return bool(minutes)
    job.log.info("%s is off: %s is 0", job.task_id, field)
    return False


def connections_of(run_id: str) -> dict[str, str]:
    """The connections of the other hosts of a run, as variables that Airflow reads them from."""
    variables = {}
    for name in [preflight.host for preflight in preflights_of(home(), run_id) if preflight.is_remote]:
        try:
            variables[connections.variable(name)] = BaseHook.get_connection(name).as_json()
        except AirflowNotFoundException:  # the command says what to do
            continue
    return variables


class Lane(WithLineage, BaseOperator):
    """Runs cells of the matrix on the host that a connection names, one after the other, until every cell is over.

    A failed cell does not stop the lane. The lane fails at its end, and names its failed cells. The task
    `validate_outputs` compares the results of all cells. While a cell runs on another machine, or the lane waits for
    other lanes, the task is deferred and holds no worker slot.
    """

    template_fields: Sequence[str] = ("run", "host")
    operator_extra_links = (ReportLink(),)
    ui_color = "#fdf3e1"

    def __init__(self, *, run: str, host: str, limit: float, **kwargs: Any):
        """Keep the arguments.

        Args:
            run: the run.
            host: the connection of the host.
            limit: seconds after which an engine is killed.
            kwargs: the arguments of every operator.
        """
        super().__init__(**kwargs)
        self.run = run
        self.host = host
        self.limit = limit
        self._machine: LocalHost | None = None
        self._killed = False

    def execute(self, context: Any) -> None:
        """Begin, or begin again after a failure of this task."""
        skip_without_plan(self.run)
        queue = self._queue(context)
        queue.renew()
        if begun := queue.begun:
            abandon_stopped(home().cell(self.run, begun["cell"]))
        self._go_on(queue)

    def resume(self, context: Any, event: dict[str, Any]) -> None:
        """Go on with the event of a trigger."""
        queue = self._queue(context)
        if cell := event.get("cell"):
            attempt = home().cell(self.run, cell) / event["attempt"]
            if reason := event.get("lost"):
                record_loss(home(), self.run, self.host, reason)
                release(home(), self.run, self.host)
                raise AirflowFailException(f"host {self.host} was lost during {cell}: {reason}")
            host = Host.of(self.host, home())
            assert isinstance(host, SshHost)
            host.fetch(attempt, self.log.info)
            self._ended(queue, attempt, event["code"], event["line"])
        self._go_on(queue)

    def on_kill(self) -> None:
        """Stop the cell on this machine. A trigger stops the one on another machine."""
        self._killed = True
        if self._machine:
            self._machine.stop()

    def _queue(self, context: Any) -> Queue:
        return Queue(home(), self.run, self.host, getattr(context.get("ti"), "max_tries", 0))

    def _key(self) -> LaneKey:
        return {"home": str(home().root), "run": self.run, "host": self.host}

    def _go_on(self, queue: Queue) -> None:
        """Run cells on this machine, or defer for one on another, until every cell is over."""
        from dags.lib.triggers import OthersTrigger

        while not queue.is_over:
            if cell := queue.take():
                self._run(queue, cell)
            else:
                self.log.info("waiting: other hosts run the remaining cells")
                self.defer(
                    trigger=OthersTrigger(lane=self._key()),
                    method_name=self.resume.__name__,
                )
        if failures := queue.failures:
            cells = "; ".join(f"{cell}: {error}" for cell, error in failures.items())
            raise AirflowFailException(f"{len(failures)} cell{'s' * (len(failures) > 1)} failed: {cells}")

    def _run(self, queue: Queue, cell: PlannedCell) -> None:
        """Run a cell to its end, or defer until its end."""
        lockstep_home, name, spec = home(), cell["cell"], RunSpec.parse(cell["spec"])
        self.log.info("::group::%s", name)
        # Without an oracle there can be no verdict, so the cell does not run.
        if cell["workload"] not in read_oracles(lockstep_home, self.run):
            missing = f"its workload {cell['workload']} has no oracle"
            reason = read_complaints(lockstep_home, self.run).get(cell["workload"], missing)
            self.log.error("%s did not run: %s", name, reason)
            self.log.info("::endgroup::")
            queue.finish(name, f"it did not run: {reason}")
            return
        record_begin(lockstep_home, self.run, self.task_id, name)
        attempt = next_attempt(lockstep_home.cell(self.run, name))
        if not (attempt / "spec.json").exists():
            if before := inherit(attempt):
                self.log.info("%s goes on from the checkpoint of %s", attempt.name, before.name)
            write_json(attempt / "spec.json", spec.model_dump(mode="json"))
        workload = lockstep_home.workload(spec.app, cell["workload"])
        host = Host.of(self.host, lockstep_home)
        self.log.info("running %s, %s, on host %s", name, attempt.name, self.host)
        if isinstance(host, SshHost):
            host.send([workload, attempt], self.log.info)
            self._defer(host, name, attempt, workload)
        elif isinstance(host, LocalHost):
            self._run_here(host, queue, attempt, workload)

    def _defer(self, host: SshHost, cell: str, attempt: Path, workload: Path) -> None:
        from dags.lib.triggers import CellTrigger

        # `dag.test` runs the trigger in this process, where it finds a connection only in the environment.
        os.environ[connections.variable(self.host)] = host.connection.as_json()
        trigger = CellTrigger(
            lane=self._key(),
            cell=cell,
            attempt=attempt.name,
            command=host.command(attempt, workload, self.limit),
            stop=host.stop_command(attempt),
            patience=host.patience,
            folder=None if host.mount else host.path(attempt),
        )
        # The limit of the engine begins when it has the host's lock.
        self.defer(trigger=trigger, method_name=self.resume.__name__, timeout=LONGEST_WAIT)

    def _run_here(self, host: LocalHost, queue: Queue, attempt: Path, workload: Path) -> None:
        self._machine, last = host, [""]

        def say(line: str) -> None:
            self.log.info(line)
            last[0] = line.strip() or last[0]

        code = host.run(attempt, workload, self.limit, say)
        self._machine = None
        if self._killed:
            queue.finish(attempt.parent.name, "stopped")
            raise AirflowFailException(f"{attempt.parent.name}: {Interrupted(signal.SIGTERM)}")
        self._ended(queue, attempt, code, last[0])

    def _ended(self, queue: Queue, attempt: Path, code: int, line: str) -> None:
        """Record the end of an attempt. An attempt without a result leaves its cell to this lane, for a new attempt."""
        cell = attempt.parent.name
        if is_lost(attempt, code):
            abandon(attempt)
            losses = len(list(attempt.parent.glob("*.lost")))
            self.log.warning("%s, %s, ended without a result: its process is gone", cell, attempt.name)
            if losses < MOST_ATTEMPTS:
                self.log.info("::endgroup::")
                return
            self._over(queue, cell, f"{losses} attempts ended without a result")
        elif code:
            self._over(queue, cell, line or f"exit code {code} without a message")
        else:
            self.log.info("%s ended; validate_outputs will check its result", cell)
            self._over(queue, cell)

    def _over(self, queue: Queue, cell: str, error: str | None = None) -> None:
        if error:
            self.log.error("%s failed: %s", cell, error)
        self.log.info("::endgroup::")
        record_end(home(), self.run, cell, error)
        queue.finish(cell, error)
        forget_checkpoints(home().cell(self.run, cell))


def release(lockstep_home: Home, run: str, host: str) -> None:
    """Give back the cell that a lane has begun, so that another lane runs it in a new attempt."""
    for cell, claim in claims(lockstep_home, run).items():
        if claim.host == host and not claim.is_over:
            attempt = next_attempt(lockstep_home.cell(run, cell))
            if attempt.is_dir():
                abandon(attempt)
            forget(lockstep_home, run, cell)
            Queue(lockstep_home, run, host).give_back(cell)


def release_failed(context: Any) -> None:
    """Give back the cell of a lane that failed, also if its process was killed. Airflow calls it after the last try."""
    run = run_id_of(context)
    host = fit_hosts(home(), run)[context["ti"].map_index]
    if isinstance(error := context.get("exception"), HostLost):
        record_loss(home(), run, host, str(error))
    release(home(), run, host)


class Verdict(BaseOperator):
    """Judges a run with `judge(context)`, which raises if the run is red."""

    template_fields: Sequence[str] = ("run",)
    operator_extra_links = (ReportLink(),)
    ui_color = "#f3e8fd"

    def __init__(self, *, run: str, judge: Callable[..., dict], **kwargs: Any):
        super().__init__(**kwargs)
        self.run = run
        self.judge = judge

    def execute(self, context: Any) -> dict:
        """The verdict, which the task pushes as its XCom."""
        return self.judge(context)
