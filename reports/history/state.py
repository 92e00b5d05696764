"""The state: each cell as its latest comparable run judged it.

`streaming_core/regression/comparable.py` says which runs and cells are comparable. The state has every cell that a
comparable run planned, so a run never removes a cell that it did not plan. Cells of applications that have left the
checkout are gone, unless the last nightly has them. A cell that ran with several inputs or numbers of repetitions is in
the state once, by the first of these rules that applies:

- If the last nightly has the cell, the state has its newest result on the nightly's input.
- If the cell is red on some input, the state has that result until a run on the same input judges the cell again.
- Else the state has its newest result.

Days are counted back from the newest run, so a page says the same whenever it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reports.history.cell import Cell
from reports.history.load import MOST_RUNS, Comparable, History
from reports.history.run import Results, Run
from reports.history.searched import Searched
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
        """Whether every cell is equal or a bound, nothing was found, and no stage of the runs behind them failed."""
        return is_green(cell.verdict for cell in self.cells) and not self.finds and not self.failures

    @property
    def warnings(self) -> list[str]:
        """The warnings about the inputs of its cells."""
        judged = [(run, [cell for cell in self.cells if cell.run_id == run.run_id]) for run in self.runs]
        return list(dict.fromkeys(text for run, cells in judged for text in run.warnings_about(cells)))

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
        """The red cells, and the finds."""
        return [cell for cell in self.cells if cell.red] + self.finds

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
    results = _results(history, comparable)
    if not results:
        return None
    judges = {run_id for run_id, _ in results}
    runs = [history.run(run_id) for run_id in comparable if run_id in judges]
    _keep_one_baseline(runs)
    known = {(run.run_id, cell.name): cell for run in runs for cell in run.cells}
    cells = {cell.name: cell for cell in (known[result] for result in results)}
    searchers = _searchers(history, comparable, {cell.spec.app for cell in cells.values()})
    finds = [(run, find) for run, apps in searchers for find in run.finds if find.spec.app in apps]
    return State(
        finds=[find for _, find in finds],
        searched=Searched([row for run, apps in searchers for row in run.searched.rows if row["app"] in apps]),
        cells=list(cells.values()),
        green_builds={
            name: build for run in runs for name, build in run.green_builds.items() if _from(cells, name, run)
        },
        red_since={name: since for run in runs for name, since in run.red_since.items() if _from(cells, name, run)}
        | {find.name: run.red_since[find.name] for run, find in finds},
        runs=runs,
        ages={run.run_id: RunAge.before(run.run_id, run_ids[-1]) for run in runs},
    )


def _results(history: History, comparable: dict[str, Comparable]) -> list[tuple[str, str]]:
    """Run and name of each cell of the state, those of one application next to each other.

    Args:
        history: the history of the runs.
        comparable: the comparable runs, newest first.
    """
    nightly = next((past_run for past_run in comparable.values() if past_run.is_nightly), Comparable(True, {}, {}))
    of_nightly = {nightly.keys[name] for name in nightly.inputs}
    apps = dict.fromkeys(
        planned.app for past_run in (nightly, *comparable.values()) for planned in past_run.inputs.values()
    )
    known = {*registry.names(), *(planned.app for planned in nightly.inputs.values())}
    newest: dict[str, dict[tuple[str, Input], str]] = {nightly.keys[name]: {} for name in nightly.inputs}
    for run_id, past_run in comparable.items():
        for name, planned in past_run.inputs.items():
            if past_run.keys[name] not in of_nightly or nightly.inputs.get(name) == planned:
                newest.setdefault(past_run.keys[name], {}).setdefault((name, planned), run_id)
    results = []
    for judged in newest.values():
        ways = [(run_id, name, planned.app) for (name, planned), run_id in judged.items() if planned.app in known]
        red = [way for way in ways if len(ways) > 1 and history.is_red(way[0], way[1])]
        results += [*red, *ways][:1]
    results.sort(key=lambda result: list(apps).index(result[2]))
    return [(run_id, name) for run_id, name, _ in results]


def _searchers(history: History, run_ids: Iterable[str], apps: set[str]) -> list[tuple[Run, set[str]]]:
    """The runs that searched applications for faults last, newest first, and these applications."""
    searchers, open_apps = [], set(apps)
    for run_id in run_ids:
        if of_run := open_apps.intersection(row["app"] for row in history.rows("searches", run_id)):
            searchers.append((history.run(run_id), of_run))
            open_apps -= of_run
    return searchers


def _from(cells: dict[str, Cell], name: str, run: Run) -> bool:
    return name in cells and cells[name].run_id == run.run_id


def _keep_one_baseline(runs: list[Run]) -> None:
    """Drop the verdicts beside a commit of all runs but the newest that has any: others have other baselines."""
    gated = next((run for run in runs if run.gates), None)
    for cell in [cell for run in runs if run is not gated for cell in run.cells]:
        cell.gate = None
