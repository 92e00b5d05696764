"""A copy of this checkout with its own environment, for tests that change files like a user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from infra.checkout import ROOT
from infra.stack.release import copy_files, make_environment

# The results of `make setup`. With them, `make setup` does nothing in the copy.
STAMPS = (".locked", ".runtime")


def copy(folder: Path) -> Path:
    """Copy the checkout as `track` does, and make it usable as `equip` does.

    Returns:
        The folder.
    """
    return equip(track(folder))


def track(folder: Path) -> Path:
    """Copy the files that git tracks or would track into a repository of one commit.

    Returns:
        The folder.
    """
    copy_files(folder)
    return commit(folder)


def commit(folder: Path) -> Path:
    """Commit everything in a folder, which becomes a repository if necessary.

    Returns:
        The folder.
    """
    settings = ("-c", "user.name=A User", "-c", "user.email=user@example.org", "-c", "core.hooksPath=/dev/null")
    _git(folder, "init", "--quiet")
    _git(folder, "add", "--all")
    _git(folder, *settings, "commit", "--quiet", "--message", "all")
    return folder


def equip(folder: Path) -> Path:
    """Give a copy the runtime and a virtual environment: its modules are the copy's, its packages those of this one.

    Returns:
        The folder.
    """
    (runtime,) = (ROOT / "streaming_core").glob("_runtime*.so")
    shutil.copy2(runtime, folder / "streaming_core")
    make_environment(folder)
    for stamp in STAMPS:
        (folder / ".venv" / stamp).touch()
    return folder


def environment(folder: Path) -> dict[str, str]:
    """The variables of a shell in the copy, without those that lead to another checkout."""
    unwanted = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LOCKSTEP_", "AIRFLOW_", "SPARK_", "PYTEST_", "MAKE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    here = [path for path in kept["PATH"].split(os.pathsep) if Path(path) != Path(sys.executable).parent]
    kept["PATH"] = os.pathsep.join([str(folder / ".venv" / "bin"), *here])
    return kept


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout
