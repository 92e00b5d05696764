"""Imports a user's files as a workload of an application (`lockstep import`, and the DAG `import_data`).

Columns become fields of the application's event record, by name or by `--map`. fitting.py describes the valid values,
and records.py how text files are read. The import keeps each value exactly, or sets its row aside with a reason. It
fails if the rows that it read do not add up to events and rows set aside. Events are sorted by (ts, file, row of the
file), and numbered in this order. Two equal rows are two events.

An application with several streams has files for each stream. Its events are sorted by (ts, stream, file, row of the
file), as language/sources.py orders them. If the application declares a `delay`, `ts` may go back. The rows of a
stream then keep the order of the files. Between streams, the highest `ts` of the stream so far stands for `ts`. All
files are numbered in the order of the streams, so that the number of a file gives its stream.

Out: a folder with events/ and manifest.json, like every workload. Its address covers the application's name, its
parameters and the content. If rows were set aside, aside/part-*.parquet holds them, with `_file`, `_row`, `_reason`,
the columns, `_line`, and `_raw`, the bytes of the row (files.py). A column of the files with one of these names has one
more `_` there. Each of several streams has its own columns, and a
folder of its own: aside/STREAM/part-*.parquet.
"""

from __future__ import annotations

import difflib
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType

from jobs import files, fitting
from jobs.files import Files
from streaming_core import storage
from streaming_core.data import workload
from streaming_core.data.arrow import to_arrow
from streaming_core.data.parts import Parts, part_path
from streaming_core.errors import BadInput, CommandFailed, refusal, unknown
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
        unit: The unit of integers that are read from times (fitting.UNITS), or None.
        mark: The lowest `ts` of an event; rows with a lower one are set aside. None accepts any.
        tolerance: The share of the rows that may be set aside without a warning.
    """

    app: App
    params: dict[str, Any]
    streams: list[Stream]
    unit: str | None
    mark: int | None = None
    tolerance: float = 0.0

    @property
    def names(self) -> list[str]:
        """All files, as text."""
        return [name for stream in self.streams for name in stream.files.names]


def request(
    app: App,
    params: dict[str, Any],
    named: list[Path] | dict[str, Path],
    mapping: dict[str, str],
    unit: str | None = None,
    separator: str | None = None,
    roots: Sequence[Path] | None = None,
    tolerance: float = 0.0,
) -> Request:
    """Check a request; of the files, this reads only the columns.

    Args:
        app: The application.
        params: Its parameters.
        named: Files and folders; for several streams, the file or folder of each stream.
        mapping: Field -> column, for fields whose column has another name. `STREAM.FIELD` is the field of one stream,
            and FIELD that of every stream that has it.
        unit: The unit of integers that are read from times.
        separator: The character between the columns of CSV.
        roots: The folders that may be read; None means every folder.
        tolerance: The share of the rows that may be set aside without a warning.

    Raises:
        BadInput: The files are invalid (files.find_files), a stream is unknown or missing, or a unit, field or column
            is unknown.
    """
    sources = _streams(app, named)
    check_options(app, mapping, unit)
    streams = []
    for name, record, columns, paths in sources:
        column_of = {field: mapping.get(_field(name, field)) or mapping.get(field) or field for field in record.fields}
        stream = Stream(name, record, files.find_files(paths, separator, roots), column_of, columns)
        for field, column in column_of.items():
            if stream.files.columns is not None and column not in stream.files.columns:
                raise BadInput(_missing(app, stream, field, column))
        streams.append(stream)
    return Request(app, params, streams, unit, tolerance=tolerance)


def check_options(app: App, mapping: dict[str, str], unit: str | None) -> None:
    """Check the options that do not depend on files.

    Raises:
        BadInput: `unit` or a field in `mapping` is unknown.
    """
    if unit is not None and unit not in fitting.UNITS:
        raise BadInput(f"--unit must be one of {', '.join(fitting.UNITS)}, got {unit!r}")
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
        if isinstance(named, dict):
            raise BadInput(f"app {app.name} has one source: give its files without --stream")
        return [(None, app.event, {field: field for field in app.event.fields}, named)]
    names = app.streams.names
    if not isinstance(named, dict):
        options = " ".join(f"--stream {name}=PATH" for name in names)
        raise BadInput(f"app {app.name} has {len(names)} streams: give the file or the folder of each with {options}")
    if wrong := next((name for name in named if name not in names), None):
        raise BadInput(f"--stream {wrong}=...: {unknown(f'stream of {app.name}', wrong, names)}")
    if missing := next((name for name in names if name not in named), None):
        raise BadInput(f"app {app.name}: stream {missing} has no file: add --stream {missing}=PATH")
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
    if sources.kind == "csv" and any(re.fullmatch(r"[+-]?\d+(\.\d+)?", name.strip()) for name in columns):
        return f"{fault}; the first line must contain the column names, but looks like a row: {_few(columns)}"
    similar = difflib.get_close_matches(column.lower(), [name.lower() for name in columns], 1)
    suggestion = next((name for name in columns if similar and name.lower() == similar[0]), "COLUMN")
    if sources.kind == "csv" and len(columns) == 1 and re.search(r"[;\t|]", columns[0]):
        return f"{fault}; its only column is {columns[0]!r}: set --separator to the character between the columns"
    name = _field(stream.name, field)
    return f"{fault}; its columns: {_few(columns)}. Name the right one with --map {name}={suggestion}"


def _kind(kind: object) -> str:
    return f"{kind.item.name}s" if isinstance(kind, Array) else getattr(kind, "name", type(kind).__name__)


def _few(names: list[str], most: int = 20) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def run(spark: SparkSession, request: Request, out: Path) -> dict[str, Any]:
    """Write the workload.

    Args:
        spark: The session.
        request: The checked request.
        out: The folder to write.

    Returns:
        The manifest. Its entry `imported` describes the files and the rows that were set aside.

    Raises:
        BadInput: `out` is not new or empty, a file is damaged, or no row is an event.
        CommandFailed: The disk is full, or fails. Nothing stays.
    """
    try:
        with storage.held(out):
            check_out(out)
            with storage.appearing(out) as folder, files.settings(spark):
                _write(spark, request, folder)
    except (PySparkException, Py4JError) as error:
        raise failure(error) from None
    except OSError as error:
        raise refusal(error, f"workload {out} cannot be written") from None
    return workload.read_manifest(out)


def failure(error: Exception) -> CommandFailed:
    """The error for a failure of Spark."""
    text = str(error)
    cause = re.findall(r"Caused by: [\w.$]*?(\w+Exception: .*)", text)
    reason = (cause[-1] if cause else text.strip().partition("\n")[0])[:200]
    return CommandFailed(f"Spark failed: {reason}")


def _damaged(name: str, why: str) -> BadInput:
    return BadInput(f"{name} cannot be read: it is damaged, or its name has the wrong ending ({why})")


def check_out(out: Path) -> None:
    """Raise BadInput unless a workload may be written to this folder."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} already exists: choose another name, or remove it first")


def _write(spark: SparkSession, request: Request, folder: Path) -> None:
    parts, about = write_rows(spark, request, folder)
    aside = about["aside"]
    if sum(one["rows"] for one in aside) == about["rows"]:
        reason = f": {aside[0]['reason']} ({_at(aside[0])})" if aside else ""
        raise BadInput(f"{request.names[0]}: none of {about['rows']} rows is an event of {request.app.name}{reason}")
    workload.seal_imported(folder, request.app, request.params, parts, about)


def write_rows(
    spark: SparkSession, request: Request, folder: Path, start: int = 0
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Write the events and the rows that are set aside.

    Args:
        spark: The session, with the settings of `files.settings`.
        request: The checked request.
        folder: The folder to write.
        start: The seq of the first event.

    Returns:
        The entries of the parts (workload.write_part), and the manifest's `imported`.

    Raises:
        BadInput: A file is damaged.
        CommandFailed: Rows are missing.
    """
    sorted_rows = folder / "sorted"
    fitted: list[DataFrame] = []
    try:
        first = 0
        for stream in request.streams:
            fitted.append(_fitted(spark, request, stream, first).persist())
            first += len(stream.files.paths)
        counts = [_count(request.names, frame) for frame in fitted]
        read = sum(_rows_read(*pair) for pair in zip(request.streams, fitted, strict=True))
        aside = sorted((one for of_stream, _ in counts for one in of_stream), key=_most_frequent)
        total = sum(rows for _, rows in counts)
        fields = list(request.app.event.fields)
        _ordered(request.app, _events(request, fitted)).select(*fields).write.parquet(str(sorted_rows))
        for stream, frame, (of_stream, _) in zip(request.streams, fitted, counts, strict=True):
            if of_stream:
                _keep(frame, request.names, stream, _aside(folder, stream))
                _add_samples(_aside(folder, stream), of_stream)
    finally:
        for frame in fitted:
            frame.unpersist()
    numbered = _numbered(sorted_rows, request, start)
    parts = [workload.write_part(folder, i, table) for i, table in enumerate(numbered)]
    shutil.rmtree(sorted_rows)
    _check_counts(folder, request, read)
    about: dict[str, Any] = {
        "files": request.names,
        "map": {_field(one.name, field): column for one in request.streams for field, column in one.mapping.items()},
        "unit": request.unit,
        "rows": total,
        "aside": aside,
        "tolerance": request.tolerance,
    }
    if request.app.streams is not None:
        about["streams"] = {stream.name: stream.files.names for stream in request.streams}
    return parts, about


def _ordered(app: App, events: DataFrame) -> DataFrame:
    """The events in their order. Files are numbered by stream, so `_file` says the stream of a row."""
    if "ts" not in app.event.fields or (app.delay is not None and app.streams is None):
        return events.orderBy("_file", "_row")
    if app.delay is None:
        return events.orderBy("ts", "_file", "_row")
    mark = F.max("ts").over(Window.partitionBy(TAG).orderBy("_file", "_row"))
    return events.withColumn("_mark", mark).orderBy("_mark", "_file", "_row")


def _aside(folder: Path, stream: Stream) -> Path:
    """The folder of the rows of a stream that are set aside."""
    return folder / "aside" / (stream.name or "")


def _rows_read(stream: Stream, fitted: DataFrame) -> int:
    """The number of rows of a stream: for Parquet from the files, else from the numbers that the readers gave."""
    if stream.files.kind == "parquet":
        return Parts(stream.files.targets).rows
    last = fitted.groupBy("_file").agg(F.max("_row").alias("rows")).collect()
    return sum(row["rows"] for row in last)


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


def _events(request: Request, fitted: list[DataFrame]) -> DataFrame:
    """The rows that are events, with the fields of the event record.

    Args:
        request: The request.
        fitted: The rows of each stream.
    """
    kinds = {
        column: frame.schema[field].dataType
        for stream, frame in zip(request.streams, fitted, strict=True)
        for field, column in stream.columns.items()
    }
    slots = request.app.event.resolve(request.params).state[0]
    frames = []
    for number, (stream, frame) in enumerate(zip(request.streams, fitted, strict=True)):
        values = {column: F.col(field) for field, column in stream.columns.items()}
        if stream.name is not None:
            values |= {name: _zero(kind, slots[name].count) for name, kind in kinds.items() if name not in values}
            values[TAG] = F.lit(number)
        columns = [values[name].alias(name) for name in slots]
        frames.append(frame.where(F.col("_reason").isNull()).select(*columns, "_file", "_row"))
    return reduce(DataFrame.union, frames)


def _zero(kind: DataType, count: int) -> Column:
    """The value of a column in the rows of the streams that have no such field."""
    if isinstance(kind, ArrayType):
        return F.array_repeat(_zero(kind.elementType, 1), count)
    return F.lit("").cast(kind) if isinstance(kind, BinaryType) else F.lit(0).cast(kind)


def _fitted(spark: SparkSession, request: Request, stream: Stream, first: int) -> DataFrame:
    """The rows of a stream with a column for every field, and `_reason`: why the row is not an event, or null.

    Args:
        spark: The session.
        request: The request.
        stream: The stream.
        first: The number of the first file.
    """
    record = stream.record.resolve(request.params)
    columns = {stream.mapping[name]: isinstance(slot.type, Array) for name, slot in record.state[0].items()}
    rows = files.rows(spark, stream.files, columns, first)
    raw = {name: files.column_of(stream.files, columns, stream.mapping[name]) for name in record.state[0]}
    staged = rows.select("*", *(text.alias(f"r_{name}") for name, text in raw.items()))
    fitted = []
    for name in raw:
        value, reason = fitting.field(record, name, F.col(f"r_{name}"), request.unit, stream.files.kind == "csv")
        fitted.append(F.struct(value.alias("value"), reason.alias("why")).alias(f"f_{name}"))
    # The original values are needed only for rows that are set aside.
    reasons: list[Column | str] = ["_torn", *(f"f_{name}.why" for name in raw)]
    if request.mark is not None:
        reasons.append(F.when(F.col("f_ts.value") < request.mark, F.lit(LATE)))
    staged = staged.select("*", *fitted).withColumn("_reason", F.coalesce(*reasons))
    kept = ["_line", "_raw", *(name for name in rows.columns if name[0] in "cl")]
    original = F.when(F.col("_reason").isNotNull(), F.struct(*kept))
    values = (F.col(f"f_{name}.value").alias(name) for name in raw)
    return staged.select(*values, "_file", "_row", "_reason", original.alias("_original"))


def _count(names: list[str], fitted: DataFrame) -> tuple[list[dict[str, Any]], int]:
    """Count the rows of a stream.

    Args:
        names: All files.
        fitted: The rows.

    Returns:
        A list of the reasons, the most frequent first, each with its number of rows and its first row. Then the number
        of all rows.

    Raises:
        BadInput: A file is damaged.
    """
    reasons = fitted.groupBy("_reason")
    counts = reasons.agg(F.count("*").alias("rows"), F.min(F.struct("_file", "_row")).alias("at")).collect()
    for row in counts:
        if row["at"]["_row"] == 0:
            reason = row["_reason"].removeprefix(files.UNREADABLE)
            raise _damaged(names[row["at"]["_file"]], reason)
    aside = [
        {"reason": row["_reason"], "rows": row["rows"], "file": names[row["at"][0]], "row": row["at"][1]}
        for row in counts
        if row["_reason"] is not None
    ]
    return sorted(aside, key=_most_frequent), sum(row["rows"] for row in counts)


def _most_frequent(one: dict[str, Any]) -> tuple[int, str]:
    """The key to sort reasons by."""
    return -one["rows"], one["reason"]


def _at(one: dict[str, Any]) -> str:
    return f"{one['file']}, row {one['row']}"


def _keep(fitted: DataFrame, files_read: list[str], stream: Stream, folder: Path) -> None:
    """Write the rows that are set aside in the order of the files: their values, and the bytes of text files."""
    names = list(stream.files.columns or ())
    columns = [F.col("_original._line").alias("_line"), F.col("_original._raw").alias("_raw")]
    lists = fitted.select("_original.*").columns
    for i, name in enumerate(names):
        column = F.col(f"_original.c{i}")
        if f"l{i}" in lists:
            column = F.coalesce(column, F.concat(F.lit("["), F.array_join(f"_original.l{i}", ", ", "null"), F.lit("]")))
        columns.append(column.alias(re.sub("^_+(file|row|reason|line|raw)$", r"_\g<0>", name)))
    named = F.get(F.array(*map(F.lit, files_read)), F.col("_file")).alias("_file")
    aside = fitted.where(F.col("_reason").isNotNull()).orderBy("_file", "_row")
    aside.select(named, "_row", "_reason", *columns).write.parquet(str(folder))
    for number, path in enumerate(_written(folder)):
        path.rename(part_path(folder, number))
    for path in folder.iterdir():
        if path.name.startswith((".", "_")):
            path.unlink()


def _add_samples(folder: Path, aside: list[dict[str, Any]]) -> None:
    """Add a few rows to each of the first reasons: the place of the row, and its first characters.

    Bytes that are not UTF-8 become half surrogates, so that pages can tell them from text.
    """
    for one in aside[:SAMPLED_REASONS]:
        one["samples"] = []
    missing = {one["reason"]: one["samples"] for one in aside[:SAMPLED_REASONS]}
    for table in Parts.of(folder).slices(files.BATCH_ROWS):
        for reason, samples in list(missing.items()):
            rows = table.filter(pc.equal(table["_reason"], reason)).slice(0, SAMPLES - len(samples)).to_pylist()
            samples += [_sample(row) for row in rows]
            if len(samples) == SAMPLES:
                del missing[reason]
        if not missing:
            return


def _sample(row: dict[str, Any]) -> dict[str, Any]:
    at = {"file": row.pop("_file"), "row": row.pop("_row"), "line": row.pop("_line")}
    del row["_reason"]
    raw = row.pop("_raw")
    text = (
        raw.decode("utf-8", "surrogateescape") if raw is not None else json.dumps(row, ensure_ascii=False, default=str)
    )
    return at | {"text": text[:SAMPLE_CHARACTERS], "is_cut": len(text) > SAMPLE_CHARACTERS}


def _written(folder: Path) -> list[Path]:
    """The files that Spark wrote, in the order of the rows."""
    return sorted(folder.glob("part-*.parquet"))


def _numbered(folder: Path, request: Request, start: int) -> Iterator[pa.Table]:
    """The sorted events, numbered from `start` on, in chunks of a workload."""
    schema = workload.schema(request.app, request.params)
    for table in Parts(_written(folder)).slices(workload.CHUNK):
        seq = to_arrow(np.arange(start, start + table.num_rows))
        yield table.add_column(0, "seq", seq).cast(schema)
        start += table.num_rows
