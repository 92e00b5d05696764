"""Send a summary of the week, every Monday at 08:00 UTC.

The DAG is off until you switch it on. It sends the summary through the same channels as alerts
(`lockstep_alert_smtp`, `lockstep_alert_apprise`). The log of its task has the text too.

The summary names the nights of the last seven days, red and slower cells, finds, and the disk space. It keeps cells
that became red in this week apart from older ones. You can also trigger the DAG by hand.

## If this DAG is red

The last line in the log of the task gives the reason. A channel that fails does not make it red: the log has a line.
"""

from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable, get_current_context, task

from dags.lib.alerts import send
from dags.lib.approvals import fail_in_one_line
from dags.lib.digest import digest
from infra.checkout import home
from streaming_core.regression.project import TAG, labelled, named

with DAG(
    dag_id=named("digest"),
    dag_display_name=labelled("9 Watch: digest of the week, on Mondays at 08:00 UTC"),
    description="Send a summary of the week through the channels of alerts. Off until you switch it on.",
    doc_md=__doc__,
    # By default, Airflow would start a run as soon as a person switches the DAG on.
    schedule=CronTriggerTimetable("0 8 * * 1", timezone="UTC", run_immediately=timedelta()),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 0},
    is_paused_upon_creation=True,
    tags=[TAG],
) as dag:

    @task(execution_timeout=timedelta(hours=1), doc_md="Sends the summary. Its log has the text.")
    @fail_in_one_line
    def send_digest() -> None:
        """Print the summary, and send it through every channel."""
        message = digest(home(), get_current_context()["dag_run"].run_after)
        print("\n".join(message.lines))
        send(lambda: message)

    send_digest()
