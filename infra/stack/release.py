"""The release of a stack: a copy of the checkout, from which all its programs run.

A run takes hours, and `git pull` changes a checkout in a second. So the stack never runs from the checkout. When it
starts, it copies the checkout, uncommitted changes included. Every run uses that copy from start to end. The packages
are those of the checkout's environment: do not change them with `make setup` while the stack is up.

Airflow's own GitDagBundle would pin the files of the DAGs alone. Jobs and engine would still come from the checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from infra.checkout import ROOT
from streaming_core.errors import BadInput
from streaming_core.process import git

PACKAGES = Path(sysconfig.get_path("purelib"))


def make(target: Path) -> None:
    """Replace a folder by a copy of the checkout with its own environment.

    Raises:
        BadInput: the checkout is no git repository.
    """
    shutil.rmtree(target, ignore_errors=True)
    cloned = git(ROOT, "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(target))
    if cloned.returncode:
        raise BadInput(f"{ROOT} is no git repository, so the stack cannot copy it: {cloned.stderr.strip()}")
    copy_files(target)
    git(target, "reset", "--quiet")  # git then sees what was changed, and what was not
    make_environment(target)


def copy_files(target: Path) -> None:
    """Copy the files that git tracks or would track, and the built runtime."""
    listed = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").stdout
    (runtime,) = (ROOT / "streaming_core").glob("_runtime*.so")
    for name in [*filter(None, listed.split("\0")), str(runtime.relative_to(ROOT))]:
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def make_environment(target: Path) -> None:
    """Make a virtual environment in a copy: its own modules are the copy's, its packages those of this environment."""
    venv = target / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    # In this order: modules of the copy come before those that the packages' own .pth files lead to.
    (packages / "copy.pth").write_text(f"{target}\nimport site; site.addsitedir({str(PACKAGES)!r})\n")
    here = Path(sys.executable).parent
    for script in here.iterdir():
        copy = venv / "bin" / script.name
        if copy.exists() or not script.is_file():
            continue
        if script.is_symlink():
            copy.symlink_to(os.readlink(script))
        else:
            copy.write_bytes(script.read_bytes().replace(str(here.parent).encode(), str(venv).encode()))
            shutil.copymode(script, copy)
