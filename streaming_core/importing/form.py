"""Reads requests to import a user's files, and describes the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from streaming_core.apps import registry
from streaming_core.data.workload import Manifest
from streaming_core.errors import BadInput
from streaming_core.importing import events
from streaming_core.regression.home import Home
from streaming_core.regression.provenance import excess
from streaming_core.regression.request import IMPORT_NAME

SHOWN = 10  # reasons that are printed


@dataclass(frozen=True)
class Form:
    """A request as a user writes it: in the options of `lockstep import`, or in the form of the DAG.

    Attributes:
        app: The application.
        files: Files and folders; `NAME=PATH` for each stream, if the application has several.
        mapping: `FIELD=COLUMN` for fields whose column has another name.
        separator: Character between the columns of CSV.
        params: Parameters that differ from the application's defaults.
        tolerance: The share of the rows that may be set aside without a warning; None refuses a file with such a row.
    """

    app: str
    files: Sequence[str]
    mapping: Sequence[str] = ()
    separator: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    tolerance: float | None = 0.0


def folder_of(home: Home, name: str) -> Path:
    """The folder of a new import with this name.

    Raises:
        BadInput: The name is invalid or taken.
    """
    if not IMPORT_NAME.fullmatch(name):
        raise BadInput(
            f"--name {name!r}: use at most 61 letters, digits, '_', '-' and '.'; begin with a letter or a digit"
        )
    out = home.imported(name)
    events.check_out(out)
    return out


def request(form: Form, roots: Sequence[Path] | None = None) -> events.Request:
    """Check a request; of the files, this reads only the columns.

    Args:
        form: The request.
        roots: The folders that may be read; a relative path starts at the first one. None means every folder, and a
            relative path starts at the working directory.

    Raises:
        BadInput: The request is invalid.
    """
    app, start = registry.load(form.app), roots[0] if roots else Path()
    named: list[Path] | dict[str, Path] = [start / path for path in form.files]
    if app.streams is not None:
        every = " ".join(f"{name}=PATH" for name in app.streams.names)
        streams = _pairs("stream", form.files, f"the file or the folder of each stream of {app.name} as {every}")
        named = {name: start / path for name, path in streams.items()}
    elif not named:
        raise BadInput(f"give the files with the events of {app.name}")
    return events.request(
        app,
        app.bind(form.params),
        named,
        columns(form.mapping),
        form.separator,
        roots,
        form.tolerance,
    )


@contextmanager
def workload_of(
    app: str,
    params: dict[str, Any],
    folder: Path | None,
    data: Sequence[str],
    mapping: Sequence[str] = (),
    tell: Callable[[str], None] = lambda line: None,
) -> Iterator[Path]:
    """The folder of the workload that a command reads, from its options.

    Args:
        app: The application.
        params: Its parameters.
        folder: The value of `--input`.
        data: The values of `--data`: files, which become a workload during the block.
        mapping: The values of `--map`.
        tell: Receives a line if the rows are sorted.

    Raises:
        BadInput: Both options have a value, or none has. Or a row of the files is no event.
    """
    if (folder is None) == (not data):
        raise BadInput(
            f"give either --data FILE with events of your own, or --input FOLDER; `streaming-core generate {app}` "
            "makes one"
        )
    if folder is not None:
        if mapping:
            raise BadInput("--map names columns of the files of --data; remove it, because a workload has the fields")
        yield folder
        return
    with TemporaryDirectory(prefix="lockstep-data-") as temporary:
        out = Path(temporary, "workload")
        manifest = events.run(request(Form(app, data, mapping, params=params, tolerance=None)), out)
        for line in sorted_lines(manifest["imported"]):
            tell(line)
        yield out


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


def lines(out: Path, manifest: Manifest) -> list[str]:
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
    texts = [f"{out}: {events} of {imported['application']}, from {read} of {files}"]
    texts += [*sorted_lines(imported), *_aside(out, imported["aside"])]
    return [*texts, f"warning: set aside {text}"] if (text := excess(imported)) else texts


def sorted_lines(imported: dict[str, Any]) -> list[str]:
    """The line on rows that were out of order, which the import sorted; none if there are no such rows."""
    count = imported["sorted"]
    return [f"sorted by ts: {count:,} row{'s' * (count > 1)} had a lower ts than the row before"] if count else []


def live_lines(out: Path, imported: dict[str, Any]) -> list[str]:
    """The lines that tell people what became of the files and rows of a live source.

    Args:
        out: The workload.
        imported: The entry of its manifest.
    """
    left, aside = imported.get("left", []), sum(reason["rows"] for reason in imported["aside"])
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
        rows = sum(reason["rows"] for reason in aside)
        lines.append(f"set aside {rows:,} row{'s' * (rows > 1)}, kept in {out / 'aside'}:")
    for reason in aside[:SHOWN]:
        lines.append(f"{reason['rows']:>12,}  {reason['reason']} (first: {reason['file']}, row {reason['row']})")
    if len(aside) > SHOWN:
        lines.append(f"{'':>12}  and {len(aside) - SHOWN} more reasons: see {out / 'manifest.json'}")
    return lines
