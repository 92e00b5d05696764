"""The DAG retention: it lists when a person triggers it, and asks for the removal of rows of Airflow's database."""

import os
import sqlite3
from datetime import UTC, datetime, timedelta

import pytest
from airflow.sdk.exceptions import ParamValidationError
from airflow.utils.state import DagRunState

from dags import retention
from infra.airflow import database
from infra.airflow.airflow_home import location
from streaming_core.regression.project import named

OLD = datetime(2020, 1, 1, tzinfo=UTC)


def test_retention_is_off_by_default_and_scheduled_before_the_nightly(dags):
    dag = dags[named("retention")]
    assert dag.is_paused_upon_creation
    assert dag.timetable.expression == "0 1 * * *"
    assert dag.timetable.run_immediately == timedelta()  # switching it on removes nothing at once
    dag.params.validate()
    assert dag.params["dry_run"] is True


@pytest.mark.parametrize(("name", "value"), [("days", 6), ("days", "x"), ("cache_gb", -1), ("dry_run", "yes")])
def test_form_refuses_invalid_values(name, value):
    with pytest.raises(ParamValidationError):
        retention.retention_params()[name].resolve(value)


@pytest.mark.slow
def test_manual_run_is_a_dry_run_by_default(dags, lockstep_home, capfd):
    lockstep_home.root.mkdir()
    scratch = lockstep_home.root / "spark-scratch" / "shuffle"
    scratch.parent.mkdir()
    scratch.write_text("x" * 1000)
    dag = dags[named("retention")]
    assert dag.test(run_conf={"dry_run": True}).state == DagRunState.SUCCESS
    assert scratch.exists()
    assert "would ask `lockstep ui` to remove the rows of Airflow's database" in capfd.readouterr().out
    assert database.clean_if_asked(os.environ, scratch) is None
    run = dag.test(run_conf={"dry_run": False})
    assert run.state == DagRunState.SUCCESS
    assert not scratch.exists()
    (location() / "clean-database.json").unlink()


def test_scheduled_run_always_removes():
    assert not retention._only_lists({"dry_run": True}, scheduled=True)
    assert retention._only_lists({"dry_run": True}, scheduled=False)
    assert not retention._only_lists({"dry_run": False}, scheduled=False)


@pytest.mark.slow
def test_ui_removes_old_rows_once_it_is_asked(airflow_home, tmp_path):
    with sqlite3.connect(airflow_home / "airflow.db") as rows:
        rows.execute("INSERT INTO log (dttm, event) VALUES (?, 'of 2020')", [f"{OLD:%Y-%m-%d %H:%M:%S.%f}"])
    log = tmp_path / "log"
    assert database.clean_if_asked(os.environ, log) is None
    database.ask_to_clean(datetime.now(UTC) - timedelta(days=7))
    assert database.clean_if_asked(os.environ, log).wait() == 0, log.read_text()
    assert database.clean_if_asked(os.environ, log) is None, "once"
    with sqlite3.connect(airflow_home / "airflow.db") as rows:
        assert rows.execute("SELECT count(*) FROM log WHERE event = 'of 2020'").fetchone() == (0,)


def test_broken_request_asks_for_nothing(tmp_path):
    (location() / "clean-database.json").write_text("no JSON")
    assert database.clean_if_asked(os.environ, tmp_path / "log") is None
    assert not (location() / "clean-database.json").exists()
