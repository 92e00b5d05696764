"""`lockstep find`: search inputs and ways of executing for a fault, and make what differs small."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from infra import checkout
from streaming_core.apps import registry
from streaming_core.cli.options import Columns, Json
from streaming_core.errors import BadInput, ExitCode


def find(
    name: Annotated[
        str | None, typer.Argument(metavar="[APP]", help="Application id. `streaming-core apps` lists them.")
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.0, metavar="N", help="Minutes to search.")] = 10.0,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, metavar="N", help="Chooses the draws.")] = 0,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="[STREAM=]FILE",
            help="Change events of your own instead of generated ones. Repeat it for more files.",
        ),
    ] = None,
    mapping: Columns = None,
    folder: Annotated[
        Path | None,
        typer.Option("--case", metavar="DIR", help="Run the case in this folder again, and search nothing."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Search for a fault of an application, and make it small.

    The command draws inputs that are easy to get wrong, and runs each in
    several ways of executing. It compares the results with the oracle's, and
    checks the invariants and the properties. It ends with the first new find:
    the smallest case, a page, and a test for pytest. A search that was killed
    goes on from there. It exits with 1 if it finds something.

    Examples:
        lockstep find wc
        lockstep find gs --minutes 2 --seed 7
        lockstep find --case .lockstep/finds/wc/0123456789abcdef
    """
    from jobs.invariants import beside
    from reports import publish
    from reports.site import find_name
    from streaming_core.importing import form
    from streaming_core.search import search, text

    console = Console(highlight=False, quiet=as_json)
    if folder is not None:
        if name is not None or data:
            raise BadInput("--case has application and events: give neither APP nor --data")
        return text.replay(folder, console, as_json, beside)
    if name is None:
        raise BadInput("name an application, or a case with --case; `streaming-core apps` lists the applications")
    app, home, progress = registry.load(name), checkout.home(), Console(stderr=True, highlight=False)

    def say(line: str) -> None:
        progress.print(line, style="dim", soft_wrap=True, markup=False)

    with ExitStack() as stack:
        source = stack.enter_context(form.workload_of(name, {}, None, data, mapping or ())) if data else None
        report = search.search(
            name,
            home.corpus(name),
            home.finds(name),
            minutes * 60,
            seed=seed,
            source=source,
            invariants=stack.enter_context(beside(app)),
            say=say,
        )
    publish.finds(home)
    if as_json:
        print(json.dumps(text.report(report), indent=1))
    else:
        text.show(report, console)
        for case in report.finds:
            page = home.reports / find_name(case.app, case.digest)
            console.print(f"page: {page}", soft_wrap=True, markup=False)
    return ExitCode.FAILED if report.finds else ExitCode.SUCCESS
