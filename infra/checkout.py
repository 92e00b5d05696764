"""The folder of this checkout, LOCKSTEP_HOME, the folders of imports and backups, and the user of this process."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from streaming_core.errors import BadInput
from streaming_core.regression.home import Home

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / ".lockstep-build" / "site"  # the documentation site that `make docs` builds
MATRICES = ROOT / "dags" / "matrices"
LOCK_FILE = "requirements/runtime.lock"  # the packages that a run has


def home() -> Home:
    """LOCKSTEP_HOME: from the environment, else `.lockstep` in the checkout, whatever the working directory."""
    return Home(os.environ.get("LOCKSTEP_HOME") or ROOT / ".lockstep")


def import_roots() -> list[Path]:
    """The folders that the DAG `import_data` may read: LOCKSTEP_IMPORT_ROOTS, else `inbox` in LOCKSTEP_HOME."""
    folders = [folder for folder in os.environ.get("LOCKSTEP_IMPORT_ROOTS", "").split(os.pathsep) if folder]
    return [ROOT / folder for folder in folders] or [home().root / "inbox"]


def backups() -> Path:
    """The folder for the backups of the DAG `back_up_history`: LOCKSTEP_BACKUPS.

    Raises:
        BadInput: The setting or the folder is missing.
    """
    folder = os.environ.get("LOCKSTEP_BACKUPS")
    if not folder:
        raise BadInput("LOCKSTEP_BACKUPS is not set: name a folder for backups in .env, and restart Airflow")
    if not (ROOT / folder).is_dir():
        raise BadInput(f"LOCKSTEP_BACKUPS={folder} is not a folder: create it, or name another one")
    return ROOT / folder


def user() -> str:
    """The name of the user that runs this process, by its real user id. Environment variables can claim any name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # an id without an account, as in some containers
        return f"uid {os.getuid()}"
