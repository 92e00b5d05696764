"""When the results of two runs are comparable. The pages and docs/explanation/overview-page.md follow this module.

A run is comparable if both hold:

- It ended by itself. A refused run judged nothing, and a stopped or dead run judged only a part.
- It planned at least two cells, or it is a nightly: it ran the matrix `nightly` without overrides. A run of one cell
  tries something out, and a run without cells judges nothing.

The same cell of two comparable runs is comparable if it had the same input (`Input`). The name of a cell covers the
application, its parameters as requested, the way of executing it, and the number of repetitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streaming_core.regression.status import State
from streaming_core.storage import canonical_json

NIGHTLY = "nightly"  # the matrix that the schedule runs


@dataclass(frozen=True)
class Input:
    """The events that a cell takes. Two inputs are the same if all fields but the name are equal.

    Attributes:
        app: the application.
        params: all its parameters, as canonical JSON.
        events: the number of events.
        seed: the seed of the generator; None for imported events.
        content: the address of imported events, which covers their content; empty for generated ones.
        name: the name of an import, if known; empty for generated events.
    """

    app: str
    params: str
    events: int
    seed: int | None
    content: str = ""
    name: str = field(default="", compare=False)

    @property
    def text(self) -> str:
        """`100,000 events`, `3 events of the import nightly`."""
        events = f"{self.events:,} event{'s' * (self.events != 1)}"
        if not self.content:
            return events
        return f"{events} of the import {self.name}" if self.name else f"{events} of an import"


def planned_inputs(plan: Mapping[str, Any]) -> dict[str, Input]:
    """The input of each planned cell, by the cell's name."""
    inputs = {
        workload["address"]: Input(
            workload["app"],
            canonical_json(workload["params"]),
            workload["events"],
            workload["seed"],
            workload["address"] if "data" in workload else "",
            workload.get("data", ""),
        )
        for workload in plan.get("workloads", [])
    }
    return {cell["cell"]: inputs[cell["workload"]] for cell in plan.get("cells", []) if cell["workload"] in inputs}


def loaded_input(row: Mapping[str, Any]) -> Input:
    """The input of a cell whose run has no plan any more, from its row of raw cells."""
    imported = row["seed"] is None
    content = row["workload_address"] if imported else ""
    return Input(row["app"], row["params"], row["events"], row["seed"], content)


def is_nightly(plan: Mapping[str, Any]) -> bool:
    """Whether a run was requested as the schedule does: by the matrix `nightly`, without overrides."""
    if plan.get("refused"):
        return plan.get("regression") == {"matrix": NIGHTLY}
    matrix = plan.get("matrix") or {}
    return matrix.get("name") == NIGHTLY and not matrix.get("overrides")


def is_comparable(plan: Mapping[str, Any], state: State, cells: int) -> bool:
    """Whether a run is comparable; see the text of this module.

    Args:
        plan: the content of its plan.json; {} if it is gone.
        state: whether it is in progress, finished, stopped or dead (status.py).
        cells: the number of its cells.
    """
    if plan.get("refused") or state != "finished":
        return False
    return cells > 1 or (cells == 1 and is_nightly(plan))
