"""A listener that records which user stops a run or a task in Airflow's UI or API.

Airflow calls it in the API server, within the request of the user. Before that, the request writes an entry with the
user's name into Airflow's audit log. A task cannot read that log, so the listener writes the name into the run's
folder.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.listeners import hookimpl

from infra.checkout import home
from streaming_core.regression import fleet, status
from streaming_core.regression.home import new_run_id
from streaming_core.regression.stages import DAG_ID, WITH_CELLS

MANUALLY = "manually set"  # in Airflow's message to a listener about a state that a user sets
# Events of the audit log: about one run, and about several, which they do not name.
EVENTS = ("patch_dag_run", "patch_task_instance", "patch_task_group_instances")
BULK_EVENT = "bulk_dag_runs"
RECENT = timedelta(seconds=10)


@hookimpl
def on_dag_run_failed(dag_run: Any, msg: str) -> None:
    """Record the user that marks a run as failed."""
    if dag_run.dag_id == DAG_ID and MANUALLY in msg:
        status.record_stop(home(), _run_id(dag_run), _user(dag_run, dag_run.run_id))


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:
    """Record the user that marks a task as failed."""
    if previous_state is None and task_instance.dag_id == DAG_ID and MANUALLY in str(error):
        run_id, user = _run_id(task_instance.dag_run), _user(task_instance, task_instance.run_id)
        parts = [task_instance.task_id]
        if task_instance.task_id in WITH_CELLS:
            host = task_instance.rendered_map_index  # of a lane; the task on Spark runs alone
            known = fleet.claims(home(), run_id).items()
            parts = [cell for cell, claim in known if host in (None, claim.host) and not claim.is_over]
        for part in parts:
            status.record_stop(home(), run_id, user, part)


def _run_id(run: Any) -> str:
    return new_run_id(run.run_id, run.run_after.timestamp())


def _user(row: Any, airflow_run: str) -> str:
    """The user in the newest entry of the audit log about a run; empty if there is no recent entry.

    Args:
        row: a row of Airflow's database, in the session of the request.
        airflow_run: Airflow's id of the run.
    """
    from airflow.models import Log
    from sqlalchemy import select
    from sqlalchemy.orm import object_session

    session = object_session(row)
    if session is None:
        return ""
    about_run = (Log.run_id == airflow_run) & Log.event.in_(EVENTS)
    query = (
        select(Log.owner)
        .where(Log.dttm > datetime.now(UTC) - RECENT, about_run | (Log.event == BULK_EVENT))
        .order_by(Log.id.desc())
        .limit(1)
    )
    return session.scalar(query) or ""
