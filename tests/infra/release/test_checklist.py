"""The release checklist, in a small repository that each test spoils in one place."""

import subprocess

import pytest

from infra.checkout import ROOT
from infra.release import checklist, smoke
from infra.release.checklist import Release
from streaming_core.errors import CommandFailed

FILES = {
    "pyproject.toml": '[project]\nname = "lockstep"\nversion = "1.2.3"\n',
    "streaming_core/runtime/Cargo.toml": '[package]\nname = "runtime"\nversion = "1.2.3"\n',
    "Cargo.lock": '[[package]]\nname = "runtime"\nversion = "1.2.3"\n',
    "CHANGELOG.md": "# Changelog\n\n## 1.2.3 (2026-11-27)\n\n- Faster.\n- Smaller.\n\n## 1.2.2 (2026-01-01)\n\n- A.\n",
}
CHEAP = (checklist.clean, checklist.versions, checklist.changelog)


def git(folder, *arguments):
    settings = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", *settings, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "checkout"
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(tmp_path, "init", "--quiet", "checkout")
    commit(folder)
    return folder


def commit(folder):
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "Change")


def release(folder):
    return Release.of(folder, folder / "dist")


def test_a_repository_that_is_ready_passes(repository):
    git(repository, "tag", "v1.2.3")
    assert [item(release(repository)) for item in CHEAP][1:] == ["1.2.3", "2026-11-27, 2 entries"]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("Cargo.lock", "1.2.3", "1.2.2", "Cargo.lock has version 1.2.2, and pyproject.toml has 1.2.3"),
        ("streaming_core/runtime/Cargo.toml", "1.2.3", "2.0.0", "Cargo.toml has version 2.0.0"),
        ("CHANGELOG.md", "## 1.2.3 (2026-11-27)", "## Unreleased", "its newest section is 'Unreleased'"),
        ("CHANGELOG.md", "- Faster.\n- Smaller.\n", "", "is empty: say what a user notices"),
    ],
)
def test_a_file_that_disagrees_fails_one_item(repository, file, old, new, message):
    path = repository / file
    path.write_text(path.read_text().replace(old, new))
    commit(repository)
    reasons = []
    for item in CHEAP:
        try:
            item(release(repository))
        except CommandFailed as error:
            reasons.append(str(error))
    assert len(reasons) == 1
    assert message in reasons[0]


def test_a_changed_file_must_be_committed(repository):
    (repository / "new.txt").write_text("text")
    with pytest.raises(CommandFailed, match=r"1 files are not committed, among them new\.txt"):
        checklist.clean(release(repository))


def test_a_tag_at_another_commit_is_refused(repository):
    git(repository, "tag", "v1.2.3")
    commit(repository)
    with pytest.raises(CommandFailed, match=r"the tag v1\.2\.3 is at another commit: raise the version"):
        checklist.versions(release(repository))


def test_a_failed_item_does_not_stop_the_others(repository, monkeypatch, capsys):
    items = [("first", checklist.clean), ("second", checklist.versions)]
    monkeypatch.setattr(checklist, "items", lambda tests: items)
    (repository / "new.txt").write_text("text")
    assert not checklist.check(release(repository), tests=False)
    lines = capsys.readouterr().out.split("\r")[-1].splitlines()
    assert lines[0].startswith("second          ok   1.2.3 (")
    assert lines[-1] == "1 of 2 items do not hold"
    commit(repository)
    assert checklist.check(release(repository), tests=False)
    assert "git tag --annotate v1.2.3" in capsys.readouterr().out


def test_a_damaged_wheel_fails_the_smoke_test(tmp_path):
    (python,) = smoke.interpreters(["3.11"]).values()
    (tmp_path / "lockstep-0.1.0-py3-none-any.whl").write_bytes(b"no wheel")
    with pytest.raises(CommandFailed, match=r"pip install .* ended with exit code"):
        smoke.run(tmp_path / "lockstep-0.1.0-py3-none-any.whl", python)


@pytest.mark.slow
def test_the_wheel_of_this_checkout_runs_far_from_it(tmp_path):
    line = checklist.smoke_test(Release.of(ROOT, tmp_path))
    assert line.startswith("lockstep-")
    assert (tmp_path / "SHA256SUMS").is_file()
