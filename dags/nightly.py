"""Run the DAG `streaming_regression` over the matrix `nightly` every night at 02:00 UTC.

The file `dags/matrices/nightly.yaml` defines the matrix. The DAG is off until you switch it on. You can also trigger it
by hand; it has no form fields. If an application `APP` has an import named `nightly-APP`, the night uses that import
instead of generated events.

## If the night is red

Open the newest run of `streaming_regression`, and its tab **Lockstep**. The first sentence names the red cells and the
failed stages. To repeat the night, trigger this DAG by hand.

## If the night is late

Five hours after the start, Lockstep sends an alert if the run has not ended. Look for the task that is still running or
queued. Its log names the run, the host or the process that it waits for.
"""

from datetime import timedelta

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import AsyncCallback, DeadlineAlert, DeadlineReference

from dags.lib.alerts import late
from dags.lib.monitoring import DeadMan
from dags.lib.schedule import scheduled_dag
from streaming_core.regression.stages import DAG_ID

IN_TIME = timedelta(hours=5)  # so that people have the results at seven

with scheduled_dag(
    "streaming_regression_nightly",
    "2 Nightly regression: every application, at 02:00 UTC",
    "Run the regression over the matrix `nightly` every night. Off until you switch it on.",
    __doc__,
    "0 2 * * *",
    # Counted from the time of queueing, because a run that a person triggers has no scheduled date.
    deadline=DeadlineAlert(DeadlineReference.DAGRUN_QUEUED_AT, IN_TIME, AsyncCallback(late), name="in time"),
) as dag:
    TriggerDagRunOperator(
        task_id="regression",
        trigger_dag_id=DAG_ID,
        conf={"matrix": "nightly"},
        wait_for_completion=True,
        deferrable=True,
        poke_interval=30,
        doc_md="Triggers `streaming_regression`, waits for its end, and succeeds or fails with it.",
        allowed_states=["success"],
        failed_states=["failed"],
        execution_timeout=timedelta(hours=12),
        on_success_callback=DeadMan("green"),
        on_failure_callback=DeadMan("red"),
        retries=0,
    )
