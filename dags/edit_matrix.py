"""Keeps what a regression is asked under a name; runs nothing.

Name a matrix, change its fields, trigger: it has a new version. A field that is left as it is stays what the matrix
says; `afresh` forgets all of that first. Former versions stay: `nightly@1` is the first one of `nightly`.
"""

from datetime import timedelta

from airflow.sdk import DAG, Param, get_current_context, task

from dags.lib.form import matrix_params
from dags.lib.matrices import save_matrix, table

with DAG(
    dag_id="edit_matrix",
    description="Make or change a named matrix of streaming_regression: nightly, smoke, full, or one of your own.",
    doc_md=f"{__doc__}\n{table()}",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    params=matrix_params(
        "The matrix to change, or the name of a new one: small letters, digits, - and _.",
        afresh=Param(
            False,
            type="boolean",
            title="Afresh",
            description="Forget what it said: a field that is left as it is, is as by default.",
        ),
    ),
    default_args={"retries": 0},
    is_paused_upon_creation=False,
    tags=["lockstep"],
) as dag:

    @task(execution_timeout=timedelta(minutes=5))
    def save() -> str:
        """Checks the request, keeps it, says what is kept."""
        return save_matrix(get_current_context())

    save()
