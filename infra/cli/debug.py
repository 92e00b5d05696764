"""`lockstep debug`: open the event that broke a cell in the interpreter, under Python's debugger."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from infra import checkout
from infra.cli.arguments import CellName, RunOfCell
from streaming_core.errors import BadInput, unknown
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import rows


def debug(
    cell: CellName,
    run_id: RunOfCell = None,
    event: Annotated[
        int | None,
        typer.Option(metavar="N", help="The event, by its number. Default: the first one whose output differs."),
    ] = None,
) -> int:
    """Open the event that broke a cell in a debugger on your operators.

    The interpreter of the oracle processes all events before the event. Then
    the debugger stops in each operator that the event reaches, in your
    source. At the end, the command prints the outputs that the oracle
    expects.

    Examples:
        lockstep debug CELL
        lockstep debug CELL --event 1204
        lockstep debug CELL --run 20261126T020000Z-1a2b3c4d
    """
    from infra.gate.evaluation import chosen
    from jobs.run_folder import read_plan
    from streaming_core.data import workload
    from streaming_core.data.comparison import plain
    from streaming_core.oracle import debugger

    home = checkout.home()
    run_id = chosen(home, run_id)
    cells = {planned["cell"]: planned for planned in read_plan(home, run_id)["cells"]}
    if cell not in cells:
        raise BadInput(f"run {run_id}: {unknown('cell', cell, list(cells))}")
    if event is None:
        event = _first_difference(home, run_id, cell)
    folder = home.workload(cells[cell]["spec"]["app"], cells[cell]["workload"])
    if not folder.is_dir():
        raise BadInput(f"the workload of {cell} was removed: run its application again")
    source = workload.read(folder)
    debugger.check_event(source, event)
    console = Console(stderr=True, highlight=False)
    console.print(
        f"event {event} of {folder}\nThe debugger stops in each operator. Type s for the next line, p NAME for a "
        "value, c for the next operator, q to leave, h for more.",
        soft_wrap=True,
        markup=False,
    )
    outputs = debugger.debug(source, event)
    if outputs is None:
        return 1
    console.print(f"the oracle's outputs of event {event}: {outputs.num_rows}")
    for row in outputs.to_pylist():
        print(json.dumps({name: plain(value) for name, value in row.items()}))
    return 0


def _first_difference(home: Home, run_id: str, cell: str) -> int:
    seqs = [row["seq"] for row in rows(home, "violations", run_id) or [] if row["cell"] == cell]
    seqs = [seq for seq in seqs if seq is not None]
    if not seqs:
        raise BadInput(f"run {run_id} has no output of {cell} that differs: name an event with --event")
    return min(seqs)
