"""`lockstep status`: how far runs are: those of a home, or a live one."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from infra import checkout
from streaming_core.cli.options import Json


def status(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Folder of a run of `lockstep follow`. Without it: all runs in progress."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Print the runs in progress, or how far a live run is.

    Without a folder, the command lists the regression runs in progress,
    and the processes that have LOCKSTEP_HOME, this host or the warehouse.
    Of a live run, it prints up to which event the run is verified. The
    process of the run writes these figures about once a second. The
    command exits with 1 if the live run failed.

    Examples:
        lockstep status
        lockstep status run
    """
    return _in_progress(as_json) if folder is None else _live(folder, as_json)


def _in_progress(as_json: bool) -> int:
    """Print the runs in progress, and the holders of the locks."""
    from reports.history import History
    from reports.views.overview import unfinished
    from streaming_core.regression.lock import of_home, of_host, of_warehouse

    home = checkout.home()
    runs = unfinished(History(home))
    locks = {"home": of_home(home), "host": of_host(), "warehouse": of_warehouse(home)}
    if as_json:
        holders = {name: lock.holders() for name, lock in locks.items()}
        print(json.dumps({"runs": [asdict(run) for run in runs], "locks": holders}, indent=1, sort_keys=True))
        return 0
    for run in runs:
        print(f"run {run.run_id}{' waits to start' if run.waits else ''}: {run.sentence}")
    if not runs:
        print("no run is in progress")
    for lock in locks.values():
        if users := lock.users:
            print(f"{lock.what} is in use by {users}")
    return 0


def _live(folder: Path, as_json: bool) -> int:
    """Print how far a live run is; returns the exit code."""
    from streaming_core.run.live_folder import human_bytes, read_status

    about = read_status(folder)
    if as_json:
        print(json.dumps(asdict(about), indent=1, sort_keys=True))
        return int(about.state == "failed")
    now = time.time()
    print(f"{folder}: {about.app} from {about.source}: {about.state}{about.reason and f': {about.reason}'}")
    if not about.updated:
        print("it has not processed anything yet")
        return 0
    print(f"{about.events:,} events in {about.micro_batches:,} micro-batches, {about.outputs:,} outputs")
    if about.verified is None:
        print("not verified")
    else:
        print(f"verified up to event {about.verified:,}, {about.lag:,} events ({about.lag_seconds:.1f} s) behind")
    if about.checkpoint is not None:
        age = now - (about.checkpoint_time or now)
        print(f"last checkpoint at event {about.checkpoint:,}, {age:,.0f} s ago")
    print(f"{human_bytes(about.bytes)} on disk ({about.extent}), {human_bytes(about.free_bytes)} free")
    return int(about.state == "failed")
