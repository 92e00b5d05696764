"""The last seven days: the nights, the red cells, and the slower ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from reports import times
from reports.history.cell import Cell
from reports.history.load import History
from reports.history.state import State, state
from reports.views.overview import Line, line
from streaming_core.regression.comparable import is_nightly

WEEK = timedelta(days=7)


@dataclass(frozen=True)
class Week:
    """A week until a moment.

    Attributes:
        nights: its nightly runs that are over, oldest first.
        before: those of the week before.
        state: the state of all cells at its end; None before the first comparable run.
        start: when it began.
    """

    nights: list[Line]
    before: list[Line]
    state: State | None
    start: datetime

    @classmethod
    def of(cls, history: History, end: datetime) -> Week:
        """The week until a moment."""
        start = end - WEEK
        nights = [
            line(history, run_id)
            for run_id in history.run_ids()
            if start - WEEK < times.of_run(run_id) <= end
            and is_nightly(history.plan(run_id))
            and not history.is_in_progress(run_id)
        ]
        of_week = [night for night in nights if times.of_run(night.run_id) > start]
        return cls(of_week, nights[: len(nights) - len(of_week)], state(history), start)

    @property
    def red(self) -> list[Cell]:
        """The red cells and the finds."""
        return self.state.faulty_cells if self.state else []

    @property
    def new(self) -> list[Cell]:
        """The cells and finds that became red in this week."""
        return [cell for cell in self.red if self._since(cell) > self.start]

    @property
    def still(self) -> list[Cell]:
        """The cells and finds that were red before."""
        return [cell for cell in self.red if self._since(cell) <= self.start]

    @property
    def slower(self) -> list[Cell]:
        """The cells that the trend or the gate calls slower."""
        return self.state.slower if self.state else []

    @property
    def sentence(self) -> str:
        """Its nights, and the number of red cells."""
        text = _green(self.nights) if self.nights else "No nightly run ended"
        if self.nights and self.before:
            text += f", and {_green(self.before).lower()} the week before"
        count = len(self.red)
        return f"{text}; {count or 'no'} cell{'s are' if count > 1 else ' is'} red"

    def _since(self, cell: Cell) -> datetime:
        assert self.state is not None
        return times.of_run(self.state.red_since.get(cell.name, cell.run_id))


def _green(nights: Sequence[Line]) -> str:
    """`5 of 7 nights were green`."""
    green = sum(night.color in ("green", "amber") for night in nights)
    return f"{green} of {len(nights)} night{'s were' if len(nights) > 1 else ' was'} green"
