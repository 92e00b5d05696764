"""Back up the history and the decisions after each validated run.

The DAG runs when `streaming_regression` emits the asset `lockstep/validated`. Then every cell of a run is equal to
the oracle, or is a declared bound. The DAG writes one file into the folder of the setting `LOCKSTEP_BACKUPS`, named
after the run, and removes its own oldest files. It is off until you switch it on.

| field | meaning | default |
|---|---|---|
| Keep | number of backups to keep | 14 |

You can also trigger it by hand; the file is then named after the newest run. `lockstep restore FILE` restores a backup.

## If this DAG is red

The last line in the log of the task gives the reason, for example that `LOCKSTEP_BACKUPS` is not set or the disk is
full. Older backups stay. Repair that, then trigger the DAG by hand.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, get_current_context, task

from dags.lib.approvals import fail_in_one_line
from dags.lib.assets import VALIDATED
from dags.lib.form import bounds
from infra.checkout import backups, home
from infra.history.archive import keep_newest
from reports.history import History
from streaming_core.errors import BadInput
from streaming_core.regression.project import TAG, labelled, named


@fail_in_one_line
def back_up(context: Any) -> str:
    """Write a backup named after the validated run, and remove the oldest ones of that kind; returns a line about it.

    Args:
        context: Airflow's context. A run that a person triggered has no asset event: then the newest run counts.
    """
    folder = backups()
    events = context["triggering_asset_events"][VALIDATED] if context["triggering_asset_events"] else []
    runs = [event.extra["run"] for event in events] or History(home()).run_ids()
    if not runs:
        raise BadInput("there is no run yet, so there is no history to back up")
    return keep_newest(home(), max(runs), folder, int(context["params"]["keep"]), print)


with DAG(
    dag_id=named("back_up_history"),
    dag_display_name=labelled("7 Back up: history and decisions, after each validated run"),
    description="Write a backup of the history after each validated run. Off until you switch it on.",
    doc_md=__doc__,
    schedule=[VALIDATED],
    catchup=False,
    max_active_runs=1,
    params={
        "keep": Param(
            14, type="integer", title="Keep", description="Number of backups to keep. 1 to 999.", allOf=bounds(1, 999)
        )
    },
    default_args={"retries": 0},
    is_paused_upon_creation=True,
    tags=[TAG],
) as dag:

    @task(
        execution_timeout=timedelta(hours=7),
        doc_md="Waits until no other run uses LOCKSTEP_HOME, then writes the backup.",
    )
    def write_backup() -> str:
        """Write the backup, and remove the oldest ones."""
        return back_up(get_current_context())

    write_backup()
