"""`lockstep profile`: where the time of a cell goes, by operator and function, beside an earlier build."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from infra import checkout
from infra.cli.arguments import CellName, RunOfCell
from streaming_core.cli.options import Json


def profile(
    cell: CellName,
    run_id: RunOfCell = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            help="The commit to compare with: a branch, a tag or a commit. Default: the build of the last green night.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=600.0, metavar="N", help="The time that the profiled passes fill.")
    ] = 5.0,
    as_json: Json = False,
) -> int:
    """Show where the time of a cell goes, by operator and function.

    The command repeats the cell under Linux's perf, in this checkout and in
    an earlier build. It writes a page with a flame graph, the difference and
    counters of the processor per event. Where perf may not sample, it uses
    the times of tasks that the runtime measures.

    Examples:
        lockstep profile CELL
        lockstep profile CELL --against HEAD~1
    """
    from infra.profile.cell import profile as measure
    from infra.profile.cell import request
    from reports.site import profile_name
    from reports.views.profile import ProfileView

    progress = Console(stderr=True)

    def say(line: str) -> None:
        progress.print(line, highlight=False, markup=False, soft_wrap=True)

    home = checkout.home()
    result = measure(home, request(home, cell, run_id), against, seconds, say)
    if as_json:
        print(json.dumps(result.json, indent=1))
        return 0
    for line in ProfileView.of(result).lines:
        print(line)
    print(home.report(result.run_id, profile_name(result.cell)))
    return 0
