"""Loads the report of every cell of a run, and the verdict on it, into the raw warehouse.

In:  runs/<run id>/plan.json, oracles.json, <cell>/attempt-N/exit.json and report.json; warehouse/raw/verdicts, from the
     task validate_outputs. A cell without checks has no result.
Out: warehouse/raw/cells (one row per planned cell, even if it failed or never ran), samples (one per measured pass) and
     hosts (one per preflight). They replace earlier rows of the run.

The input is a few kilobytes of JSON per cell, so the job uses no Spark session.
"""

from __future__ import annotations

from datetime import datetime

from jobs.command import run_stage
from jobs.raw import write_raw
from jobs.run_folder import Attempt, attempts, read_oracles, read_plan
from streaming_core.process import ending
from streaming_core.regression.home import Home
from streaming_core.regression.lock import hold, of_warehouse
from streaming_core.regression.plan import PlannedCell, PlannedWorkload
from streaming_core.regression.preflight import Preflight, preflights_of
from streaming_core.regression.verdict import of_run
from streaming_core.regression.warehouse import HOSTS, LATENCY, rows, way_columns
from streaming_core.run.report import Latency
from streaming_core.run.way import RunSpec
from streaming_core.storage import canonical_json

COMPONENTS = ("useful", "sync", "lock", "remote", "other")


def cell_row(cell: PlannedCell, workload: PlannedWorkload, oracle: str | None, attempt: Attempt) -> dict:
    """One row of raw/cells: the plan of the cell, and the report of its last attempt.

    Args:
        cell: The entry of the cell in plan.json.
        workload: The entry of its workload.
        oracle: Address of the workload's oracle, or None.
        attempt: The last attempt.
    """
    spec = RunSpec.parse(cell["spec"])
    report, host = attempt.report, attempt.report.host if attempt.report else {}
    row = {
        "cell": cell["cell"],
        "app": spec.app,
        "params": canonical_json(workload["params"]),
        "strategy": spec.strategy,
        **way_columns(spec),
        "events": workload["events"],
        "seed": workload["seed"],
        "spec_digest": spec.spec_digest,
        "workload_address": workload["address"],
        "oracle_address": oracle,
        "is_bound": cell["is_bound"],
        "attempt": attempt.number,
        "status": attempt.status,
        "error": attempt.error,
        "host": attempt.exit.get("host") or host.get("name"),
        "started_at": datetime.fromisoformat(began) if (began := attempt.exit.get("started_at")) else None,
    }
    if report:
        row |= {
            "code_digest": report.code_digest,
            "build": report.build,
            "load_before": host.get("load_before"),
            "load_after": host.get("load_after"),
            "yardstick": report.yardstick,
            **{name: host.get(name) for name in ("steal", "others", "preempted", "mhz_before", "mhz_after")},
            "compile_seconds": report.compile_seconds,
            "peak_memory_bytes": report.peak_memory_bytes,
            "energy_joules": report.energy_joules,
            "output_digest": report.verified.digest,
            "state_digest": report.state_digest,
        }
    return row


def sample_rows(cell: PlannedCell, attempt: Attempt) -> list[dict]:
    """The rows of raw/samples for an attempt; none unless it succeeded."""
    if attempt.status != "ok":
        return []
    rows = []
    for sample in attempt.measured.samples:
        same = ["kind", "repetition", "events", "outputs", "digest", "in_order", "seconds", "events_per_s"]
        same += ["passes", "loop_seconds"]
        row = {"cell": cell["cell"], **{name: getattr(sample, name) for name in same}}
        counts = ("dropped_invalid", "dropped_late", "rejected")
        row |= {name: getattr(sample, name) for name in ("cpu_seconds", "energy_joules", *counts)}
        took = [
            reconfiguration.microseconds
            for reconfiguration in sample.reconfigurations
            if reconfiguration.microseconds is not None
        ]
        count = len(took) + sample.omitted_reconfigurations
        row |= {"reconfigurations": count, "slowest_reconfiguration_us": max(took, default=None)}
        row |= {f"{name}_s": sample.breakdown.get(name) for name in COMPONENTS}
        row |= _percentiles("processing", sample.processing) | _percentiles("end_to_end", sample.end_to_end)
        rows.append(row)
    return rows


def host_row(seen: Preflight) -> dict:
    """One row of raw/hosts."""
    columns = [name for name in HOSTS.names if name in Preflight.__dataclass_fields__]
    row = {name: getattr(seen, name) for name in columns} | {"warning": seen.warning}
    return row | {name: canonical_json(row[name]) for name in ("sockets", "distances")}


def _percentiles(kind: str, latency: Latency | None) -> dict[str, float]:
    return {f"{kind}_{name}_us": getattr(latency, name) for name in LATENCY} if latency else {}


def work(home: Home, run_id: str) -> str:
    """Replace the raw partitions of a run; returns a line with their numbers of rows."""
    plan, oracles = read_plan(home, run_id), read_oracles(home, run_id)
    workloads = {workload["address"]: workload for workload in plan["workloads"]}
    cells, samples = [], []
    for cell in plan["cells"]:
        last = attempts(home, run_id, cell)[-1]
        cells.append(cell_row(cell, workloads[cell["workload"]], oracles.get(cell["workload"]), last))
        samples += sample_rows(cell, last)
    verdicts = of_run(None, cells, rows(home, "verdicts", run_id) or [], samples)
    cells = [row | verdicts[row["cell"]]._asdict() for row in cells]
    with hold(of_warehouse(home), "load_metrics", run=run_id):  # another run's marts read all of it, or nothing
        write_raw(home, "hosts", run_id, [host_row(preflight) for preflight in preflights_of(home, run_id)])
        write_raw(home, "samples", run_id, samples)
        write_raw(home, "cells", run_id, cells)
    return f"loaded {len(cells)} cells with {len(samples)} measured passes"


if __name__ == "__main__":
    ending.end("load_metrics", lambda: run_stage(work, __doc__))
