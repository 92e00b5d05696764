"""The DAG `back_up_history`: it consumes the asset of validated runs, and keeps the newest backups."""

from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException

from dags.back_up_history import back_up
from dags.lib.assets import VALIDATED
from infra.history.archive import restore
from reports.history import History
from streaming_core.regression.home import Home
from streaming_core.regression.project import named
from tests.reports import past_runs


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of LOCKSTEP_BACKUPS, with a file that is no backup of a run."""
    folder = tmp_path / "backups"
    folder.mkdir()
    (folder / "lockstep-mine.tar.gz").touch()
    monkeypatch.setenv("LOCKSTEP_BACKUPS", str(folder))
    return folder


@pytest.mark.slow
def test_asset_of_validated_runs_has_a_consumer(dags):
    (asset,) = dags[named("streaming_regression")].get_task("verdict").outlets
    assert dags[named("back_up_history")].timetable.asset_condition.objects == (asset,)
    assert asset == VALIDATED


def test_newest_backups_stay_and_are_named_after_their_runs(lockstep_home, folder, tmp_path):
    past_runs.make(lockstep_home)
    old = [folder / f"lockstep-2025010{day}T020000Z-0000000{day}.tar.gz" for day in (1, 2, 3)]
    for file in old:
        file.touch()
    events = [SimpleNamespace(extra={"run": run}) for run in past_runs.RUN_IDS[:2]]
    context = {"triggering_asset_events": {VALIDATED: events}, "params": {"keep": 3}}
    assert "1 older ones were removed" in back_up(context)
    assert back_up(context).endswith("exists")
    by_hand = {"triggering_asset_events": {}, "params": {"keep": 2}}
    assert "2 older ones were removed" in back_up(by_hand)
    kept = [f"lockstep-{run}.tar.gz" for run in (past_runs.RUN_IDS[1], past_runs.LAST, "mine")]
    assert sorted(file.name for file in folder.iterdir()) == kept
    restore(Home(tmp_path / "restored"), folder / kept[1])
    assert History(Home(tmp_path / "restored")).run_ids() == History(lockstep_home).run_ids()


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("", "LOCKSTEP_BACKUPS is not set"),
        ("/nowhere", "LOCKSTEP_BACKUPS=/nowhere is not a folder"),
        (None, "there is no run yet"),
    ],
)
def test_missing_folder_or_history_fails_in_one_line(lockstep_home, folder, monkeypatch, setting, reason):
    if setting is not None:
        monkeypatch.setenv("LOCKSTEP_BACKUPS", setting)
    with pytest.raises(AirflowFailException, match=reason):
        back_up({"triggering_asset_events": {}, "params": {"keep": 2}})
    assert [file.name for file in folder.iterdir()] == ["lockstep-mine.tar.gz"]
