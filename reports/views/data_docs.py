"""The first page of the Data Docs: the data sets of each run, and whether they meet their expectations.

When `expectations` has judged a whole run, it writes runs/<run id>/expectations.json. By data set, the file holds how
many expectations hold, how many there are, how many fail by severity, and the page of the result. A data set holds if
no critical expectation fails. A run without the file is not judged. Neither is a run with another failed stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from reports.history.load import History
from reports.history.run import Run
from streaming_core.regression.home import Home
from streaming_core.regression.stages import Stage
from streaming_core.storage import left_json, write_json

RESULTS = "expectations.json"  # a file in a run's folder
SHOWN_RUNS = 30
STATES = {
    "stopped": "the run was stopped",
    "died": "the process of the run ended",
    "in_progress": "the run is in progress",
}


@dataclass(frozen=True)
class DataSet:
    """A data set of a run: how many of its expectations hold and fail, and the page that shows them."""

    held: int
    count: int
    page: str
    critical: int = 0
    warning: int = 0
    info: int = 0

    @property
    def holds(self) -> bool:
        """Whether no critical expectation fails."""
        return self.critical == 0

    @property
    def sentence(self) -> str:
        """`6 of 7 expectations hold; 1 warning`."""
        text = f"{self.held} of {self.count} expectations hold"
        return f"{text}; {self.warning} warning{'s' * (self.warning > 1)}" if self.warning else text


@dataclass(frozen=True)
class Judgement:
    """The data sets of a run by name, or why it is `not_judged`."""

    run: Run
    sets: dict[str, DataSet]
    not_judged: str

    @property
    def broken(self) -> dict[str, DataSet]:
        """The data sets with a critical expectation that does not hold."""
        return {name: data_set for name, data_set in self.sets.items() if not data_set.holds}

    @property
    def doubtful(self) -> dict[str, DataSet]:
        """The other data sets with a warning."""
        return {name: data_set for name, data_set in self.sets.items() if data_set.holds and data_set.warning}


def results_path(home: Home, run_id: str) -> Path:
    """The file with the results of a run."""
    return home.run(run_id) / RESULTS


def write_results(home: Home, run_id: str, sets: dict[str, dict]) -> None:
    """Write the results of a run: the attributes of `DataSet`, by data set."""
    write_json(results_path(home, run_id), sets)


def judgement(run: Run) -> Judgement:
    """The judgement of a run, from its results and its status."""
    sets = {name: DataSet(**entry) for name, entry in left_json(run.folder / RESULTS).items()}
    # A critical expectation that does not hold fails its stage, too: that is a judgement.
    failed = [stage.label for stage in run.failures if not (sets and stage == Stage.EXPECTATIONS)]
    state = run.status.state
    why = ""
    if state in ("stopped", "died") or not sets:
        why = STATES.get(state, "the stage left no results")
    if failed:
        why = f"{', '.join(failed)} failed"
    return Judgement(run, sets, why)


def judgements(history: History) -> list[Judgement]:
    """The judgements of the last runs, the newest first. A refused request has nothing to judge."""
    known: list[Judgement] = []
    for run_id in reversed(history.run_ids()):
        run = history.run(run_id)
        if run.cells:
            known.append(judgement(run))
        if len(known) == SHOWN_RUNS:
            break
    return known


def headline(known: list[Judgement]) -> str:
    """Its sentence for the top of a page."""
    if not known:
        return "No run has been judged yet"
    newest = known[0]
    if newest.not_judged:
        return f"The newest run is not judged: {newest.not_judged}"
    held = len(newest.sets) - len(newest.broken)
    return f"{held} of {len(newest.sets)} data sets of the newest run meet their expectations"


@dataclass(frozen=True)
class DataDocs:
    """The first page of the Data Docs.

    Attributes:
        judgements: the judgements of the last runs, the newest first.
        headline: its heading.
        names: the names of all data sets.
        suites: the names of the data sets with a page of their expectations.
        style: the style sheet, which the page holds itself.
    """

    judgements: list[Judgement]
    headline: str
    names: list[str]
    suites: set[str]
    style: Markup

    @classmethod
    def of(cls, known: list[Judgement], suites: set[str], style: Markup) -> DataDocs:
        """The page of some judgements; the other arguments are as in `DataDocs`."""
        return cls(known, headline(known), sorted({name for result in known for name in result.sets}), suites, style)
