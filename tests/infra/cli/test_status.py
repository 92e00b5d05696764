"""`lockstep status` without a folder lists what goes on in LOCKSTEP_HOME."""

import json

import pytest

from streaming_core.regression.lock import hold, of_home, of_host, of_warehouse
from streaming_core.regression.stages import Stage
from streaming_core.regression.status import recorded
from tests.infra.cli.conftest import lockstep, refused
from tests.reports import past_runs

ONE, OTHER = past_runs.RUN_IDS[:2]


@pytest.fixture
def runs(home, monkeypatch):
    """Two runs in progress: one waits, the other has run a cell."""
    monkeypatch.setenv("LOCKSTEP_HOST_LOCK", str(home.root.parent / "host.lock"))
    past_runs.make(home, nights=2, red=False)
    for run_id, stages in ((ONE, [Stage.PLAN_MATRIX, Stage.SPARK_SERVER]), (OTHER, [Stage.PLAN_MATRIX])):
        for stage in stages:
            with recorded(home, run_id, stage):
                pass
    with recorded(home, ONE, Stage.RUN_CORE, "one"):
        pass


def test_status_lists_runs_in_progress_and_who_has_what(home, runs, capsys):
    assert lockstep("status") == 0
    lines = [f"run {ONE}: 1 of 14 cells have run", f"run {OTHER} waits to start: 0 of 14 cells have run"]
    assert capsys.readouterr().out.splitlines() == lines
    with hold(of_home(home), ONE, shared=True), hold(of_host(), "cell wc", run=ONE), hold(of_warehouse(home), "gate"):
        assert lockstep("status") == 0
        assert lockstep("status", "--json") == 0
    text = capsys.readouterr().out
    shown, content = text[: text.index("{")].splitlines(), json.loads(text[text.index("{") :])
    assert shown[:2] == lines
    begins = [f"{home.root} is in use by run {ONE} on ", f"the host is in use by cell wc of run {ONE} on "]
    begins.append("the warehouse is in use by gate on ")
    assert [line.startswith(begin) for line, begin in zip(shown[2:], begins, strict=True)] == [True] * 3
    assert {run["run_id"]: run["waits"] for run in content["runs"]} == {ONE: False, OTHER: True}
    assert content["locks"]["host"][0]["run"] == ONE


def test_status_of_a_new_home_makes_nothing(home, capsys, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOST_LOCK", str(home.root.parent / "host.lock"))
    assert lockstep("status") == 0
    assert capsys.readouterr().out == "no run is in progress\n"
    assert not home.root.exists()


def test_status_refuses_a_folder_without_a_live_run(home, tmp_path, capsys):
    assert str(tmp_path) in refused(capsys, "status", str(tmp_path))
