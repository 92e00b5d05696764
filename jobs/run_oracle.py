"""Computes what one thread, taking one event at a time, makes of every workload of a run; known results are reused.

In:  runs/<run id>/plan.json, workloads/<app>/<address>/.
Out: oracle/<app>/<oracle address>/{outputs,state,manifest.json}, one Spark task per workload that lacks its oracle, and
     runs/<run id>/oracles.json: workload address -> oracle address; in complaints.json, why the others have none. An
     oracle's address says which events, which application code and which interpreter it is of, so an edited operator
     never meets a stale one.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from jobs.prepare_workloads import said
from jobs.run_folder import complain, read_complaints, read_plan
from jobs.session import run_job
from jobs.tasks import run_tasks
from streaming_core import ending
from streaming_core.data.workload import read_manifest
from streaming_core.errors import BadInput, RunFailed
from streaming_core.oracle import oracle
from streaming_core.regression.home import Home
from streaming_core.storage import write_json


def interpret(piece: dict) -> None:
    """Runs the oracle over one workload. Runs in a Spark task."""
    oracle.run(Path(piece["workload"]), Path(piece["oracle"]))


def compute(spark: SparkSession, home: Home, asked: list[dict]) -> tuple[dict[str, str], list[str], dict[str, str]]:
    """Makes the oracles that the `asked` workloads (entries of plan.json) lack.

    Returns:
        workload address -> oracle address, of all that have one now; addresses of the workloads whose oracle was made
        just now; by address one line for each that has none.
    """
    addresses, pieces, complaints = {}, [], {}
    for entry in asked:
        folder = home.workload(entry["app"], entry["address"])
        try:
            address = oracle.address(read_manifest(folder))
        except BadInput as error:
            complaints[entry["address"]] = str(error)
            continue
        addresses[entry["address"]] = address
        target = home.oracle(entry["app"], address)
        if not (target / "manifest.json").is_file():
            pieces.append({"address": entry["address"], "workload": str(folder), "oracle": str(target)})
    made = []
    for piece, (_, complaint) in zip(pieces, run_tasks(spark, interpret, pieces), strict=True):
        if complaint:
            complaints[piece["address"]] = complaint
            del addresses[piece["address"]]
        else:
            made.append(piece["address"])
    return addresses, made, complaints


def work(spark: SparkSession, home: Home, run_id: str) -> str:
    """Computes the run's oracles, writes oracles.json and says what was computed and what was reused.

    Raises:
        RunFailed: a workload has no oracle; those of the others are there and noted.
    """
    refused = read_complaints(home, run_id, "prepare_workloads")
    asked = [entry for entry in read_plan(home, run_id)["workloads"] if entry["address"] not in refused]
    addresses, made, complaints = compute(spark, home, asked)
    complaints |= refused
    write_json(home.run(run_id) / "oracles.json", addresses)
    complain(home, run_id, "run_oracle", complaints)
    if complaints:
        raise RunFailed("; ".join(complaints.values()))
    return said(asked, set(made), "computed")


def main(argv: list[str] | None = None, spark: SparkSession | None = None) -> int:
    """Command line: `--run RUN_ID [--home DIR]`; exit code 0, 1 an oracle could not be made, 2 no such run."""
    return run_job(work, __doc__, argv, spark)


if __name__ == "__main__":
    ending.end("run_oracle", main)
