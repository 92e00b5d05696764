"""Shows the red cells of a run, and asks a person whether they have been seen, and why they may stay.

They stay red. The answer stands beside them on the run's pages; once all of a run's are acknowledged, `lockstep prune`
may remove its outputs.
"""

from datetime import timedelta

from airflow.sdk import DAG, get_current_context, task

from dags.lib import decisions
from dags.lib.form import run_params

with DAG(
    dag_id="acknowledge_run",
    description="Say that red cells of a run have been seen, with a reason.",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    params=run_params("Default: the newest run that has red cells.", "Of its red cells these. Default: all of them."),
    default_args={"retries": 0},
    is_paused_upon_creation=False,
    tags=["lockstep"],
) as dag:

    @task(execution_timeout=timedelta(minutes=5))
    def red_cells() -> dict:
        """Says what is red."""
        params = get_current_context()["params"]
        return decisions.red_cells(params["run"] or "", params["cells"] or "")

    @task(execution_timeout=timedelta(minutes=5))
    def acknowledge(asked: dict, given: dict) -> str:
        """Writes down who has seen them, and what they say."""
        return decisions.acknowledge(asked, given)

    asked = red_cells()
    question = decisions.question("red_cells", "Acknowledge")
    asked >> question
    acknowledge(asked, question.output)
