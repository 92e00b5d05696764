"""Backs up the history for the DAG `back_up_history`, which consumes the asset of validated runs."""

from __future__ import annotations

import re
from typing import Any

from dags.lib.decisions import fail_in_one_line
from dags.lib.plan import VALIDATED
from infra.checkout import backups, home
from infra.services.backup import backup
from reports.history import History
from streaming_core.errors import BadInput
from streaming_core.regression.home import RUN_ID

FILE = re.compile(rf"lockstep-{RUN_ID.pattern}\.tar\.gz")  # the name of a run sorts by time


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
    file = folder / f"lockstep-{max(runs)}.tar.gz"
    if file.exists():  # the task was cleared and runs again
        return f"{file} exists"
    content = backup(home(), file, print)
    written = sorted(one for one in folder.iterdir() if FILE.fullmatch(one.name))
    oldest = written[: -int(context["params"]["keep"])]
    for one in oldest:
        one.unlink()
    return f"{content}; {len(oldest)} older ones were removed"
