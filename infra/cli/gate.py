"""`lockstep gate`: compare the speed of a run's cells with another commit, and print the verdicts."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra.checkout import home
from infra.cli.arguments import CELLS, NewestRun, named_cells
from streaming_core.cli.options import Json

if TYPE_CHECKING:
    from reports.history import Run


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
    from infra.gate.evaluation import gate as compare
    from infra.gate.evaluation import is_red

    progress = Console(stderr=True)

    def say(line: str) -> None:
        progress.print(line, highlight=False, markup=False, soft_wrap=True)

    run = compare(home(), against, run_id, named_cells(cells), say)
    if as_json:
        gates = [{"cell": cell.name} | asdict(cell.gate) for cell in run.cells if cell.gate]
        print(json.dumps({"run_id": run.run_id, "gate": gates}, indent=1, default=str))
    else:
        _print(Console(), run)
    return 1 if is_red(run) else 0


def _print(console: Console, run: Run) -> None:
    from infra.gate.evaluation import RED
    from reports.history import short

    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in ("cell", "build", "compared with", "speed", "95 % interval", "detection limit", "reason"):
        table.add_column(title, no_wrap=True)
    for cell in run.cells:
        if verdict := cell.gate:
            style = "red" if verdict.verdict in RED else ""
            words = (
                cell.name,
                short(verdict.build),
                run.against,
                verdict.text,
                verdict.interval,
                verdict.visible,
                verdict.why,
            )
            table.add_row(*(Text(word, style) for word in words))
    console.width = max(
        console.width, math.ceil(console.measure(table, options=console.options.update(width=1000)).maximum)
    )
    console.print(table)
    console.print(Text(f"\n{run.gate_sentence}"), soft_wrap=True)
