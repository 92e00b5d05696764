"""The nightly regression: runs streaming_regression over the matrix `nightly` (dags/matrices/nightly.yaml) every night.

An application with an import named `nightly` runs on that import instead of generated events.
"""

from datetime import timedelta

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, AsyncCallback, CronTriggerTimetable, DeadlineAlert, DeadlineReference

from dags.lib.alerts import late
from streaming_core.regression.stages import DAG_ID

IN_TIME = timedelta(hours=5)  # people come at seven

with DAG(
    dag_id="streaming_regression_nightly",
    dag_display_name="2 Nightly regression: every application, at 02:00 UTC",
    description="Start the regression over the matrix `nightly`, and end as it ends. Off until you switch it on.",
    doc_md=__doc__,
    schedule=CronTriggerTimetable("0 2 * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    # Of the queue, not of the schedule: a night that somebody starts by hand has no date.
    deadline=DeadlineAlert(DeadlineReference.DAGRUN_QUEUED_AT, IN_TIME, AsyncCallback(late), name="in time"),
    is_paused_upon_creation=True,
    tags=["lockstep"],
) as dag:
    TriggerDagRunOperator(
        task_id="regression",
        trigger_dag_id=DAG_ID,
        conf={"matrix": "nightly"},
        wait_for_completion=True,
        deferrable=True,
        poke_interval=30,
        allowed_states=["success"],
        failed_states=["failed"],
        execution_timeout=timedelta(hours=12),
        retries=0,
    )
