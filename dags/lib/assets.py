"""The assets that other DAGs can depend on: one per mart of the warehouse, and one for green runs.

Airflow emits the assets of a task when the task succeeds. So an event about a mart means that dbt has built and tested
the mart, and a run in quarantine has no event. The event's `extra` has the outcome of the run so far. A DAG cannot wait
for an `extra`, so green runs have an asset of their own, which the verdict emits.

`dbt_build` always builds, so its marts are its outlets. The speed gate builds only if it has measured something, so
its outlet is an `AssetAlias`. No event has a partition. Airflow hands an event with a partition key only to DAGs with a
partitioned timetable, so a DAG with `schedule=[asset]` would never start.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset, AssetAlias

from infra.checkout import ROOT, home
from reports.history import Run
from reports.views.built import RESULTS
from streaming_core.regression.project import named
from streaming_core.regression.verdict import is_green


def mart(name: str) -> Asset:
    """The asset of a mart."""
    return Asset(named(f"lockstep/marts/{name}"))


VALIDATED = Asset(named("lockstep/validated"))
# A build changes the mart of the speed gate only after a measurement.
OF_BUILD = [mart(path.stem) for path in sorted((ROOT / "dbt/models/marts").glob("*.sql")) if path.stem != "gate"]
OF_GATE = [mart("gate"), mart("speed")]
GATE = AssetAlias(named("lockstep/speed_gate"))


def outcome(run: Run) -> dict[str, Any]:
    """The outcome of a run so far, as JSON: what an event tells of it."""
    is_green_so_far = is_green(cell.verdict for cell in run.cells) and not run.finds and not run.status.failures
    return {
        "run": run.run_id,
        "outcome": "green" if is_green_so_far else "red",
        "build": run.build,
        "matrix": run.matrix,
        "hosts": list(run.hosts),
        "cells": run.counts,
    }


def built(run_id: str) -> int:
    """When the marts were last built for a run, in nanoseconds; 0 if never."""
    path = home().run(run_id) / RESULTS
    return path.stat().st_mtime_ns if path.exists() else 0
