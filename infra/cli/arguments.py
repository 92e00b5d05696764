"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from streaming_core.errors import BadInput

CELLS = "Names of cells, separated by commas, as `lockstep report --json` prints them."

CellName = Annotated[
    str, typer.Argument(metavar="CELL", help="The name of a cell, as `lockstep report --json` prints it.")
]
RunOfCell = Annotated[
    str | None, typer.Option("--run", metavar="RUN_ID", help="The run of the cell. Default: the newest run.")
]
NewestRun = Annotated[str | None, typer.Argument(metavar="RUN_ID", help="The id of a run. Default: the newest run.")]
Port = Annotated[int, typer.Option(min=1, max=65535, metavar="N", help="Port on localhost.")]
Separator = Annotated[
    str | None,
    typer.Option(metavar="CHAR", help="Character between the columns of CSV. Default: a comma; in .tsv files a tab."),
]


def named_cells(text: str | None) -> list[str] | None:
    """Split the value of --cells into names; None if the option was not used."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise BadInput("--cells: name at least one cell")
    return names
