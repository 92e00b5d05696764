"""Generates the workloads a run asks for, in parallel; those that are there already are reused.

In:  runs/<run id>/plan.json.
Out: workloads/<app>/<address>/events/part-*.parquet and manifest.json. One Spark task per chunk; a generator gives the
     same events however they are cut. A workload appears whole: parts go to a temporary folder, the manifest is
     written last, then the folder is renamed.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import SparkSession

from jobs.run_folder import read_plan
from jobs.session import run_job
from jobs.tasks import run_tasks
from streaming_core import workload
from streaming_core.errors import RunFailed
from streaming_core.runspec import Home, atomic_directory


def make_part(piece: dict) -> dict:
    """Generates and writes one chunk; returns its entry in the manifest. Runs in a Spark task."""
    table = workload.generate_chunk(
        piece["app"], piece["params"], piece["events"], piece["seed"], piece["start"], piece["stop"]
    )
    return workload.write_part(Path(piece["folder"]), piece["index"], table)


def prepare(spark: SparkSession, home: Home, asked: list[dict]) -> list[dict]:
    """Makes those of the `asked` workloads (entries of plan.json) that are missing and returns these.

    Raises:
        RunFailed: a generator failed; none of the workloads is left half-made.
    """
    missing = [w for w in asked if not (home.workload(w["app"], w["address"]) / "manifest.json").is_file()]
    with ExitStack() as renamed_at_the_end:
        folders = [
            renamed_at_the_end.enter_context(atomic_directory(home.workload(w["app"], w["address"]))) for w in missing
        ]
        pieces = [
            {**entry, "folder": str(folder), "index": index, "start": start, "stop": stop}
            for entry, folder in zip(missing, folders, strict=True)
            for index, (start, stop) in enumerate(workload.chunks(entry["events"]))
        ]
        parts: dict[str, list[dict]] = {str(folder): [] for folder in folders}
        for piece, (part, complaint) in zip(pieces, run_tasks(spark, make_part, pieces), strict=True):
            if complaint:
                raise RunFailed(complaint)
            parts[piece["folder"]].append(part)
        for w, folder in zip(missing, folders, strict=True):
            workload.seal(folder, w["app"], w["params"], w["events"], w["seed"], parts[str(folder)])
    return missing


def work(spark: SparkSession, home: Home, run_id: str) -> str:
    """Prepares what the run's plan asks for and says what was made and what was reused."""
    asked = read_plan(home, run_id)["workloads"]
    made = {entry["address"] for entry in prepare(spark, home, asked)}
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
    sys.exit(main())
