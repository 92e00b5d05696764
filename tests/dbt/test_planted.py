"""A slowdown planted in the real engine reaches the mart, with its application, way and build.

The slowdown is large, because other tests disturb the machine. The loaded reports leave out those disturbances.
"""

from __future__ import annotations

import ast

import pytest

from jobs import load_metrics
from jobs.raw import write_raw
from streaming_core import machine_code
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.kernels import dialect
from streaming_core.oracle import oracle
from streaming_core.regression import matrix
from streaming_core.regression.home import Home
from streaming_core.regression.request import RegressionSpec
from streaming_core.run import engine, provenance, yardstick
from streaming_core.run.way import RunSpec
from streaming_core.storage import write_json
from tests.dbt.conftest import read_mart, warehouse

REQUEST = RegressionSpec(
    applications=["fd", "sd"], executors=["pooled"], threads=[1], events=20_000, repetitions=1, seconds=1.01
)
BUSY = """
spin = 88172645463325252
for _ in range(128):
    spin ^= spin << 13
    spin ^= spin >> 7
    spin ^= spin << 17
if spin == 12345:
    raise ZeroDivisionError
"""
OLD, SAME, SLOW = 12, 25, 28  # up to which night which build ran; the second one is the first in all but its name


def plant(monkeypatch, folder) -> None:
    """Make kernels of fd, but not its compiled loop, do needless work."""
    translated = dialect._Rewriter.visit_FunctionDef

    def visit(self, node):
        code = translated(self, node)
        if self.translator.app.name == "fd":
            code.body[:0] = [ast.copy_location(s, code) for s in ast.parse(BUSY).body]
        return code

    monkeypatch.setattr(dialect._Rewriter, "visit_FunctionDef", visit)
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(machine_code, "kept", lambda: machine_code.Kept(folder))


def night(home: Home, number: int) -> None:
    """A run of the matrix, loaded as the pipeline does it; results are compared by their digests."""
    run_id = f"202601{number:02}T020000Z-{number:08x}"
    planned, checks = matrix.plan(REQUEST, home, run_id), []
    for cell in planned["cells"]:
        spec, address = RunSpec.parse(cell["spec"]), cell["workload"]
        app, source = registry.load(spec.app), home.workload(spec.app, address)
        workload.write(app, app.bind(), REQUEST.events, REQUEST.seed, source)
        right = oracle.run(source, home.oracle(spec.app, address))
        report = engine.run(spec, source, None)
        host = report.host | {"steal": 0.0, "others": 0.0}
        attempt = home.attempt(run_id, cell["cell"], 1)
        write_json(attempt / "report.json", report.model_copy(update={"host": host}).model_dump(mode="json"))
        write_json(attempt / "exit.json", {"exit_code": 0, "host": "node"})
        equal = report.verified.digest == right["outputs"]["digest"]
        counts = {"expected_rows": REQUEST.events, "actual_rows": REQUEST.events}
        checks.append({"cell": cell["cell"], "app": spec.app, "check": "digest", **counts})
        checks[-1]["verdict"] = "equal" if equal else "different"
    write_raw(home, "verdicts", run_id, checks)
    write_raw(home, "violations", run_id, [])
    load_metrics.work(home, run_id)


@pytest.mark.slow
def test_planted_slowdown_is_detected_and_an_unchanged_build_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(yardstick, "SHORTEST", 0.0)
    monkeypatch.setattr(yardstick, "PATIENCE", 100)
    home = Home(tmp_path / "home")
    for number in range(1, SLOW + 1):
        build = "old" if number <= OLD else "same" if number <= SAME else "slow"
        monkeypatch.setattr(provenance, "build", lambda build=build: build)
        if number == SAME + 1:
            plant(monkeypatch, tmp_path / "compiled")
        night(home, number)
    process = warehouse(home, "build")
    assert process.returncode == 0, process.stdout[-2000:] + process.stderr[-2000:]
    rows = sorted(read_mart(home, "speed"), key=lambda row: row["run_id"])
    assert len(rows) == 2 * SLOW, "a slowdown is no wrong result"
    accused = [row for row in rows if row["verdict"] in ("slower", "faster")]
    assert {(row["app"], row["strategy"], row["threads"], row["verdict"]) for row in accused} == {
        ("fd", "affinity", 1, "slower")
    }
    assert {(row["since_build"], row["since_run"][:8], row["found_run"][:8]) for row in accused} == {
        ("slow", f"202601{SAME + 1}", f"202601{SLOW}")
    }
    assert all(row["change_high"] < -0.5 for row in accused)
