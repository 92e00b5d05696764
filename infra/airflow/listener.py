"""Lockstep's listener in Airflow: it keeps the files of open runs, records stops, and passes changes of tasks on.

Airflow calls it in the scheduler about runs, and in the process of a task about that task. If a user sets the state of
a task, the API server calls it. It tells no listener which user that is: its audit log has the name.
"""

from __future__ import annotations

from typing import Any

from airflow.listeners import hookimpl

from infra.airflow import changes, open_runs
from infra.checkout import home
from streaming_core.regression import fleet, status
from streaming_core.regression.home import new_run_id
from streaming_core.regression.stages import DAG_ID, WITH_CELLS

USER = "a user in Airflow"


@hookimpl
def on_dag_run_running(dag_run: Any, msg: str) -> None:
    """Keep a file of the run while it goes on."""
    if dag_run.dag_id == DAG_ID:
        open_runs.add(dag_run.run_id, dag_run.run_after)


@hookimpl
def on_dag_run_success(dag_run: Any, msg: str) -> None:
    """Remove the file of the run."""
    open_runs.remove(dag_run.run_id, dag_run.run_after)


@hookimpl
def on_dag_run_failed(dag_run: Any, msg: str) -> None:
    """Remove the file of the run."""
    open_runs.remove(dag_run.run_id, dag_run.run_after)


@hookimpl
def on_task_instance_running(previous_state: Any, task_instance: Any) -> None:
    """Pass the change on."""
    changes.tell(task_instance)


@hookimpl
def on_task_instance_success(previous_state: Any, task_instance: Any) -> None:
    """Pass the change on."""
    changes.tell(task_instance)


@hookimpl
def on_task_instance_skipped(previous_state: Any, task_instance: Any) -> None:
    """Pass the change on."""
    changes.tell(task_instance)


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:
    """Pass the change on, and record that a user marks a task, or a run with this task, as failed.

    The API server alone calls without the state before. Then `task_instance` is a row of Airflow's database.
    """
    changes.tell(task_instance)
    if previous_state is not None or task_instance.dag_id != DAG_ID:
        return
    run = task_instance.dag_run
    run_id, parts = new_run_id(run.run_id, run.run_after.timestamp()), [task_instance.task_id]
    if task_instance.task_id in WITH_CELLS:
        host = task_instance.rendered_map_index  # of a lane; the task on Spark runs alone
        known = fleet.claims(home(), run_id).items()
        parts = [cell for cell, claim in known if host in (None, claim.host) and not claim.is_over]
    for part in parts:
        status.record_stop(home(), run_id, USER, part)
