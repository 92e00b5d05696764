"""The tutorial, followed to the letter in this checkout, which is then as it was before."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from reports.history import History
from streaming_core.regression.home import Home
from tests import tutorial
from tests.e2e.scheduled import RUNS, Airflow, free_port
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
MADE = ["streaming_core/apps/mine.py", "tests/unit/apps/test_mine.py", "lines.csv"]
NIGHT = "/api/v2/dags/streaming_regression_nightly"
PATIENCE = 900

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_the_tutorial_ends_in_a_night_on_data_of_ones_own(tmp_path, with_compiled):
    if there := [name for name in MADE if (ROOT / name).exists()]:
        pytest.skip(f"{', '.join(there)} is somebody's")
    environment = {
        **os.environ,
        "LOCKSTEP_HOME": str(with_compiled(tmp_path / "lockstep")),
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "LOCKSTEP_HOST_LOCK": str(tmp_path / "host.lock"),
    }
    *commands, night = tutorial.blocks()
    assert night == "make ui\n"
    try:
        said = [_done(command, environment) for command in commands]
        checked, tested, run, imported, run_on_it = (text.strip().splitlines() for text in said)
        assert {str(ROOT / name) for name in MADE[:2]} <= {*checked}
        assert checked[-1].endswith(" cells equal the oracle")
        assert checked[-1] in tutorial.PAGE.read_text()
        assert "1 passed" in tested[-1]
        assert imported[0].endswith("imported/mine/nightly: 3 events of mine from 4 rows of lines.csv")
        assert run[-1] == run_on_it[-1] == "All 2 cells equal the oracle"
        _is_run_by_night(environment)
    finally:
        for name in MADE:
            (ROOT / name).unlink(missing_ok=True)


def _done(command: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, command + done.stdout + done.stderr
    return done.stdout


def _is_run_by_night(environment: dict[str, str]) -> None:
    """The nightly starts a regression of the new application on the import. All of the night is not waited for."""
    airflow = Airflow(environment, free_port())
    known = [run["dag_run_id"] for run in airflow.call(RUNS)["dag_runs"]]
    try:
        airflow.call(NIGHT, "PATCH", {"is_paused": False})
        airflow.call(f"{NIGHT}/dagRuns", "POST", {"logical_date": None})
        run, *_ = wait_for(
            lambda: [run for run in airflow.call(RUNS)["dag_runs"] if run["dag_run_id"] not in known], PATIENCE
        )
        assert run["conf"] == {"matrix": "nightly"}
        history = History(Home(environment["LOCKSTEP_HOME"]))
        plans = lambda: [history.run(one).plan for one in history.run_ids()]  # noqa: E731
        (plan,) = wait_for(lambda: [plan for plan in plans() if plan["origin"] == run["dag_run_id"]], PATIENCE)
        assert plan["regression"]["data"] == {"mine": "nightly"}
        assert "mine" in plan["regression"]["applications"]
    finally:
        airflow.process.terminate()
        airflow.process.wait(120)
