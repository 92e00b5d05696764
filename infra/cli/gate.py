"""The gate: measures a run's cells beside the accepted baseline; the warehouse judges, and what it says is printed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra.services import pairs, warehouse
from infra.services.lock import hold
from jobs.raw import write_raw
from reports.history import History, Run, short
from reports.publish import publish
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home

RED = ("slower", "different", "failed")


def gate(home: Home, run_id: str | None, names: list[str] | None, as_json: bool) -> int:
    """Measures, judges, prints; the exit code: 1 where a cell is slower than the baseline, or could not be compared.

    Raises:
        BadInput: as `pairs.measure`, or there is no such run.
    """
    console = Console(stderr=as_json)
    history = History(home)
    ids = history.run_ids()
    if run_id is None and not ids:
        raise BadInput("there is no run yet: lockstep run makes one")
    chosen = run_id or ids[-1]
    if chosen not in ids:
        raise BadInput(f"no run {chosen!r}")

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True)

    with hold(home, "gate", say):
        load(home, chosen, names, say)
    said = warehouse.build(home)
    publish(home, chosen)
    run = History(home).run(chosen)
    if as_json:
        found = [{"cell": cell.name} | asdict(cell.gate) for cell in run.cells if cell.gate]
        print(json.dumps({"run_id": chosen, "gate": found}, indent=1, default=str))
    else:
        say(said)
        _show(console, run)
    measured = [cell.gate.verdict for cell in run.cells if cell.gate]
    return 1 if set(measured) & set(RED) else 0


def load(home: Home, run_id: str, names: list[str] | None, say: Callable[[str], None]) -> None:
    """Measures, and replaces the run's rows of the raw table `pairs`."""
    made = pairs.measure(home, run_id, names, say)
    write_raw(home, "pairs", run_id, made)
    say(f"gate: {len({row['cell'] for row in made})} cells, {len(made)} pairs beside {made[0]['baseline']}")


def _show(console: Console, run: Run) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in ("cell", "build", "baseline", "speed", "95 % interval", "would be found", ""):
        table.add_column(title, no_wrap=True)
    for cell in run.cells:
        if one := cell.gate:
            style = "red" if one.verdict in RED else ""
            words = (cell.name, short(one.build), short(one.baseline), one.text, one.interval, one.visible, one.why)
            table.add_row(*(Text(word, style) for word in words))
    console.width = max(
        console.width, math.ceil(console.measure(table, options=console.options.update(width=1000)).maximum)
    )
    console.print(table)
    console.print(Text(f"\n{run.gate_sentence}"), soft_wrap=True)
