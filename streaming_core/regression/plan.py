"""The plan of a run, as plan.json holds it: workloads and cells. `matrix` draws it, and every stage reads it."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict, cast

from streaming_core.regression.home import Home
from streaming_core.storage import left_json


class PlannedWorkload(TypedDict):
    """The events of an application. Imported events have `data`, the name of their import, and no seed."""

    app: str
    params: dict[str, Any]
    events: int
    seed: int | None
    address: str
    data: NotRequired[str]


class PlannedCell(TypedDict):
    """A way of executing an application.

    With the placement `every`, a cell also has `host`, and its name ends with it. With `any`, it has `hosts` if some
    hosts have too few cores: those that may run it. A cell on Spark has the Spark connection as its host, with every
    placement, and keeps its name.
    """

    cell: str
    spec: dict[str, Any]
    workload: str  # its address
    is_bound: bool
    host: NotRequired[str]
    hosts: NotRequired[list[str]]


class Omission(TypedDict):
    """Cells that a plan leaves out, and why."""

    reason: str
    cells: list[str]


class Plan(TypedDict, total=False):
    """A plan. `refused` is the reason for refusing the request, and such a plan has no cells."""

    run_id: str
    origin: str
    created_at: str
    regression: dict[str, Any]
    matrix: dict[str, Any] | None
    workloads: list[PlannedWorkload]
    cells: list[PlannedCell]
    left_out: list[Omission]
    refused: str


def left_plan(home: Home, run_id: str) -> Plan:
    """The plan of a run of the past; {} if its file is missing or not whole."""
    return cast(Plan, left_json(home.run(run_id) / "plan.json"))
