"""Two runs side by side: the verdict and the speed of each cell in both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from reports.history.cell import Cell
from reports.history.load import History
from reports.history.run import Run

LOOKED = 15  # earlier runs, searched for one that shares a cell


class Pair(NamedTuple):
    """A cell in both runs; None for a run that did not plan it."""

    one: Cell | None
    other: Cell | None

    @property
    def label(self) -> str:
        """The label of the cell."""
        return (self.one or self.other).label  # type: ignore[union-attr]  # one of them is there

    @property
    def changed(self) -> bool:
        """Whether both have it, with different verdicts."""
        return self.one is not None and self.other is not None and self.one.verdict != self.other.verdict

    @property
    def faster(self) -> float | None:
        """The one's ratio to the compiled loop over the other's.

        None if a speed is not judged, or if workload, host or yardstick differ.
        """
        if self.one is None or self.other is None:
            return None
        ratios = [self.one.ratio, self.other.ratio]
        same = ("workload_address", "host", "yardstick")
        if None in ratios or any(self.one.facts.get(name) != self.other.facts.get(name) for name in same):
            return None
        return ratios[0] / ratios[1]  # type: ignore[operator]  # neither is None


@dataclass(frozen=True)
class Beside:
    """A run and another: the cells of the one in its order, then those that only the other has."""

    one: Run
    other: Run
    pairs: list[Pair]

    @classmethod
    def of(cls, one: Run, other: Run) -> Beside:
        """Any two runs: cells of the same name are executed in the same way."""
        pairs = [Pair(cell, other.cell(cell.name)) for cell in one.cells]
        return cls(one, other, pairs + [Pair(None, cell) for cell in other.cells if one.cell(cell.name) is None])

    @property
    def sentence(self) -> str:
        """Its sentence for the top of a page."""
        both = [pair for pair in self.pairs if pair.one and pair.other]
        changed = sum(pair.changed for pair in both)
        if not both:
            return "The two runs share no cell"
        if len(both) == 1:
            return f"The one shared cell {'changed' if changed else 'kept'} its verdict"
        return (
            f"{changed or 'None'} of the {len(both)} shared cells changed {'its' if changed == 1 else 'their'} verdict"
        )


def before(history: History, run: Run) -> str | None:
    """The newest earlier run that shares a cell with it; None if none of the last runs does."""
    mine = {cell.name for cell in run.cells}
    earlier = [run_id for run_id in history.run_ids() if run_id < run.run_id]
    for run_id in reversed(earlier[-LOOKED:]):
        if mine & {cell["cell"] for cell in history.plan(run_id).get("cells", [])}:
            return run_id
    return None
