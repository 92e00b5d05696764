"""Describes the inputs of a run for `prepare_workloads`: the origin of each workload, and the checks of its events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from streaming_core.regression.plan import PlannedWorkload
from streaming_core.regression.provenance import Check, Origin, Provenance, Result

PREPARED = "the workload can be prepared"
ADDS_UP = "each row of the files is an event or was set aside"
FITS = "each value fits the type of its field, and none is missing"
RISES = "ts never decreases"
REPEATS = "the generator makes the same events twice"
INTACT = "the digest of the manifest is right, and each part has its columns and rows"


def describe(home: Home, entry: PlannedWorkload, is_new: bool, complaint: str | None) -> Provenance:
    """Describe a workload of a plan, and the checks of its events.

    Args:
        home: The LOCKSTEP_HOME of the run.
        entry: The entry of plan.json.
        is_new: Whether this run made the workload.
        complaint: Why the run has no such workload.
    """
    name = entry.get("data", "")
    origin: Origin = "import" if name else "generated" if is_new or complaint else "reused"
    imported = None
    if complaint:
        checks = _checks([PREPARED], "failed", complaint)
        names = [ADDS_UP, FITS, INTACT] if name else [FITS, REPEATS, INTACT]
        checks += _checks(names, "not checked", "there is no workload to check")
    else:
        opened = workload.read(home.workload(entry["app"], entry["address"]), entry["app"])
        imported = _import_record(home, entry, opened.manifest) if name else None
        rises = [RISES] if "ts" in opened.schema.names and opened.app.delay is None else []
        if imported:
            checks = _of_import(imported, opened.rows, rises)
        elif opened.manifest["repeatable"]:
            when = f"when the events were generated, {'in' if is_new else 'before'} this run"
            checks = _checks([REPEATS, FITS, *rises], "passed", when)
        else:
            checks = _checks([REPEATS, FITS, *rises], "not checked", "the manifest records no such check")
        parts = len(opened.manifest["parts"])
        count = f"{parts} part{'s' * (parts > 1)}, {opened.rows:,} rows"
        checks += _checks([INTACT], "passed", f"{count}, before the first cell ran")
    return Provenance(
        entry["app"], entry["address"], origin, entry["events"], entry["seed"], checks, name=name, imported=imported
    )


def _of_import(imported: dict[str, Any], events: int, rises: list[str]) -> list[Check]:
    aside = sum(reason["rows"] for reason in imported["aside"])
    sums = f"{imported['rows']:,} rows = {events:,} events + {aside:,} set aside"
    result: Result = "passed" if imported["rows"] == events + aside else "failed"
    return [
        *_checks([ADDS_UP], result, sums),
        *_checks([FITS], "passed", "the import checked each value"),
        *_checks(rises, "passed", "the import sorts the events by it"),
    ]


def _checks(names: Iterable[str], result: Result, detail: str) -> list[Check]:
    return [Check(name, result, detail) for name in names]


def _import_record(home: Home, entry: PlannedWorkload, manifest: workload.Manifest) -> dict[str, Any] | None:
    """`imported` of the manifest of an import; that of the workload if the name now belongs to another import.

    Two imports of the same events have one address, even if they set different rows aside.
    """
    try:
        folder, app = home.imported(entry["data"]), registry.load(entry["app"])
        current = workload.bound(folder, workload.read_manifest(folder), app, entry["params"])
    except BadInput:
        current = manifest
    return (current if current["address"] == entry["address"] else manifest).get("imported")
