"""`lockstep status`: how far a live run is."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from streaming_core.cli.options import Json


def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run of `lockstep follow`.")],
    as_json: Json = False,
) -> int:
    """Print how far a live run is, and up to which event it is verified.

    The process of the run writes these figures about once a second. The
    command exits with 1 if the run failed.

    Examples:
        lockstep status run
    """
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
