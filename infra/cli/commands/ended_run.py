"""The commands about a run that has ended: show it, judge it, find its fault, write its pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from infra.checkout import home, user
from infra.cli.commands.options import CELLS, NewestRun, named_cells
from streaming_core.cli.options import Json

app = typer.Typer()
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Your reason. Pages show it with your name.")]
RunId = Annotated[str, typer.Argument(metavar="RUN_ID", help="The id of a run, as `lockstep report` prints it.")]


@app.command()
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
    from infra.cli.report import report as shown

    return shown(home(), run_id, as_json, file, beside)


@app.command()
def gate(
    against: Annotated[
        str, typer.Option(metavar="REF", help="The commit to compare with: a branch, a tag or a commit.")
    ],
    run_id: NewestRun = None,
    cells: Annotated[
        str | None, typer.Option(metavar="A,B,...", help=f"{CELLS} Default: every cell whose result is equal.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Compare the speed of this checkout with another commit.

    The command builds the commit once, which takes about a minute. Then it
    runs each cell with both builds in turns, on the host that ran it. That
    takes some minutes a cell. It exits with 1 if a cell is slower, or
    cannot be compared.

    Examples:
        lockstep gate --against HEAD~1
        lockstep gate --against main --cells CELL
    """
    from infra.cli.gate import gate as measured

    return measured(home(), against, run_id, named_cells(cells), as_json)


@app.command()
def debug(
    cell: Annotated[str, typer.Argument(metavar="CELL", help="The name of a cell. `lockstep report` lists them.")],
    event: Annotated[
        int | None,
        typer.Option(metavar="N", help="The event, by its number. Default: the first one whose output differs."),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--run", metavar="RUN_ID", help="The run of the cell. Default: the newest run.")
    ] = None,
) -> int:
    """Open the event that broke a cell in a debugger on your operators.

    The interpreter of the oracle processes all events before it. Then the
    debugger stops in each operator that the event reaches, in your source.
    At the end, the command prints the outputs that the oracle expects.

    Examples:
        lockstep debug CELL
        lockstep debug CELL --event 1204
    """
    from infra.cli.debug import debug as opened

    return opened(home(), cell, event, run_id)


@app.command()
def acknowledge(
    run_id: RunId,
    why: Reason,
    cells: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", help=f"{CELLS} Default: every red cell; with --withdraw, every acknowledged one."
        ),
    ] = None,
    withdrawn: Annotated[
        bool, typer.Option("--withdraw", help="Withdraw earlier acknowledgements instead. Their entries stay.")
    ] = False,
) -> None:
    """Record that you have seen the red cells of a run, with a reason.

    The cells stay red. Once all red cells of a run are acknowledged,
    `lockstep prune` may remove the outputs of the run. The record only
    grows: the last entry on a cell counts. Every command that reads the
    record refuses it if an entry was changed, removed or moved.

    Examples:
        lockstep acknowledge RUN_ID --reason "the disk was full"
        lockstep acknowledge RUN_ID --withdraw --reason "it was a lost update"
    """
    from infra.services import decisions
    from reports.publish import publish

    record = decisions.withdraw if withdrawn else decisions.acknowledge
    print(record(home(), run_id, named_cells(cells), user(), why))
    publish(home(), run_id)


@app.command()
def publish(
    run_id: Annotated[
        str | None, typer.Option("--run", metavar="RUN_ID", help="Also write the pages of this run.")
    ] = None,
) -> None:
    """Write the overview, and the pages of speed and of benchmarks, again.

    `make bench` does this when it ends. Runs write all of them but the page
    of benchmarks. Use the command after you changed or removed files in
    LOCKSTEP_HOME by hand.

    Examples:
        lockstep publish
    """
    from infra.benchmarks import page
    from reports import publish

    if run_id is None:
        print(f"benchmarks: {page.publish(home())}")
        publish.performance(home())
    else:
        print(f"publish: {publish.publish(home(), run_id)}")
