"""The page of a run, beside its outcome (outcome.py), and the page of a run in progress.

`RunView` is what the page and the file of a run share.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reports.history.cell import Cell
from reports.history.run import Run
from reports.views.engines import Comparison
from reports.views.hosts import HostRow
from reports.views.inputs import Inputs
from reports.views.performance import Chart
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


def news(run: Run) -> str:
    """The progress of a run, in a clause."""
    compares = "; Lockstep is comparing their results" if Stage.VALIDATE_OUTPUTS in run.records else ""
    return f"{run.status.progress(len(run.cells))}{compares}"
