"""The tutorial, followed to the letter in a copy of the checkout."""

from pathlib import Path

import pytest

from reports.history import History
from streaming_core.regression.stages import DAG_ID
from tests.e2e.scheduled import RUNS, Airflow
from tests.support import pages
from tests.support.waiting import wait_for

NIGHT = f"/api/v2/dags/{DAG_ID}_nightly"
FIELDS = {"applications": ["mine"], "executors": ["pinned"]}
PATIENCE = 900

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_tutorial_catches_its_bug_and_ends_in_a_green_run(copied, shell, user_environment):
    *steps, night = pages.steps(pages.TUTORIAL)
    assert night.command == "make ui\n"
    for step in steps:
        output = shell(step.command)
        lacking = pages.missing(step.expected, output)
        assert lacking is None, f"the tutorial promises the line {lacking!r} of\n{step.command}\n{output}"
    _trigger(user_environment, copied)


def _trigger(environment: dict[str, str], checkout: Path) -> None:
    """The form's run ends green, and the nightly can be switched on."""
    with Airflow(environment, checkout) as airflow:
        run = airflow.call(RUNS, "POST", {"conf": FIELDS, "logical_date": None})["dag_run_id"]
        state = wait_for(lambda: (s := airflow.call(f"{RUNS}/{run}")["state"]) in ("success", "failed") and s, PATIENCE)
        history = History(airflow.home)
        assert state == "success", history.latest().sentence
        assert history.latest().green
        assert airflow.call(NIGHT, "PATCH", {"is_paused": False})["is_paused"] is False
