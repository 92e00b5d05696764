"""The state: each cell as its latest comparable run judged it.

`streaming_core/regression/comparable.py` says which runs and cells are comparable. These are the cells of the state:

- The last nightly names the cells of its applications, and the input of each.
- For each other application of the checkout, the newest comparable run with it does.

Each cell has the verdict of the newest comparable run that gave it this input. No other run changes the state. Days are
counted back from the newest run, so a page says the same whenever it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reports.history.cell import Cell
from reports.history.load import MOST_RUNS, Comparable, History
from reports.history.run import Results, Run
from reports.times import RunAge
from streaming_core.apps import registry
from streaming_core.regression.comparable import Input
from streaming_core.regression.stages import Stage
from streaming_core.regression.verdict import is_green


@dataclass(kw_only=True)
class State(Results):
    """The cells of the state.

    Attributes:
        runs: the runs that judged them, newest first.
        ages: by run, how many days before the newest run of all it judged them.
    """

    runs: list[Run]
    ages: dict[str, RunAge]

    @property
    def green(self) -> bool:
        """Whether every cell is equal or a declared bound, and no stage of the runs that judged them failed."""
        return is_green(cell.verdict for cell in self.cells) and not self.failures

    @property
    def gate_note(self) -> str:
        """The same for the newest of these runs: the reason for a speed gate without a baseline."""
        return self.runs[0].note

    @property
    def failures(self) -> dict[tuple[str, Stage], str]:
        """The failed stages of these runs and why they failed, by run and stage."""
        return {(run.run_id, stage): error for run in self.runs for stage, error in run.failures.items()}

    @property
    def faulty_cells(self) -> list[Cell]:
        """The red cells."""
        return [cell for cell in self.cells if cell.red]

    @property
    def sentence(self) -> str:
        """Its sentence for the top of a page."""
        return self._sentence(stage for _, stage in self.failures)

    @property
    def stale(self) -> list[Cell]:
        """The cells that were judged more than a week before the newest run, the longest ago first."""
        cells = [cell for cell in self.cells if self.ages[cell.run_id].stale]
        return sorted(cells, key=lambda cell: (-self.ages[cell.run_id].days, cell.name))

    def unknown(self, executors: Mapping[str, Iterable[str]]) -> list[str]:
        """The ways without a state: `q1`, an application; `wc on pinned`, an application on an executor.

        Args:
            executors: by application, those that fit it.
        """
        known = {(cell.spec.app, cell.spec.executor) for cell in self.cells}
        names = []
        for app, fitting in executors.items():
            lacking = [name for name in fitting if (app, name) not in known]
            names += [f"{app} on {name}" for name in lacking] if app in self.inputs else [app]
        return names


def state(history: History) -> State | None:
    """The state, from the last runs; None before the first comparable run."""
    run_ids = history.run_ids()
    comparable = history.comparable(reversed(run_ids[-MOST_RUNS:]))
    subject, runs = _subject(comparable), []
    cells: dict[str, Cell | None] = dict.fromkeys(subject)
    for run_id, one in comparable.items():
        names = [name for name, cell in cells.items() if cell is None and one.inputs.get(name) == subject[name]]
        if names:
            run = history.run(run_id)
            runs.append(run)
            cells |= {cell.name: cell for cell in run.cells if cell.name in names}
    if not runs:
        return None
    _keep_one_baseline(runs)
    return State(
        cells=[cell for cell in cells.values() if cell],
        green_builds={
            name: build for run in runs for name, build in run.green_builds.items() if _from(cells, name, run)
        },
        red_since={name: since for run in runs for name, since in run.red_since.items() if _from(cells, name, run)},
        runs=runs,
        ages={run.run_id: RunAge.before(run.run_id, run_ids[-1]) for run in runs},
    )


def _subject(comparable: dict[str, Comparable]) -> dict[str, Input]:
    """The cells of the state and their inputs, from the comparable runs, newest first."""
    subject = next((dict(one.inputs) for one in comparable.values() if one.is_nightly), {})
    known = set(registry.names())
    for one in comparable.values():
        taken = {planned.app for planned in subject.values()}
        subject |= {name: planned for name, planned in one.inputs.items() if planned.app in known - taken}
    return subject


def _from(cells: dict[str, Cell | None], name: str, run: Run) -> bool:
    cell = cells.get(name)
    return cell is not None and cell.run_id == run.run_id


def _keep_one_baseline(runs: list[Run]) -> None:
    """Drop the verdicts beside a commit of all runs but the newest that has any: others have other baselines."""
    gated = next((run for run in runs if run.gates), None)
    for cell in [cell for run in runs if run is not gated for cell in run.cells]:
        cell.gate = None
