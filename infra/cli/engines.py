"""`lockstep engines`: list, install, lock and begin engines beside Lockstep's own."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from infra.checkout import ROOT
from streaming_core.engines import environment, registry
from streaming_core.errors import BadInput

app = typer.Typer(
    help="Engines beside Lockstep's own: list them, install them, and begin a new one. A run names them as executors."
)
EngineName = Annotated[str, typer.Argument(metavar="NAME", help="An engine, as `lockstep engines list` shows it.")]


@app.command("list")
def list_engines() -> None:
    """List the engines, their applications, and which are installed here.

    Examples:
        lockstep engines list
    """
    names = registry.names()
    if not names:
        print(f"there is no engine in {registry.folder()}; type `lockstep engines new NAME`")
        return
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in ("engine", "system", "applications", "state"):
        table.add_column(title, no_wrap=title != "state")
    for name in names:
        table.add_row(name, *_row(name))
    Console().print(table)


def _row(name: str) -> tuple[str, str, str]:
    """The system of an engine, its applications, and whether it can run here."""
    try:
        engine = registry.load(name)
    except BadInput as error:
        return "", "", str(error)
    state = environment.complaint(engine) or "installed"
    return engine.manifest.system, ", ".join(engine.manifest.applications), state.removeprefix(f"engine {name} ")


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
    from infra.engines.installation import install

    console = Console(stderr=True)
    for name in dict.fromkeys(names):
        registry.load(name)
    for name in dict.fromkeys(names):
        with console.status(f"installing {name}"):
            install(name, lambda line: console.print(line, highlight=False, soft_wrap=True))
        print(f"engine {name} is ready: type `lockstep run --executors {name}`")


@app.command("lock")
def lock_engine(name: EngineName) -> None:
    """Resolve an engine's requirements.in into its requirements.lock.

    Examples:
        lockstep engines lock polars
    """
    from infra.engines.installation import lock

    print(f"wrote {lock(name)}")


@app.command("new")
def new_engine(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the new engine.")],
) -> None:
    """Write the skeleton of a new engine, which runs application wc, and its test.

    Examples:
        lockstep engines new mine
    """
    from infra.engines.installation import new

    for path in new(name):
        print(f"wrote {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")
    print(f"next: lockstep engines install {name}, then lockstep conformance --engine {name}")
