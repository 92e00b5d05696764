"""`lockstep debug`: open the event that broke a cell in the interpreter, under Python's debugger."""

from __future__ import annotations

import json

from rich.console import Console

from infra.services.gate import chosen
from jobs.run_folder import read_plan
from streaming_core.data import workload
from streaming_core.data.comparison import plain
from streaming_core.errors import BadInput, unknown
from streaming_core.oracle.debugger import debug as under_debugger
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import rows


def debug(home: Home, cell: str, event: int | None, run_id: str | None) -> int:
    """Interpret the workload of a cell up to an event, and that event under pdb; then print its outputs.

    Args:
        home: LOCKSTEP_HOME.
        cell: The name of the cell.
        event: The event, by its seq; None means the first one whose output differs.
        run_id: The run of the cell; None means the newest one.

    Returns:
        The exit code: 1 if the person left the debugger before the end of the event.

    Raises:
        BadInput: There is no such run, cell or event, or no output of the cell differs.
        RunFailed: An operator raised.
    """
    run_id = chosen(home, run_id)
    cells = {one["cell"]: one for one in read_plan(home, run_id)["cells"]}
    if cell not in cells:
        raise BadInput(f"run {run_id}: {unknown('cell', cell, list(cells))}")
    if event is None:
        event = _first_difference(home, run_id, cell)
    folder = home.workload(cells[cell]["spec"]["app"], cells[cell]["workload"])
    if not folder.is_dir():
        raise BadInput(f"the workload of {cell} was removed: run its application again")
    console = Console(stderr=True, highlight=False)
    console.print(
        f"event {event} of {folder}\nThe debugger stops in each operator. Type s for the next line, p NAME for a "
        "value, c for the next operator, q to leave, h for more.",
        soft_wrap=True,
        markup=False,
    )
    outputs = under_debugger(workload.read(folder), event)
    if outputs is None:
        return 1
    console.print(f"the oracle's outputs of event {event}: {outputs.num_rows}")
    for row in outputs.to_pylist():
        print(json.dumps({name: plain(value) for name, value in row.items()}))
    return 0


def _first_difference(home: Home, run_id: str, cell: str) -> int:
    seqs = [one["seq"] for one in rows(home, "violations", run_id) or [] if one["cell"] == cell]
    seqs = [seq for seq in seqs if seq is not None]
    if not seqs:
        raise BadInput(f"run {run_id} has no output of {cell} that differs: name an event with --event")
    return min(seqs)
