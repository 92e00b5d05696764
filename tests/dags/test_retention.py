"""The DAG retention: it lists when a person triggers it, and removes rows of Airflow's real database by itself."""

import sys
from datetime import UTC, datetime, timedelta

import pytest
from airflow.sdk.exceptions import ParamValidationError
from airflow.utils.state import DagRunState

from dags import retention
from infra.airflow import database
from streaming_core.errors import RunFailed
from streaming_core.regression.project import named

OLD = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def old_row(airflow_home):
    """Adds an entry of 2020 to the audit log; returns whether it is there."""
    from airflow.models import Log
    from airflow.utils.session import create_session
    from sqlalchemy import func, select

    with create_session() as session:
        session.add(Log(event="of 2020", extra=None))
        session.flush()
        for row in session.scalars(select(Log).where(Log.event == "of 2020")):
            row.dttm = OLD

    def there() -> bool:
        with create_session() as session:
            return bool(session.scalar(select(func.count()).select_from(Log).where(Log.event == "of 2020")))

    assert there()
    return there


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
def test_manual_run_is_a_dry_run_by_default(dags, lockstep_home, old_row, capfd):
    lockstep_home.root.mkdir()
    scratch = lockstep_home.root / "spark-scratch" / "shuffle"
    scratch.parent.mkdir()
    scratch.write_text("x" * 1000)
    dag = dags[named("retention")]
    assert dag.test(run_conf={"dry_run": True}).state == DagRunState.SUCCESS
    assert scratch.exists()
    assert old_row()
    assert "would remove 1 rows of Airflow's database" in capfd.readouterr().out
    run = dag.test(run_conf={"dry_run": False})
    assert run.state == DagRunState.SUCCESS
    assert not scratch.exists()
    assert not old_row()


def test_scheduled_run_always_removes():
    assert not retention._only_lists({"dry_run": True}, scheduled=True)
    assert retention._only_lists({"dry_run": True}, scheduled=False)
    assert not retention._only_lists({"dry_run": False}, scheduled=False)


def test_failed_command_is_reported_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RunFailed, match=r"^`airflow db clean` failed with exit code 1; the lines above say why$"):
        database.clean(OLD, True)
