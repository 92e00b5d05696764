"""`lockstep checkpoint`: list, show, export and import the checkpoints of a run that was interrupted, or is at work."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from streaming_core.cli.options import Json
from streaming_core.cli.output import show as show_json
from streaming_core.errors import BadInput

app = typer.Typer(help="List the checkpoints of a run folder, show one, and take the newest to another host.")
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="A run folder.")]
PLACES = (".run/checkpoints", ".live/checkpoints")  # of a bounded run, and of a live run


def _paths(out: Path) -> list[Path]:
    """The checkpoints of a run folder, the newest first; raises BadInput if there are none."""
    from streaming_core.run.checkpoint import file

    if not out.is_dir():
        raise BadInput(f"{out} is not a folder")
    paths = [path for place in PLACES for path in file.paths(out / place)]
    if not paths:
        raise BadInput(f"{out} has no checkpoints: it has no run that was interrupted")
    return paths


def _facts(path: Path) -> dict[str, Any]:
    """The facts about a checkpoint, as `list` prints them."""
    from streaming_core.run.checkpoint import file

    facts: dict[str, Any] = {"events": int(path.name[-15:])}
    try:
        checkpoint = file.read(path)
        facts |= {
            "bytes": path.stat().st_size,
            "time": f"{datetime.fromtimestamp(checkpoint.time, UTC):%Y-%m-%dT%H:%M:%SZ}",
            "state_bytes": checkpoint.size,
            "parts": len(checkpoint.parts),
            "new_parts": sum(part.file == path.name for part in checkpoint.parts),
        }
        file.check(path.parent, checkpoint)
    except (file.Damage, FileNotFoundError) as damage:  # a run at work removes old ones
        return facts | {"sound": False, "damage": str(damage)}
    return facts | {"sound": True}


@app.command("list")
def list_checkpoints(folder: Folder, as_json: Json = False) -> None:
    """List the checkpoints of a run, the newest first, and whether they are sound.

    Examples:
        lockstep checkpoint list long/run
    """
    rows = [_facts(path) for path in _paths(folder)]
    if as_json:
        show_json(rows)
        return
    _print(
        ("events", "time", "bytes", "of state", "parts", "new", "sound"),
        [
            (
                *(row.get(name, "") for name in ("events", "time", "bytes", "state_bytes", "parts", "new_parts")),
                row.get("damage", "yes"),
            )
            for row in rows
        ],
    )


@app.command("show")
def show_checkpoint(
    folder: Folder,
    event: Annotated[int | None, typer.Argument(metavar="EVENT", help="Its events. Default: the newest.")] = None,
    as_json: Json = False,
) -> None:
    """Show the states in a checkpoint: their fields, parts and bytes.

    Examples:
        lockstep checkpoint show long/run
        lockstep checkpoint show long/run 120000
    """
    from streaming_core.run.checkpoint import file

    paths = _paths(folder)
    known = {int(path.name[-15:]): path for path in paths}
    path = known.get(event) if event is not None else paths[0]
    if path is None:
        raise BadInput(f"{folder} has no checkpoint at event {event}; it has {', '.join(map(str, known))}")
    try:
        checkpoint = file.read(path)
    except file.Damage as damage:
        raise BadInput(f"{path} is damaged: {damage}") from None
    names = dict.fromkeys([*checkpoint.states, *(part.name for part in checkpoint.parts)])
    parts = {name: [part for part in checkpoint.parts if part.name == name] for name in names}
    states: list[dict[str, Any]] = [
        {"name": name, "parts": len(of), "bytes": sum(part.size for part in of), "fields": checkpoint.states.get(name)}
        for name, of in parts.items()
    ]
    if as_json:
        facts = {name: getattr(checkpoint, name) for name in ("about", "way", "resumed", "outputs")}
        show_json(_facts(path) | facts | {"states": states})
        return
    way = checkpoint.way
    print(f"event {checkpoint.events}, {checkpoint.outputs} files of outputs, executor {way.get('executor')}")
    rows = []
    for state in states:
        fields = ", ".join(f"{name} {kind}" for name, kind in state["fields"] or ())
        rows.append((state["name"], state["parts"], state["bytes"], fields))
    _print(("state", "parts", "bytes", "fields"), rows)


@app.command("export")
def export_checkpoint(
    folder: Folder, out: Annotated[Path, typer.Argument(metavar="OUT", help="File to write.")]
) -> None:
    """Write the newest sound checkpoint into one file, with the outputs before it.

    The run may be at work meanwhile.

    Examples:
        lockstep checkpoint export long/run run.checkpoint
    """
    from streaming_core.run.checkpoint import transfer

    checkpoint = transfer.export(folder, out)
    print(f"wrote the checkpoint at event {checkpoint.events} to {out}")


@app.command("import")
def import_checkpoint(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `lockstep checkpoint export` wrote.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Run folder to write: new or empty.")],
) -> None:
    """Make a run folder of an exported checkpoint. `streaming-core run` resumes it.

    Examples:
        lockstep checkpoint import run.checkpoint long/again
    """
    from streaming_core.run.checkpoint import transfer

    checkpoint = transfer.import_(source, folder)
    app_name, executor = checkpoint.way.get("app"), checkpoint.way.get("executor")
    print(f"{folder} has {app_name} on {executor} at event {checkpoint.events}: resume it with streaming-core run")


def _print(titles: tuple[str, ...], rows: list[tuple]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, no_wrap=title not in ("fields", "sound"))
    for row in rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in row))
    Console(markup=False, highlight=False).print(table)
