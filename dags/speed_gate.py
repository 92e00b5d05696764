"""Measures cells of a run in this checkout beside another commit, in turns, on this machine: four minutes a cell.

The commit is built first, which takes about a minute; the build stays in LOCKSTEP_HOME. The run has to be of the build
that is checked out. This DAG is red if a cell is slower than the commit by more than 1 %, or cannot be compared. The
measured run keeps its colour; its page and the overview show the verdicts.
"""

from datetime import timedelta

from airflow.sdk import DAG, Param, get_current_context, task

from dags.lib import decisions
from dags.lib.form import run_params
from dags.lib.operators import Job

with DAG(
    dag_id="speed_gate",
    dag_display_name="4 Speed gate: a run against another commit",
    description="Measure cells of a run beside another commit, in turns on this machine, about four minutes a cell.",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    params={
        "against": Param(
            type="string",
            title="Against",
            description="The commit to measure beside: a branch, a tag or a commit of this repository.",
            minLength=1,
            maxLength=200,
        ),
        **run_params("Default: the newest run.", "Its cells to measure. Default: all that equal the oracle."),
    },
    default_args={"retries": 0},
    is_paused_upon_creation=False,
    tags=["lockstep"],
) as dag:

    @task(execution_timeout=timedelta(minutes=5))
    def choose() -> dict:
        """Check the commit, the run and its cells before anything is built."""
        params = get_current_context()["params"]
        return decisions.to_measure(params["against"], params["run"] or "", params["cells"] or "")

    run = "{{ ti.xcom_pull(task_ids='choose')['run'] }}"
    choose() >> Job(
        task_id="gate",
        run=run,
        arguments=[
            "-m",
            "infra.services.gate",
            "{{ params.against }}",
            run,
            "--cells",
            "{{ ti.xcom_pull(task_ids='choose')['cells'] }}",
        ],
        spark=False,
        execution_timeout=timedelta(hours=12),
    )
