"""One whole run with a wrong, a crashed and a missing cell, and a workload that cannot be generated.

Checks the verdict of each, and that the other cells are unaffected.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from reports.history import History
from reports.views.stages import Stages
from streaming_core.regression.fleet import claims
from streaming_core.regression.home import Home
from streaming_core.regression.project import PREFIX
from streaming_core.regression.stages import Stage
from tests.reports.content import from_elsewhere

ROOT = Path(__file__).resolve().parents[2]
FAULTS = {
    "gs.transactional.owners.t2": "wrong",
    "gs.transactional.serial.t1": "crash",
    "wc.pooled.affinity.t2": "vanish",
}
EXPECTED = {
    "gs/owners/t1": "equal",
    "gs/owners/t2": "different",
    "gs/serial/t1": "failed",
    "gs/serial/t2": "equal",
    "wc/affinity/t1": "equal",
    "wc/affinity/t2": "not_run",
    "wc/gate/t1": "equal",
    "wc/gate/t2": "equal",
    "wc/shared_ring/t1": "equal",
    "wc/shared_ring/t2": "equal",
    "wc/spark/t1": "equal",
    "wc/spark/t2": "equal",
    "sl/owners/t1": "not_run",
    "sl/owners/t2": "not_run",
    "sl/serial/t1": "not_run",
    "sl/serial/t2": "not_run",
}
# A transfer needs two accounts: the generator refuses.
UNMADE = json.dumps({"sl": {"n_items": 1}})
ARGUMENTS = [
    *(
        "--applications",
        "gs,sl,wc",
        "--executors",
        "transactional,pooled,pinned,spark",
        "--schemes",
        "owners,serial",
        "--channels",
        "gate,shared_ring",
        "--plans",
        "replicated",
    ),
    *("--threads", "1,2", "--events", "3000"),
]

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def world(tmp_path_factory, with_compiled):
    """The environment of a separate checkout with a faulty engine."""
    root = tmp_path_factory.mktemp("red")
    engine = [sys.executable, str(ROOT / "tests" / "e2e" / "erring_engine.py")]
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "LOCKSTEP_HOME": str(with_compiled(root / "lockstep")),
        "AIRFLOW_HOME": str(root / "airflow"),
        "LOCKSTEP_HOST_LOCK": str(root / "host.lock"),
        f"AIRFLOW_CONN_{PREFIX.upper()}LOCAL": json.dumps({"conn_type": "generic", "extra": {"wrapper": engine}}),
        f"AIRFLOW_CONN_{PREFIX.upper()}SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "LOCKSTEP_APP_FAULTS": json.dumps(FAULTS),
    }


@pytest.fixture(scope="module")
def result(world):
    command = [
        str(Path(sys.executable).parent / "lockstep"),
        "run",
        "--json",
        *ARGUMENTS,
        "--repetitions",
        "1",
        "--params",
        UNMADE,
    ]
    done = subprocess.run(command, env=world, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 1, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def run(world, result):
    return History(Home(world["LOCKSTEP_HOME"])).run(result["run_id"])


def label(cell: dict) -> str:
    return f"{cell['application']}/{cell['strategy']}/t{cell['threads']}"


def test_every_planned_cell_has_its_verdict(result):
    assert {label(cell): cell["verdict"] for cell in result["cells"]} == EXPECTED
    assert result["counts"] == {"equal": 9, "different": 1, "failed": 1, "not_run": 5} | {
        "invariant_broken": 0,
        "not_comparable": 0,
    }
    assert not result["green"]
    assert result["sentence"].startswith("9 of 16 cells equal the oracle; ")


def test_failed_cells_have_their_reasons(result):
    reasons = {label(cell): cell["reason"] for cell in result["cells"]}
    assert "outputs: 1 different" in reasons["gs/owners/t2"]
    assert "operator read_row, event 7: out of cheese" in reasons["gs/serial/t1"]
    assert reasons["wc/affinity/t2"]
    assert "a transfer between two accounts needs n_items of at least 2, got 1" in reasons["sl/serial/t1"]


def test_failed_stage_has_the_sentence_of_its_error(run):
    failures = run.status.failures
    assert failures["validate_outputs"] == "the run is red: 1 different, 9 equal, 1 failed, 5 not_run"
    assert re.match(r"\d+ of \d+ expectations hold, in \d+ data sets; .* rule ", failures["expectations"])


def test_other_cells_finish_and_are_measured(result):
    for cell in result["cells"]:
        assert (cell["events_per_s"] is not None) == (cell["verdict"] in ("equal", "different")), cell["cell"]


def test_all_stages_after_the_core_runs_ran(result):
    states = {stage["stage"]: stage["state"] for stage in result["stages"]}
    failed = {"prepare_workloads", "run_oracle", "run_core", "validate_outputs", "expectations", "verdict"}
    assert {stage for stage, state in states.items() if state == "failed"} == failed
    assert {state for stage, state in states.items() if stage not in failed} == {"success"}


def test_time_of_every_stage_is_recorded(world, result, run):
    record = Stages.of(History(Home(world["LOCKSTEP_HOME"])).run(result["run_id"]))
    # The speed gate is off in this run.
    assert {stage.name for stage in record.stages} == {*Stage} - {Stage.STOP_SPARK, Stage.SPEED_GATE, Stage.VERDICT}
    (cells,) = [stage for stage in record.stages if stage.name == "run_core"]
    (on_spark,) = [stage for stage in record.stages if stage.name == "run_on_spark"]
    assert {span.name for span in on_spark.spans} == {cell.name for cell in run.cells if ".spark." in cell.name}
    assert {span.name for span in cells.spans} == {
        cell.name
        for cell in run.cells
        if (cell.verdict != "not_run" and ".spark." not in cell.name) or "wc.pooled.affinity.t2" in cell.name
    }
    assert 0 < record.cells < record.seconds
    page = Home(world["LOCKSTEP_HOME"]).report(result["run_id"], "index.html").read_text()
    assert "Where the time went" in page


def test_lost_attempt_is_retried_and_a_failed_one_is_not(world, result):
    def attempts(part: str) -> int:
        (folder,) = [path for path in Home(world["LOCKSTEP_HOME"]).run(result["run_id"]).iterdir() if part in path.name]
        return len([path for path in folder.iterdir() if path.is_dir()])

    assert attempts("wc.pooled.affinity.t2") == 3
    assert attempts("gs.transactional.serial.t1") == 1
    assert attempts("gs.transactional.owners.t2") == 1


def test_pages_show_the_evidence(world, result, run):
    reports = Home(world["LOCKSTEP_HOME"]).reports
    assert run.sentence in (reports / "index.html").read_text()
    wrong = next(cell for cell in run.cells if cell.verdict == "different")
    (row,) = [row for row in wrong.violations if row["check"] == "outputs"]
    assert row["event"]
    assert row["expected"] != row["actual"]
    page = (reports / result["run_id"] / f"{wrong.name}.html").read_text()
    assert "<mark>" in page
    for cell in run.cells:
        assert (reports / result["run_id"] / f"{cell.name}.html").exists()
    summary = json.loads((reports / result["run_id"] / "summary.json").read_text())
    assert {row["verdict"] for row in summary["red"]} == {"different", "failed", "not_run"}
    assert (reports / "data_docs" / "index.html").exists()
    assert (reports / "dbt" / "index.html").exists()


def test_no_page_loads_anything_from_elsewhere(world, result):
    reports = Home(world["LOCKSTEP_HOME"]).reports
    files = [path for path in reports.rglob("*") if path.suffix in (".html", ".svg", ".css")]
    assert {"data_docs", "dbt", "index.html"} <= {path.relative_to(reports).parts[0] for path in files}
    assert list((reports / result["run_id"] / "charts").glob("*.svg"))
    assert {path: links for path in files if (links := from_elsewhere(path))} == {}
    # dbt's page brings a tracker along, and starts it where that is asked for.
    assert '"send_anonymous_usage_stats": false' in (reports / "dbt" / "docs.html").read_text()


def test_warehouse_rolls_up_to_the_same_verdicts(world, run):
    marts = Home(world["LOCKSTEP_HOME"]).root / "warehouse" / "marts"
    rows = [row for path in (marts / "cells").rglob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()]
    assert {row["cell"]: row["verdict"] for row in rows} == {cell.name: cell.verdict for cell in run.cells}
    measured = [
        row for path in (marts / "throughput").rglob("*.parquet") for row in pq.ParquetFile(path).read().to_pylist()
    ]
    assert {row["cell"] for row in measured} == {cell.name for cell in run.cells if cell.verdict == "equal"}


def test_no_asset_was_emitted_and_the_airflow_run_failed(world):
    ask = (
        "from airflow.models import DagRun; from airflow.models.asset import AssetEvent; "
        "from airflow.utils.session import create_session\n"
        "with create_session() as s: print('answer', s.query(AssetEvent).count(), [r.state for r in s.query(DagRun)])"
    )
    done = subprocess.run([sys.executable, "-c", ask], env=world, capture_output=True, text=True, timeout=120)
    assert "answer 0 [<DagRunState.FAILED: 'failed'>]" in done.stdout or "answer 0 ['failed']" in done.stdout, done


def test_lane_fails_at_its_end_and_names_its_failed_cells(world, result):
    home = Home(world["LOCKSTEP_HOME"])
    failed = {cell: claim.error for cell, claim in claims(home, result["run_id"]).items() if claim.error}
    assert {cell.rpartition(".")[0] for cell in failed if not cell.startswith("sl.")} == {
        cell for cell, fault in FAULTS.items() if fault != "wrong"
    }
    assert all("it did not run: " in error for cell, error in failed.items() if cell.startswith("sl."))
    (log,) = (Path(world["AIRFLOW_HOME"]) / "logs").glob("run-2*Z.log")
    text = log.read_text()
    assert f"{len(failed)} cells failed: " in text
    groups = {cell["cell"]: text.count(f"::group::{cell['cell']}") for cell in result["cells"]}
    again = [cell for cell in groups if cell.startswith("wc.pooled.affinity.t2.")]
    assert groups == dict.fromkeys(groups, 1) | dict.fromkeys(again, 3), "each attempt has a group in the log"


def test_no_process_is_left_running(world, result):
    for process in psutil.process_iter(["pid"]):
        try:
            environment = process.environ()
        except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
        assert environment.get("LOCKSTEP_HOME") != world["LOCKSTEP_HOME"], process.cmdline()


def test_no_secret_is_logged(world, result):
    tokens = [json.loads(path.read_text()) for path in Path(world["AIRFLOW_HOME"]).glob("secrets.json")]
    log = Path(world["AIRFLOW_HOME"])
    text = "".join(path.read_text(errors="replace") for path in log.rglob("*.log"))
    assert "the Spark server of this run is sc://localhost:" in text
    for value in tokens[0].values():
        assert value not in text
    assert "SPARK_CONNECT_AUTHENTICATE_TOKEN=" not in text
