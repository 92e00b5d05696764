"""The build that a run records is the commit of its own checkout, or is unknown with a reason."""

from __future__ import annotations

import os

import pytest

from streaming_core.process import git
from streaming_core.run import provenance
from tests.support import checkout


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A checkout in a folder that is a repository too."""
    (tmp_path / "a").write_text("a")
    root = checkout.commit(tmp_path) / "inner"
    root.mkdir()
    (root / "pyproject.toml").write_text("")
    monkeypatch.setattr(provenance, "ROOT", root)
    return root


def test_build_of_a_checkout_of_another_user_is_its_commit(folder):
    checkout.commit(folder)
    commit = git(folder, "rev-parse", "--short", "HEAD").stdout.strip()
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, 65534 if os.geteuid() == 0 else -1, -1)
    assert provenance.build.__wrapped__() == commit
    (folder / "new").touch()
    assert provenance.build.__wrapped__() == f"{commit}-dirty"


def test_build_of_a_checkout_inside_another_repository_is_unknown_with_a_reason(folder, capfd):
    assert provenance.build.__wrapped__() == "unknown"
    (line,) = capfd.readouterr().err.splitlines()
    assert f"runs of {folder} have no commit to compare with (not a git repository" in line


def test_build_without_git_is_unknown_with_a_reason(folder, monkeypatch, capfd):
    monkeypatch.setenv("PATH", "")
    assert provenance.build.__wrapped__() == "unknown"
    assert "(git: No such file or directory)" in capfd.readouterr().err


def test_build_of_a_wheel_in_a_repository_is_unknown(folder, capfd):
    (folder / "pyproject.toml").unlink()
    assert provenance.build.__wrapped__() == "unknown"
    assert capfd.readouterr().err == ""
