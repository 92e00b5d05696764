"""The folder of this checkout, LOCKSTEP_HOME, and the user of this process."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from streaming_core.regression.home import Home

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / ".lockstep-build" / "site"  # the documentation site that `make docs` builds
MATRICES = ROOT / "dags" / "matrices"


def home() -> Home:
    """LOCKSTEP_HOME: from the environment, else `.lockstep` in the checkout, whatever the working directory."""
    return Home(os.environ.get("LOCKSTEP_HOME") or ROOT / ".lockstep")


def user() -> str:
    """The name of the user that runs this process, by its real user id. Environment variables can claim any name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # an id without an account, as in some containers
        return f"uid {os.getuid()}"
