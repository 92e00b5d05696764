"""Compare the speed of this checkout with another commit, on the hosts that ran the cells.

Use it before you land a change, or to confirm a slowdown that an alert reports. The DAG builds the commit, which takes
about a minute once. Then it runs each cell with both builds in turns, which takes about four minutes a cell. The run
must be from the build that is checked out, and its cells must be equal to the oracle.

| field | meaning | default |
|---|---|---|
| Against | branch, tag or commit to compare with | none; you must fill it in |
| Run | id of the run, such as `20260131T020000Z-0123abcd` | newest run |
| Cells | names such as `gs.transactional.serial.t2.0123abcd`, separated by commas | every cell that is equal |

## If this DAG is red

- The task `choose` failed: the commit, the run or a cell does not fit. Its last log line says what to change.
- The task `gate` failed: a cell is slower than the commit by more than 1 %, or cannot be compared. The page of the run
  shows the verdict on each cell under **Lockstep**.

The measured run itself stays green or red, as it was. `lockstep gate` does the same on the command line.
"""

from datetime import timedelta

from airflow.sdk import Param, get_current_context, task

from dags.lib import approvals
from dags.lib.form import form_dag, run_params
from dags.lib.operators import Measurement

with form_dag(
    "speed_gate",
    "4 Speed gate: compare a run with another commit",
    "Compare the speed of this checkout with another commit; about four minutes a cell.",
    __doc__,
    {
        "against": Param(
            type="string",
            title="Against",
            description="The commit to compare with: a branch, a tag or a commit of this repository. Required.",
            minLength=1,
        ),
        **run_params("Default: the newest run.", "Default: every cell that is equal to the oracle."),
    },
) as dag:

    @task(
        execution_timeout=timedelta(minutes=5),
        doc_md="Checks the commit, the run and its cells before anything is built.",
    )
    def choose() -> dict:
        """Check the commit, the run and its cells before anything is built."""
        params = get_current_context()["params"]
        return approvals.to_measure(params["against"], params["run"] or "", params["cells"] or "")

    run = "{{ ti.xcom_pull(task_ids='choose')['run'] }}"
    choose() >> Measurement(
        task_id="gate",
        run=run,
        arguments=[
            "-m",
            "infra.gate.evaluation",
            "{{ params.against }}",
            run,
            "--cells",
            "{{ ti.xcom_pull(task_ids='choose')['cells'] }}",
        ],
        doc_md="Builds the commit, measures the cells with both builds, and fails if one is slower.",
        execution_timeout=timedelta(hours=12),
    )
