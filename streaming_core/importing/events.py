"""Imports a user's files as a workload (`lockstep import`, the DAG `import_data`, and `--data` of other commands).

Columns become fields of the application's event record, by name or by `--map`. fitting.py describes the valid values,
and records.py how text files are read. The import keeps each value exactly, or sets its row aside with a reason. It
fails if the rows that it read do not add up to events and rows set aside. Events are sorted by (ts, file, row of the
file), and numbered in this order. Two equal rows are two events.

An application with several streams has files for each stream. Its events are sorted by (ts, stream, file, row of the
file), as language/sources.py orders them. If the application declares a `delay`, `ts` may go back. The rows of a
stream then keep the order of the files. Between streams, the highest `ts` of the stream so far stands for `ts`. All
files are numbered in the order of the streams, so that the number of a file gives its stream.

Out: a folder with events/ and manifest.json, like every workload. It serves every application with the same records
(`workload.records`), and its address covers them and the content. If rows were set aside, aside/part-*.parquet holds
them, with `_file`, `_row`, `_reason`, the columns, `_line`, and `_raw`, the bytes of the row. A column of the files
with one of these names has one more `_` there. Each of several streams has its own columns, and a folder of its own:
aside/STREAM/part-*.parquet.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_core import interruption, storage
from streaming_core.data import workload
from streaming_core.data.arrow import to_arrow
from streaming_core.data.parts import Parts, Writer
from streaming_core.errors import BadInput, CommandFailed, refusal, unknown
from streaming_core.importing import files, fitting
from streaming_core.importing.files import Files
from streaming_core.importing.parquet import Rows
from streaming_core.language.application import App
from streaming_core.language.record import Array, Record
from streaming_core.language.sources import TAG

# The manifest has samples of the rows set aside. The bounds: reasons per stream, rows per reason, characters per row.
SAMPLED_REASONS, SAMPLES, SAMPLE_CHARACTERS = 10, 3, 300
LATE = "ts is before the highest ts of an earlier micro-batch"


@dataclass(frozen=True)
class Stream:
    """The files of one stream.

    Attributes:
        name: The name of the stream; None if the application has one source.
        record: The record of its rows.
        files: The files.
        mapping: Field of the record -> column of the files.
        columns: Field of the record -> field of the event.
    """

    name: str | None
    record: Record
    files: Files
    mapping: dict[str, str]
    columns: dict[str, str]


@dataclass(frozen=True)
class Request:
    """A request to import files, checked as far as the columns allow.

    Attributes:
        app: The application.
        params: Its parameters.
        streams: The streams in the order of the application.
        mark: The lowest `ts` of an event; rows with a lower one are set aside. None accepts any.
        tolerance: The share of the rows that may be set aside without a warning; None refuses a file with such a row.
    """

    app: App
    params: dict[str, Any]
    streams: list[Stream]
    mark: int | None = None
    tolerance: float | None = 0.0

    @property
    def names(self) -> list[str]:
        """All files, as text."""
        return [name for stream in self.streams for name in stream.files.names]


def request(
    app: App,
    params: dict[str, Any],
    named: list[Path] | dict[str, Path],
    mapping: dict[str, str],
    separator: str | None = None,
    roots: Sequence[Path] | None = None,
    tolerance: float | None = 0.0,
) -> Request:
    """Check a request; of the files, this reads only the columns.

    Args:
        app: The application.
        params: Its parameters.
        named: Files and folders; for several streams, the file or folder of each stream.
        mapping: Field -> column, for fields whose column has another name. `STREAM.FIELD` is the field of one stream,
            and FIELD that of every stream that has it.
        separator: The character between the columns of CSV.
        roots: The folders that may be read; None means every folder.
        tolerance: The share of the rows that may be set aside without a warning.

    Raises:
        BadInput: The files are invalid (files.find_files), a stream is unknown or missing, or a field or column is
            unknown.
    """
    sources = _streams(app, named)
    check_mapping(app, mapping)
    streams = []
    for name, record, columns, paths in sources:
        column_of = {field: mapping.get(_field(name, field)) or mapping.get(field) or field for field in record.fields}
        stream = Stream(name, record, files.find_files(paths, separator, roots), column_of, columns)
        for field, column in column_of.items():
            if stream.files.columns is not None and column not in stream.files.columns:
                raise BadInput(_missing(app, stream, field, column))
        streams.append(stream)
    return Request(app, params, streams, tolerance=tolerance)


def check_mapping(app: App, mapping: dict[str, str]) -> None:
    """Raise BadInput if a field in `mapping` is unknown."""
    streams: list[tuple[str | None, Record]] = [(None, app.event)]
    if app.streams is not None:
        streams = [*zip(app.streams.names, app.streams.records, strict=True)]
    known = [_field(name, field) for name, record in streams for field in record.fields]
    for key in mapping:
        if key not in known and not any(name is not None and key in record.fields for name, record in streams):
            raise BadInput(
                f"--map {key}=...: the events of {app.name} have no field {key!r}; fields: {', '.join(known)}"
            )


def _streams(
    app: App, named: list[Path] | dict[str, Path]
) -> list[tuple[str | None, Record, dict[str, str], list[Path]]]:
    """The name, the record and the columns of each stream (Stream), with the user's files for it."""
    if app.streams is None:
        assert isinstance(named, list)
        return [(None, app.event, {field: field for field in app.event.fields}, named)]
    names = app.streams.names
    assert isinstance(named, dict)
    if wrong := next((name for name in named if name not in names), None):
        raise BadInput(f"{wrong}=...: {unknown(f'stream of {app.name}', wrong, names)}")
    if missing := next((name for name in names if name not in named), None):
        raise BadInput(f"app {app.name}: stream {missing} has no file: add {missing}=PATH")
    together = zip(names, app.streams.records, app.streams.columns, strict=True)
    return [(name, record, columns, [named[name]]) for name, record, columns in together]


def _field(stream: str | None, field: str) -> str:
    """The name of a field in `--map`."""
    return field if stream is None else f"{stream}.{field}"


def _missing(app: App, stream: Stream, field: str, column: str) -> str:
    """The error about a field without a column."""
    sources, kind = stream.files, stream.record.fields[field]
    columns = list(sources.columns or ())
    whose = f"{app.name}'s events" if stream.name is None else f"{app.name}'s stream {stream.name}"
    fault = f"{sources.names[0]} has no column {column!r} for the field {field} ({_kind(kind)}) of {whose}"
    if sources.kind == "csv" and files.looks_like_row(columns):
        return f"{fault}; {files.NO_NAMES}: {_few(columns)}"
    similar = difflib.get_close_matches(column.lower(), [name.lower() for name in columns], 1)
    suggestion = next((name for name in columns if similar and name.lower() == similar[0]), "COLUMN")
    if sources.kind == "csv" and len(columns) == 1 and re.search(r"[;\t|]", columns[0]):
        between = "name the character between the columns with --separator of `lockstep import`"
        return f"{fault}; its only column is {columns[0]!r}: {between}"
    name = _field(stream.name, field)
    return f"{fault}; its columns: {_few(columns)}. Name the right one with --map {name}={suggestion}"


def _kind(kind: object) -> str:
    return f"{kind.item.name}s" if isinstance(kind, Array) else getattr(kind, "name", type(kind).__name__)


def _few(names: list[str], most: int = 20) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def run(request: Request, out: Path) -> workload.Manifest:
    """Write the workload.

    Args:
        request: The checked request.
        out: The folder to write.

    Returns:
        The manifest. Its entry `imported` describes the files and the rows that were set aside.

    Raises:
        BadInput: `out` is not new or empty, a file is damaged, or no row is an event. Or a row is none, and the request
            has no tolerance.
        CommandFailed: The disk is full, or fails. Nothing stays.
    """
    try:
        with storage.held(out):
            check_out(out)
            with storage.appearing(out) as folder:
                parts, about = write_rows(request, folder)
                if sum(reason["rows"] for reason in about["aside"]) == about["rows"]:
                    raise BadInput(_nothing(request, about))
                workload.seal_import(folder, request.app, request.params, parts, about)
    except OSError as error:
        raise refusal(error, f"workload {out} cannot be written") from None
    return workload.read_manifest(out)


def check_out(out: Path) -> None:
    """Raise BadInput unless a workload may be written to this folder."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} already exists: choose another name, or remove it first")


def _nothing(request: Request, about: dict[str, Any]) -> str:
    """The error about files without an event."""
    first = next(iter(about["aside"]), None)
    reason = f": {first['reason']} ({first['file']}, row {first['row']})" if first else ""
    return f"{request.names[0]}: none of {about['rows']} rows is an event of {request.app.name}{reason}"


def write_rows(request: Request, folder: Path, start: int = 0) -> tuple[list[workload.NewPart], dict[str, Any]]:
    """Write the events and the rows that are set aside.

    Args:
        request: The checked request.
        folder: The folder to write.
        start: The seq of the first event.

    Returns:
        The entries of the parts (workload.write_part), and the manifest's `imported`.

    Raises:
        BadInput: A file is damaged, or a row does not fit and the request has no tolerance.
        CommandFailed: Rows are missing.
    """
    unsorted, schema = folder / "unsorted", workload.schema(request.app, request.params).remove(0)
    read, late, aside, keys = 0, 0, [], []
    with pa.ipc.new_file(str(unsorted), schema) as file:
        for number in range(len(request.streams)):
            rows, reasons, ts = _write_stream(request, number, folder, file)
            read += rows
            aside += reasons
            late += int((ts[1:] < ts[:-1]).sum())
            # The mark of a row of several streams is the highest ts of its stream so far.
            keys.append(ts if request.app.delay is None else np.maximum.accumulate(ts))
    is_sorted = "ts" in schema.names and (request.app.delay is None or request.app.streams is not None)
    order = np.argsort(np.concatenate(keys), kind="stable") if is_sorted else None
    numbered = _numbered(unsorted, workload.schema(request.app, request.params), order, start)
    parts = [workload.write_part(folder, i, table) for i, table in enumerate(numbered)]
    unsorted.unlink()
    _check_counts(folder, request, read)
    about: dict[str, Any] = {
        "application": request.app.name,
        "files": request.names,
        "map": {
            _field(stream.name, field): column for stream in request.streams for field, column in stream.mapping.items()
        },
        "rows": read,
        "sorted": late if request.app.delay is None else 0,
        "aside": sorted(aside, key=lambda reason: (-reason["rows"], reason["reason"])),
        "tolerance": request.tolerance or 0.0,
    }
    if request.app.streams is not None:
        about["streams"] = {stream.name: stream.files.names for stream in request.streams}
    return parts, about


def _write_stream(
    request: Request, number: int, folder: Path, file: pa.ipc.RecordBatchFileWriter
) -> tuple[int, list[dict[str, Any]], np.ndarray]:
    """Write the rows of a stream in the order of its files.

    Args:
        request: The request.
        number: The number of the stream.
        folder: The folder of the workload. It gets the rows that are set aside.
        file: Gets the events.

    Returns:
        The number of rows, the reasons for rows that are set aside (_Aside), and the `ts` of each event, or 0.
    """
    stream = request.streams[number]
    source, record = stream.files, stream.record.resolve(request.params)
    schema, read = workload.schema(request.app, request.params).remove(0), 0
    names = list(stream.mapping.values() if source.columns is None else source.columns)
    at = {field: names.index(column) for field, column in stream.mapping.items()}
    lists = [place for field, place in at.items() if isinstance(record.state[0][field].type, Array)]
    readers = {field: fitting.reader(record, field, request.app.time, source.kind == "csv") for field in at}
    keys = [np.empty(0, np.int64)]
    with ExitStack() as stack:
        aside = _Aside(request, stream, _aside(folder, stream), stack)
        for which, path in enumerate(source.paths):
            before = 0
            for rows in files.rows(source, which, names, list(at.values()), lists):
                interruption.check()
                raw = {field: rows.items[i] if i in rows.items else rows.values[i] for field, i in at.items()}
                values, reasons = _fitted(rows, raw, readers, request.mark)
                count = reasons.count(None)
                columns: dict[str, Any] = {TAG: np.full(count, number)} if stream.name is not None else {}
                columns |= {stream.columns[field]: column for field, column in values.items()}
                arrays = [
                    pa.array(columns[field.name], field.type)
                    if field.name in columns
                    else pa.repeat(workload.absent(field), count)
                    for field in schema
                ]
                file.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
                keys.append(np.array(values["ts"] if "ts" in values else [0] * count, np.int64))
                aside.add(str(path), before, rows, reasons)
                before += len(reasons)
            read += before
    return read, aside.described(), np.concatenate(keys)


def _fitted(
    rows: Rows, raw: dict[str, pa.Array], readers: dict[str, fitting.Read], mark: int | None
) -> tuple[dict[str, list[Any]], list[str | None]]:
    """The values of the rows that are events, by field; and for each row why it is none, or None."""
    reasons: list[str | None] = rows.reasons.to_pylist()
    columns: dict[str, list[Any]] = {}
    for name, column in raw.items():
        read, values = readers[name], columns.setdefault(name, [])
        for row, value in enumerate(column.to_pylist()):
            fit = None
            if reasons[row] is None:
                try:
                    fit = read(value)
                except fitting.Unfit as unfit:
                    reasons[row] = f"{name} {unfit}"
            values.append(fit)
    if mark is not None:
        for row, ts in enumerate(columns["ts"]):
            if reasons[row] is None and ts < mark:
                reasons[row] = LATE
    if any(reasons):
        chosen = [row for row, reason in enumerate(reasons) if reason is None]
        columns = {name: [values[row] for row in chosen] for name, values in columns.items()}
    return columns, reasons


@dataclass
class _Aside:
    """The rows of a stream that are set aside, in a table: their values, and the bytes of text files.

    Attributes:
        request: The request.
        stream: The stream.
        folder: The folder of the table.
        stack: Closes the table.
    """

    request: Request
    stream: Stream
    folder: Path
    stack: ExitStack
    _reasons: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    _writer: Writer | None = None

    def add(self, path: str, before: int, rows: Rows, reasons: list[str | None]) -> None:
        """Set aside the rows of a file that have a reason; `before` rows of the file came earlier."""
        wrong = [row for row, reason in enumerate(reasons) if reason is not None]
        if not wrong:
            return
        lines = pa.nulls(len(reasons), pa.int64()) if rows.lines is None else rows.lines
        columns: dict[str, pa.Array] = {
            "_file": pa.repeat(path, len(reasons)),
            "_row": pa.array(range(before + 1, before + 1 + len(reasons)), pa.int64()),
            "_reason": pa.array(reasons, pa.string()),
            "_line": lines,
            "_raw": rows.raw,
        }
        for i, name in enumerate(self.stream.files.columns or ()):
            column = rows.values[i]
            if i in rows.items:
                texts = [items and [item or "null" for item in items] for items in rows.items[i].to_pylist()]
                written = pa.array([None if items is None else f"[{', '.join(items)}]" for items in texts], pa.string())
                column = pc.coalesce(column, written)
            columns[re.sub("^_+(file|row|reason|line|raw)$", r"_\g<0>", name)] = column
        table = pa.table(columns).take(wrong)
        for row in table.to_pylist():
            self._note(row)
        if self._writer is None:
            self._writer = self.stack.enter_context(Writer(self.folder, table.schema))
        self._writer.write(table)

    def _note(self, row: dict[str, Any]) -> None:
        file, number, line, reason = (row[name] for name in ("_file", "_row", "_line", "_reason"))
        if self.request.tolerance is None:
            place = f"{file}, row {number}" if line is None else f"{file}:{line}"
            raise BadInput(f"{place}: {reason}: {_sample(row)['text']!r}")
        entry = self._reasons.setdefault(
            reason, {"reason": reason, "rows": 0, "file": file, "row": number, "samples": []}
        )
        entry["rows"] += 1
        if len(entry["samples"]) < SAMPLES:
            entry["samples"].append(_sample(row))

    def described(self) -> list[dict[str, Any]]:
        """The reasons with their rows, the first row and samples; only the most frequent ones have samples."""
        frequent = sorted(self._reasons.values(), key=lambda entry: (-entry["rows"], entry["reason"]))
        for entry in frequent[SAMPLED_REASONS:]:
            del entry["samples"]
        return frequent


def _sample(row: dict[str, Any]) -> dict[str, Any]:
    """The place of a row, and its first characters. Bytes that are not UTF-8 become half surrogates.

    So pages can tell them from text.
    """
    values = {name: value for name, value in row.items() if name not in ("_file", "_row", "_line", "_reason", "_raw")}
    raw = row["_raw"]
    text = (
        raw.decode("utf-8", "surrogateescape")
        if raw is not None
        else json.dumps(values, ensure_ascii=False, default=str)
    )
    at = {"file": row["_file"], "row": row["_row"], "line": row["_line"]}
    return at | {"text": text[:SAMPLE_CHARACTERS], "is_cut": len(text) > SAMPLE_CHARACTERS}


def _aside(folder: Path, stream: Stream) -> Path:
    """The folder of the rows of a stream that are set aside."""
    return folder / "aside" / (stream.name or "")


def _check_counts(folder: Path, request: Request, read: int) -> None:
    """Raise CommandFailed unless the written files hold every row, as an event or set aside.

    Args:
        folder: The workload.
        request: The request.
        read: Number of rows in the user's files.
    """
    events = Parts.of(folder / "events").rows
    aside = sum(Parts.of(_aside(folder, stream)).rows for stream in request.streams)
    if read != events + aside:
        raise CommandFailed(
            f"the import read {read:,} rows, but wrote {events:,} events and set {aside:,} rows aside. "
            "This is a fault of Lockstep; please report it. No workload was written"
        )


def _numbered(unsorted: Path, schema: pa.Schema, order: np.ndarray | None, start: int) -> Iterator[pa.Table]:
    """The events in order, numbered from `start` on, in chunks of a workload. One chunk is in memory at a time.

    Args:
        unsorted: The file of the events, in the order of the user's files.
        schema: The columns of the workload.
        order: The number of each event in that file, in the order of the workload; None if both are the same.
        start: The seq of the first event.
    """
    with pa.memory_map(str(unsorted)) as mapped, pa.ipc.open_file(mapped) as file:
        batches = [file.get_batch(i) for i in range(file.num_record_batches)]
        ends = np.cumsum([0, *(batch.num_rows for batch in batches)])
        for first, end in workload.chunks(int(ends[-1])):
            interruption.check()
            chosen = np.arange(first, end) if order is None else order[first:end]
            source = np.searchsorted(ends, chosen, side="right") - 1
            grouped = np.argsort(source, kind="stable")
            tables = [schema.remove(0).empty_table()]
            for rows in np.split(grouped, np.flatnonzero(np.diff(source[grouped])) + 1) if end > first else ():
                number = int(source[rows[0]])
                tables.append(pa.table(batches[number].take(to_arrow(chosen[rows] - ends[number]))))
            places = np.empty(len(chosen), np.int64)  # the rows are grouped by batch: put them in order
            places[grouped] = np.arange(len(chosen))
            table = pa.concat_tables(tables).combine_chunks().take(to_arrow(places))
            yield table.add_column(0, "seq", to_arrow(np.arange(start + first, start + end))).cast(schema)
