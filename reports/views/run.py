"""The page of a run, beside its outcome (outcome.py), and the page of a run in progress.

`RunView` is what the page and the file of a run share. `RunPage` holds the parts of the page alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reports.history.cell import Cell
from reports.history.run import Run
from reports.views.built import Built
from reports.views.engines import Comparison
from reports.views.hosts import HostRow
from reports.views.inputs import Inputs
from reports.views.lanes import Lane, lanes
from reports.views.overview import Line
from reports.views.performance import Chart
from reports.views.stages import Stages
from streaming_core.regression.stages import Stage


@dataclass(frozen=True)
class RunView:
    """The surroundings of a run.

    Attributes:
        inputs: its workloads.
        inputs_page: the link to them.
        hosts: its hosts, as its preflight saw them.
        engines: its comparison with other engines; None without cells of them.
        file: the link to the run as one file; None in that file.
        charts: the charts of the comparison; only the performance page has them.
        coverage: None: only the overview shows when each way ran last.
    """

    inputs: Inputs
    inputs_page: str
    hosts: list[HostRow]
    engines: Comparison | None
    file: str | None
    charts: list[Chart] = field(default_factory=list)
    coverage: None = None

    @classmethod
    def of(cls, run: Run, inputs_page: str, file: str | None = None) -> RunView:
        """The surroundings of a run; the links are as in `RunView`."""
        return cls(Inputs.of(run), inputs_page, HostRow.of_run(run), Comparison.of(run), file)


@dataclass(frozen=True)
class RunPage:
    """The parts that only the page of a run has.

    Attributes:
        earlier: the last runs in a line each, the newest first.
        before: the id of the run that a page compares with this one; None without such a page.
        measured: whether the run has a performance page.
        stages: where its time went; None without records.
        built: what dbt built and tested in it; None without records.
        lanes: what each of its hosts did.
    """

    earlier: list[Line]
    before: str | None
    measured: bool
    stages: Stages | None
    built: Built | None
    lanes: list[Lane]

    @classmethod
    def of(cls, run: Run, earlier: list[Line], before: str | None, measured: bool) -> RunPage:
        """The parts of a run's page; the other arguments are as in `RunPage`."""
        return cls(earlier, before, measured, Stages.of(run), Built.of(run), lanes(run))


@dataclass(frozen=True)
class CellProgress:
    """The progress of a cell of a run, and the host of the cell."""

    cell: Cell
    host: str
    progress: str

    @classmethod
    def of(cls, run: Run, cell: Cell) -> CellProgress:
        """The progress of a cell of a run."""
        claim = run.claims.get(cell.name)
        if claim is None:
            why = run.why_unused(cell.host) if cell.host else None
            return cls(cell, cell.host, f"cannot run: {why}" if why else "waits")
        if claim.is_over:
            return cls(cell, claim.host, f"failed: {claim.error}" if claim.error else "has run")
        return cls(cell, claim.host, "runs")


@dataclass(frozen=True)
class Progress:
    """A run in progress, which has no report yet.

    Attributes:
        run: the run.
        news: the sentence of its page.
        estimate: how long it was to take; empty if unknown.
        cells: how far each cell is.
        lanes: what each of its hosts did.
    """

    run: Run
    news: str
    estimate: str
    cells: list[CellProgress]
    lanes: list[Lane]

    @classmethod
    def of(cls, run: Run, estimate: str) -> Progress:
        """The progress of a run."""
        compares = "; Lockstep is comparing their results" if Stage.VALIDATE_OUTPUTS in run.records else ""
        news = f"{run.status.progress(len(run.cells))}{compares}"
        return cls(run, news, estimate, [CellProgress.of(run, cell) for cell in run.cells], lanes(run))
