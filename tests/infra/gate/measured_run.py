"""The files of a run of this checkout that the gate reads: two cells that equal the oracle, and one that does not."""

from socket import gethostname

from jobs.raw import write_raw
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.regression import matrix
from streaming_core.regression.fleet import Queue
from streaming_core.regression.home import Home, new_run_id
from streaming_core.regression.preflight import Preflight, record
from streaming_core.regression.request import RegressionSpec
from streaming_core.run import provenance


def make(home: Home, events: int = 2000) -> tuple[str, list[str]]:
    """Write the run; returns its id, and the names of its cells."""
    run_id = new_run_id("measured", 1e9)
    regression = RegressionSpec(applications=["wc"], executors=["pooled"], threads=[1, 2, 3], events=events)
    planned = matrix.plan(regression, home, run_id)
    app = registry.load("wc")
    workload.write(app, app.bind(), events, 1, home.workload("wc", planned["workloads"][0]["address"]))
    names = [cell["cell"] for cell in planned["cells"]]
    about = {"host": gethostname(), "build": provenance.build(), "status": "ok", "verdict": "equal"}
    rows = [about | {"cell": name} for name in names]
    rows[2]["verdict"] = "different"
    write_raw(home, "cells", run_id, rows)
    return run_id, names


def run_on(home: Home, run_id: str, host: str, names: list[str], is_remote: bool = True) -> None:
    """Record that the lane of a host ran these cells."""
    record(home, run_id, [Preflight(host, machine=gethostname(), build="0" * 64 if is_remote else "")])
    for name in names:
        Queue(home, run_id, host).finish(name)
