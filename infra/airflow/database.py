"""Removes old rows of Airflow's database: `airflow db clean`, in the process of `lockstep ui`.

Airflow keeps the address of its database from its tasks. So the DAG `retention` leaves a request in AIRFLOW_HOME, and
the process that starts Airflow's components, which knows the address, serves it. Airflow keeps the last run of each
DAG, and connections, pools and users.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from infra.airflow import airflow_home
from streaming_core.process import start
from streaming_core.storage import left_json, write_json


def ask_to_clean(before: datetime) -> None:
    """Leave the request to remove the rows from before a time."""
    write_json(_request(), {"before": before.isoformat()})


def clean_if_asked(environment: Mapping[str, str], log: Path) -> subprocess.Popen | None:
    """Serve the request, if there is one.

    Args:
        environment: The variables of Airflow's processes.
        log: File for the output of Airflow, which counts the rows of each table.

    Returns:
        The process that removes the rows, or None. A broken request asks for nothing.
    """
    if not _request().exists():
        return None
    before = left_json(_request()).get("before")
    _request().unlink()
    if not before:
        return None
    command = [*airflow_home.AIRFLOW, "db", "clean", "--clean-before-timestamp", before]
    command += ["--skip-archive", "--yes", "--error-on-cleanup-failure"]
    with open(log, "wb") as out:
        return start(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)


def _request() -> Path:
    return airflow_home.location() / "clean-database.json"
