"""`lockstep bisect`: find the commit that made a cell wrong or slow."""

from __future__ import annotations

import json

from rich.console import Console

from infra.services import build
from infra.services.bisect import Fault
from infra.services.bisect import bisect as halved
from infra.services.gate import chosen
from streaming_core.errors import BadInput, unknown
from streaming_core.regression.home import Home


def bisect(home: Home, cell: str, ends: tuple[str, str], fault: str, run_id: str | None, as_json: bool) -> None:
    """Print the first bad commit, or the few that it is among; progress goes to stderr.

    Args:
        home: LOCKSTEP_HOME.
        cell: The name of the cell.
        ends: A good commit, and a later bad one.
        fault: `mismatch` or `slowdown`.
        run_id: The run of the cell; None means the newest one.
        as_json: Print JSON instead of text.

    Raises:
        BadInput, RunFailed: As `infra.services.bisect.bisect`; or the fault is unknown.
    """
    if fault not in (faults := [str(one) for one in Fault]):
        raise BadInput(f"--fault: {unknown('fault', fault, faults)}")
    progress = Console(stderr=True)

    def say(line: str) -> None:
        progress.print(line, highlight=False, markup=False, soft_wrap=True)

    suspects = halved(home, chosen(home, run_id), cell, *ends, Fault(fault), say)
    if as_json:
        print(json.dumps({"cell": cell, "fault": fault} | suspects._asdict(), indent=1))
        return
    if len(suspects.commits) > 1:
        print(f"the {fault} begins at one of {len(suspects.commits)} commits; those between could not be judged:")
        for commit in suspects.commits:
            print(f"  {build.described(commit)}")
    else:
        print(f"the {fault} begins at {build.described(suspects.commits[0])}")
