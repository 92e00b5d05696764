"""Results as data: runs, and the history of a cell, as JSON. It is read-only.

A field has the name and the meaning of a column of the warehouse, which docs/reference/warehouse.md describes. The
plugin mounts the routes beside the pages, behind the same login and permission. Handlers are plain functions, because
FastAPI runs those in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel

from infra import checkout
from reports import times
from reports.history import Cell, History
from reports.history.load import MOST_RUNS, Row
from reports.views import overview
from streaming_core.errors import BadInput
from streaming_core.regression import warehouse
from streaming_core.regression.home import RUN_ID
from streaming_core.regression.project import TITLE
from streaming_core.regression.status import State, state_of
from streaming_core.regression.verdict import VERDICTS, is_green

PREFIX = "/lockstep/api"


class _Route(APIRoute):
    """A route that answers 500 with one line if a file of the history cannot be read."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except BadInput as error:
                raise HTTPException(500, str(error)) from None

        return handle


router = APIRouter(prefix="/api", route_class=_Route)


class Run(BaseModel):
    """A run: columns of the mart `runs`, and what its page says. Counts are null until its results are loaded."""

    run_id: str
    run_at: datetime
    origin: str
    matrix: str
    state: State
    color: str
    sentence: str
    cells: int
    equal: int | None = None
    different: int | None = None
    invariant_broken: int | None = None
    failed: int | None = None
    not_run: int | None = None
    not_comparable: int | None = None
    is_green: bool | None = None
    build: str | None = None
    hosts: list[str] = []


class Speed(BaseModel):
    """The verdict of the trend on the speed of a cell: columns of the mart `speed`."""

    verdict: str
    to_loop: float | None
    change: float | None
    change_low: float | None
    change_high: float | None
    since_at: datetime | None
    since_build: str | None


class Result(BaseModel):
    """The result of a cell in a run: columns of the mart `cells`, and its row of the mart `speed` if it has one."""

    run_id: str
    run_at: datetime
    cell: str
    app: str
    params: str | None
    executor: str
    strategy: str
    order: str | None
    threads: int | None
    events: int
    seed: int | None
    spec_digest: str | None
    code_digest: str | None
    build: str | None
    workload_address: str | None
    is_bound: bool
    status: str
    host: str | None
    verdict: str | None
    reason: str | None
    peak_samples: int
    median_events_per_s: float | None
    min_events_per_s: float | None
    max_events_per_s: float | None
    processing_p99_us: float | None
    speed: Speed | None


class RunWithResults(Run):
    """A run and the results of its cells, by name; none until they are loaded."""

    results: list[Result]


Limit = Annotated[int, Query(ge=1, le=MOST_RUNS, description="The most rows of the answer.")]
Before = Annotated[
    str | None,
    Query(pattern=f"^{RUN_ID.pattern}$", description="Only runs before this one: the last `run_id` of a page."),
]


@router.get("/runs")
def runs(limit: Limit = 50, before: Before = None) -> list[Run]:
    """Every run, the newest first."""
    history = History(checkout.home())
    return [Run(**_run(history, run_id)) for run_id in islice(_earlier(history, before), limit)]


@router.get("/runs/{run_id}", responses={404: {"description": "There is no such run."}})
def run(run_id: str) -> RunWithResults:
    """A run, and the results of its cells."""
    history = History(checkout.home())
    if run_id not in history.run_ids():
        raise HTTPException(404, f"there is no run {run_id!r}")
    samples: dict[str, list[Row]] = {}
    for row in history.rows("samples", run_id):
        samples.setdefault(row["cell"], []).append(row)
    rows = sorted(history.rows("cells", run_id), key=lambda row: row["cell"])
    results = [_result(history, row, samples.get(row["cell"], [])) for row in rows]
    return RunWithResults(**_run(history, run_id), results=results)


@router.get("/cells/{cell}/history", responses={404: {"description": "No run of the newest ones has this cell."}})
def history_of_cell(cell: str, limit: Limit = 60, before: Before = None) -> list[Result]:
    """The results of a cell in all runs that planned it, the newest first. A page searches 200 runs at most."""
    history = History(checkout.home())
    results = []
    for run_id in islice(_earlier(history, before), MOST_RUNS):
        for row in history.rows("cells", run_id):
            if row["cell"] == cell:
                samples = [row for row in history.rows("samples", run_id) if row["cell"] == cell]
                results.append(_result(history, row, samples))
        if len(results) == limit:
            break
    if not results and before is None:
        raise HTTPException(404, f"no run of the newest {MOST_RUNS} has the cell {cell!r}")
    return results


@router.get("/openapi.json", include_in_schema=False)
def openapi() -> dict[str, Any]:
    """The description of this interface, as OpenAPI."""
    text = "Runs and results, read-only, for users that may see the runs in Airflow."
    return get_openapi(title=TITLE, version="1", description=text, routes=router.routes, servers=[{"url": PREFIX[:-4]}])


def _earlier(history: History, before: str | None) -> list[str]:
    """The ids of the runs before one, the newest first; of all runs without one."""
    return [run_id for run_id in reversed(history.run_ids()) if before is None or run_id < before]


def _run(history: History, run_id: str) -> dict[str, Any]:
    """The fields of a run."""
    line, plan, rows = overview.line(history, run_id), history.plan(run_id), history.rows("cells", run_id)
    verdicts = [row["verdict"] for row in rows]
    return {
        "run_id": run_id,
        "run_at": times.of_run(run_id),
        "origin": plan.get("origin", ""),
        "matrix": line.matrix,
        "state": state_of(history.home, run_id),
        "color": line.color,
        "sentence": line.sentence,
        "cells": len(rows) or len(plan.get("cells", [])),
        **({verdict: verdicts.count(verdict) for verdict in VERDICTS} if rows else {}),
        "is_green": is_green(verdicts) if rows else None,
        "build": next((row["build"] for row in rows if row["build"]), None),
        "hosts": sorted({row["host"] for row in rows if row["host"]}),
    }


def _result(history: History, row: Row, samples: list[Row]) -> Result:
    """The result of a cell, from its raw row and its samples."""
    run_id, name = row["run_id"], row["cell"]
    cell = Cell(name, warehouse.spec_of(row), row["workload_address"], row["is_bound"], samples=samples)
    rates = sorted(sample["events_per_s"] for sample in samples if sample["kind"] == "peak")
    speed = history.speeds.get((run_id, name))
    measured = {
        "run_at": times.of_run(run_id),
        "peak_samples": len(rates),
        "median_events_per_s": cell.events_per_s,
        "min_events_per_s": rates[0] if rates else None,
        "max_events_per_s": rates[-1] if rates else None,
        "processing_p99_us": cell.p99_us,
        "speed": Speed.model_validate(speed, from_attributes=True) if speed else None,
    }
    return Result(**{field: row[field] for field in Result.model_fields if field in row} | measured)
