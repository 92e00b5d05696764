"""The plan of a regression run: which cells, on which workloads. Written once, before anything runs."""

from __future__ import annotations

import time

from streaming_core import workload
from streaming_core.apps import registry
from streaming_core.errors import BadInput
from streaming_core.runspec.layout import RUN_ID, Home, write_json
from streaming_core.runspec.spec import RegressionSpec


def plan(regression: RegressionSpec, home: Home, run_id: str, origin: str = "cli") -> dict:
    """Checks the request and writes runs/<run id>/plan.json.

    Returns:
        The plan: run_id, origin, created_at, regression, workloads (app, params, events, seed, address) and cells
        (cell, spec, workload, is_bound).

    Raises:
        BadInput: unknown application or parameter, nothing to run, or a plan of that run id exists with other content.
    """
    if not RUN_ID.fullmatch(run_id):
        raise BadInput(f"run id {run_id!r} is not of the form YYYYMMDDTHHMMSSZ-<8 hex>")
    specs = regression.cells(registry.kinds() | {name: registry.load(name).kind for name in _known(regression)})
    workloads, cells = {}, []
    for spec in specs:
        app = registry.load(spec.app)
        params = app.bind(spec.params)
        address = workload.address(app, params, regression.events, regression.seed)
        workloads[address] = {
            "app": spec.app,
            "params": params,
            "events": regression.events,
            "seed": regression.seed,
            "address": address,
        }
        cells.append(
            {"cell": spec.cell, "spec": spec.model_dump(mode="json"), "workload": address, "is_bound": spec.is_bound}
        )
    made = {
        "run_id": run_id,
        "origin": origin,
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "regression": regression.model_dump(mode="json"),
        "workloads": list(workloads.values()),
        "cells": cells,
    }
    path = home.run(run_id) / "plan.json"
    if path.exists():
        raise BadInput(f"run {run_id} is planned already")
    write_json(path, made)
    return made


def _known(regression: RegressionSpec) -> list[str]:
    """The requested applications that exist; loading them says what is wrong with a file that does not import."""
    return [name for name in regression.applications if name in registry.names()]
