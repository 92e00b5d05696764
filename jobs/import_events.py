"""Imports a user's files as a workload of an application (`lockstep import`).

Columns become fields of the application's event record, by name or by `--map`. fitting.py describes the valid values,
and records.py how text files are read. The import keeps each value exactly, or sets its row aside with a reason. It
fails if the rows that it read do not add up to events and rows set aside. Events are sorted by (ts, file, row of the
file), and numbered in this order. Two equal rows are two events.

Out: a folder with events/ and manifest.json, like every workload. Its address covers the application's name, its
parameters and the content. If rows were set aside, aside/part-*.parquet holds them, with `_file`, `_row`, `_reason`,
the columns, `_line`, and `_raw`, the bytes of the row (files.py).
"""

from __future__ import annotations

import difflib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from jobs import files, fitting
from jobs.files import Files
from streaming_core import storage
from streaming_core.data import workload
from streaming_core.data.arrow import to_arrow
from streaming_core.data.parts import Parts, part_path
from streaming_core.errors import BadInput, CommandFailed, refusal
from streaming_core.language.application import App
from streaming_core.language.record import Array, Resolved

# The manifest has samples of the rows set aside: so many reasons, rows per reason, and characters per row.
SAMPLED_REASONS, SAMPLES, SAMPLE_CHARACTERS = 10, 3, 300


@dataclass(frozen=True)
class Request:
    """A request to import files, checked as far as the columns allow.

    Attributes:
        app: The application.
        params: Its parameters.
        files: The files.
        mapping: Field -> column.
        unit: The unit of integers that are read from times (fitting.UNITS), or None.
    """

    app: App
    params: dict[str, Any]
    files: Files
    mapping: dict[str, str]
    unit: str | None


def request(
    app: App,
    params: dict[str, Any],
    named: list[Path],
    mapping: dict[str, str],
    unit: str | None = None,
    separator: str | None = None,
) -> Request:
    """Check a request; of the files, this reads only the columns.

    Args:
        app: The application.
        params: Its parameters.
        named: Files and folders.
        mapping: Field -> column, for fields whose column has another name.
        unit: The unit of integers that are read from times.
        separator: The character between the columns of CSV.

    Raises:
        BadInput: The files are invalid (files.find_files), the application has several sources, or a unit, field or
            column is unknown.
    """
    if app.streams is not None:
        raise BadInput(
            f"app {app.name} has {len(app.streams.names)} sources ({', '.join(app.streams.names)}): import works only "
            "for applications with one source"
        )
    if unit is not None and unit not in fitting.UNITS:
        raise BadInput(f"--unit must be one of {', '.join(fitting.UNITS)}, got {unit!r}")
    fields = list(app.event.fields)
    for field in mapping:
        if field not in fields:
            raise BadInput(
                f"--map {field}=...: the events of {app.name} have no field {field!r}; fields: {', '.join(fields)}"
            )
    sources = files.find_files(named, separator)
    for field in fields:
        column = mapping.setdefault(field, field)
        if sources.columns is not None and column not in sources.columns:
            raise BadInput(_missing(app, field, column, sources))
    return Request(app, params, sources, mapping, unit)


def _missing(app: App, field: str, column: str, sources: Files) -> str:
    """The error about a field without a column."""
    columns = list(sources.columns or ())
    kind = app.event.fields[field]
    fault = f"{sources.names[0]} has no column {column!r} for the field {field} ({_kind(kind)}) of {app.name}'s events"
    if sources.kind == "csv" and any(re.fullmatch(r"[+-]?\d+(\.\d+)?", name.strip()) for name in columns):
        return f"{fault}; the first line must contain the column names, but looks like a row: {_few(columns)}"
    similar = difflib.get_close_matches(column.lower(), [name.lower() for name in columns], 1)
    suggestion = next((name for name in columns if similar and name.lower() == similar[0]), "COLUMN")
    if sources.kind == "csv" and len(columns) == 1 and re.search(r"[;\t|]", columns[0]):
        return f"{fault}; its only column is {columns[0]!r}: set --separator to the character between the columns"
    return f"{fault}; its columns: {_few(columns)}. Name the right one with --map {field}={suggestion}"


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
        raise _failure(request.files, error) from None
    except OSError as error:
        raise refusal(error, f"workload {out} cannot be written") from None
    return workload.read_manifest(out)


def _failure(sources: Files, error: Exception) -> BadInput | CommandFailed:
    """The error for a failure of Spark: a damaged file if Spark names one, by its number, else a failed command."""
    text = str(error)
    cause = re.findall(r"Caused by: [\w.$]*?(\w+Exception: .*)", text)
    why = (cause[-1] if cause else text.strip().partition("\n")[0])[:200]
    if number := re.search(r"/links/(\d{6})\.", text):
        return _damaged(sources.names[int(number[1])], why)
    return CommandFailed(f"Spark failed: {why}")


def _damaged(name: str, why: str) -> BadInput:
    return BadInput(f"{name} cannot be read: it is damaged, or its name has the wrong ending ({why})")


def check_out(out: Path) -> None:
    """Raise BadInput unless a workload may be written to this folder."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} already exists: choose another name, or remove it first")


def _write(spark: SparkSession, request: Request, folder: Path) -> None:
    links, sorted_rows = folder / "links", folder / "sorted"
    links.mkdir()
    record = request.app.event.resolve(request.params)
    columns = {request.mapping[name]: isinstance(slot.type, Array) for name, slot in record.state[0].items()}
    fitted = _fitted(files.rows(spark, request.files, links, columns), request, record, columns).persist()
    try:
        counts = fitted.groupBy("_reason").agg(F.count("*").alias("rows"), F.min(F.struct("_file", "_row")).alias("at"))
        aside, events, total = _count(request.files, counts.collect())
        read = _rows_read(request.files, fitted)
        if not events:
            why = f": {aside[0]['reason']} ({_at(aside[0])})" if aside else ""
            raise BadInput(f"{request.files.names[0]}: none of {total} rows is an event of {request.app.name}{why}")
        fields = list(record.state[0])
        order = [*(["ts"] if "ts" in fields else []), "_file", "_row"]
        fits = fitted.where(F.col("_reason").isNull())
        fits.orderBy(*order).select(*fields).write.parquet(str(sorted_rows))
        if aside:
            _keep(fitted, request.files, folder / "aside")
            _add_samples(folder / "aside", aside)
    finally:
        fitted.unpersist()
    parts = [workload.write_part(folder, i, table) for i, table in enumerate(_numbered(sorted_rows, request))]
    shutil.rmtree(links)
    shutil.rmtree(sorted_rows)
    _check_counts(folder, read)
    about = {
        "files": request.files.names,
        "map": {field: request.mapping[field] for field in fields},
        "unit": request.unit,
        "rows": total,
        "aside": aside,
    }
    workload.seal_imported(folder, request.app, request.params, parts, about)


def _rows_read(sources: Files, fitted: DataFrame) -> int:
    """The number of rows of all files: for Parquet from the files, else from the numbers that the readers gave."""
    if sources.kind == "parquet":
        return Parts(sources.targets).rows
    last = fitted.groupBy("_file").agg(F.max("_row").alias("rows")).collect()
    return sum(row["rows"] for row in last)


def _check_counts(folder: Path, read: int) -> None:
    """Raise CommandFailed unless the written files hold every row, as an event or set aside.

    Args:
        folder: The workload.
        read: Number of rows in the user's files.
    """
    events, aside = Parts.of(folder / "events").rows, Parts.of(folder / "aside").rows
    if read != events + aside:
        raise CommandFailed(
            f"the import read {read:,} rows, but wrote {events:,} events and set {aside:,} rows aside. "
            "This is a fault of Lockstep; please report it. No workload was written"
        )


def _fitted(rows: DataFrame, request: Request, record: Resolved, columns: dict[str, bool]) -> DataFrame:
    """The rows with a column for every field, and `_reason`: why the row is not an event, or null."""
    raw = _raw(request, record, columns)
    staged = rows.select("*", *(text.alias(f"r_{name}") for name, text in raw.items()))
    fitted = []
    for name in raw:
        value, why = fitting.field(record, name, F.col(f"r_{name}"), request.unit, request.files.kind == "csv")
        fitted.append(F.struct(value.alias("value"), why.alias("why")).alias(f"f_{name}"))
    # The original values are needed only for rows that are set aside.
    staged = staged.select("*", *fitted).withColumn("_reason", F.coalesce("_torn", *(f"f_{name}.why" for name in raw)))
    kept = ["_line", "_raw", *(name for name in rows.columns if name[0] == "c")]
    original = F.when(F.col("_reason").isNotNull(), F.struct(*kept))
    values = (F.col(f"f_{name}.value").alias(name) for name in raw)
    return staged.select(*values, "_file", "_row", "_reason", original.alias("_original"))


def _raw(request: Request, record: Resolved, columns: dict[str, bool]) -> dict[str, Column]:
    """The column of each field, as text or as a list of texts."""
    raw = {}
    for name, slot in record.state[0].items():
        column = files.column_of(request.files, columns, request.mapping[name])
        if request.files.kind == "parquet":
            kind = (request.files.columns or {})[request.mapping[name]]
            assert kind is not None
            column = fitting.as_text(column, kind, slot.type)
        raw[name] = column
    return raw


def _count(sources: Files, counts: list[Row]) -> tuple[list[dict[str, Any]], int, int]:
    """Count the rows.

    Args:
        sources: The files.
        counts: Number of rows and first row, by reason.

    Returns:
        A list of the reasons, the most frequent first, each with its number of rows and its first row. Then the number
        of events and the number of all rows.

    Raises:
        BadInput: A file is damaged.
    """
    for row in counts:
        if row["at"]["_row"] == 0:
            why = row["_reason"].removeprefix(files.UNREADABLE)
            raise _damaged(sources.names[row["at"]["_file"]], why)
    aside = [
        {"reason": row["_reason"], "rows": row["rows"], "file": sources.names[row["at"][0]], "row": row["at"][1]}
        for row in counts
        if row["_reason"] is not None
    ]
    total = sum(row["rows"] for row in counts)
    events = sum(row["rows"] for row in counts if row["_reason"] is None)
    return sorted(aside, key=lambda one: (-one["rows"], one["reason"])), events, total


def _at(one: dict[str, Any]) -> str:
    return f"{one['file']}, row {one['row']}"


def _keep(fitted: DataFrame, sources: Files, folder: Path) -> None:
    """Write the rows that are set aside in the order of the files: their values, and the bytes of text files."""
    names = list(sources.columns or ())
    columns = [F.col("_original._line").alias("_line"), F.col("_original._raw").alias("_raw")]
    types = dict(fitted.select("_original.*").dtypes)
    for i, name in enumerate(names):
        column = F.col(f"_original.c{i}")
        columns.append((F.make_valid_utf8(column) if types[f"c{i}"] == "string" else column).alias(name))
    named = F.get(F.array(*map(F.lit, sources.names)), F.col("_file")).alias("_file")
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


def _numbered(folder: Path, request: Request) -> Iterator[pa.Table]:
    """The sorted events, numbered, in chunks of a workload."""
    schema, start = workload.schema(request.app, request.params), 0
    for table in Parts(_written(folder)).slices(workload.CHUNK):
        seq = to_arrow(np.arange(start, start + table.num_rows))
        yield table.add_column(0, "seq", seq).cast(schema)
        start += table.num_rows
