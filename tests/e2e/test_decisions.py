"""Decisions through a real scheduler: Airflow asks, a user responds, and pages name the user and the reason."""

import json
import urllib.error
from contextlib import contextmanager
from pathlib import Path

import pytest

from streaming_core.regression.decisions import decisions
from streaming_core.regression.home import Home
from streaming_core.regression.project import named
from tests.e2e.scheduled import Airflow, of_this_checkout
from tests.reports import past_runs
from tests.reports.test_pages import Outline
from tests.support.waiting import wait_for

DAG = f"/api/v2/dags/{named('acknowledge_run')}/dagRuns"

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def airflow(tmp_path_factory):
    root = tmp_path_factory.mktemp("decisions")
    past_runs.make(Home(root / "lockstep"))
    more = {"LOGNAME": "impostor", "LOCKSTEP_APPROVERS": "admin"}
    more["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"] = "admin:admin,eve:admin"
    with Airflow(of_this_checkout(root, **more)) as running:
        yield running


@contextmanager
def as_user(airflow: Airflow, name: str):
    """Calls in the block have the login of another user."""
    passwords = json.loads((Path(airflow.environment["AIRFLOW_HOME"]) / "passwords.json").read_text())
    before = airflow.token
    airflow.token = airflow.call("/auth/token", "POST", {"username": name, "password": passwords[name]})["access_token"]
    try:
        yield
    finally:
        airflow.token = before


def open_question(airflow: Airflow, **conf: str) -> str:
    """Starts a run, waits until it asks its question, and returns the path of the response."""
    run = airflow.call(DAG, "POST", {"logical_date": None, "conf": conf})["dag_run_id"]
    states = f"{DAG}/{run}/taskInstances"
    log = Path(airflow.environment["AIRFLOW_HOME"]) / "logs/components/scheduler.log"

    def waits() -> bool:
        of_tasks = {task["task_id"]: task["state"] for task in airflow.call(states)["task_instances"]}
        assert "failed" not in of_tasks.values(), of_tasks
        # Airflow fails a task that is answered before the scheduler has read that the task paused.
        pause = f"TaskInstance Finished: dag_id={named('acknowledge_run')}, task_id=question, run_id={run}"
        return of_tasks["question"] in ("awaiting_input", "deferred") and pause in log.read_text()

    wait_for(waits, 120)
    return f"{states}/question/-1/hitlDetails"


def ended(airflow: Airflow, question: str) -> dict[str, str]:
    """Waits until the run of a question has ended, and returns the states of its tasks."""
    run = question.partition("/taskInstances")[0]
    wait_for(lambda: airflow.call(run)["state"] in ("success", "failed"), 120)
    tasks = airflow.call(f"{run}/taskInstances")["task_instances"]
    return {task["task_id"]: task["state"] for task in tasks}


def test_acknowledgement_in_airflow_is_shown_on_the_pages(airflow):
    question = open_question(airflow)
    put = airflow.call(question)
    assert "Acknowledge 3 red cells of the run of 2026-01-05 02:00 UTC?" in put["subject"]
    assert "differs" in put["body"]
    with pytest.raises(urllib.error.HTTPError):
        airflow.call(question, "PATCH", {"chosen_options": ["Perhaps"], "params_input": {"why": "x"}})
    why = "the disk was full {{ 7 * 191 }}"
    with as_user(airflow, "eve"), pytest.raises(urllib.error.HTTPError, match="403"):
        airflow.call(question, "PATCH", {"chosen_options": ["Acknowledge"], "params_input": {"why": why}})
    airflow.call(question, "PATCH", {"chosen_options": ["Acknowledge"], "params_input": {"why": why}})
    assert set(ended(airflow, question).values()) == {"success"}
    entries = decisions(airflow.home)
    assert {(entry.of_run, entry.why) for entry in entries} == {(past_runs.LAST, why)}
    assert {entry.decided_by for entry in entries} == {"admin"}
    page = Outline(airflow.call(f"/lockstep/{past_runs.LAST}/index.html", raw=True)).text
    assert page.count(f"UTC: {why}") == 3
