"""What templates show of cells, those of a run or those of the state: what is wrong, what is slower, the grid."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping

from reports.history import Cell, Results, Run, human_rate, short_json
from reports.state import State
from streaming_core.regression.comparable import Input
from streaming_core.regression.matrix import omissions

MOST = 8  # lines of what is wrong, slower or stale, before the others are folded away


def outcome(run: Run) -> dict:
    """What there is to say of a run, for templates."""
    heading = "Nothing broke" if run.status.state == "finished" else "Nothing was judged"
    regression = run.plan.get("regression", {})
    return _of_cells(run, run.faulty_cells, heading) | {
        "run": run,
        "own": run.run_id,
        "asked": {} if run.cells else {name: short_json(value) for name, value in regression.items()},
        "events": events(run.inputs),
        "omissions": omissions(run.plan),
    }


def outcome_of_state(state: State) -> dict:
    """What there is to say of the state, for templates."""
    return _of_cells(state, state.faulty_cells, "Nothing broke") | {"own": ""}


def _of_cells(results: Results, red: list[Cell], heading: str) -> dict:
    threads = sorted({cell.spec.threads for cell in results.cells})
    return {
        "results": results,
        "heading": "What broke" if red else heading,
        "threads": threads,
        "groups": _groups(results.cells, threads),
        "red": red,
        "acknowledged": any(cell.acknowledged for cell in results.cells),
        "most": MOST,
        "say": _say,
    }


def events(inputs: Mapping[str, Input]) -> str:
    """`100,000 events per application`; of applications with other events, `wc: 3 events of the import nightly`."""
    counts = Counter(one.text for one in inputs.values() if not one.content)
    usual = counts.most_common(1)[0][0] if counts else ""
    others = [f"{app}: {one.text}" for app, one in inputs.items() if one.text != usual]
    if not others:
        return f"{usual} per application" if usual else ""
    rest = [f"{usual} per other application"] if usual else []
    return "; ".join([*others, *rest])


def _groups(cells: Iterable[Cell], threads: list[int]) -> list[dict]:
    """The cells of each application, one line per strategy, and the run that judged most of them."""
    groups = []
    for app, grouped in itertools.groupby(cells, key=lambda cell: cell.spec.app):
        of_app = list(grouped)
        table: dict[tuple, dict[int, Cell]] = {}
        for cell in of_app:
            table.setdefault((cell.spec.executor, cell.strategy), {})[cell.spec.threads] = cell
        rows = [
            {"executor": executor, "strategy": strategy, "cells": [found.get(count) for count in threads]}
            for (executor, strategy), found in table.items()
        ]
        ((run_id, _),) = Counter(cell.run_id for cell in of_app).most_common(1)
        groups.append({"app": app, "lines": rows, "run_id": run_id, "input": of_app[0].input})
    return groups


def _say(cell: Cell) -> str:
    return cell.outcome.word if cell.red else human_rate(cell.events_per_s)
