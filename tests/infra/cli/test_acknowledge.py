"""Acknowledgements are recorded with name and reason, and shown on the pages; bad ones are refused."""

from __future__ import annotations

import pytest

from streaming_core.regression import decisions
from streaming_core.regression.home import Home
from tests.infra.cli.conftest import lockstep
from tests.reports import past_runs
from tests.reports.test_pages import Outline


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home")


def test_the_pages_say_who_has_acknowledged_a_cell_and_why(home, capsys, monkeypatch):
    monkeypatch.setattr("infra.cli.command.user", lambda: "ada")
    past_runs.make(home)
    assert lockstep("acknowledge", past_runs.LAST, "--reason", "the disk was full") == 0
    assert "ada acknowledged 3 red cells: the disk was full" in capsys.readouterr().out
    overview = Outline((home.reports / "index.html").read_text()).text
    assert overview.count("UTC: the disk was full") == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([past_runs.RUN_IDS[0], "--reason", "x"], "has no red cells: there is nothing to acknowledge"),
        ([past_runs.LAST, "--reason", "x", "--cells", "nosuch"], "has no red cell nosuch; its red cells: "),
        ([past_runs.LAST, "--reason", " "], "the reason is empty: say why"),
        (["20990101T000000Z-00000000", "--reason", "x"], "no run '20990101T000000Z-00000000'"),
    ],
)
def test_what_cannot_be_acknowledged_is_one_line_and_kept_nowhere(home, capsys, arguments, said):
    past_runs.make(home)
    assert lockstep("acknowledge", *arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert decisions.decisions(home) == []
