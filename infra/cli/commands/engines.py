"""The group `engines`: engines beside Lockstep's own."""

from __future__ import annotations

from typing import Annotated

import typer

from streaming_core.cli.options import Json

app = typer.Typer(
    help="Engines beside Lockstep's own: list them, install them, and begin a new one. A run names them as executors."
)
EngineName = Annotated[str, typer.Argument(metavar="NAME", help="An engine, as `lockstep engines list` shows it.")]


@app.command("list")
def list_engines(as_json: Json = False) -> None:
    """List the engines, their applications, and which are installed here.

    Examples:
        lockstep engines list
    """
    from infra.cli.engines import show_list

    show_list(as_json)


@app.command("install")
def install_engines(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Engines, as `lockstep engines list` shows.")],
) -> None:
    """Make the environment of an engine, from its lock.

    The environment is the folder .environment in the engine's folder.
    Remove it to uninstall the engine.

    Examples:
        lockstep engines install polars
    """
    from rich.console import Console

    from infra.cli.engines import install

    install(names, Console(stderr=True))


@app.command("lock")
def lock_engine(name: EngineName) -> None:
    """Resolve an engine's requirements.in into its requirements.lock.

    Examples:
        lockstep engines lock polars
    """
    from infra.services.engines import lock

    print(f"wrote {lock(name)}")


@app.command("new")
def new_engine(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the new engine.")],
) -> None:
    """Write the skeleton of a new engine, which runs application wc, and its test.

    Examples:
        lockstep engines new mine
    """
    from infra.cli.engines import new

    new(name)
