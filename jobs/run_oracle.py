"""Computes the expected result of every workload of a run on one thread, and reuses existing results.

In:  runs/<run id>/plan.json, workloads/<app>/<address>/.
Out: oracle/<app>/<oracle address>/{outputs,state,manifest.json}; runs/<run id>/oracles.json: workload address -> oracle
     address; for each workload without an oracle a reason, in runs/<run id>/complaints.json.

One Spark task computes one oracle. The address of an oracle covers the events, the code of the application and the
interpreter, so an edited operator never gets a stale oracle.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from jobs.prepare_workloads import summary
from jobs.run_folder import complain, read_complaints, read_plan
from jobs.tasks import run_tasks
from streaming_core.data.workload import read_manifest
from streaming_core.errors import BadInput, RunFailed
from streaming_core.oracle import oracle
from streaming_core.regression.home import Home
from streaming_core.regression.plan import PlannedWorkload
from streaming_core.storage import write_json


def interpret(piece: dict) -> None:
    """Run the oracle over one workload, in a Spark task."""
    oracle.run(Path(piece["workload"]), Path(piece["oracle"]))


def compute(
    spark: SparkSession, home: Home, entries: list[PlannedWorkload]
) -> tuple[dict[str, str], list[str], dict[str, str]]:
    """Compute the missing oracles.

    Args:
        spark: The session.
        home: LOCKSTEP_HOME.
        entries: The workloads of plan.json.

    Returns:
        Workload address -> oracle address; the addresses of the workloads whose oracle was computed now; and the
        complaints: address -> one line for each workload without an oracle.
    """
    addresses, pieces, complaints = {}, [], {}
    for entry in entries:
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
    new = []
    for piece, (_, complaint) in zip(pieces, run_tasks(spark, interpret, pieces), strict=True):
        if complaint:
            complaints[piece["address"]] = complaint
            del addresses[piece["address"]]
        else:
            new.append(piece["address"])
    return addresses, new, complaints


def work(spark: SparkSession, home: Home, run_id: str) -> str:
    """Compute the oracles of a run, and write oracles.json; returns a line on what was computed and reused.

    Raises:
        RunFailed: A workload has no oracle. The oracles of the others are in oracles.json.
    """
    refused = read_complaints(home, run_id, "prepare_workloads")
    entries = [entry for entry in read_plan(home, run_id)["workloads"] if entry["address"] not in refused]
    addresses, new, complaints = compute(spark, home, entries)
    complaints |= refused
    write_json(home.run(run_id) / "oracles.json", addresses)
    complain(home, run_id, "run_oracle", complaints)
    if complaints:
        raise RunFailed("; ".join(complaints.values()))
    return summary(entries, set(new), "computed")
