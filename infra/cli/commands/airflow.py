"""The command `airflow`: Airflow itself, with the settings of this checkout."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer()


@app.command(context_settings={"ignore_unknown_options": True})
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
    from infra.cli.airflow import airflow

    airflow(arguments)
