"""Two runs side by side: the conditions that differ, and the verdict and the speed of each cell in both."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from reports.history.cell import Cell
from reports.history.load import History
from reports.history.run import Run
from reports.history.text import NOTHING, short, short_json, words
from reports.views.cell import attempt_of
from streaming_core.regression.comparable import Input
from streaming_core.regression.preflight import Preflight

DIGITS = 12  # of a digest of code
LOOKED = 15  # earlier runs, searched for one that shares a cell


class Pair(NamedTuple):
    """A cell in both runs; None for a run that did not plan it."""

    cell: Cell | None
    other: Cell | None

    @property
    def label(self) -> str:
        """The label of the cell."""
        return (self.cell or self.other).label  # type: ignore[union-attr]  # one of them is there

    @property
    def changed(self) -> bool:
        """Whether both have it, with different verdicts."""
        return self.cell is not None and self.other is not None and self.cell.verdict != self.other.verdict

    @property
    def faster(self) -> float | None:
        """The ratio of the cell to the compiled loop over that of the other.

        None if a speed is not judged, or if workload, host or yardstick differ.
        """
        if self.cell is None or self.other is None:
            return None
        ratios = [self.cell.ratio, self.other.ratio]
        same = ("workload_address", "host", "yardstick")
        if None in ratios or any(self.cell.facts.get(name) != self.other.facts.get(name) for name in same):
            return None
        return ratios[0] / ratios[1]  # type: ignore[operator]  # neither is None

    @property
    def range(self) -> tuple[float, float] | None:
        """The least and the greatest ratio of any pass of the cell to any pass of the other; None without `faster`."""
        if self.faster is None or not (self.cell and self.cell.ratios and self.other and self.other.ratios):
            return None
        ratios, others = self.cell.ratios, self.other.ratios
        return ratios[0] / others[-1], ratios[-1] / others[0]

    @property
    def is_apart(self) -> bool:
        """Whether every pass of one run was faster than every pass of the other."""
        return self.range is not None and not self.range[0] <= 1 <= self.range[1]

    @property
    def rank(self) -> tuple[int, float]:
        """Sorts pairs: changed verdicts, then speeds by the size of the difference, then cells of only one run."""
        if self.cell is None or self.other is None:
            return 3, 0.0
        if self.changed:
            return 0, 0.0
        return (1, -abs(math.log(self.faster))) if self.faster else (2, 0.0)


class Condition(NamedTuple):
    """A condition that differs between two runs: its name, and its values in both."""

    name: str
    value: str
    other: str


# The facts of a host that bear upon speed, as its preflight names them.
HOST = {
    "cpu": "processor",
    "python": "Python",
    "cores": "cores",
    "sockets": "cores of each socket",
    "quota": "cores' worth of time",
    "isolated": "isolated cores",
    "governor": "governor",
    "turbo": "turbo",
    "numa_balancing": "NUMA balancing",
    "transparent_hugepages": "transparent huge pages",
}


def conditions(run: Run, other: Run) -> list[Condition]:
    """The conditions that differ: host, processor, versions, build, inputs and request. A dash stands for unknown."""
    ours, theirs = dict(_conditions(run)), dict(_conditions(other))
    pairs = [Condition(name, ours.get(name, ""), theirs.get(name, "")) for name in ours | theirs]
    return [Condition(name, a or NOTHING, b or NOTHING) for name, a, b in pairs if a != b]


def _conditions(run: Run) -> Iterator[tuple[str, str]]:
    """Name and value of each condition of a run. A value that cells or hosts do not share lists all of theirs."""
    yield "host", _listed(run.hosts)
    ran = [attempt.report.get("host", {}) for cell in run.cells if (attempt := attempt_of(run, cell))]
    for field, name in HOST.items():
        yield name, _of_hosts(run.preflights, field) or _of_cells(ran, field)
    yield "kernel", _of_cells(ran, "kernel")
    engines = [host["engine"] for host in ran if "engine" in host]
    for system in sorted({engine["system"] for engine in engines}):
        yield system, _listed(words(engine | {"system": None}) for engine in engines if engine["system"] == system)
    yield "build", _listed(short(cell.facts["build"]) for cell in run.cells if cell.facts.get("build"))
    for app in sorted({cell.spec.app for cell in run.cells}):
        cells = [cell for cell in run.cells if cell.spec.app == app]
        yield (
            f"code of {app}",
            _listed(cell.facts["code_digest"][:DIGITS] for cell in cells if cell.facts.get("code_digest")),
        )
        yield f"input of {app}", _listed(_input(cell.input) for cell in cells if cell.input)
    yield "matrix", run.matrix
    for field, value in run.plan.get("regression", {}).items():
        yield f"request: {field.replace('_', ' ')}", short_json(value)


def _of_hosts(preflights: list[Preflight], field: str) -> str:
    """A fact of the hosts; if there are several, each with the name of its host."""
    values = [(preflight.host, getattr(preflight, field)) for preflight in preflights]
    texts = [(host, ("off", "on")[value] if isinstance(value, bool) else words(value)) for host, value in values]
    return _listed(f"{host}: {text}" if len(preflights) > 1 else text for host, text in texts if text)


def _of_cells(hosts: list[dict[str, Any]], field: str) -> str:
    """A fact in the reports of cells, about the hosts that ran them."""
    return _listed(str(host[field]) for host in hosts if host.get(field))


def _input(taken: Input) -> str:
    """`100,000 events, seed 1, {"skew":0.6}`."""
    seed = taken.content if taken.seed is None else f"seed {taken.seed}"
    return ", ".join(filter(None, [taken.text, seed, taken.params if taken.params != "{}" else ""]))


def _listed(texts: Iterable[str]) -> str:
    return "; ".join(sorted(set(texts)))


@dataclass(frozen=True)
class Beside:
    """A run and another: the conditions that differ, and the cells, the greatest difference first."""

    run: Run
    other: Run
    pairs: list[Pair]
    conditions: list[Condition]

    @classmethod
    def of(cls, run: Run, other: Run) -> Beside:
        """Any two runs: cells of the same name are executed in the same way."""
        pairs = [Pair(cell, other.cell(cell.name)) for cell in run.cells]
        pairs += [Pair(None, cell) for cell in other.cells if run.cell(cell.name) is None]
        return cls(run, other, sorted(pairs, key=lambda pair: pair.rank), conditions(run, other))

    @property
    def sentence(self) -> str:
        """Its sentence for the top of a page."""
        both = [pair for pair in self.pairs if pair.cell and pair.other]
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
