"""Backs up the history for the DAG `back_up_history`, which consumes the asset of validated runs."""

from __future__ import annotations

from typing import Any

from dags.lib.decisions import fail_in_one_line
from dags.lib.plan import VALIDATED
from infra.checkout import backups, home
from infra.services import backup
from reports.history import History
from streaming_core.errors import BadInput


@fail_in_one_line
def back_up(context: Any) -> str:
    """Write a backup named after the validated run; returns a line about it.

    Args:
        context: Airflow's context. A run that a person triggered has no asset event: then the newest run counts.
    """
    folder = backups()
    events = context["triggering_asset_events"][VALIDATED] if context["triggering_asset_events"] else []
    runs = [event.extra["run"] for event in events] or History(home()).run_ids()
    if not runs:
        raise BadInput("there is no run yet, so there is no history to back up")
    file = folder / f"{backup.NAME}{max(runs)}{backup.SUFFIX}"
    if file.exists():  # the task was cleared and runs again
        return f"{file} exists"
    manifest = backup.backup(home(), file, print)
    removed = backup.remove_oldest(folder, int(context["params"]["keep"]))
    size = sum(one.size for one in manifest.files)
    return f"{file} holds {len(manifest.files):,} files ({size / 1e6:.1f} MB); {len(removed)} older ones were removed"
