"""The commands about the Airflow that serves the pages: `ui`, `service` and `stop`."""

from __future__ import annotations

from typing import Annotated

import typer

from infra.airflow.home import DEFAULT_PORT

app = typer.Typer()
Port = Annotated[int, typer.Option(min=1, max=65535, metavar="N", help="Port on localhost.")]


@app.command()
def ui(port: Port = DEFAULT_PORT) -> int:
    """Start Airflow and the Lockstep pages on this machine, until Ctrl-C.

    The command prints the address, the login, and the folder of the logs.
    Airflow listens on localhost only.

    Examples:
        lockstep ui
        lockstep ui --port 8081
    """
    from infra.cli.ui import serve

    return serve(port)


@app.command()
def service(port: Port = DEFAULT_PORT) -> None:
    """Write a systemd user unit that runs `lockstep ui` in the background.

    The unit restarts the UI after a failure and after a reboot. The command
    starts nothing. It prints the commands that do.

    Examples:
        lockstep service
        lockstep service --port 8081
    """
    from infra.cli.service import service

    service(port)


@app.command()
def stop() -> int:
    """Stop the Airflow that `lockstep ui` started, from any terminal.

    Runs that are in progress stop too. Their pages say that you stopped
    them.

    Examples:
        lockstep stop
    """
    from infra.cli.ui import stop

    return stop()
