"""What templates show of cells, those of a run or those of the state: what is wrong, what is slower, the grid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from reports.history.cell import Cell
from reports.history.run import Results, Run
from reports.history.state import State
from reports.history.text import human_rate, short_json
from reports.views.engines import others
from reports.views.grid import panels
from reports.views.tiles import tiles
from streaming_core.regression.comparable import Input
from streaming_core.regression.matrix import omissions

MOST = 8  # lines of what is wrong, slower or stale, before the others are folded away


def outcome(run: Run) -> dict:
    """The result of a run, for templates."""
    heading = "Nothing broke" if run.status.state == "finished" else "Nothing was judged"
    regression = run.plan.get("regression", {})
    return _of_cells(run, run.faulty_cells, heading) | {
        "run": run,
        "own": run.run_id,
        "request": {} if run.cells else {name: short_json(value) for name, value in regression.items()},
        "events": events(run.inputs),
        "omissions": omissions(run.plan),
    }


def outcome_of_state(state: State) -> dict:
    """The result of the state, for templates."""
    return _of_cells(state, state.faulty_cells, "Nothing broke") | {"own": ""}


def _of_cells(results: Results, red: list[Cell], heading: str) -> dict:
    return {
        "results": results,
        "heading": "What broke" if red else heading,
        "tiles": tiles(results),
        "panels": panels(results.cells),
        "dated": len({cell.run_id for cell in results.cells}) > 1,
        "red": red,
        "acknowledged": any(cell.acknowledged for cell in results.cells),
        "most": MOST,
        "text_of": _text,
        "others": others(results.cells),
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


def _text(cell: Cell) -> str:
    return cell.outcome.word if cell.red else human_rate(cell.events_per_s)
