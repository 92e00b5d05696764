"""The outcome of a run or of the state: tiles, what is wrong, what is slower, and the grid.

The template cells.html prints an `Outcome`. The template outcome.html prints the `Request` of a run above it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from reports.history.cell import Cell
from reports.history.run import Results, Run
from reports.history.state import State
from reports.history.text import human_rate, short_json
from reports.views.engines import others
from reports.views.grid import Panel, panels
from reports.views.tiles import Tile, tiles
from streaming_core.regression.comparable import Input
from streaming_core.regression.matrix import omissions

MOST = 8  # lines of what is wrong, slower or stale, before the others are folded away


@dataclass(frozen=True)
class Outcome:
    """The outcome of cells.

    Attributes:
        results: the cells and the sentences about them.
        red: the cells that are wrong.
        heading: the heading above them.
        own: the run whose page this is; empty for the state.
        tiles: the tiles at the top.
        panels: the grid.
        dated: whether the cells are from several runs.
        acknowledged: whether a red cell was acknowledged.
        others: the names of other engines among the executors.
        most: how many lines of a table are not folded away.
    """

    results: Results
    red: list[Cell]
    heading: str
    own: str
    tiles: list[Tile]
    panels: list[Panel]
    dated: bool
    acknowledged: bool
    others: list[str]
    most: int = MOST

    @classmethod
    def of(cls, results: Results, red: list[Cell], heading: str, run: Run | None = None) -> Outcome:
        """The outcome of some results.

        Args:
            results: the results.
            red: the cells that are wrong.
            heading: the heading of results without a red cell.
            run: the run whose results they are; None for the state.
        """
        cells = results.cells
        return cls(
            results=results,
            red=red,
            heading="What broke" if red else heading,
            own=run.run_id if run else "",
            tiles=tiles(results),
            panels=panels(cells),
            dated=len({cell.run_id for cell in cells}) > 1,
            acknowledged=any(cell.acknowledged for cell in (*cells, *red)),
            others=others(cells),
        )

    @classmethod
    def of_run(cls, run: Run) -> Outcome:
        """The outcome of a run."""
        heading = "Nothing broke" if run.status.state == "finished" else "Nothing was judged"
        return cls.of(run, run.faulty_cells, heading, run)

    @classmethod
    def of_state(cls, state: State) -> Outcome:
        """The outcome of the state."""
        return cls.of(state, state.faulty_cells, "Nothing broke")


@dataclass(frozen=True)
class Request:
    """The request of a run.

    Attributes:
        run: the run.
        request: name and value of its fields, if the run planned no cell.
        events: how many events each application took.
        omissions: the cells that its matrix leaves out.
    """

    run: Run
    request: dict[str, str]
    events: str
    omissions: list[str]

    @classmethod
    def of(cls, run: Run) -> Request:
        """The request of a run."""
        regression = run.plan.get("regression", {})
        request = {} if run.cells else {name: short_json(value) for name, value in regression.items()}
        return cls(run, request, events(run.inputs), omissions(run.plan))


def events(inputs: Mapping[str, Input]) -> str:
    """`100,000 events per application`; of applications with other events, `wc: 3 events of the import nightly`."""
    counts = Counter(source.text for source in inputs.values() if not source.content)
    usual = counts.most_common(1)[0][0] if counts else ""
    others = [f"{app}: {source.text}" for app, source in inputs.items() if source.text != usual]
    if not others:
        return f"{usual} per application" if usual else ""
    rest = [f"{usual} per other application"] if usual else []
    return "; ".join([*others, *rest])


def figure(cell: Cell) -> str:
    """The figure of a cell in the grid: its events per second, or its outcome if it is red."""
    return cell.outcome.word if cell.red else human_rate(cell.events_per_s)
