"""Imports a user's files, for `lockstep import` and the DAG `import_data`: reads requests, and describes results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs import import_events
from streaming_core.apps import registry
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from streaming_core.regression.provenance import excess
from streaming_core.regression.request import IMPORT_NAME

SHOWN = 10  # reasons that are printed


@dataclass(frozen=True)
class Form:
    """A request as a user writes it: in the options of `lockstep import`, or in the form of the DAG.

    Attributes:
        app: The application.
        files: Files and folders, if the application has one source.
        streams: `NAME=PATH` for each stream, if the application has several.
        mapping: `FIELD=COLUMN` for fields whose column has another name.
        unit: Unit of integer fields that are read from timestamps.
        separator: Character between the columns of CSV.
        params: Parameters that differ from the application's defaults.
        tolerance: The share of the rows that may be set aside without a warning.
    """

    app: str
    files: Sequence[Path] = ()
    streams: Sequence[str] = ()
    mapping: Sequence[str] = ()
    unit: str | None = None
    separator: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 0.0


def folder_of(home: Home, app: str, name: str) -> Path:
    """The folder of a new import with this name.

    Raises:
        BadInput: The name is invalid or taken.
    """
    if not IMPORT_NAME.fullmatch(name):
        raise BadInput(
            f"--name {name!r}: use at most 61 letters, digits, '_', '-' and '.'; begin with a letter or a digit"
        )
    out = home.imported(registry.load(app).name, name)
    import_events.check_out(out)
    return out


def request(form: Form, roots: Sequence[Path] | None = None) -> import_events.Request:
    """Check a request before Spark starts.

    Args:
        form: The request.
        roots: The folders that may be read; a relative path starts at the first one. None means every folder, and a
            relative path starts at the working directory.

    Raises:
        BadInput: The request is invalid.
    """
    app, start = registry.load(form.app), roots[0] if roots else Path()
    if bool(form.files) == bool(form.streams):
        raise BadInput("give either files, or --stream NAME=PATH for each stream of the application")
    named: list[Path] | dict[str, Path] = [start / path for path in form.files]
    if form.streams:
        streams = _pairs("--stream", form.streams, "NAME=PATH, for example --stream Left=left.csv")
        named = {name: start / path for name, path in streams.items()}
    return import_events.request(
        app,
        app.bind(form.params),
        named,
        columns(form.mapping),
        form.unit,
        form.separator,
        roots,
        form.tolerance,
    )


def columns(mapping: Sequence[str]) -> dict[str, str]:
    """Field -> column, from the texts of `--map`."""
    return _pairs("--map", mapping, "FIELD=COLUMN, for example --map line=body")


def _pairs(option: str, texts: Sequence[str], form: str) -> dict[str, str]:
    """Read an option that is repeated, as NAME=VALUE.

    Raises:
        BadInput: A text has another form, or a name occurs twice.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise BadInput(f"{option} {text!r}: write {form}")
        if name in values:
            raise BadInput(f"{option} {text!r}: {name} already has the value {values[name]!r}")
        values[name] = value
    return values


def lines(out: Path, manifest: dict[str, Any]) -> list[str]:
    """The lines that tell people what became of the rows.

    Args:
        out: The folder of the import.
        manifest: Its manifest.
    """
    imported = manifest["imported"]
    files = ", ".join(imported["files"]) if len(imported["files"]) == 1 else f"{len(imported['files'])} files"
    events, read = (
        f"{n:,} {what}{'s' * (n != 1)}" for n, what in ((manifest["events"], "event"), (imported["rows"], "row"))
    )
    texts = [f"{out}: {events} for {manifest['app']}, from {read} of {files}", *_aside(out, imported["aside"])]
    return [*texts, f"warning: set aside {text}"] if (text := excess(imported)) else texts


def live_lines(out: Path, imported: dict[str, Any]) -> list[str]:
    """The lines that tell people what became of the files and rows of a live source.

    Args:
        out: The workload.
        imported: The entry of its manifest.
    """
    left, aside = imported.get("left", []), sum(one["rows"] for one in imported["aside"])
    counts = {"files": (len(imported["files"]), len(left)), "rows": (imported["rows"] - aside, aside)}
    if "://" in imported["source"]:  # a topic has no files
        del counts["files"]
    texts = [
        f"{read + other:,} {what} seen, {read:,} read, {other:,} set aside" for what, (read, other) in counts.items()
    ]
    lines = [f"source: {'; '.join(texts)}", *_aside(out, imported["aside"])]
    lines += [f"not read: {text}" for text in left[:SHOWN]]
    if len(left) > SHOWN:
        lines.append(f"and {len(left) - SHOWN} more files: see {out / 'manifest.json'}")
    return lines


def _aside(out: Path, aside: list[dict[str, Any]]) -> list[str]:
    lines = []
    if aside:
        rows = sum(one["rows"] for one in aside)
        lines.append(f"set aside {rows:,} row{'s' * (rows > 1)}, kept in {out / 'aside'}:")
    for one in aside[:SHOWN]:
        lines.append(f"{one['rows']:>12,}  {one['reason']} (first: {one['file']}, row {one['row']})")
    if len(aside) > SHOWN:
        lines.append(f"{'':>12}  and {len(aside) - SHOWN} more reasons: see {out / 'manifest.json'}")
    return lines
