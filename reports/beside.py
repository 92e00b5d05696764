"""Two runs beside each other: what became of each cell in both, and how fast it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from reports.history import Cell, History, Run
from streaming_core.storage import left_json

LOOKED = 15  # runs before one that are looked at for one with a cell of its


class Pair(NamedTuple):
    """A cell in the one run and in the other, None where that has not planned it."""

    one: Cell | None
    other: Cell | None

    @property
    def label(self) -> str:
        """How people name it."""
        return (self.one or self.other).label  # type: ignore[union-attr]  # one of them is there

    @property
    def changed(self) -> bool:
        """Whether both have it, with different verdicts."""
        return self.one is not None and self.other is not None and self.one.verdict != self.other.verdict

    @property
    def faster(self) -> float | None:
        """How many times as fast the one is as the other, by their ratios to the compiled loop; None where one has no
        such ratio, or where they did not do the same on the same machine."""
        if self.one is None or self.other is None:
            return None
        ratios = [cell.speed.to_loop if cell.speed else None for cell in (self.one, self.other)]
        same = ("workload_address", "host", "yardstick")
        if None in ratios or any(self.one.facts.get(name) != self.other.facts.get(name) for name in same):
            return None
        return ratios[0] / ratios[1]  # type: ignore[operator]  # neither is None


@dataclass(frozen=True)
class Beside:
    """A run beside another; cells in the order of the one, then those that only the other has."""

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
        """What a person needs to know first."""
        both = [pair for pair in self.pairs if pair.one and pair.other]
        changed = sum(pair.changed for pair in both)
        if not both:
            return "No cell was planned in both runs"
        cells = f"{len(both)} cell{'s' * (len(both) != 1)} of both runs"
        have = "has" if changed == 1 else "have"
        return f"{changed or 'None'} of the {cells} {have} another verdict"


def before(history: History, run: Run) -> str | None:
    """The newest run before it that has planned a cell of its; None if none of the last has."""
    mine = {cell.name for cell in run.cells}
    earlier = [run_id for run_id in history.run_ids() if run_id < run.run_id]
    for run_id in reversed(earlier[-LOOKED:]):
        planned = left_json(history.home.run(run_id) / "plan.json").get("cells", [])
        if mine & {cell["cell"] for cell in planned}:
            return run_id
    return None
