"""Measures cells of a run beside the accepted baseline, in turns, on this machine: four minutes a cell.

The run has to be of the build that is checked out. It is red here where a cell is slower than the baseline by more than
1 %, or cannot be compared; the run that was measured stays as it is. Its page, and the overview, say what came of it.
"""

from datetime import timedelta

from airflow.sdk import DAG, get_current_context, task

from dags.lib import decisions
from dags.lib.form import run_params
from dags.lib.operators import Job

with DAG(
    dag_id="speed_gate",
    description="Is this build as fast as the accepted baseline?",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    params=run_params("Default: the newest run.", "Its cells to measure. Default: all that equal the oracle."),
    default_args={"retries": 0},
    is_paused_upon_creation=False,
    tags=["lockstep"],
) as dag:

    @task(execution_timeout=timedelta(minutes=5))
    def choose() -> dict:
        """Checks that there is something to measure."""
        params = get_current_context()["params"]
        return decisions.to_measure(params["run"] or "", params["cells"] or "")

    run = "{{ ti.xcom_pull(task_ids='choose')['run'] }}"
    choose() >> Job(
        task_id="gate",
        run=run,
        arguments=["-m", "infra.cli", "gate", run, "--cells", "{{ ti.xcom_pull(task_ids='choose')['cells'] }}"],
        spark=False,
        execution_timeout=timedelta(hours=12),
    )
