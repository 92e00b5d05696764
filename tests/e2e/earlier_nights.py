"""Writes earlier nights of the matrix `nightly` into LOCKSTEP_HOME: real cells, each in its own process, no scheduler.

    python -m tests.e2e.earlier_nights COUNT

A trend needs 15 nights. These give a series its first ones in minutes: results are compared with the oracle by their
digests, and loaded as in a run. The nights are those of the last days, one a day.
"""

import sys
import time

from infra import checkout
from infra.hosts.cell import run
from jobs import load_metrics
from jobs.raw import write_raw
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.oracle import oracle
from streaming_core.regression import matrices, matrix
from streaming_core.regression.home import new_run_id
from streaming_core.run.report import RunReport
from streaming_core.run.way import RunSpec
from streaming_core.storage import write_json

DAY = 86_400


def night(when: float) -> None:
    """A run of the matrix, planned at `when`."""
    home, checks = checkout.home(), []
    request = matrices.request(checkout.MATRICES, home, {}, "nightly")
    run_id = new_run_id(None, when)
    planned = matrix.plan(request.regression, home, run_id, "cli", request.matrix)
    of = {dataset["address"]: dataset for dataset in planned["workloads"]}
    for cell in planned["cells"]:
        spec, address = RunSpec.parse(cell["spec"]), cell["workload"]
        app, source = registry.load(spec.app), home.workload(spec.app, address)
        if not source.exists():
            workload.write(app, of[address]["params"], of[address]["events"], of[address]["seed"], source)
        right = oracle.run(source, home.oracle(spec.app, address))
        attempt = home.attempt(run_id, cell["cell"], 1)
        write_json(attempt / "spec.json", spec.model_dump(mode="json"))
        assert run(str(attempt), str(source), [], 600.0, None) == 0
        report = RunReport.model_validate_json((attempt / "report.json").read_bytes())
        equal = report.verified.digest == right["outputs"]["digest"]
        counts = {"expected_rows": of[address]["events"], "actual_rows": of[address]["events"]}
        checks.append({"cell": cell["cell"], "app": spec.app, "check": "digest", **counts})
        checks[-1]["verdict"] = "equal" if equal else "different"
    write_raw(home, "verdicts", run_id, checks)
    write_raw(home, "violations", run_id, [])
    load_metrics.work(home, run_id)


def main(count: int) -> None:
    """Write the nights of the last days."""
    now = time.time()
    for number in range(count, 0, -1):
        night(now - number * DAY)
    print(f"{count} earlier nights in {time.time() - now:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]))
