"""Check every day at 08:00 UTC that the newest results are not too old.

The DAG is off until you switch it on. It does the same as `lockstep warehouse freshness`: dbt compares the age of the
newest raw results with the limits in `dbt/models/staging/raw.yml`. You can also trigger it by hand.

## If this DAG is red

It sends the alert `stale`. The last line in the log of the task gives the age, or the reason why it is unknown. Check
that the nightly DAG is on, and look at its last run.
"""

from datetime import timedelta

from airflow.sdk import task

from dags.lib.alerts import Stale
from dags.lib.approvals import fail_in_one_line
from dags.lib.schedule import scheduled_dag
from infra.checkout import home
from infra.history import marts

with scheduled_dag(
    "freshness",
    "9 Watch: age of the newest results, at 08:00 UTC",
    "Check the age of the newest results, and send an alert if they are old. Off until you switch it on.",
    __doc__,
    "0 8 * * *",
) as dag:

    @task(
        execution_timeout=timedelta(hours=7),
        on_failure_callback=Stale(),
        doc_md="Waits until no run uses LOCKSTEP_HOME, then asks dbt for the age of the newest results.",
    )
    @fail_in_one_line
    def check_freshness() -> str:
        """The age of the newest results in a line."""
        return marts.freshness(home())

    check_freshness()
