"""A user that stops a run, or a task of it, through Airflow's API is named in the run's status."""

import json
from datetime import datetime

import pytest
from fastapi.testclient import TestClient

from infra.checkout import ROOT
from streaming_core.regression import status
from streaming_core.regression.home import Home, new_run_id
from streaming_core.regression.stages import AFTER_CELLS, DAG_ID, Stage
from streaming_core.storage import write_json

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
    with TestClient(create_app(), follow_redirects=False) as client:
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


def test_user_who_stops_a_run_is_named(server, run):
    address, home, run_id = run
    assert server.patch(address, json={"state": "failed"}).status_code == 200
    # The last stage was running: Airflow has skipped nothing.
    ended = status.conclude(home, run_id, dict.fromkeys(AFTER_CELLS, "success") | {Stage.PUBLISH_REPORTS: "failed"})
    assert (ended.state, ended.by) == ("stopped", "admin")


def test_stage_failure_names_the_user_that_stopped_it(server, run):
    address, home, run_id = run
    answer = server.patch(f"{address}/taskInstances/{Stage.DBT_BUILD}", json={"new_state": "failed"})
    assert answer.status_code == 200, answer.text
    ended = status.conclude(home, run_id, dict.fromkeys(AFTER_CELLS, "success") | {Stage.DBT_BUILD: "failed"})
    assert (ended.state, ended.failures) == ("finished", {Stage.DBT_BUILD: "stopped by admin"})


def test_restarted_run_ignores_an_earlier_stop(server, run):
    address, home, run_id = run
    server.patch(address, json={"state": "failed"})
    assert status.stop_of(home, run_id, status.RUN) == "admin"
    with status.recorded(home, run_id, Stage.DBT_BUILD):
        pass
    assert status.stop_of(home, run_id, status.RUN) is None
    assert status.conclude(home, run_id, dict.fromkeys(AFTER_CELLS, "success")).state == "finished"


def test_killed_process_marks_only_its_own_run_dead(server, run, monkeypatch):
    from airflow.models import DagRun
    from airflow.utils.session import create_session

    from infra.airflow import run_dag

    address, home, run_id = run
    published = []
    monkeypatch.setattr(run_dag, "publish", lambda _, one: published.append(one))
    with create_session() as session:
        session.query(DagRun).filter_by(run_id=address.rpartition("/")[2]).update({"state": "running"})
    waiting = server.post(RUNS, json={"logical_date": None, "conf": CONF}).json()["dag_run_id"]
    assert run_dag.run_ahead(DAG_ID) == run_id
    assert run_dag.end_stale_runs() == 1
    assert status.status_of(home, run_id).state == "died"
    assert published == [run_id]
    assert server.get(address).json()["state"] == "failed"
    assert server.get(f"{RUNS}/{waiting}").json()["state"] == "queued"
    server.delete(f"{RUNS}/{waiting}")
