"""Other engines beside Lockstep's executors: the ratios of a run's cells, and the comparison that pages show.

A ratio compares events per second of two cells of one application on one host, which took the same events. Only cells
that equal the oracle have ratios, and only such cells are compared with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from reports.history.cell import Cell
from reports.history.load import MOST_RUNS, History
from reports.history.run import Run
from reports.history.text import NOTHING
from reports.views.cell import Engine, attempt_of, engine_of
from reports.views.hosts import HostRow
from streaming_core.regression.plan import Plan
from streaming_core.run.way import EXECUTORS

LIMIT = "handwritten"  # the engine whose loops are the limit (infra/engines/handwritten)
OURS = "our best"  # the name of a line; other lines have the names of their engines


@dataclass(frozen=True)
class Ratios:
    """Events per second of a cell, divided by those of others. None: one of the two is wrong, or not fit to compare.

    Attributes:
        to_loop: By the compiled loop measured beside the cell; the median over the passes at peak rate.
        to_best: By the fastest cell of Lockstep's own executors.
        to_limit: By the fastest hand-written loop.
    """

    to_loop: float | None = None
    to_best: float | None = None
    to_limit: float | None = None


@dataclass(frozen=True)
class Line:
    """A cell of a comparison: the name of its line in a chart, and the system that runs it."""

    cell: Cell
    name: str
    system: str
    ratios: Ratios


@dataclass(frozen=True)
class Group:
    """The cells of one application on one host, by threads: our best first, then other engines, then the limit."""

    app: str
    about: str
    lines: list[Line]

    @property
    def points(self) -> list[dict]:
        """The bars of the chart, as `charts.benchmark` takes them. Only comparable cells have one."""
        lines = [line for line in self.lines if _is_comparable(line.cell)]
        return [{"x": line.cell.spec.threads, "y": line.cell.events_per_s, "line": line.name} for line in lines]


@dataclass(frozen=True)
class Comparison:
    """The cells of other engines in a run, beside Lockstep's fastest.

    Attributes:
        run: The run.
        groups: The cells by application and host.
        versions: By engine, the versions that it reports; empty if no cell of it ended.
        machines: A line about each host.
    """

    run: Run
    groups: list[Group]
    versions: dict[str, str]
    machines: list[str]

    @property
    def names(self) -> list[str]:
        """The names of the lines in charts, in the order of their colours."""
        return list(dict.fromkeys(point["line"] for group in self.groups for point in group.points))

    @property
    def red(self) -> list[Cell]:
        """The cells of other engines that do not equal the oracle."""
        return [line.cell for group in self.groups for line in group.lines if line.cell.red]

    @classmethod
    def of(cls, run: Run) -> Comparison | None:
        """The comparison of a run; None if it has no cells of other engines."""
        engines = others(run.cells)
        if not engines:
            return None
        known = ratios(run.cells)
        keys = dict.fromkeys(_key(cell) for cell in run.cells if cell.is_of_other_engine)
        groups = [_group(run, [cell for cell in run.cells if _key(cell) == key], known) for key in keys]
        hosts = [f"{host.machine or host.host}, {host.processor}" for host in HostRow.of_run(run) if host.is_fit]
        return cls(run, groups, {name: _versions(run, name) for name in engines}, hosts)

    @classmethod
    def last(cls, history: History) -> Comparison | None:
        """The comparison of the newest finished run that has cells of other engines; None without such a run."""
        for run_id in list(reversed(history.run_ids()))[:MOST_RUNS]:
            if _has_others(history.plan(run_id)):
                run = history.run(run_id)
                if run.status.state == "finished":
                    return cls.of(run)
        return None


def _has_others(plan: Plan) -> bool:
    return any(planned["spec"]["executor"] not in EXECUTORS for planned in plan.get("cells", []))


def others(cells: Iterable[Cell]) -> list[str]:
    """The names of the other engines of these cells."""
    return list(dict.fromkeys(cell.spec.executor for cell in cells if cell.is_of_other_engine))


def ratios(cells: list[Cell]) -> dict[str, Ratios]:
    """The ratios of the cells of a run, by the cells' names."""
    return {cell.name: _ratios(cell, cells) for cell in cells}


def human_ratio(value: float | None) -> str:
    """A ratio as `1.25` or `0.0041`; a dash for none."""
    if value is None:
        return NOTHING
    return f"{value:.2f}" if value >= 0.095 else f"{value:.2g}"


def note(cells: Iterable[Cell]) -> str:
    """The meaning of the columns of ratios, and the checks of other engines; empty without such cells."""
    engines = others(cells)
    if not engines:
        return ""
    limit = "; of limit: to the hand-written loop" if LIMIT in engines else ""
    names = ", ".join(engines)
    return (
        "x loop: speed relative to the compiled loop measured beside the cell; x best: to Lockstep's fastest cell of "
        f"the application{limit}. Lockstep checks only the outputs of other engines ({names}): they publish no final "
        "state."
    )


def _key(cell: Cell) -> tuple[str, str | None]:
    """The application and the host: cells with the same key are comparable."""
    return cell.spec.app, cell.facts.get("host")


def _is_comparable(cell: Cell) -> bool:
    return cell.verdict == "equal" and bool(cell.events_per_s) and (cell.speed is None or cell.speed.is_fit)


def _fastest(cells: Iterable[Cell]) -> Cell | None:
    """The fastest of these cells that equals the oracle: comparable ones first, then those in total order."""
    right = [cell for cell in cells if cell.verdict == "equal" and cell.events_per_s]
    return max(
        right, key=lambda cell: (_is_comparable(cell), cell.spec.order == "total", cell.events_per_s), default=None
    )


def _ratios(cell: Cell, cells: list[Cell]) -> Ratios:
    if not _is_comparable(cell):
        return Ratios()
    same = [other for other in cells if _key(other) == _key(cell)]
    best = _fastest(other for other in same if not other.is_of_other_engine)
    limit = _fastest(other for other in same if other.spec.executor == LIMIT)
    return Ratios(cell.to_loop, _over(cell, best), _over(cell, limit))


def _over(cell: Cell, other: Cell | None) -> float | None:
    """Events per second of a cell, divided by those of another one."""
    if not cell.events_per_s or other is None or not other.events_per_s or not _is_comparable(other):
        return None
    return cell.events_per_s / other.events_per_s


def _group(run: Run, cells: list[Cell], known: dict[str, Ratios]) -> Group:
    """The comparison of the cells of one application on one host."""
    host = cells[0].facts.get("host")
    about = ", ".join(filter(None, [cells[0].input.text if cells[0].input else "", host]))
    lines = [
        Line(cell, name, _engine(run, cell).system if cell.is_of_other_engine else "Lockstep", known[cell.name])
        for name, cell in _chosen(cells)
    ]
    return Group(cells[0].spec.app, about, lines)


def _chosen(cells: list[Cell]) -> Iterator[tuple[str, Cell]]:
    """By threads, our fastest cell, then the cells of other engines, those of the limit last; each with its line."""
    for threads in sorted({cell.spec.threads for cell in cells}):
        same = [cell for cell in cells if cell.spec.threads == threads]
        if best := _fastest(cell for cell in same if not cell.is_of_other_engine):
            yield OURS, best
        engines = [cell for cell in same if cell.is_of_other_engine]
        for cell in sorted(engines, key=lambda cell: (cell.spec.executor == LIMIT, cell.spec.executor)):
            yield cell.spec.executor, cell


def _versions(run: Run, name: str) -> str:
    """The name of an engine's system, and the versions that one of its reports has."""
    engines = [_engine(run, cell) for cell in run.cells if cell.spec.executor == name]
    return max(engines, key=lambda engine: len(engine.versions)).text


def _engine(run: Run, cell: Cell) -> Engine:
    attempt = attempt_of(run, cell)
    return engine_of(cell, attempt.report if attempt else {})
