"""The applications that a change concerns, in a small repository with this engine and three applications."""

import shutil
import subprocess
from pathlib import Path

import pytest

from infra.checkout import ROOT
from infra.hosts import build
from infra.review import changes
from streaming_core.errors import BadInput
from tests.support.checkout import commit

APPS = {"__init__", "registry", "sl", "wc", "gs"}
COUNT = "    state.n += 1"


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    for path in (ROOT / "streaming_core").rglob("*.*"):
        name = path.relative_to(ROOT)
        is_other = name.parts[1] == "apps" and (len(name.parts) > 3 or path.stem not in APPS)
        if path.suffix in (".py", ".txt") and name.parts[1] not in ("bench", "runtime") and not is_other:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, folder / name)
    (folder / ".gitignore").write_text("__pycache__/\n")
    return commit(folder)


@pytest.fixture
def repository(original, tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "repository"
    shutil.copytree(original, folder)
    monkeypatch.setattr(changes, "ROOT", folder)
    monkeypatch.setattr(build, "ROOT", folder)
    return folder


def edit(repository: Path, name: str, old: str, new: str) -> None:
    path = repository / "streaming_core" / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_edit_of_an_operator_concerns_its_application_alone(repository):
    edit(repository, "apps/wc.py", COUNT, "    state.n += 2")
    edit(repository, "apps/sl.py", '"""', '"""About this file: ')
    commit(repository)
    change = changes.since("HEAD~1")
    assert (change.applications, change.faults, change.is_of_engine) == (["wc"], {}, False)


def test_edit_of_what_judges_an_application_concerns_it(repository):
    with open(repository / "streaming_core/apps/wc.py", "a") as file:
        file.write('\n\n@app.property\ndef nothing(stream):\n    """Nothing."""\n')
    (repository / "streaming_core/apps/gs.expectations.yaml").write_text("[]\n")
    change = changes.since("HEAD")
    assert (change.applications, change.faults) == (["gs", "wc"], {})


def test_rejected_operator_is_a_fault_with_its_line(repository):
    edit(repository, "apps/wc.py", COUNT, "    state.n += len([1])")
    change = changes.since("HEAD")
    assert change.applications == []
    (reason,) = change.faults.values()
    line = (repository / "streaming_core/apps/wc.py").read_text().split("len([1])")[0].count("\n") + 1
    assert f"(wc.py:{line})" in reason
    assert "lists" in reason
    commit(repository)
    assert changes.since("HEAD").faults == {}  # the branch had the fault before


def test_edit_of_the_engine_concerns_every_application(repository):
    edit(repository, "run/engine.py", '"""', '"""Edited: ')
    change = changes.since("HEAD")
    assert (change.applications, change.is_of_engine) == (["gs", "sl", "wc"], True)


def test_new_application_is_concerned_and_commits_of_the_other_branch_are_not(repository):
    subprocess.run(["git", "branch", "other"], cwd=repository, check=True)
    wc = (repository / "streaming_core/apps/wc.py").read_text()
    (repository / "streaming_core/apps/mine.py").write_text(wc.replace('"wc",', '"mine",', 1))
    commit(repository)
    subprocess.run(["git", "checkout", "--quiet", "other"], cwd=repository, check=True)
    edit(repository, "apps/sl.py", "def ", "def  ")
    commit(repository)
    subprocess.run(["git", "checkout", "--quiet", "-"], cwd=repository, check=True)
    assert changes.since("other").applications == ["mine"]


def test_unknown_branch_and_unrelated_history_are_refused(repository):
    with pytest.raises(BadInput, match="is not a commit of"):
        changes.since("nosuch")
    empty = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "commit-tree", empty, "-m", "other"]
    other = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True).stdout.strip()
    with pytest.raises(BadInput, match="no common commit"):
        changes.since(other)
