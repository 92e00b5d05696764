"""DAGs that run by the clock."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable

from streaming_core.regression.project import TAG, labelled, named


def scheduled_dag(name: str, title: str, description: str, documentation: str | None, cron: str, **options: Any) -> DAG:
    """A DAG that runs at times in UTC: one run at a time, without retries, and off until a person switches it on.

    Args:
        name: The last part of its id.
        title: Its name on Airflow's pages.
        description: One sentence on what it does.
        documentation: Markdown, the docstring of its file.
        cron: The times.
        **options: Other arguments of the DAG.
    """
    return DAG(
        dag_id=named(name),
        dag_display_name=labelled(title),
        description=description,
        doc_md=documentation,
        # By default, Airflow would start a run as soon as a person switches the DAG on in the hours after a time.
        schedule=CronTriggerTimetable(cron, timezone="UTC", run_immediately=timedelta()),
        catchup=False,
        max_active_runs=1,
        default_args={"retries": 0},
        is_paused_upon_creation=True,
        tags=[TAG],
        **options,
    )
