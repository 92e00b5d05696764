"""Prepares the workloads of a run: generates them in parallel, copies imports, and reuses existing ones.

Before that, Spark checks the SQL of the applications' invariants. If Spark cannot evaluate one, no cell of that
application runs.

In:  runs/<run id>/plan.json.
Out: workloads/<app>/<address>/events/part-*.parquet and manifest.json; for each missing workload a reason, in
     runs/<run id>/complaints.json; the origin and the checks of each workload, in runs/<run id>/provenance.json.

One Spark task generates one chunk. A generator gives the same events for any chunk size. A workload appears whole: its
parts go to a temporary folder, the manifest is written last, and then the folder is renamed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.invariants import refusals
from jobs.provenance import describe
from jobs.run_folder import complain, read_plan
from jobs.tasks import run_tasks
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.errors import BadInput, RunFailed
from streaming_core.regression.home import Home
from streaming_core.regression.plan import PlannedWorkload
from streaming_core.regression.provenance import record
from streaming_core.storage import appearing, held, write_json


def make_part(piece: dict) -> workload.NewPart:
    """Generate and write one chunk, in a Spark task; returns its entry for the manifest."""
    table = workload.reproducible_chunk(
        piece["app"], piece["params"], piece["events"], piece["seed"], piece["start"], piece["stop"]
    )
    return workload.write_part(Path(piece["folder"]), piece["index"], table)


def make(spark: SparkSession, folder: Path, entry: PlannedWorkload) -> None:
    """Generate one workload into `folder`, its chunks in parallel.

    Raises:
        RunFailed: The generator failed.
    """
    pieces = [
        {**entry, "folder": str(folder), "index": index, "start": start, "stop": stop}
        for index, (start, stop) in enumerate(workload.chunks(entry["events"]))
    ]
    outcomes = run_tasks(spark, make_part, pieces)
    if complaint := next((complaint for _, complaint in outcomes if complaint), None):
        raise RunFailed(complaint)
    parts = [part for part, _ in outcomes]
    assert entry["seed"] is not None  # imported events have none
    workload.seal(folder, entry["app"], entry["params"], entry["events"], entry["seed"], parts, repeatable=True)


def take(imported: Path, folder: Path, entry: PlannedWorkload) -> None:
    """Copy an import, because a person may replace or remove it later.

    Raises:
        BadInput: The import is missing, or is not the one that was planned.
    """
    app = registry.load(entry["app"])
    manifest = workload.bound(imported, workload.read_manifest(imported), app, entry["params"])
    if manifest["address"] != entry["address"]:
        raise BadInput(
            f"import {imported} has changed since the run was planned: its address was {entry['address']}, and is now "
            f"{manifest['address']}. Start the run again"
        )
    shutil.copytree(imported / "events", folder / "events")
    write_json(folder / "manifest.json", manifest)


def prepare(spark: SparkSession, home: Home, entries: list[PlannedWorkload]) -> tuple[set[str], dict[str, str]]:
    """Make the missing workloads.

    Args:
        spark: The session.
        home: LOCKSTEP_HOME.
        entries: The workloads of plan.json.

    Returns:
        The addresses of the workloads that this call made, and the complaints: address -> one line. A complaint says
        that a workload could not be made, or that Spark cannot evaluate an invariant of its application.
    """
    new, complaints = set(), {}
    faults = refusals(spark, [(entry["app"], entry["params"]) for entry in entries])
    for entry, fault in zip(entries, faults, strict=True):
        if fault:
            complaints[entry["address"]] = fault
            continue
        target = home.workload(entry["app"], entry["address"])
        try:
            if not (target / "manifest.json").is_file() and _fill(spark, home, target, entry):
                new.add(entry["address"])
            workload.read(target, entry["app"], entry["params"])  # raises BadInput if it is damaged
        except (BadInput, RunFailed) as error:
            complaints[entry["address"]] = str(error)
    return new, complaints


def _fill(spark: SparkSession, home: Home, target: Path, entry: PlannedWorkload) -> bool:
    """Make a missing workload; False if another run has made it meanwhile. Raises the errors of `make` and `take`."""
    with held(target):
        if (target / "manifest.json").is_file():
            return False
        with appearing(target) as folder:
            if name := entry.get("data"):
                take(home.imported(name), folder, entry)
            else:
                make(spark, folder, entry)
        return True


def work(spark: SparkSession, home: Home, run_id: str) -> str:
    """Prepare the workloads of a run's plan; returns a line on what was generated and reused.

    Raises:
        RunFailed: A generator failed, or an invariant cannot be evaluated. The other workloads are ready.
    """
    entries = read_plan(home, run_id)["workloads"]
    new, complaints = prepare(spark, home, entries)
    complain(home, run_id, "prepare_workloads", complaints)
    addresses = [(entry, entry["address"]) for entry in entries]
    record(
        home, run_id, [describe(home, entry, address in new, complaints.get(address)) for entry, address in addresses]
    )
    if complaints:
        raise RunFailed("; ".join(complaints.values()))
    return summary(entries, new, "generated")


def summary(entries: list[PlannedWorkload], new: set[str], verb: str) -> str:
    """`generated gs, sl; reused wc`: the applications whose workloads are in `new`, then the others."""
    fresh = [entry["app"] for entry in entries if entry["address"] in new]
    reused = [entry["app"] for entry in entries if entry["address"] not in new]
    parts = (f"{word} {', '.join(apps)}" for word, apps in ((verb, fresh), ("reused", reused)) if apps)
    return "; ".join(parts) or "the plan has no workloads"
