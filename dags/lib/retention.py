"""Frees disk space and rows of Airflow's database for the DAG `retention`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import Param, conf

from dags.lib.decisions import fail_in_one_line
from dags.lib.form import bounds
from infra.airflow import database
from infra.checkout import home
from infra.services import retention


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


@fail_in_one_line
def free_files(params: dict[str, Any], scheduled: bool) -> dict[str, int]:
    """Remove files by the rules; returns the bytes of each kind."""
    logs = Path(conf.get("logging", "base_log_folder"))
    rules = retention.Rules(params["days"], int(params["cache_gb"] * 1e9), logs if logs.is_dir() else None)
    return retention.free(home(), rules, _only_lists(params, scheduled))


@fail_in_one_line
def clean_database(params: dict[str, Any], scheduled: bool) -> dict[str, int]:
    """Remove old rows of Airflow's database; returns the rows of each table."""
    before, dry_run = retention.cutoff(home(), params["days"]), _only_lists(params, scheduled)
    rows = database.clean(before, dry_run)
    for table, number in rows.items():
        print(f"{number:>12,}  {table}")
    did = "would remove" if dry_run else "removed"
    print(f"{did} {sum(rows.values()):,} rows of Airflow's database from before {before:%Y-%m-%d %H:%M} UTC")
    return rows


def _only_lists(params: dict[str, Any], scheduled: bool) -> bool:
    return params["dry_run"] and not scheduled
