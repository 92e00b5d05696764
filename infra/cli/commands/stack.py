"""The group `stack`: the production topology on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streaming_core.cli.options import Json

app = typer.Typer(
    help="Run the production topology on this machine: Airflow on PostgreSQL with two Celery workers, a Spark cluster "
    "and an SSH host."
)
StackFolder = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The folder of the stack. Default: .stack in the checkout.")
]


@app.command()
def up(
    folder: StackFolder = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, metavar="N", help="Port of Airflow's pages. Default: a free one.")
    ] = None,
) -> None:
    """Start the topology, and wait until each part is ready.

    Every part listens on loopback, and writes below one folder only. The
    programs come from Debian's packages and from .venv. The command prints
    the time of each step, the address and the file of the password.

    Examples:
        lockstep stack up
        lockstep stack up --folder /srv/stack --port 8090
    """
    from infra.cli import stack

    stack.up(folder or stack.DEFAULT, port)


@app.command()
def down(folder: StackFolder = None) -> None:
    """End every process of the topology. Its files stay.

    Examples:
        lockstep stack down
    """
    from infra.cli import stack

    stack.down(folder or stack.DEFAULT)


@app.command()
def status(folder: StackFolder = None, as_json: Json = False) -> int:
    """Print the state, the process and the address of each program.

    The command exits with 1 unless every program runs.

    Examples:
        lockstep stack status --json
    """
    from infra.cli import stack

    return stack.status(folder or stack.DEFAULT, as_json)


@app.command("test")
def try_stack(folder: StackFolder = None) -> int:
    """Run regressions on the topology, and kill parts of it meanwhile.

    The first run is undisturbed. During the second, the command kills a
    Spark worker in the middle of a stage, and during the third the
    scheduler. The command prints the time of each step. It exits with 1
    unless every run is green.

    Examples:
        lockstep stack up && lockstep stack test
    """
    from infra.cli import stack

    return stack.test(folder or stack.DEFAULT)
