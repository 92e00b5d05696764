"""History and pages on branches of a remote: a bare repository on this machine, and clones of it."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.history import branch
from infra.history.archive import history
from infra.history.branch import HISTORY, PAGES, Branch
from reports.history import History
from streaming_core.errors import BadInput, CommandFailed
from streaming_core.regression.home import Home
from tests.reports import past_runs


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def remote(tmp_path) -> Path:
    git(tmp_path, "init", "--quiet", "--bare", "remote")
    return tmp_path / "remote"


@pytest.fixture
def clone(remote, tmp_path):
    """Makes clones of the remote."""

    def make(name: str) -> Path:
        git(tmp_path, "clone", "--quiet", str(remote), name)
        return tmp_path / name

    return make


@pytest.fixture
def home(tmp_path) -> Home:
    home = Home(tmp_path / "home")
    past_runs.make(home, nights=2)
    return home


def write(home: Home, path: str, text: str = "") -> None:
    file = home.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def listed(remote: Path, name: str) -> set[str]:
    return set(git(remote, "ls-tree", "-r", "--name-only", name).split())


def test_history_comes_back_without_attempts_marts_and_pages(remote, clone, home, tmp_path):
    paths = {path for path in history(home) if "/attempt-" not in path}
    write(home, f"runs/{past_runs.RUN_IDS[0]}/wc.one/attempt-1/report.json")
    write(home, f"runs/{past_runs.RUN_IDS[0]}/wc.one/attempt-1.stdout.log")
    write(home, "reports/index.html")
    assert "files are on branch" in branch.save(home, clone("one"))
    assert listed(remote, HISTORY) == paths
    other = Home(tmp_path / "other")
    assert branch.restore(other, clone("two")).startswith(f"{len(paths)} of {len(paths)} files")
    assert {path: (other.root / path).read_bytes() for path in history(other)} == {
        path: (home.root / path).read_bytes() for path in paths
    }
    for run_id in past_runs.RUN_IDS[:2]:
        before, after = History(home).run(run_id), History(other).run(run_id)
        assert (after.sentence, after.green, after.counts) == (before.sentence, before.green, before.counts)


def test_restore_keeps_the_files_that_are_there(clone, home, tmp_path):
    repository, plan = clone("one"), f"runs/{past_runs.RUN_IDS[0]}/plan.json"
    branch.save(home, repository)
    other = Home(tmp_path / "other")
    write(other, plan, "mine")
    branch.restore(other, repository)
    assert (other.root / plan).read_text() == "mine"
    assert "0 of" in branch.restore(other, repository)


def test_unchanged_history_makes_no_commit(remote, clone, home):
    repository = clone("one")
    branch.save(home, repository)
    before = git(remote, "rev-parse", HISTORY)
    assert branch.save(home, repository).endswith("as before")
    assert git(remote, "rev-parse", HISTORY) == before


def test_jobs_that_save_at_once_all_land(remote, clone, tmp_path):
    homes = [Home(tmp_path / f"home{number}") for number in range(4)]
    for number, home in enumerate(homes):
        write(home, f"runs/2026010{number}T020000Z-00000001/plan.json", str(number))
    clones = [clone(f"clone{number}") for number in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(branch.save, homes, clones))
    assert listed(remote, HISTORY) == {path for home in homes for path in history(home)}
    assert git(remote, "rev-list", "--count", HISTORY).strip() == "4"


def test_remote_without_history_and_home_without_runs_change_nothing(remote, clone, tmp_path):
    repository, home = clone("one"), Home(tmp_path / "home")
    assert "no branch" in branch.restore(home, repository)
    assert "nothing is saved" in branch.save(home, repository)
    assert "nothing is published" in branch.site(home, "main", repository)
    assert not home.root.exists()
    assert git(remote, "branch") == ""


@pytest.mark.parametrize("path", ["streaming_core/apps/wc.py", "runs/.hidden", "warehouse/marts/speed/part.parquet"])
def test_other_file_on_the_history_branch_is_refused_and_nothing_is_written(clone, tmp_path, path):
    repository, other = clone("one"), Home(tmp_path / "other")
    write(other, path)
    Branch(repository, HISTORY).add(other.root, [path], "Add one")
    home = Home(tmp_path / "home")
    with pytest.raises(BadInput, match="is not a path of the history"):
        branch.restore(home, repository)
    assert not home.root.exists()


def test_link_on_the_history_branch_is_refused(remote, clone, tmp_path):
    repository = clone("one")
    (repository / "runs").symlink_to("/etc")
    git(repository, "add", "runs")
    git(repository, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "--message", "link")
    git(repository, "push", "--quiet", "origin", f"HEAD:refs/heads/{HISTORY}")
    with pytest.raises(BadInput, match="'runs' is not a path"):
        branch.restore(Home(tmp_path / "home"), repository)


def test_pages_replace_those_of_their_folder_and_no_others(remote, clone, home):
    repository = clone("one")
    write(home, "reports/index.html", "old")
    write(home, "reports/gone.html")
    branch.site(home, "lockstep/pr-1", repository)
    branch.site(home, "lockstep/pr-10", repository)
    (home.root / "reports" / "gone.html").unlink()
    write(home, "reports/index.html", "new")
    branch.site(home, "lockstep/pr-1", repository)
    assert git(remote, "show", f"{PAGES}:lockstep/pr-1/index.html") == "new"
    assert git(remote, "show", f"{PAGES}:lockstep/pr-10/index.html") == "old"
    paths = listed(remote, PAGES)
    assert "lockstep/pr-1/gone.html" not in paths
    assert "lockstep/pr-10/gone.html" in paths


def test_pages_of_the_newest_runs_stay(remote, clone, home, monkeypatch):
    monkeypatch.setattr(branch, "MOST_RUNS", 2)
    repository = clone("one")
    for run_id in past_runs.RUN_IDS[:3]:
        write(home, f"reports/{run_id}/index.html")
        branch.site(home, "lockstep/main", repository)
        (home.reports / run_id / "index.html").unlink()  # the next job has a home of its own
    assert listed(remote, PAGES) == {f"lockstep/main/{run_id}/index.html" for run_id in past_runs.RUN_IDS[1:3]}


@pytest.mark.parametrize("folder", ["", ".", "..", "a/../b", "/a", "a/", ".git/hooks", "a//b"])
def test_folder_outside_the_branch_is_refused(clone, home, folder):
    write(home, "reports/index.html")
    with pytest.raises(BadInput, match="is not a folder of branch"):
        branch.site(home, folder, clone("one"))


def test_remote_that_refuses_is_named(remote, clone, home, monkeypatch):
    monkeypatch.setattr(branch, "ATTEMPTS", 1)
    hook = remote / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho read only >&2\nexit 1\n")
    hook.chmod(0o755)
    repository = clone("one")
    with pytest.raises(CommandFailed, match=f"branch {HISTORY}: git push: "):
        branch.save(home, repository)
    git(repository, "remote", "remove", "origin")
    with pytest.raises(CommandFailed, match="git ls-remote: "):
        branch.restore(home, repository)
