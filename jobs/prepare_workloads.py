"""Generates the workloads a run asks for, in parallel, or takes imported ones; those that are there already are reused.
Before, Spark reads the invariants of their applications: where one cannot be evaluated nothing of the application is
run.

In:  runs/<run id>/plan.json.
Out: workloads/<app>/<address>/events/part-*.parquet and manifest.json; of those that cannot be made, why, in
     runs/<run id>/complaints.json; the origin of all of them and what was checked, in runs/<run id>/provenance.json.
     One Spark task per chunk; a generator gives the
     same events however they are cut. A workload appears whole: parts go to a temporary folder, the manifest is
     written last, then the folder is renamed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.invariants import refusals
from jobs.provenance import describe
from jobs.run_folder import complain, read_plan
from jobs.session import run_job
from jobs.tasks import run_tasks
from streaming_core import ending
from streaming_core.data import workload
from streaming_core.errors import BadInput, RunFailed
from streaming_core.regression.home import Home
from streaming_core.regression.provenance import record
from streaming_core.storage import atomic_directory


def make_part(piece: dict) -> dict:
    """Generates and writes one chunk; returns its entry in the manifest. Runs in a Spark task."""
    table = workload.reproducible_chunk(
        piece["app"], piece["params"], piece["events"], piece["seed"], piece["start"], piece["stop"]
    )
    return workload.write_part(Path(piece["folder"]), piece["index"], table)


def make(spark: SparkSession, folder: Path, entry: dict) -> None:
    """Generates one workload into `folder`, its chunks in parallel.

    Raises:
        RunFailed: the generator failed.
    """
    pieces = [
        {**entry, "folder": str(folder), "index": index, "start": start, "stop": stop}
        for index, (start, stop) in enumerate(workload.chunks(entry["events"]))
    ]
    outcomes = run_tasks(spark, make_part, pieces)
    if complaint := next((complaint for _, complaint in outcomes if complaint), None):
        raise RunFailed(complaint)
    parts = [part for part, _ in outcomes]
    workload.seal(folder, entry["app"], entry["params"], entry["events"], entry["seed"], parts, repeatable=True)


def take(imported: Path, folder: Path, entry: dict) -> None:
    """Copies an imported workload, which a person may replace or remove, as it was when the run was planned.

    Raises:
        BadInput: it is not there any more, or another one is.
    """
    manifest = workload.read_manifest(imported)
    if manifest["address"] != entry["address"]:
        raise BadInput(f"import {imported} is not what was planned: {manifest['address']}, then {entry['address']}")
    shutil.copytree(imported / "events", folder / "events")
    shutil.copy(imported / "manifest.json", folder)


def prepare(spark: SparkSession, home: Home, asked: list[dict]) -> tuple[set[str], dict[str, str]]:
    """Makes those of the `asked` workloads (entries of plan.json) that are missing.

    Returns:
        Addresses of those made just now; by address one line for each that could not be made, of which nothing is left,
        or that is not needed, as what must hold of its results cannot be asked.
    """
    made, complaints = set(), {}
    faults = refusals(spark, [(entry["app"], entry["params"]) for entry in asked])
    for entry, fault in zip(asked, faults, strict=True):
        if fault:
            complaints[entry["address"]] = fault
            continue
        target = home.workload(entry["app"], entry["address"])
        try:
            if not (target / "manifest.json").is_file():
                with atomic_directory(target) as folder:
                    if name := entry.get("data"):
                        take(home.imported(entry["app"], name), folder, entry)
                    else:
                        make(spark, folder, entry)
                made.add(entry["address"])
            workload.read(target, entry["app"], entry["params"])  # raises BadInput if it is damaged
        except (BadInput, RunFailed) as error:
            complaints[entry["address"]] = str(error)
    return made, complaints


def work(spark: SparkSession, home: Home, run_id: str) -> str:
    """Prepares what the run's plan asks for and says what was made and what was reused.

    Raises:
        RunFailed: a generator failed, or an invariant cannot be evaluated; the workloads of the others are there.
    """
    asked = read_plan(home, run_id)["workloads"]
    made, complaints = prepare(spark, home, asked)
    complain(home, run_id, "prepare_workloads", complaints)
    addresses = [(entry, entry["address"]) for entry in asked]
    record(home, run_id, [describe(home, entry, one in made, complaints.get(one)) for entry, one in addresses])
    if complaints:
        raise RunFailed("; ".join(complaints.values()))
    return said(asked, made, "generated")


def said(asked: list[dict], made: set[str], verb: str) -> str:
    """`generated gs, sl; reused wc`: the applications of workloads that are in `made`, and of the others."""
    new = [entry["app"] for entry in asked if entry["address"] in made]
    old = [entry["app"] for entry in asked if entry["address"] not in made]
    return "; ".join(f"{what} {', '.join(apps)}" for what, apps in ((verb, new), ("reused", old)) if apps) or "nothing"


def main(argv: list[str] | None = None, spark: SparkSession | None = None) -> int:
    """Command line: `--run RUN_ID [--home DIR]`; exit code 0, 1 a generator failed, 2 no such run."""
    return run_job(work, __doc__, argv, spark)


if __name__ == "__main__":
    ending.end("prepare_workloads", main)
