"""A copy of this checkout with an environment of its own, for tests that change files as a user does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = Path(sysconfig.get_path("purelib"))
# What `make setup` makes; with it, `make setup` has nothing to do in the copy.
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
    listed = _git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return commit(folder)


def commit(folder: Path) -> Path:
    """Commit everything in a folder, which becomes a repository if it is none.

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
    _make_environment(folder)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """The variables of a shell in the copy, without those that lead to another checkout."""
    unwanted = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LOCKSTEP_", "AIRFLOW_", "SPARK_", "PYTEST_", "MAKE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    here = [path for path in kept["PATH"].split(os.pathsep) if Path(path) != Path(sys.executable).parent]
    kept["PATH"] = os.pathsep.join([str(folder / ".venv" / "bin"), *here])
    return kept


def _make_environment(folder: Path) -> None:
    venv = folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    # In this order: modules of the copy come before those that the packages' own .pth files lead to.
    (packages / "copy.pth").write_text(f"{folder}\nimport site; site.addsitedir({str(PACKAGES)!r})\n")
    for script in Path(sys.executable).parent.iterdir():
        target = venv / "bin" / script.name
        if target.exists() or not script.is_file():
            continue
        if script.is_symlink():
            target.symlink_to(os.readlink(script))
        else:
            content = script.read_bytes()
            target.write_bytes(content.replace(str(ROOT / ".venv").encode(), str(venv).encode()))
            shutil.copymode(script, target)
    for stamp in STAMPS:
        (venv / stamp).touch()


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout
