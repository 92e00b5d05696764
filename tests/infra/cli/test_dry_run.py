"""The preview of a run by `lockstep run --dry-run` and by the form."""

import json
import os
from socket import gethostname

import pytest

from dags.lib.form import regression_params
from infra import checkout, fields
from infra.cli.dry_run import dry_run
from reports import estimate
from streaming_core.regression import matrices, matrix
from streaming_core.regression.fleet import LOCAL
from streaming_core.regression.home import Home, new_run_id
from streaming_core.regression.preflight import Preflight, record
from streaming_core.storage import write_json
from tests.infra.cli.conftest import lockstep


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    return Home(tmp_path)


def smoke_run(home: Home, hour: int) -> dict:
    """A finished run of the matrix `smoke`: each cell took 2 seconds, the run 10 minutes."""
    request = matrices.request(checkout.MATRICES, home, {}, "smoke")
    run_id = new_run_id(f"smoke {hour}", 1.7e9 + 3600 * hour)
    plan = matrix.plan(request.regression, home, run_id, matrix=request.matrix)
    plan["created_at"] = "2026-01-05T02:00:00Z"
    write_json(home.run(run_id) / "plan.json", plan)
    for cell in plan["cells"]:
        times = {"started_at": "2026-01-05T02:00:00Z", "ended_at": "2026-01-05T02:00:02Z"}
        ended = {"exit_code": 0, "host": gethostname()} | times
        write_json(home.cell(run_id, cell["cell"]) / "attempt-1" / "exit.json", ended)
    summary = home.report(run_id, "summary.json")
    write_json(summary, {})
    os.utime(summary, (1767578400 + 600, 1767578400 + 600))
    return plan


def test_dry_run_prints_cells_hosts_and_time_and_writes_nothing(home, capsys):
    plan = smoke_run(home, 1)
    before = sorted(home.root.rglob("*"))
    dry_run(home, {"matrix": "smoke"}, True)
    draft = json.loads(capsys.readouterr().out)
    assert draft["cells"] == [cell["cell"] for cell in plan["cells"]]
    assert (draft["hosts"], draft["placement"]) == ([LOCAL], "any")
    assert f"{len(plan['cells'])} cells, about" in draft["estimate"]
    dry_run(home, {"matrix": "smoke", "gate_minutes": 20.0}, False)
    text = capsys.readouterr().out
    assert "hosts: local; placement any" in text
    assert "then up to 20 minutes of the speed gate" in text
    assert sorted(home.root.rglob("*")) == before


def test_command_refuses_the_same_requests_as_a_run(home, capfd):
    assert lockstep("run", "--dry-run", "--applications", "nosuch") == 2
    assert capfd.readouterr().err.startswith("lockstep: unknown application 'nosuch'")


def test_form_shows_cells_and_last_duration_of_each_matrix(home):
    plan = smoke_run(home, 1)
    shown = regression_params()["matrix"].schema["values_display"]
    assert shown["smoke"] == f"smoke: {len(plan['cells'])} cells, 10 minutes the last time"
    assert shown["nightly"].startswith("nightly: ")
    assert shown["nightly"].endswith(" cells")
    assert shown["null"].startswith("none: ")


def test_invalid_matrix_keeps_the_form(home, tmp_path, monkeypatch):
    folder = tmp_path / "matrices"
    folder.mkdir()
    (folder / "odd.yaml").write_text("threads: many\n")
    monkeypatch.setattr(checkout, "MATRICES", folder)
    field = regression_params()["matrix"]
    assert field.schema["enum"] == [None, "odd"]
    assert "odd" not in field.schema["values_display"]


def test_machines_are_those_of_the_newest_run(home):
    for hour, machine in ((1, "old"), (2, "new")):
        record(home, new_run_id("x", 1.7e9 + 3600 * hour), [Preflight("numa", machine=machine)])
    assert estimate.machines(home, [LOCAL, "numa", "unknown"]) == [gethostname(), "new"]


def test_task_that_parses_the_file_computes_no_cells(home, monkeypatch):
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "streaming_regression")
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_TASK_ID", "plan_matrix")
    assert regression_params()["matrix"].schema["values_display"] == {}


def test_run_in_one_process_computes_no_cells_for_a_form(home, monkeypatch):
    monkeypatch.setattr(fields, "SHOWS_FORM", False)
    assert regression_params()["matrix"].schema["values_display"] == {}
