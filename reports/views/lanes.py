"""The lanes of a run: how many cells each host ran, and which hosts were left out or lost, with the reason."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from reports.history.run import Run
from streaming_core.regression import fleet


class Lane(NamedTuple):
    """A host of a run, and what it did.

    Attributes:
        host: its connection in Airflow.
        machine: its name in the network.
        cells: the number of cells that ended on it.
        fault: why it was left out, or lost; empty if neither.
    """

    host: str
    machine: str
    cells: int
    fault: str


def lanes(run: Run) -> list[Lane]:
    """The lanes of a run; [] for a run on this machine alone."""
    known = run.preflights
    if [preflight.host for preflight in known] == [fleet.LOCAL]:
        return []
    lost = {name: f"lost: {reason}" for name, reason in run.losses.items()}
    left_out = {preflight.host: f"left out: {preflight.reason}" for preflight in known if preflight.reason}
    cells = Counter(claim.host for claim in run.claims.values() if claim.is_over)
    faults = left_out | lost
    return [
        Lane(preflight.host, preflight.machine, cells[preflight.host], faults.get(preflight.host, ""))
        for preflight in known
    ]
