"""`lockstep gate`: compare the speed of a run's cells with another commit, and print the verdicts."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra.services import gate as service
from reports.history import Run, short
from streaming_core.regression.home import Home


def gate(home: Home, ref: str, run_id: str | None, names: list[str] | None, as_json: bool) -> int:
    """Compare the speed of a run's cells with a commit, and print the verdicts; progress goes to stderr.

    Returns:
        The exit code: 1 if a cell is slower than the baseline, or could not be compared.

    Raises:
        BadInput, RunFailed: as `infra.services.gate.gate`.
    """
    progress = Console(stderr=True)

    def say(line: str) -> None:
        progress.print(line, highlight=False, markup=False, soft_wrap=True)

    run = service.gate(home, ref, run_id, names, say)
    if as_json:
        gates = [{"cell": cell.name} | asdict(cell.gate) for cell in run.cells if cell.gate]
        print(json.dumps({"run_id": run.run_id, "gate": gates}, indent=1, default=str))
    else:
        _print(Console(), run)
    return 1 if service.is_red(run) else 0


def _print(console: Console, run: Run) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in ("cell", "build", "compared with", "speed", "95 % interval", "would be found", "reason"):
        table.add_column(title, no_wrap=True)
    for cell in run.cells:
        if one := cell.gate:
            style = "red" if one.verdict in service.RED else ""
            words = (cell.name, short(one.build), run.against, one.text, one.interval, one.visible, one.why)
            table.add_row(*(Text(word, style) for word in words))
    console.width = max(
        console.width, math.ceil(console.measure(table, options=console.options.update(width=1000)).maximum)
    )
    console.print(table)
    console.print(Text(f"\n{run.gate_sentence}"), soft_wrap=True)
