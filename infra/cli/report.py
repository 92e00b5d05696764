#!/usr/bin/env python3
"""Prints the table of the last run, or of the one that is named, and where its reports are: `make report`.

Benchmarks that were measured since the performance page was written are drawn into it first.

Exit codes: 0 the run was green, or there are benchmarks and no run yet; 1 it was not green, 2 there is no such run, 3
the command itself failed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[0] = str(ROOT)

from streaming_core import ending  # noqa: E402

if __name__ == "__main__":
    ending.begin("report")

from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from rich.text import Text  # noqa: E402

from reports.history import History, Run, human_micros, human_rate  # noqa: E402
from reports.publish import performance  # noqa: E402
from streaming_core.regression.home import Home  # noqa: E402
from streaming_core.regression.matrix import omissions  # noqa: E402

STYLES = {"equal": "green", "not_comparable": "dim", "different": "bold red", "failed": "bold red", "not_run": "red"}


def print_run(home: Home, run_id: str, console: Console, as_json: bool = False) -> bool:
    """Prints everything a person wants to know of one run; returns whether it is green."""
    run = History(home).run(run_id)
    stages = _stages(home, run_id)
    if as_json:
        print(json.dumps(as_dict(home, run, stages), indent=1))
        return run.green
    table = cell_table(run)
    # Whole, even where lines then break: what is cut off cannot be read at all, and a file has no width.
    console.width = max(console.width, console.measure(table, options=console.options.update(width=1000)).maximum)
    console.print(table)
    for cell in run.cells:
        if cell.red:
            console.print(Text(f"{cell.verdict:<10} {cell.name}: {cell.reason}", "red"), soft_wrap=True)
    for line in omissions(run.plan):
        console.print(Text(f"left out   {line}", "dim"), soft_wrap=True)
    if stages:
        said = [f"{s['title']} {s['seconds']:.1f}" for s in stages["stages"] if s["seconds"] is not None]
        console.print(
            Text("\nseconds  " + ", ".join(said) + f"; in all {stages['seconds']:.0f}", "dim"), soft_wrap=True
        )
    places = [("run", home.run(run_id)), ("reports", home.reports / "index.html")]
    if any((home.reports / "bench").glob("*-*.json")):
        places.append(("figures", home.reports / "performance.html"))
    if stages:
        places.append(("log", Path(stages["log"])))
    console.print()
    for name, path in places:
        console.print(Text(f"{name:<9}{_shown(path)}"), soft_wrap=True)
    console.print(Text(f"\n{run.sentence}", "bold green" if run.green else "bold red"), soft_wrap=True)
    return run.green


def cell_table(run: Run) -> Table:
    """application, executor, strategy, threads, events/s, p99, verdict"""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    columns: tuple[tuple[str, Literal["left", "right"]], ...] = (
        ("application", "left"),
        ("executor", "left"),
        ("strategy", "left"),
        ("threads", "right"),
        ("events/s", "right"),
        ("p99", "right"),
        ("verdict", "left"),
    )
    for title, justify in columns:
        table.add_column(title, justify=justify, no_wrap=True)
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
            human_rate(cell.events_per_s),
            human_micros(cell.p99_us),
            Text(cell.verdict, STYLES[cell.verdict]),
        )
    return table


def as_dict(home: Home, run: Run, stages: dict) -> dict:
    """The same for machines."""
    return {
        "run_id": run.run_id,
        "green": run.green,
        "sentence": run.sentence,
        "counts": run.counts,
        "cells": [
            {
                "cell": cell.name,
                "application": cell.spec.app,
                "executor": cell.spec.executor,
                "strategy": cell.spec.strategy,
                "order": cell.spec.order,
                "threads": cell.spec.threads,
                "events_per_s": cell.events_per_s,
                "p99_us": cell.p99_us,
                "verdict": cell.verdict,
                "reason": cell.reason,
            }
            for cell in run.cells
        ],
        "left_out": run.plan.get("left_out", []),
        "stages": stages.get("stages", []),
        "seconds": stages.get("seconds"),
        "reports": str(home.reports),
    }


def _stages(home: Home, run_id: str) -> dict:
    try:
        return json.loads((home.run(run_id) / "stages.json").read_text())
    except OSError:
        return {}


def draw_benchmarks(home: Home) -> Path | None:
    """The performance page, if any suite has been measured; written again if that was since it was."""
    measured = [path.stat().st_mtime for path in (home.reports / "bench").glob("*-*.json")]
    if not measured:
        return None
    page = home.reports / "performance.html"
    if not page.exists() or page.stat().st_mtime < max(measured):
        performance(home)
    return page


def _shown(path: Path) -> str:
    """Relative to where the person is, when it is below."""
    try:
        return str(path.relative_to(os.getcwd()))
    except ValueError:
        return str(path)


def main(argv: list[str] | None = None) -> int:
    """The command line; see the module's text."""
    parser = argparse.ArgumentParser(prog="report", description=__doc__.splitlines()[0])
    parser.add_argument("run", nargs="?", help="run id [the last one]")
    parser.add_argument("--json", action="store_true", help="print the result as JSON, nothing else")
    options = parser.parse_args(argv)
    home = Home(os.environ.get("LOCKSTEP_HOME") or ROOT / ".lockstep")
    ids = History(home).run_ids()
    benchmarks = draw_benchmarks(home)
    if not ids and benchmarks and not (options.run or options.json):
        Console().print(Text(f"no runs yet; benchmarks {_shown(benchmarks)}"), soft_wrap=True)
        return 0
    if not ids:
        print(f"report: no runs yet in {home.root}; make run makes one", file=sys.stderr)
        return 2
    run_id = options.run or ids[-1]
    if run_id not in ids:
        print(f"report: no run {run_id}; the last ones are {', '.join(ids[-3:])}", file=sys.stderr)
        return 2
    return 0 if print_run(home, run_id, Console(), options.json) else 1


if __name__ == "__main__":
    ending.end("report", main)
