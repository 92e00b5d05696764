"""Runs one DAG to its end, and writes each change of a task as a line of JSON to a pipe.

    run_dag.py DAG_ID EVENTS_FD [--scheduler]      conf as JSON on standard input

Without --scheduler this process runs the tasks itself, one after the other. With it, the scheduler on this AIRFLOW_HOME
runs them, and this process watches. Exit code: 0 if the run succeeded, else 1.

The first line is {"run": <Airflow run id>, "run_after": <epoch seconds>}. Then follows, for each change of a task,
{"task", "map_index", "label", "state", "start", "end"} with epoch seconds. While another run keeps the scheduler's run
waiting, {"ahead": <its run id>}, and then {"ahead": ""}.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.configuration import conf as airflow_conf
from airflow.dag_processing.dagbag import DagBag
from airflow.exceptions import AirflowNotFoundException
from airflow.models import Connection, DagRun, TaskInstance
from airflow.sdk.execution_time.supervisor import InProcessSupervisorComms
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow.utils.types import DagRunTriggeredByType, DagRunType

from infra.checkout import home
from reports.publish import publish
from streaming_core.regression import status
from streaming_core.regression.fleet import SPARK
from streaming_core.regression.home import new_run_id
from streaming_core.regression.project import PREFIX
from streaming_core.regression.stages import DAG_ID, Stage

POLL_SECONDS = 0.25


class Reporter:
    """Follows one run in Airflow's database, and writes the lines."""

    def __init__(self, descriptor: int):
        self._out = os.fdopen(descriptor, "w", buffering=1)
        self._written: dict[tuple[str, int], tuple] = {}
        self._ahead = ""

    def begin(self, run: DagRun) -> None:
        """Write the line that names the run."""
        self._say({"run": run.run_id, "run_after": run.run_after.timestamp()})

    def look(self, dag_id: str, run_id: str) -> None:
        """Write a line for each change since the last call."""
        columns = (
            TaskInstance.task_id,
            TaskInstance.map_index,
            TaskInstance.state,
            TaskInstance.start_date,
            TaskInstance.end_date,
            TaskInstance.rendered_map_index,
        )
        with create_session() as session:
            rows = session.query(*columns).filter_by(dag_id=dag_id, run_id=run_id).all()
        for task, index, state, start, end, label in rows:
            current = (state, start, end, label)
            if self._written.get((task, index)) == current:
                continue
            self._written[task, index] = current
            self._say(
                {
                    "task": task,
                    "map_index": index,
                    "label": label,
                    "state": str(state) if state else None,
                    "start": start.timestamp() if start else None,
                    "end": end.timestamp() if end else None,
                }
            )

    def wait_for(self, ahead: str) -> None:
        """Write a line if another run than before keeps this one waiting."""
        if ahead != self._ahead:
            self._ahead = ahead
            self._say({"ahead": ahead})

    def _say(self, line: dict) -> None:
        with contextlib.suppress(BrokenPipeError):  # the reader has gone; the run goes on
            self._out.write(json.dumps(line) + "\n")


def end_stale_runs(stopped_by: str | None = None) -> int:
    """Fail the runs that an earlier process left `running`: nothing executes them, and a scheduler would resume them.

    They are the runs of the regression, and those of any DAG that `run_here` ran.

    Args:
        stopped_by: the person that stopped them; None if their process died.

    Returns:
        The number of runs that were failed.
    """
    ended, unjudged = 0, []
    left = (DagRun.dag_id == DAG_ID) | (DagRun.triggered_by == DagRunTriggeredByType.TEST)
    with create_session() as session:
        for run in session.query(DagRun).filter(DagRun.state == DagRunState.RUNNING, left):
            judged = False
            for task in session.query(TaskInstance).filter_by(dag_id=run.dag_id, run_id=run.run_id):
                if task.state not in (TaskInstanceState.SUCCESS, TaskInstanceState.FAILED, TaskInstanceState.SKIPPED):
                    task.state = TaskInstanceState.FAILED
                else:
                    judged = judged or task.task_id == Stage.VERDICT
            run.state = DagRunState.FAILED
            run.end_date = datetime.now(UTC)
            ended += 1
            if run.dag_id == DAG_ID and not judged:
                unjudged.append(new_run_id(run.run_id, run.run_after.timestamp()))
    for run_id in unjudged:
        _publish_end(run_id, stopped_by)
    return ended


def _publish_end(run_id: str, stopped_by: str | None) -> None:
    """Record that a run was stopped, or died, and publish its pages. A run that planned nothing has none."""
    if (home().run(run_id) / "plan.json").exists():
        status.end(home(), run_id, "died" if stopped_by is None else "stopped", by=stopped_by or "")
        publish(home(), run_id)


def run_here(dag_id: str, conf: dict, reporter: Reporter) -> bool:
    """Run the tasks in this process. Their processes end with it."""
    os.environ |= {"LOCKSTEP_WATCH": str(os.getpid()), "_AIRFLOW_PARSING_CONTEXT_TASK_ID": "none"}  # no form is shown
    end_stale_runs()
    # Triggers await this call. Airflow 3.3 has it only where a triggerer runs them, so `dag.test` finds no connection.
    InProcessSupervisorComms.asend = _asend
    # Reading the one file is quicker. It has the name of the DAG, without the prefix of the project.
    file = Path(airflow_conf.get("core", "dags_folder"), f"{dag_id.removeprefix(PREFIX)}.py")
    dag = DagBag(dag_folder=str(file), load_op_links=False).dags[dag_id]
    over, started = threading.Event(), datetime.now(UTC)
    if dag_id == DAG_ID:
        with contextlib.suppress(AirflowNotFoundException):
            connection = Connection.get_connection_from_secrets(conf.get("spark") or SPARK)
            server: Any = dag.task_dict[Stage.SPARK_SERVER]
            server.start_early(_run_id(started), connection)

    def follow() -> None:
        run_id = None
        while True:
            last = over.wait(POLL_SECONDS)
            if run_id is None:
                with create_session() as session:
                    run = session.query(DagRun).filter(DagRun.dag_id == dag_id, DagRun.start_date >= started).first()
                    if run:
                        run_id = run.run_id
                        reporter.begin(run)
            if run_id:
                reporter.look(dag_id, run_id)
            if last:
                return

    follower = threading.Thread(target=follow)
    follower.start()
    try:
        return dag.test(run_after=started, run_conf=conf).state == DagRunState.SUCCESS
    finally:
        over.set()
        follower.join()


async def _asend(comms: InProcessSupervisorComms, message: Any) -> Any:
    return comms.send(message)


def _run_id(run_after: datetime) -> str:
    """The id that a run of `dag.test` will have."""
    origin = DagRun.generate_run_id(run_type=DagRunType.MANUAL, logical_date=run_after, run_after=run_after)
    return new_run_id(origin, run_after.timestamp())


def run_there(dag_id: str, conf: dict, reporter: Reporter) -> bool:
    """Hand the run to the scheduler, and watch it."""
    from airflow.api.common.trigger_dag import trigger_dag

    run = trigger_dag(dag_id=dag_id, triggered_by=DagRunTriggeredByType.CLI, conf=conf)
    reporter.begin(run)
    pause = threading.Event()
    while True:
        reporter.look(dag_id, run.run_id)
        with create_session() as session:
            state = session.query(DagRun.state).filter_by(dag_id=dag_id, run_id=run.run_id).scalar()
        reporter.wait_for(run_ahead(dag_id) if state == DagRunState.QUEUED else "")
        if state in (DagRunState.SUCCESS, DagRunState.FAILED):
            reporter.look(dag_id, run.run_id)
            return state == DagRunState.SUCCESS
        pause.wait(POLL_SECONDS)


def run_ahead(dag_id: str) -> str:
    """The id of the run that the scheduler executes now; empty without one."""
    with create_session() as session:
        running = session.query(DagRun).filter_by(dag_id=dag_id, state=DagRunState.RUNNING)
        run = running.order_by(DagRun.start_date).first()
        return new_run_id(run.run_id, run.run_after.timestamp()) if run else ""


def main(argv: list[str]) -> int:
    """Run the command line; the module's docstring describes it."""
    # A task in this process would treat an interrupt as its own failure, and the next task would start.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if argv[:1] == ["--end-stale-runs"]:
        end_stale_runs(*argv[1:])
        return 0
    dag_id, descriptor = (word for word in argv if word != "--scheduler")
    conf, reporter = json.load(sys.stdin), Reporter(int(descriptor))
    done = run_there(dag_id, conf, reporter) if "--scheduler" in argv else run_here(dag_id, conf, reporter)
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
