"""Acknowledge the red cells of a run: you have seen them, and you give a reason.

The task `question` shows the red cells and waits for your response under *Required Actions*. The cells stay red. The
run's pages show your name and your reason beside them. Once all red cells of a run are acknowledged, `lockstep prune`
may remove the run's outputs.
"""

from datetime import timedelta

from airflow.sdk import DAG, get_current_context, task

from dags.lib import decisions
from dags.lib.form import run_params

with DAG(
    dag_id="acknowledge_run",
    dag_display_name="3 Acknowledge the red cells of a run",
    description="Acknowledge the red cells of a run, with a reason.",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    params=run_params("The run. Default: the newest run with red cells.", "The red cells. Default: all of them."),
    default_args={"retries": 0},
    is_paused_upon_creation=False,
    tags=["lockstep"],
) as dag:

    @task(execution_timeout=timedelta(minutes=5))
    def red_cells() -> dict:
        """Propose the red cells."""
        params = get_current_context()["params"]
        return decisions.red_cells(params["run"] or "", params["cells"] or "")

    @task(execution_timeout=timedelta(minutes=5))
    def acknowledge(proposal: dict, response: dict) -> str:
        """Record the acknowledgement with the name of Airflow's user."""
        return decisions.acknowledge(proposal, response)

    proposal = red_cells()
    question = decisions.question("red_cells", "Acknowledge")
    proposal >> question
    acknowledge(proposal, question.output)
