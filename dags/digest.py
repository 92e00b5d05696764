"""Send a summary of the week, every Monday at 08:00 UTC.

The DAG is off until you switch it on. It sends the summary through the same channels as alerts
(`lockstep_alert_smtp`, `lockstep_alert_apprise`). The log of its task has the text too.

The summary names the nights of the last seven days, red and slower cells, finds, and the disk space. It keeps cells
that became red in this week apart from older ones. You can also trigger the DAG by hand.

## If this DAG is red

The last line in the log of the task gives the reason. A channel that fails does not make it red: the log has a line.
"""

from datetime import timedelta

from airflow.sdk import get_current_context, task

from dags.lib.alerts import send
from dags.lib.approvals import fail_in_one_line
from dags.lib.digest import digest
from dags.lib.schedule import scheduled_dag
from infra.checkout import home

with scheduled_dag(
    "digest",
    "9 Watch: digest of the week, on Mondays at 08:00 UTC",
    "Send a summary of the week through the channels of alerts. Off until you switch it on.",
    __doc__,
    "0 8 * * 1",
) as dag:

    @task(execution_timeout=timedelta(hours=1), doc_md="Sends the summary. Its log has the text.")
    @fail_in_one_line
    def send_digest() -> None:
        """Print the summary, and send it through every channel."""
        message = digest(home(), get_current_context()["dag_run"].run_after)
        print("\n".join(message.lines))
        send(lambda: message)

    send_digest()
