"""The grid of a page: a row per application, a column per way, and in each field the cells by threads.

Applications that run on the same executors share a panel, so that no panel has empty columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from reports.history.cell import Cell
from streaming_core.regression.comparable import Input


class Way(NamedTuple):
    """A column: an executor and a strategy."""

    executor: str
    strategy: str
    is_bound: bool


@dataclass(frozen=True)
class Row:
    """An application: its events, the run that judged most of its cells, and its cells by column."""

    app: str
    input: Input | None
    run_id: str
    fields: list[list[Cell]]


@dataclass(frozen=True)
class Panel:
    """Applications that run on the same executors."""

    ways: list[Way]
    rows: list[Row]

    @property
    def executors(self) -> list[tuple[str, int]]:
        """The executors, each with the number of its columns."""
        return list(Counter(way.executor for way in self.ways).items())

    @property
    def caption(self) -> str:
        """`3 applications on transactional, pooled`."""
        names = ", ".join(name for name, _ in self.executors)
        return f"{len(self.rows)} application{'s' * (len(self.rows) != 1)} on {names}"


def panels(cells: Iterable[Cell]) -> list[Panel]:
    """The panels of a page, the widest first."""
    by_app: dict[str, list[Cell]] = {}
    for cell in cells:
        by_app.setdefault(cell.spec.app, []).append(cell)
    groups: dict[tuple[str, ...], dict[str, list[Cell]]] = {}
    for app, of_app in by_app.items():
        executors = tuple(sorted({cell.spec.executor for cell in of_app}))
        groups.setdefault(executors, {})[app] = of_app
    return sorted((_panel(group) for group in groups.values()), key=lambda panel: -len(panel.ways))


def _panel(by_app: dict[str, list[Cell]]) -> Panel:
    cells = [cell for of_app in by_app.values() for cell in of_app]
    bounds = {_column(cell): cell.is_bound for cell in cells}
    # A stable sort puts the columns of an executor next to each other.
    columns = sorted(bounds, key=lambda column: list(dict.fromkeys(bound[0] for bound in bounds)).index(column[0]))
    return Panel(
        [Way(*column, bounds[column]) for column in columns],
        [_row(app, of_app, columns) for app, of_app in by_app.items()],
    )


def _row(app: str, cells: list[Cell], columns: list[tuple[str, str]]) -> Row:
    ((run_id, _),) = Counter(cell.run_id for cell in cells).most_common(1)
    fields = [
        sorted((cell for cell in cells if _column(cell) == column), key=lambda cell: cell.spec.threads)
        for column in columns
    ]
    return Row(app, cells[0].input, run_id, fields)


def _column(cell: Cell) -> tuple[str, str]:
    return cell.spec.executor, cell.strategy
