"""`lockstep airflow`: run any command of Airflow in the environment of this checkout."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from infra.airflow import home as airflow_home
from infra.airflow.api import passwords


def airflow(arguments: Sequence[str]) -> NoReturn:
    """Prepare AIRFLOW_HOME, then become the command.

    Raises:
        RunFailed: The database could not be prepared.
    """
    airflow_home.prepare(airflow_home.location() / "logs" / "components" / "prepare.log")
    passwords()
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", "airflow", *arguments], airflow_home.environment())
