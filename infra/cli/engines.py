"""`lockstep engines`: list, install, lock and begin engines beside Lockstep's own."""

from __future__ import annotations

import json

from rich.console import Console
from rich.table import Table

from infra.checkout import ROOT
from infra.services import engines
from streaming_core.engines import environment, registry
from streaming_core.errors import BadInput


def show_list(as_json: bool) -> None:
    """Print each engine: its description, its applications, and whether it can run here."""
    rows = [_row(name) for name in registry.names()]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    if not rows:
        print(f"there is no engine in {registry.folder()}; type `lockstep engines new NAME`")
        return
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in ("engine", "system", "applications", "state"):
        table.add_column(title, no_wrap=title != "state")
    for row in rows:
        table.add_row(row["name"], row["system"], ", ".join(row["applications"]), row["state"])
    Console().print(table)


def _row(name: str) -> dict:
    try:
        engine = registry.load(name)
    except BadInput as error:
        return {"name": name, "system": "", "applications": {}, "state": str(error)}
    state = environment.complaint(engine) or "installed"
    return {
        "name": name,
        "system": engine.manifest.system,
        "applications": engine.manifest.applications,
        "state": state.removeprefix(f"engine {name} "),
    }


def install(names: list[str], console: Console) -> None:
    """Install these engines, one after the other."""
    for name in dict.fromkeys(names):
        registry.load(name)
    for name in dict.fromkeys(names):
        with console.status(f"installing {name}"):
            engines.install(name, lambda line: console.print(line, highlight=False, soft_wrap=True))
        print(f"engine {name} is ready: type `lockstep run --executors {name}`")


def new(name: str) -> None:
    """Begin an engine, and say what to do next."""
    for path in engines.new(name):
        print(f"wrote {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")
    print(f"next: lockstep engines install {name}, then lockstep conformance --engine {name}")
