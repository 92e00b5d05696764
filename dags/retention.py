"""Free disk space and rows of Airflow's database every night, at 01:00 UTC, by fixed rules.

The DAG is off until you switch it on. From then on, it removes what the rules allow, every night. If you trigger it by
hand, it only lists what it would remove, unless you clear the field **Only list**.

| what | removed when |
|---|---|
| outputs and final states | the run is green and not among the last seven, or all its red cells are acknowledged |
| workloads, oracles and builds | the oldest, above **Cache** gigabytes in all |
| logs of Airflow and of Spark servers | older than **Days** |
| scratch files of Spark | a killed server left them |
| rows of Airflow's database | older than **Days** (`airflow db clean`) |

## What always stays

- Raw results, decisions, reports, plans and imports.
- Outputs and logs of a run in progress, and of a red run until you acknowledge each of its red cells.
- All rows of Airflow's database since the start of such a run. The log names the runs.
- The last run of each DAG, and connections, pools and users of Airflow.

## What it freed

The last lines of both tasks' logs say it. The XCom of `free_files` has the bytes of each kind, and the XCom of
`clean_database` the rows of each table.

## If this DAG is red

- The task `free_files` failed: its last log line names a file that cannot be removed. Check who owns it.
- The task `clean_database` failed: its log has the output of `airflow db clean`.

`lockstep prune` removes outputs and caches by the same rules, without Airflow.
"""

from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable, get_current_context, task

from dags.lib import retention
from streaming_core.regression.project import TAG, labelled, named

with DAG(
    dag_id=named("retention"),
    dag_display_name=labelled("7 Retention: free disk space, at 01:00 UTC"),
    description="Remove old outputs, caches, logs and database rows every night. Off until you switch it on.",
    doc_md=__doc__,
    # By default, Airflow would start a run as soon as a person switches the DAG on in the hours after 01:00.
    schedule=CronTriggerTimetable("0 1 * * *", timezone="UTC", run_immediately=timedelta()),
    catchup=False,
    max_active_runs=1,
    params=retention.retention_params(),
    default_args={"retries": 0},
    is_paused_upon_creation=True,
    tags=[TAG],
) as dag:

    def scheduled() -> bool:
        """Whether the schedule started this run."""
        return get_current_context()["dag_run"].run_type == "scheduled"

    @task(
        execution_timeout=timedelta(hours=7),
        doc_md="Waits until no run uses LOCKSTEP_HOME, then removes files. Its log names each of them, with its size.",
    )
    def free_files() -> dict:
        """Remove files by the rules."""
        return retention.free_files(dict(get_current_context()["params"]), scheduled())

    @task(
        execution_timeout=timedelta(hours=1),
        trigger_rule="all_done",
        doc_md="Removes old rows of Airflow's database with `airflow db clean`. Its log counts them by table.",
    )
    def clean_database() -> dict:
        """Remove old rows of Airflow's database."""
        return retention.clean_database(dict(get_current_context()["params"]), scheduled())

    free_files() >> clean_database()
