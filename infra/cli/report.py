"""`lockstep report`: print the table of a run and the paths of its pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from infra import checkout
from infra.cli.arguments import NewestRun
from streaming_core.cli.options import Json
from streaming_core.errors import BadInput, refusal
from streaming_core.storage import write_text


def report(
    run_id: NewestRun = None,
    file: Annotated[
        Path | None, typer.Option(metavar="OUT.html", help="Also write the whole run to one HTML file, to send it.")
    ] = None,
    beside: Annotated[
        str | None, typer.Option(metavar="RUN_ID", help="Also write a page that compares the run with this one.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Print the table of a run and the paths of its pages.

    The command exits with 1 if the run is red.

    Examples:
        lockstep report
        lockstep report --file run.html
    """
    from infra.cli.summary import print_run, shown
    from reports.attachment import attachment
    from reports.history import History
    from reports.pages import Pages
    from reports.site import beside_name
    from reports.views.beside import Beside

    home = checkout.home()
    ids = History(home).run_ids()
    if not ids:
        raise BadInput(f"{home.root} has no run yet: start one with `lockstep run`")
    for name in (run_id, beside):
        if name and name not in ids:
            raise BadInput(f"{home.root} has no run {name}; the newest are {', '.join(ids[-3:])}")
    run_id = run_id or ids[-1]
    if file:
        history = History(home)
        try:
            write_text(file, attachment(Pages(history), history.run(run_id)))
        except OSError as error:
            raise refusal(error, f"{file} cannot be written") from None
    green = print_run(home, run_id, Console(), as_json)
    if beside:
        history = History(home)
        run, other_run = history.run(run_id), history.run(beside)
        page = home.report(run_id, beside_name(beside))
        write_text(page, Pages(history).beside(run, other_run))
        if not as_json:
            text = f"\nbeside   {shown(page)}\n{Beside.of(run, other_run).sentence}"
            Console().print(Text(text), soft_wrap=True)
    if fault := History(home).decisions_fault:
        raise BadInput(fault)
    return 0 if green else 1
