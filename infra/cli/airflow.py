"""`lockstep airflow`: run any command of Airflow in the environment of this checkout."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from infra.airflow import airflow_home


def airflow(
    arguments: Annotated[
        list[str], typer.Argument(metavar="ARGUMENTS", help="A command of Airflow, with its options.")
    ],
) -> None:
    """Run a command of Airflow with the settings of this checkout.

    The first use prepares AIRFLOW_HOME: settings, database and connections.
    Each component of a deployment is one such command.

    Examples:
        lockstep airflow connections list
        lockstep airflow celery worker
    """
    from infra.airflow.api_server import passwords

    airflow_home.prepare(airflow_home.location() / "logs" / "components" / "prepare.log")
    passwords()
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", "airflow", *arguments], airflow_home.environment())
