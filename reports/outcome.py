"""What there is to say of a run, for the templates that say it: what is wrong, what is slower, the grid of cells."""

from __future__ import annotations

import itertools

from reports.history import Cell, Run, human_rate, short_json
from streaming_core.regression.matrix import omissions

MOST = 8  # lines of what is wrong, slower or stale, before the others are folded away


def outcome(run: Run) -> dict:
    """What there is to say of a run, for templates."""
    threads = sorted({cell.spec.threads for cell in run.cells})
    regression = run.plan.get("regression", {})
    return {
        "run": run,
        "threads": threads,
        "groups": _groups(run, threads),
        "red": run.faulty_cells,
        "acknowledged": any(cell.acknowledged for cell in run.cells),
        "most": MOST,
        "asked": {} if run.cells else {name: short_json(value) for name, value in regression.items()},
        "events": regression.get("events") if run.cells else None,
        "omissions": omissions(run.plan),
        "say": _say,
    }


def _groups(run: Run, threads: list[int]) -> list[dict]:
    groups = []
    for app, cells in itertools.groupby(run.cells, key=lambda cell: cell.spec.app):
        table: dict[tuple, dict[int, Cell]] = {}
        for cell in cells:
            table.setdefault((cell.spec.executor, cell.strategy), {})[cell.spec.threads] = cell
        rows = [
            {"executor": executor, "strategy": strategy, "cells": [found.get(count) for count in threads]}
            for (executor, strategy), found in table.items()
        ]
        groups.append({"app": app, "lines": rows})
    return groups


def _say(cell: Cell) -> str:
    return cell.outcome.word if cell.red else human_rate(cell.events_per_s)
