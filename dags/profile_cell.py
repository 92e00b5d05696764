"""Show where the time of a cell goes, by operator and function, beside an earlier build.

Use it when a cell is slow or became slower. The button on the page of the cell triggers this DAG. It repeats the cell
on this host under Linux's perf, with this checkout and with the build of the last green night. That takes about a
minute, and some more the first time that the earlier build is compiled. The page of the cell links to the result.

| field | meaning | default |
|---|---|---|
| Cell | a name such as `gs.transactional.serial.t2.0123abcd` | none; you must fill it in |
| Run | id of the run of the cell, such as `20260131T020000Z-0123abcd` | newest run |
| Against | branch, tag or commit to compare with | the build of the last green night |

## If this DAG is red

The last line in the log of the failed task gives the reason, for example that the run has no such cell.
`lockstep profile` does the same on the command line.
"""

from datetime import timedelta

from airflow.sdk import Param, get_current_context, task

from dags.lib import approvals
from dags.lib.form import CELL, form_dag, run_params
from dags.lib.operators import Job

with form_dag(
    "profile_cell",
    "5 Profile: see where the time of a cell goes",
    "Show where the time of a cell goes, by operator and function.",
    __doc__,
    {
        "cell": Param(
            type="string",
            title="Cell",
            description=f"The name of a cell, such as {CELL}. Required.",
            minLength=1,
        ),
        "run": run_params("Default: the newest run.", "")["run"],
        "against": Param(
            None,
            type=["string", "null"],
            title="Against",
            description="A branch, a tag or a commit to compare with. Default: the build of the last green night.",
        ),
    },
) as dag:

    @task(
        execution_timeout=timedelta(minutes=5),
        doc_md="Checks the cell and its run before anything is built.",
    )
    def choose() -> dict:
        """Check the cell and its run before anything is built."""
        params = get_current_context()["params"]
        return approvals.to_profile(params["cell"], params["run"] or "")

    run = "{{ ti.xcom_pull(task_ids='choose')['run'] }}"
    choose() >> Job(
        task_id="profile",
        run=run,
        arguments=["-m", "infra.profile.cell", run, "{{ params.cell }}", "--against", "{{ params.against or '' }}"],
        doc_md="Repeats the cell under perf, and publishes the pages of its run.",
        execution_timeout=timedelta(hours=2),
    )
