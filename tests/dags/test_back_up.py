"""The DAG `back_up_history`: it consumes the asset of validated runs, and keeps the newest backups."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException
from airflow.utils.state import DagRunState

from dags.lib.backup import back_up
from dags.lib.plan import VALIDATED
from infra.services.backup import restore
from reports.history import History
from streaming_core.regression.home import Home
from streaming_core.regression.project import named
from tests.reports import past_runs


@pytest.fixture
def dag(dags):
    return dags[named("back_up_history")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of LOCKSTEP_BACKUPS, with a file that is no backup of a run."""
    folder = tmp_path / "backups"
    folder.mkdir()
    (folder / "lockstep-mine.tar.gz").touch()
    monkeypatch.setenv("LOCKSTEP_BACKUPS", str(folder))
    return folder


@pytest.mark.slow
def test_asset_of_validated_runs_has_a_consumer(dags, dag):
    (asset,) = dags[named("streaming_regression")].get_task("verdict").outlets
    assert dag.timetable.asset_condition.objects == (asset,)
    assert asset == VALIDATED


@pytest.mark.slow
def test_backup_is_named_after_its_run_and_restores_the_history(dag, lockstep_home, folder, tmp_path):
    past_runs.make(lockstep_home)
    assert dag.test().state == DagRunState.SUCCESS
    file = folder / f"lockstep-{past_runs.LAST}.tar.gz"
    restored = Home(tmp_path / "restored")
    restore(restored, file)
    assert History(restored).run_ids() == History(lockstep_home).run_ids()


def test_event_of_a_validated_run_names_its_backup(lockstep_home, folder):
    past_runs.make(lockstep_home)
    first, second, *_ = past_runs.RUN_IDS
    events = [SimpleNamespace(extra={"run": first}), SimpleNamespace(extra={"run": second})]
    context = {"triggering_asset_events": {VALIDATED: events}, "params": {"keep": 14}}
    assert "0 older ones were removed" in back_up(context)
    assert (folder / f"lockstep-{second}.tar.gz").exists()
    assert back_up(context).endswith("exists")


def test_oldest_backups_beyond_the_limit_are_removed_and_other_files_stay(lockstep_home, folder):
    past_runs.make(lockstep_home)
    old = [folder / f"lockstep-2025010{day}T020000Z-0000000{day}.tar.gz" for day in (1, 2, 3)]
    for file in old:
        file.touch()
    context = {"triggering_asset_events": {}, "params": {"keep": 2}}
    assert "2 older ones were removed" in back_up(context)
    kept = sorted(file.name for file in folder.iterdir())
    assert kept == [old[2].name, f"lockstep-{past_runs.LAST}.tar.gz", "lockstep-mine.tar.gz"]


@pytest.mark.parametrize(
    ("setting", "reason"),
    [("", "LOCKSTEP_BACKUPS is not set"), ("/nowhere", "LOCKSTEP_BACKUPS=/nowhere is not a folder")],
)
def test_missing_folder_fails_in_one_line(lockstep_home, monkeypatch, setting, reason):
    past_runs.make(lockstep_home)
    monkeypatch.setenv("LOCKSTEP_BACKUPS", setting)
    with pytest.raises(AirflowFailException, match=reason):
        back_up({"triggering_asset_events": {}, "params": {"keep": 2}})


def test_home_without_a_run_fails_in_one_line(lockstep_home, folder):
    with pytest.raises(AirflowFailException, match="there is no run yet"):
        back_up({"triggering_asset_events": {}, "params": {"keep": 2}})
    assert [file.name for file in folder.iterdir()] == ["lockstep-mine.tar.gz"]
