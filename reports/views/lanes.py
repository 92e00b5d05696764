"""The lanes of a run: how many cells each host ran, and which hosts were left out or lost, with the reason."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from streaming_core.regression import fleet
from streaming_core.regression.home import Home
from streaming_core.regression.preflight import preflights_of


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


def lanes(home: Home, run_id: str) -> list[Lane]:
    """The lanes of a run; [] for a run on this machine alone."""
    known = preflights_of(home, run_id)
    if [one.host for one in known] == [fleet.LOCAL]:
        return []
    lost = {name: f"lost: {reason}" for name, reason in fleet.losses(home, run_id).items()}
    left_out = {one.host: f"left out: {one.reason}" for one in known if one.reason}
    cells = Counter(claim.host for claim in fleet.claims(home, run_id).values() if claim.is_over)
    faults = left_out | lost
    return [Lane(one.host, one.machine, cells[one.host], faults.get(one.host, "")) for one in known]
