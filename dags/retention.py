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

The last lines of the log of `free_files` say it, and its XCom has the bytes of each kind. `lockstep ui` removes the
rows of the database after the run. Its log `db-clean.log` counts them by table.

## If this DAG is red

- The task `free_files` failed: its last log line names a file that cannot be removed. Check who owns it.
- Rows of the database stay: `lockstep ui` is not up, or the log `db-clean.log` beside those of Airflow says why. If you
  start Airflow's components by hand, run `lockstep airflow db clean` there.

`lockstep prune` removes outputs and caches by the same rules, without Airflow.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import Param, conf, get_current_context, task

from dags.lib.approvals import fail_in_one_line
from dags.lib.form import bounds
from dags.lib.schedule import scheduled_dag
from infra.airflow import database
from infra.checkout import home
from infra.history import disk_space


def retention_params() -> dict[str, Param]:
    """The DAG params: what stays, and whether a run that a person starts only lists."""
    return {
        "dry_run": Param(
            True,
            type="boolean",
            title="Only list",
            description="List what would be removed, and remove nothing. Runs of the schedule always remove.",
        ),
        "days": Param(
            90,
            type="integer",
            title="Days",
            description="Keep logs, and rows of Airflow's database, for so many days. 7 to 3,650.",
            allOf=bounds(7, 3650),
        ),
        "cache_gb": Param(
            20,
            type="number",
            title="Cache",
            description="Largest total size of workloads, oracles and builds, in gigabytes (1e9 bytes).",
            allOf=bounds(0, 1e9),
        ),
    }


def _only_lists(params: dict[str, Any], scheduled: bool) -> bool:
    return params["dry_run"] and not scheduled


def choices() -> tuple[dict[str, Any], bool]:
    """The params of this run, and whether it only lists."""
    context = get_current_context()
    params = dict(context["params"])
    return params, _only_lists(params, context["dag_run"].run_type == "scheduled")


with scheduled_dag(
    "retention",
    "8 Retention: free disk space, at 01:00 UTC",
    "Remove old outputs, caches, logs and database rows every night. Off until you switch it on.",
    __doc__,
    "0 1 * * *",
    params=retention_params(),
) as dag:

    @task(
        execution_timeout=timedelta(hours=7),
        doc_md="Waits until no run uses LOCKSTEP_HOME, then removes files. Its log names each of them, with its size.",
    )
    @fail_in_one_line
    def free_files() -> dict[str, int]:
        """Remove files by the rules; returns the bytes of each kind."""
        params, dry_run = choices()
        logs = Path(conf.get("logging", "base_log_folder"))
        rules = disk_space.Rules(params["days"], int(params["cache_gb"] * 1e9), logs if logs.is_dir() else None)
        return disk_space.free(home(), rules, dry_run)

    @task(
        execution_timeout=timedelta(minutes=5),
        trigger_rule="all_done",
        doc_md="Asks the process of `lockstep ui` to remove old rows of Airflow's database with `airflow db clean`. "
        "Airflow lets no task do this.",
    )
    @fail_in_one_line
    def clean_database() -> str:
        """Ask for the removal of old rows of Airflow's database; returns the time before which they may go."""
        params, dry_run = choices()
        before = disk_space.cutoff(home(), params["days"])
        if not dry_run:
            database.ask_to_clean(before)
        did = "would ask" if dry_run else "asked"
        print(f"{did} `lockstep ui` to remove the rows of Airflow's database from before {before:%Y-%m-%d %H:%M} UTC")
        return before.isoformat()

    free_files() >> clean_database()
