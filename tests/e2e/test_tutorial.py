"""The tutorial, followed to the letter in a copy of the checkout."""

from pathlib import Path

import pytest

from reports.history import History
from streaming_core.regression.stages import DAG_ID
from tests.e2e.scheduled import RUNS, Airflow
from tests.support import pages
from tests.support.waiting import wait_for

NIGHT = f"/api/v2/dags/{DAG_ID}_nightly"
PATIENCE = 900

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_tutorial_ends_in_a_nightly_on_imported_data(copied, shell, user_environment):
    *steps, night = pages.steps(pages.TUTORIAL)
    assert night.command == "make ui\n"
    for step in steps:
        output = shell(step.command)
        lacking = pages.missing(step.expected, output)
        assert lacking is None, f"the tutorial promises the line {lacking!r} of\n{step.command}\n{output}"
    _start_a_night(user_environment, copied)


def _start_a_night(environment: dict[str, str], checkout: Path) -> None:
    """The nightly starts a regression of the new application on the import. The test does not wait for its end."""
    with Airflow(environment, checkout) as airflow:
        known = [run["dag_run_id"] for run in airflow.call(RUNS)["dag_runs"]]
        airflow.call(NIGHT, "PATCH", {"is_paused": False})
        airflow.call(f"{NIGHT}/dagRuns", "POST", {"logical_date": None})
        run, *_ = wait_for(
            lambda: [run for run in airflow.call(RUNS)["dag_runs"] if run["dag_run_id"] not in known], PATIENCE
        )
        assert run["conf"] == {"matrix": "nightly"}
        history = History(airflow.home)
        plans = lambda: [history.plan(one) for one in history.run_ids()]  # noqa: E731
        (plan,) = wait_for(lambda: [plan for plan in plans() if plan["origin"] == run["dag_run_id"]], PATIENCE)
        assert plan["regression"]["data"] == {"mine": "nightly"}
        assert "mine" in plan["regression"]["applications"]
