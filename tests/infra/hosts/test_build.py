"""Commits are built in a worktree that is gone afterwards, whole or not at all, and once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra.checkout import ROOT
from infra.hosts import build
from streaming_core.errors import BadInput, RunFailed
from streaming_core.regression.home import Home
from tests.infra.hosts import small_repository
from tests.infra.hosts.small_repository import git
from tests.support.waiting import wait_for

# `at_commit` in a process of its own: REPOSITORY HOME COMMIT.
AT_COMMIT = """
import sys
from pathlib import Path
from infra.hosts import build
from streaming_core.process import ending
from streaming_core.regression.home import Home

build.ROOT = Path(sys.argv[1])
ending.end("gate", lambda: print(build.at_commit(Home(sys.argv[2]), sys.argv[3], "it", print).name))
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return small_repository.make(tmp_path_factory.mktemp("small") / "repository")


@pytest.fixture
def repository(whole, monkeypatch) -> Path:
    return small_repository.replace_checkout(whole, monkeypatch)


@pytest.fixture
def home(tmp_path) -> Home:
    return Home(tmp_path / "home")


def start(repository: Path, home: Home, tag: str, **environment: str) -> subprocess.Popen:
    command = [sys.executable, "-c", AT_COMMIT, str(repository), str(home.root), build.resolve(tag)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes)


def assert_nothing_is_left(repository: Path, home: Home) -> None:
    assert list(home.build("x").parent.glob("*")) == []
    assert list(home.build("x").parent.glob(".*")) == []
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_branch_a_tag_and_a_hash_name_a_commit(repository):
    git(repository, "tag", "--force", "--annotate", "--message", "x", "annotated", "v1")
    commit = git(repository, "rev-parse", "v1")
    assert [build.resolve(ref) for ref in ("v1", "annotated", "HEAD", commit, commit[:8], "slow~1")] == [commit] * 6
    assert build.resolve("main") == git(repository, "rev-parse", "bare")


@pytest.mark.parametrize("ref", ["nosuch", "", "-rf", "--all", "HEAD:streaming_core", "v1\n", "v1..slow", "a b"])
def test_unknown_ref_is_bad_input(repository, ref):
    with pytest.raises(BadInput, match=r"is not a commit of .* name a branch, a tag or a commit") as error:
        build.resolve(ref)
    assert "\n" not in str(error.value)


def test_folder_without_git_has_no_commits(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "ROOT", tmp_path)
    with pytest.raises(BadInput, match="not a git repository"):
        build.resolve("HEAD")


@pytest.mark.slow
def test_commit_is_built_once_from_its_sources_and_the_checkout_is_unchanged(repository, home):
    lines: list[str] = []
    commit = build.resolve("slow")
    built = build.at_commit(home, commit, "slow", lines.append)
    assert [line.partition(" slow ")[0] for line in lines] == ["building", "built"]
    assert built == build.Build(commit, home.build(commit))
    assert (built.tree / "streaming_core" / "answer").read_text() == '{"seconds": 0.5}', "the checkout is at v1"
    where = "import streaming_core._runtime as runtime; print(runtime.__file__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", where], env=os.environ | built.environment, capture_output=True, text=True
    )
    assert Path(done.stdout.strip()).parent == built.tree / "streaming_core", done.stderr
    assert git(repository, "status", "--porcelain") == ""
    assert not (repository / "target").exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert [path.name for path in home.build("x").parent.iterdir()] == [commit]

    again = build.at_commit(home, commit, "slow", lambda line: pytest.fail(line))
    assert again == built


@pytest.mark.slow
def test_one_of_two_processes_builds_a_commit(repository, home):
    both = [start(repository, home, "v1") for _ in range(2)]
    ended = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], ended
    assert sum(out.count("built it in") for out, _ in ended) == 1
    assert home.build(build.resolve("v1")).is_dir()


@pytest.mark.slow
def test_compile_failure_is_one_line_with_the_first_error(repository, home):
    with pytest.raises(RunFailed) as error:
        build.at_commit(home, build.resolve("broken"), "broken", lambda line: None)
    assert str(error.value).startswith("building broken failed: error[E0425]: cannot find value `NOSUCH`")
    assert str(error.value).endswith("(src/lib.rs:19:31)")
    assert_nothing_is_left(repository, home)


def test_commit_without_a_crate_names_the_missing_crate(repository, home):
    with pytest.raises(RunFailed, match=r"^building bare failed: .*Cargo\.toml"):
        build.at_commit(home, build.resolve("bare"), "bare", lambda line: None)
    assert_nothing_is_left(repository, home)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_the_compiler_and_leaves_nothing(repository, home, tmp_path, number, code):
    started, pipe = tmp_path / "started", tmp_path / "pipe"
    os.mkfifo(pipe)
    process = start(repository, home, "endless", STARTED=str(started), PIPE=str(pipe))
    try:
        wait_for(started.exists, 120)
        process.send_signal(number)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, error.count("\n")) == (code, 1), error
    assert_nothing_is_left(repository, home)
    with pytest.raises(OSError, match="No such device"):  # the pipe has no reader: the compiler is gone
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)


@pytest.mark.slow
def test_worktree_of_a_killed_process_is_replaced(repository, home):
    commit = build.resolve("v1")
    left = home.build(commit).with_name(f".{commit}.tree")
    left.parent.mkdir(parents=True)
    git(repository, "worktree", "add", "--quiet", "--detach", str(left), "slow")
    built = build.at_commit(home, commit, "v1", lambda line: None)
    assert (built.tree / "streaming_core" / "answer").read_text() == "{}"
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_commit_has_its_locked_environment(repository):
    assert build.environment(build.resolve("v1")) == build.environment()
    assert build.environment(build.resolve("slow")) != build.environment()
