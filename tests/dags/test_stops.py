"""The status of a run that a user stops through Airflow's API, whole or in part, or that ended with its process."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from infra.airflow import api_server, listener, open_runs, regression
from infra.airflow.api_server import log_in
from infra.airflow.listener import USER
from infra.checkout import ROOT
from infra.cli import run as run_command
from streaming_core.errors import BadInput, RunFailed
from streaming_core.process import Noted
from streaming_core.regression import status
from streaming_core.regression.home import Home, new_run_id
from streaming_core.regression.stages import AFTER_CELLS, DAG_ID, Stage
from streaming_core.storage import write_json
from tests.support.serving import serving

RUNS = f"/api/v2/dags/{DAG_ID}/dagRuns"
CONF = {"applications": ["wc"], "executors": ["pooled"], "threads": [1], "events": 100}


@pytest.fixture(scope="module")
def server(airflow_home):
    """Airflow's API server with the DAGs in its database, as a user with a login."""
    from airflow.api_fastapi.app import create_app, purge_cached_app
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db

    DagBundlesManager().sync_bundles_to_db()
    (bundle,) = DagBundlesManager().get_all_dag_bundles()
    bag = BundleDagBag(dag_folder=str(ROOT / "dags"), bundle_path=ROOT / "dags", bundle_name=bundle.name)
    sync_bag_to_db(bag, bundle.name, None)
    login = {"username": "admin", "password": "a password of this test"}
    (airflow_home / "passwords.json").write_text(json.dumps({"admin": login["password"]}))
    with serving(create_app()) as client:
        token = client.post("/auth/token", json=login).json()["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        yield client
    purge_cached_app()


@pytest.fixture
def run(server, tmp_path, monkeypatch):
    """A run that is triggered and planned: its address in the API, LOCKSTEP_HOME and its run id."""
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    answer = server.post(RUNS, json={"logical_date": None, "conf": CONF})
    assert answer.status_code == 200, answer.text
    dag_run, home = answer.json(), Home(tmp_path)
    run_id = new_run_id(dag_run["dag_run_id"], datetime.fromisoformat(dag_run["run_after"]).timestamp())
    with status.recorded(home, run_id, Stage.PLAN_MATRIX):
        write_json(home.run(run_id) / "plan.json", {"cells": [], "workloads": []})
    yield f"{RUNS}/{dag_run['dag_run_id']}", home, run_id
    server.delete(f"{RUNS}/{dag_run['dag_run_id']}")


def test_run_that_a_user_stops_is_stopped(server, run):
    address, home, run_id = run
    assert server.patch(address, json={"state": "failed"}).status_code == 200
    # Airflow skips the stages that have not begun.
    ended = status.conclude(home, run_id, dict.fromkeys(AFTER_CELLS, "skipped"))
    assert ended.state == "stopped"


def test_stage_failure_says_that_a_user_stopped_it(server, run):
    address, home, run_id = run
    answer = server.patch(f"{address}/taskInstances/{Stage.DBT_BUILD}", json={"new_state": "failed"})
    assert answer.status_code == 200, answer.text
    states = dict.fromkeys(AFTER_CELLS, "success") | {Stage.DBT_BUILD: "failed"}
    ended = status.conclude(home, run_id, states)
    assert (ended.state, ended.failures) == ("finished", {Stage.DBT_BUILD: f"stopped by {USER}"})
    with status.recorded(home, run_id, Stage.DBT_BUILD):  # the user clears the task, which begins again
        pass
    assert status.stop_of(home, run_id, Stage.DBT_BUILD) is None
    assert status.conclude(home, run_id, dict.fromkeys(AFTER_CELLS, "success")).failures == {}


def test_killed_process_marks_only_its_own_run_dead(server, run, monkeypatch):
    address, home, run_id = run
    published = []
    monkeypatch.setattr("reports.publish.publish", lambda _, run_id: published.append(run_id))
    airflow_run = address.rpartition("/")[2]
    waiting = server.post(RUNS, json={"logical_date": None, "conf": CONF}).json()["dag_run_id"]
    open_runs.add(airflow_run, datetime.fromisoformat(server.get(address).json()["run_after"]))
    assert open_runs.end() == published == [run_id]
    assert status.status_of(home, run_id).state == "died"
    assert open_runs.end() == [], "it has ended"
    open_runs.close(str(server.base_url))
    assert server.get(address).json()["state"] == "failed", "no task of it runs after that, a teardown neither"
    assert server.get(f"{RUNS}/{waiting}").json()["state"] == "queued"
    assert open_runs.files() == []
    server.delete(f"{RUNS}/{waiting}")


def test_open_run_that_a_user_has_deleted_is_forgotten(server):
    open_runs.add("manual__gone", datetime.now(UTC))
    open_runs.close(str(server.base_url))
    assert open_runs.files() == []


def test_run_is_open_from_its_begin_to_its_end(airflow_home):
    about = SimpleNamespace(dag_id=DAG_ID, run_id="manual__one", run_after=datetime.now(UTC))
    for end in (listener.on_dag_run_success, listener.on_dag_run_failed):
        listener.on_dag_run_running(about, "")
        assert [file.stem for file in open_runs.files()] == [new_run_id("manual__one", about.run_after.timestamp())]
        end(about, "")
        assert open_runs.files() == []
    listener.on_dag_run_running(SimpleNamespace(dag_id="other", run_id="manual__two", run_after=datetime.now(UTC)), "")
    assert open_runs.files() == []


def test_run_in_the_airflow_that_is_up_is_followed_to_its_end(server, airflow_home, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    url, changes = str(server.base_url).rstrip("/"), []

    def fail() -> None:  # as a user, while the run is queued
        for run in server.get(f"{RUNS}?state=queued").json()["dag_runs"]:
            open_runs.add(run["dag_run_id"], datetime.fromisoformat(run["run_after"]))
        open_runs.close(url)

    ended = regression.follow_in(log_in(url), CONF, Noted(), changes.append, lambda run_id: None, fail)
    assert (ended.succeeded, ended.airflow_id[:8]) == (False, "manual__")
    states = {change["task"]: change["state"] for change in changes if "task" in change}
    assert states == dict.fromkeys(Stage, "skipped") | dict.fromkeys(open_runs.TEARDOWNS, "failed")
    assert changes[0] == {"ahead": ""}
    server.delete(f"{RUNS}/{ended.airflow_id}")


def test_request_that_airflow_refuses_is_one_line(server):
    with pytest.raises(BadInput, match=r"^Airflow refuses the run: .*pin.*3 is not of type.*$"):
        regression.follow_in(log_in(str(server.base_url).rstrip("/")), {"pin": 3}, Noted(), *[print] * 3)


def test_server_without_these_passwords_is_named(server, monkeypatch):
    monkeypatch.setattr(run_command, "START_SECONDS", 0)
    monkeypatch.setattr(api_server, "passwords", lambda: {"admin": "the password of another home"})
    with pytest.raises(BadInput, match=f"^cannot log in to Airflow, trigger the DAG {DAG_ID} at http://127.0.0.1"):
        run_command._log_in(str(server.base_url).rstrip("/"))
    with pytest.raises(RunFailed, match=r"^Airflow at http://127\.0\.0\.1:1 does not answer: "):
        run_command._log_in("http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("users", "most"), [("ann:viewer,ben:user", "ben"), ("ann:op,ben:admin", "ben"), ("ann:own,ben:viewer", "ben")]
)
def test_user_that_may_do_most_triggers_the_run(airflow_home, monkeypatch, users, most):
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", users)
    names = []
    monkeypatch.setattr(api_server, "Api", lambda url, name, password: names.append(name))
    log_in("http://localhost")
    assert names == [most]
