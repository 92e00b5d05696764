"""Record that you have seen the red cells of a run, with a reason.

Use it when you know why cells are red, and do not need their outputs any more. The cells stay red. The run's pages show
your name and your reason beside them. Once all red cells of a run are acknowledged, `lockstep prune` may remove the
outputs of the run.

## How it works

1. Trigger the DAG. Both form fields may stay empty.
2. Open the tab **Required Actions** of the run. It lists the red cells, with reasons.
3. Type your reason, and press **Acknowledge**. **Do nothing** ends the run without a record.

Without a response within seven days, the run fails and nothing changes. `lockstep acknowledge` does the same without
Airflow.

| field | meaning | default |
|---|---|---|
| Run | id of the run, such as `20260131T020000Z-0123abcd`; the overview shows it | newest run with red cells |
| Cells | names such as `gs.transactional.serial.t2.0123abcd`, separated by commas | all red cells of the run |

## If this DAG is red

The last line in the log of the failed task gives the reason, for example that the run has no red cells.
"""

from datetime import timedelta

from airflow.sdk import get_current_context, task

from dags.lib import approvals
from dags.lib.form import form_dag, run_params

with form_dag(
    "acknowledge_run",
    "3 Acknowledge the red cells of a run",
    "Record that you have seen the red cells of a run, with a reason.",
    __doc__,
    run_params("Default: the newest run with red cells.", "Default: every red cell of the run."),
) as dag:

    @task(
        execution_timeout=timedelta(minutes=5),
        doc_md="Finds the run and its red cells. It fails if the form names a run or a cell that is not red.",
    )
    def red_cells() -> dict:
        """Propose to acknowledge the red cells."""
        params = get_current_context()["params"]
        return approvals.red_cells(params["run"] or "", params["cells"] or "")

    @task(
        execution_timeout=timedelta(minutes=5),
        doc_md="Records your name and your reason, and publishes the pages of the run again.",
    )
    def acknowledge(proposal: dict, response: dict) -> str:
        """Record the acknowledgement with the name of Airflow's user."""
        return approvals.acknowledge(proposal, response)

    proposal = red_cells()
    question = approvals.question("red_cells", "Acknowledge")
    proposal >> question
    acknowledge(proposal, question.output)
