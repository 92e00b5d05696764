"""The text of a run for `lockstep run` and `lockstep report`: its table, faults, location and summary; and its JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from reports.history import Cell, History, Run, human_micros, human_rate, short
from reports.views import engines
from streaming_core.regression.home import Home
from streaming_core.regression.matrix import omissions

RATIOS = {"to_loop": "x loop", "to_best": "x best", "to_limit": "of limit"}
COLORS = {"green": "bold green", "amber": "bold yellow", "red": "bold red"}
RED = ("different", "invariant_broken", "failed")
STYLES = {"equal": "green", "not_comparable": "dim", "not_run": "red"} | dict.fromkeys(RED, "bold red")


def print_run(home: Home, run_id: str, console: Console, as_json: bool = False) -> bool:
    """Print a run: its table, faults, location and summary.

    Returns:
        Whether the run is green.
    """
    run = History(home).run(run_id)
    stages = _stages(home, run_id)
    if as_json:
        print(json.dumps(as_dict(home, run, stages), indent=1))
        return run.green
    table = cell_table(run)
    # Print the table whole, even if its lines wrap: a cut line cannot be read, and a file has no width.
    console.width = max(console.width, console.measure(table, options=console.options.update(width=1000)).maximum)
    console.print(table)
    if ratios := engines.note(run.cells):
        console.print(Text(ratios, "dim"), soft_wrap=True)
    for text in [*_faults(run), *_location(home, run, stages), *_summary(run)]:
        console.print(text, soft_wrap=True)
    return run.green


def _faults(run: Run) -> Iterator[Text]:
    """A line per red cell, failed stage, omitted cell, and application that dropped late rows."""
    for cell in run.faulty_cells:
        yield Text(f"{cell.verdict:<10} {cell.name}: {cell.reason}", "red")
    for stage, error in run.failures.items():
        yield Text(f"{stage.label} failed: {error}", "red")
    for line in omissions(run.plan):
        yield Text(f"left out   {line}", "dim")
    late = {(cell.spec.app, row.get("dropped_late")) for cell in run.cells for row in cell.samples}
    for app, rows in sorted((app, rows) for app, rows in late if rows):
        yield Text(f"too late   {app}: {rows:,} row{'s' * (rows > 1)} came too late for every window", "yellow")


def _location(home: Home, run: Run, stages: dict) -> Iterator[Text]:
    """The time of the run by stage, its matrix, and the paths of its files."""
    if stages:
        seconds = [f"{s['title']} {s['seconds']:.1f}" for s in stages["stages"] if s["seconds"] is not None]
        yield Text(f"\nseconds  {', '.join(seconds)}; in all {stages['seconds']:.0f}", "dim")
    if run.matrix:
        yield Text(f"matrix   {run.matrix}", "dim")
    paths = {"run": home.run(run.run_id), "report": home.report(run.run_id, "index.html")}
    if stages:
        paths["log"] = Path(stages["log"])
    yield Text("")
    for name, path in paths.items():
        yield Text(f"{name:<9}{shown(path)}")


def _summary(run: Run) -> Iterator[Text]:
    """The sentences about the run: whether it is right, its build, its speed, the speed gate, the search for faults."""
    yield Text(f"\n{run.sentence}", COLORS[run.color])
    if run.build == "unknown":
        yield Text("The build is unknown: git finds no commit at the root of the checkout", "yellow")
    if run.speed_sentence:
        slower = any(cell.speed and cell.speed.verdict == "slower" for cell in run.cells)
        yield Text(run.speed_sentence, "yellow" if slower else "dim")
    if run.gate_sentence:
        yield Text(run.gate_sentence, "yellow" if run.gated else "dim")
    if run.searched.sentence:
        yield Text(run.searched.sentence, "dim")


def cell_table(run: Run) -> Table:
    """The table of a run: a row per cell.

    It has columns of ratios if the run has cells of other engines. It has columns about changes of speed if a cell has
    such a verdict.
    """
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    with_host = any(cell.host for cell in run.cells)  # every host ran each cell
    titles = ["application", "executor", "strategy", "threads", *(["host"] if with_host else [])]
    ratios = engines.ratios(run.cells)
    shown = _shown_ratios(run)
    titles += ["events/s", *shown.values(), "p99", "verdict"]
    speeds = any(cell.speed for cell in run.cells)
    for title in [*titles, "speed", "since", "detection limit"] if speeds else titles:
        number = title in ("threads", "events/s", "p99", *RATIOS.values())
        table.add_column(title, justify="right" if number else "left", no_wrap=True)
    before = None
    for cell in run.cells:
        spec = cell.spec
        if before not in (None, spec.app):
            table.add_section()
        before = spec.app
        table.add_row(
            spec.app,
            spec.executor,
            cell.strategy,
            str(spec.threads),
            *([cell.host] if with_host else []),
            Text(human_rate(cell.events_per_s), "" if cell.is_speed_judged else "dim"),
            *(engines.human_ratio(getattr(ratios[cell.name], name)) for name in shown),
            human_micros(cell.p99_us),
            Text(cell.verdict, STYLES[cell.verdict]),
            *(_speed(cell) if speeds else ()),
        )
    return table


def _shown_ratios(run: Run) -> dict[str, str]:
    """The titles of the ratios in the table of a run, by name."""
    names = engines.others(run.cells)
    return {name: title for name, title in RATIOS.items() if names and (name != "to_limit" or engines.LIMIT in names)}


def _speed(cell: Cell) -> list[Text]:
    """Whether the speed of a cell changed, since when, and the smallest slowdown that the history would show."""
    if cell.speed is None:
        return [Text("")] * 3
    since = f"{cell.speed.since} {short(cell.speed.since_build)}" if cell.speed.changed else ""
    style = {"slower": "bold yellow", "faster": "green"}.get(cell.speed.verdict, "dim")
    return [Text(cell.speed.text, style), Text(since, style), Text(cell.speed.visible, "dim")]


def as_dict(home: Home, run: Run, stages: dict) -> dict:
    """A run for programs (`--json`)."""
    ratios = engines.ratios(run.cells)
    return {
        "run_id": run.run_id,
        "matrix": run.matrix,
        "green": run.green,
        "warnings": run.warnings,
        "sentence": run.sentence,
        "speed": run.speed_sentence,
        "gate": run.gate_sentence,
        "search": run.searched.sentence,
        "finds": [find.find for find in run.finds],
        "counts": run.counts,
        "cells": [
            {
                "cell": cell.name,
                "host": cell.facts.get("host"),
                "application": cell.spec.app,
                "executor": cell.spec.executor,
                "strategy": cell.spec.strategy,
                "order": cell.spec.order,
                "threads": cell.spec.threads,
                "events_per_s": cell.events_per_s,
                **asdict(ratios[cell.name]),
                "p99_us": cell.p99_us,
                "verdict": cell.verdict,
                "reason": cell.reason,
                "speed": _speed_as_dict(cell),
                "gate": asdict(cell.gate) if cell.gate else None,
            }
            for cell in run.cells
        ],
        "left_out": run.plan.get("left_out", []),
        "stages": stages.get("stages", []),
        "seconds": stages.get("seconds"),
        "reports": str(home.reports),
    }


def _speed_as_dict(cell: Cell) -> dict | None:
    if cell.speed is None:
        return None
    speed = asdict(cell.speed)
    return speed | {"since_at": speed["since_at"] and speed["since_at"].isoformat()}


def _stages(home: Home, run_id: str) -> dict:
    try:
        return json.loads((home.run(run_id) / "stages.json").read_text())
    except OSError:
        return {}


def shown(path: Path) -> str:
    """A path for people: relative if it is below the working directory."""
    try:
        return str(path.relative_to(os.getcwd()))
    except ValueError:
        return str(path)
