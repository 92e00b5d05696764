"""What persons decide: kept with who and why, shown on the pages; what makes no sense is refused and kept nowhere."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from infra.services import build
from infra.services import decisions as decide
from streaming_core.errors import BadInput
from streaming_core.regression import decisions
from streaming_core.regression.home import Home
from streaming_core.run import engine
from tests.infra.cli.conftest import lockstep
from tests.reports import past_runs
from tests.reports.test_pages import Outline


def commit(root: Path, monkeypatch) -> Path:
    """A checkout of one commit in place of this one, which is named by its revision."""
    (root / "streaming_core").mkdir(parents=True)
    (root / "streaming_core" / "__init__.py").touch()
    (root / "streaming_core" / "cli.py").write_text("def main(): print('this one')\n")
    (root / "requirements.lock").write_text("numba==1\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], cwd=root, check=True)
    monkeypatch.setattr(build, "ROOT", root)
    monkeypatch.setattr(engine, "build", lambda: "abc1234")
    return root


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    return commit(tmp_path / "checkout", monkeypatch)


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    return Home(tmp_path / "home")


def test_a_build_that_is_accepted_is_kept_and_runs_whatever_becomes_of_the_checkout(home, checkout, monkeypatch):
    said = decide.accept(home, None, "ada", "the first\n one")
    assert said == "build abc1234 is the baseline from now on, by ada: the first one"
    (checkout / "streaming_core" / "cli.py").write_text("def main(): print('another one')\n")
    (checkout / "requirements.lock").write_text("numba==2\n")
    baseline = decisions.baseline(home)
    assert (baseline.build, baseline.decided_by, baseline.why) == ("abc1234", "ada", "the first one")
    assert baseline.environment != build.environment(), "other packages are locked since"
    old = build.kept(home, baseline.build)
    done = subprocess.run(old.command(), env=old.environment, cwd=checkout, capture_output=True, text=True)
    assert done.stdout == "this one\n", done.stderr
    assert list((old.tree / "streaming_core").glob("_runtime*.so")), "with the runtime that was built of it"


def test_the_build_that_was_accepted_last_is_the_baseline_and_former_decisions_stay(home, checkout, monkeypatch):
    decide.accept(home, None, "ada", "one")
    monkeypatch.setattr(engine, "build", lambda: "def5678")
    decide.accept(home, None, "bob", "two")
    decide.accept(home, "abc1234", "ada", "two was no good")
    assert [(one.build, one.why) for one in decisions.decisions(home)] == [
        ("abc1234", "one"),
        ("def5678", "two"),
        ("abc1234", "two was no good"),
    ]
    assert decisions.baseline(home).why == "two was no good"
    assert decisions.baseline(home, "def5678").decided_by == "bob"


@pytest.mark.parametrize(
    ("name", "said"),
    [("abc1234-dirty", "has changes that are in no commit"), ("unknown", "is no checkout")],
)
def test_what_no_commit_says_is_no_baseline(home, checkout, monkeypatch, name, said):
    monkeypatch.setattr(engine, "build", lambda: name)
    with pytest.raises(BadInput, match=said):
        decide.accept(home, None, "ada", "why not")
    assert not home.root.exists()


def test_a_runtime_that_was_not_built_of_the_commit_is_no_baseline(home, checkout):
    (checkout / "Cargo.lock").write_text("newer than the runtime")
    subprocess.run(["git", "add", "Cargo.lock"], cwd=checkout, check=True)
    with pytest.raises(BadInput, match=r"Cargo\.lock is newer than the runtime: make setup"):
        decide.accept(home, None, "ada", "why not")
    assert not home.root.exists()


def test_a_build_that_is_not_kept_is_no_baseline(home, checkout):
    for name, said in (("abc1234", "is not kept"), ("../../etc", "no name of a file")):
        with pytest.raises(BadInput, match=said):
            decide.accept(home, name, "ada", "why not")
    assert not home.root.exists()


def test_the_pages_say_who_has_decided_what_and_why(home, checkout, capsys, monkeypatch):
    monkeypatch.setattr("infra.cli.command.user", lambda: "ada")
    past_runs.make(home)
    assert lockstep("accept", "--reason", "a good night") == 0
    assert lockstep("acknowledge", past_runs.LAST, "--reason", "the disk was full") == 0
    assert "3 red cells acknowledged, by ada: the disk was full" in capsys.readouterr().out
    overview = Outline((home.reports / "index.html").read_text()).text
    assert "Not measured. Baseline abc1234, accepted by ada, " in overview
    assert "UTC: a good night" in overview
    assert overview.count("UTC: the disk was full") == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([past_runs.RUN_IDS[0], "--reason", "x"], "is green: only red cells need acknowledging"),
        ([past_runs.LAST, "--reason", "x", "--cells", "nosuch"], "has no red cell nosuch; red: "),
        ([past_runs.LAST, "--reason", " "], "a decision has a reason"),
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
