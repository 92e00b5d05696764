"""Keeps this checkout's build, and asks a person whether it is the baseline of speed from now on.

The answer, with its reason, stands on the overview. `speed_gate` measures later builds beside the baseline.
"""

from datetime import timedelta

from airflow.sdk import DAG, task

from dags.lib import decisions

with DAG(
    dag_id="accept_baseline",
    description="Accept this checkout's build as the baseline of speed, with a reason.",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 0},
    is_paused_upon_creation=False,
    tags=["lockstep"],
) as dag:

    @task(execution_timeout=timedelta(minutes=5))
    def candidate() -> dict:
        """Keeps the build, so that what is accepted is what was asked about."""
        return decisions.candidate()

    @task(execution_timeout=timedelta(minutes=5))
    def accept(asked: dict, given: dict) -> str:
        """Writes down who has accepted it, and why."""
        return decisions.accept(asked, given)

    asked = candidate()
    question = decisions.question("candidate", "Accept")
    asked >> question
    accept(asked, question.output)
