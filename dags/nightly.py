"""The nightly regression: the same graph, every night, over every application; all else is the form's defaults.

An application that has an import of the name `nightly` runs on that instead of generated events.
"""

from datetime import timedelta

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, CronTriggerTimetable

from infra.checkout import home
from streaming_core.apps import registry

NIGHTLY = "nightly"
with DAG(
    dag_id="streaming_regression_nightly",
    description="Starts streaming_regression over every application and takes over its outcome.",
    doc_md=__doc__,
    schedule=CronTriggerTimetable("0 2 * * *", timezone="UTC"),
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=True,
    tags=["lockstep"],
) as dag:
    TriggerDagRunOperator(
        task_id="regression",
        trigger_dag_id="streaming_regression",
        conf={
            "applications": registry.names(),
            "data": {name: NIGHTLY for name in registry.names() if home().imported(name, NIGHTLY).is_dir()},
        },
        wait_for_completion=True,
        deferrable=True,
        poke_interval=30,
        allowed_states=["success"],
        failed_states=["failed"],
        execution_timeout=timedelta(hours=12),
        retries=0,
    )
