"""Removes old rows of Airflow's database, from a task of Airflow: `airflow db clean`.

Airflow replaces the address of its database in the environment of each task, so that a task cannot reach it by
accident. This module gives it back to one command.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

from streaming_core.errors import RunFailed

ADDRESSES = ("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "AIRFLOW__CORE__SQL_ALCHEMY_CONN")
WITHHELD = "airflow-db-not-allowed"
COUNTS = re.compile(r"^Checking table (\w+)\n(?:.*\n)*?Found (\d+) rows", re.MULTILINE)


def clean(before: datetime, dry_run: bool) -> dict[str, int]:
    """Remove the rows from before a time. Airflow keeps the last run of each DAG, and connections, pools and users.

    Args:
        before: The time.
        dry_run: Only count them.

    Returns:
        The rows of each table that has such rows.

    Raises:
        RunFailed: The command failed; its output is in the log of the task.
    """
    command = [sys.executable, "-m", "airflow", "db", "clean", "--clean-before-timestamp", before.isoformat()]
    command += ["--skip-archive", "--yes", "--error-on-cleanup-failure", *(["--dry-run"] if dry_run else [])]
    done = subprocess.run(command, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    tables = {table: int(rows) for table, rows in COUNTS.findall(done.stdout)}
    if done.returncode or not tables:
        print(done.stdout, done.stderr, sep="\n")
        raise RunFailed(f"`airflow db clean` failed with exit code {done.returncode}; the lines above say why")
    return {table: rows for table, rows in tables.items() if rows}


def _environment() -> dict[str, str]:
    """The variables of this process, with the address of the database that it was started with."""
    variables = dict(os.environ)
    for name in ADDRESSES:
        if variables.get(name, "").startswith(WITHHELD):
            del variables[name]
            # A process forks to run a task, so the system still knows the variables from before.
            for line in Path("/proc/self/environ").read_bytes().split(b"\0"):
                if line.startswith(f"{name}=".encode()):
                    variables[name] = line.decode().partition("=")[2]
    return variables
