"""Events out of files that a user names, as a workload of an application (`lockstep import`).

Columns become fields of the application's event record, by name or as they are mapped (fitting.py says what a value may
be). Each value is kept exactly, or its row is set aside with the reason; records.py says how text files are read. Rows
read are events or rows set aside: an import whose files do not add up to that fails. Events are in the order of (ts,
file, row of the file), whatever Spark does with them, and numbered in it. A row that is there twice is two events.

Out: a folder with events/ and manifest.json, as every workload's, whose address hangs on the application's name, its
parameters and the content; and aside/part-*.parquet, if anything is set aside: `_file`, `_row`, `_reason`, the columns,
and `_line` and `_raw`, the bytes of the row (files.py).
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

# Of the rows set aside, the manifest shows samples: of how many reasons, rows of each, and characters of a row.
SAMPLED_REASONS, SAMPLES, SAMPLE_CHARACTERS = 10, 3, 300


@dataclass(frozen=True)
class Request:
    """What is to be imported, checked as far as files' columns tell.

    Attributes:
        mapping: field of the events -> column; fields without one have that of their name.
        unit: what an integer counts that is made of a time (fitting.UNITS).
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
    """What is asked for, before anything is read but the names of columns.

    Raises:
        BadInput: files (files.found), an application of several sources, an unknown unit, field or column.
    """
    if app.streams is not None:
        raise BadInput(
            f"app {app.name} has {len(app.streams.names)} sources ({', '.join(app.streams.names)}): events can be "
            "imported into an application of one"
        )
    if unit is not None and unit not in fitting.UNITS:
        raise BadInput(f"--unit {unit!r}: one of {', '.join(fitting.UNITS)}")
    fields = list(app.event.fields)
    for field in mapping:
        if field not in fields:
            raise BadInput(
                f"--map {field}: events of {app.name} have no field {field!r}; they have {', '.join(fields)}"
            )
    found = files.found(named, separator)
    for field in fields:
        column = mapping.setdefault(field, field)
        if found.columns is not None and column not in found.columns:
            raise BadInput(_missing(app, field, column, found))
    return Request(app, params, found, mapping, unit)


def _missing(app: App, field: str, column: str, found: Files) -> str:
    columns = list(found.columns or ())
    kind = app.event.fields[field]
    said = f"{found.names[0]} has no column {column!r} for the field {field} ({_said(kind)}) of {app.name}'s events"
    if found.kind == "csv" and any(re.fullmatch(r"[+-]?\d+(\.\d+)?", name.strip()) for name in columns):
        return f"{said}; its first line, {_few(columns)}, must be the names of its columns, and looks like a row"
    like = difflib.get_close_matches(column.lower(), [name.lower() for name in columns], 1)
    meant = next((name for name in columns if like and name.lower() == like[0]), "COLUMN")
    if found.kind == "csv" and len(columns) == 1 and re.search(r"[;\t|]", columns[0]):
        return f"{said}; it has one column, {columns[0]!r}: is it --separator that differs?"
    return f"{said}; it has {_few(columns)}: say --map {field}={meant}"


def _said(kind: object) -> str:
    return f"{kind.item.name}s" if isinstance(kind, Array) else getattr(kind, "name", type(kind).__name__)


def _few(names: list[str], most: int = 20) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def run(spark: SparkSession, asked: Request, out: Path) -> dict[str, Any]:
    """Writes the workload; returns its manifest, whose `imported` tells of the files and of what was kept aside.

    Raises:
        BadInput: `out` is not new or empty, a file that is damaged, or files of which no row is an event.
        CommandFailed: the disk is full, or fails; nothing stays.
    """
    try:
        with storage.held(out):
            check_out(out)
            with storage.appearing(out) as folder, files.settings(spark):
                _write(spark, asked, folder)
    except (PySparkException, Py4JError) as error:
        raise _failure(asked.files, error) from None
    except OSError as error:
        raise refusal(error, f"workload {out} cannot be written") from None
    return workload.read_manifest(out)


def _failure(found: Files, error: Exception) -> BadInput | CommandFailed:
    """What a failure of Spark says: that a file is damaged, if it names one, by its number; else nothing of files."""
    said = str(error)
    cause = re.findall(r"Caused by: [\w.$]*?(\w+Exception: .*)", said)
    why = (cause[-1] if cause else said.strip().partition("\n")[0])[:200]
    if number := re.search(r"/links/(\d{6})\.", said):
        name = found.names[int(number[1])]
        return BadInput(f"{name} cannot be read: it is damaged, or not what its name says ({why})")
    return CommandFailed(f"Spark failed: {why}")


def check_out(out: Path) -> None:
    """Raise BadInput unless a workload may be written to this folder."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} exists already: give a folder that is new or empty")


def _write(spark: SparkSession, asked: Request, folder: Path) -> None:
    links, sorted_rows = folder / "links", folder / "sorted"
    links.mkdir()
    record = asked.app.event.resolve(asked.params)
    wanted = {asked.mapping[name]: isinstance(slot.type, Array) for name, slot in record.state[0].items()}
    fitted = _fitted(files.rows(spark, asked.files, links, wanted), asked, record, wanted).persist()
    try:
        counts = fitted.groupBy("_reason").agg(F.count("*").alias("rows"), F.min(F.struct("_file", "_row")).alias("at"))
        aside, events, total = _told(asked.files, counts.collect())
        read = _rows_read(asked.files, fitted)
        if not events:
            why = f": {aside[0]['reason']} ({_at(aside[0])})" if aside else ""
            raise BadInput(f"{asked.files.names[0]}: of {total} rows none is an event of {asked.app.name}{why}")
        fields = list(record.state[0])
        order = [*(["ts"] if "ts" in fields else []), "_file", "_row"]
        fits = fitted.where(F.col("_reason").isNull())
        fits.orderBy(*order).select(*fields).write.parquet(str(sorted_rows))
        if aside:
            _keep(fitted, asked.files, folder / "aside")
            _add_samples(folder / "aside", aside)
    finally:
        fitted.unpersist()
    parts = [workload.write_part(folder, i, table) for i, table in enumerate(_numbered(sorted_rows, asked))]
    shutil.rmtree(links)
    shutil.rmtree(sorted_rows)
    _check_counts(folder, read)
    about = {
        "files": asked.files.names,
        "map": {field: asked.mapping[field] for field in fields},
        "unit": asked.unit,
        "rows": total,
        "aside": aside,
    }
    workload.seal_imported(folder, asked.app, asked.params, parts, about)


def _rows_read(found: Files, fitted: DataFrame) -> int:
    """Rows of all files, as the readers number them; of Parquet, as the files say themselves."""
    if found.kind == "parquet":
        return Parts(found.paths).rows
    last = fitted.groupBy("_file").agg(F.max("_row").alias("rows")).collect()
    return sum(row["rows"] for row in last)


def _check_counts(folder: Path, read: int) -> None:
    """Raise CommandFailed unless every row that was read is an event or was set aside, by the files that were written.

    Args:
        folder: The workload.
        read: Rows of the user's files.
    """
    events, aside = Parts.of(folder / "events").rows, Parts.of(folder / "aside").rows
    if read != events + aside:
        raise CommandFailed(
            f"{read:,} rows were read, but {events:,} became events and {aside:,} were set aside: "
            "this is a fault of the import, and nothing was written"
        )


def _fitted(rows: DataFrame, asked: Request, record: Resolved, wanted: dict[str, bool]) -> DataFrame:
    """The rows with a column for every field, and `_reason`: why the row is no event, or null."""
    raw = _raw(asked, record, wanted)
    staged = rows.select("*", *(given.alias(f"r_{name}") for name, given in raw.items()))
    fitted = []
    for name in raw:
        value, why = fitting.field(record, name, F.col(f"r_{name}"), asked.unit, asked.files.kind == "csv")
        fitted.append(F.struct(value.alias("value"), why.alias("why")).alias(f"f_{name}"))
    # What was given is needed of rows that are no events only.
    staged = staged.select("*", *fitted).withColumn("_reason", F.coalesce("_torn", *(f"f_{name}.why" for name in raw)))
    kept = ["_line", "_raw", *(name for name in rows.columns if name[0] == "c")]
    given = F.when(F.col("_reason").isNotNull(), F.struct(*kept))
    values = (F.col(f"f_{name}.value").alias(name) for name in raw)
    return staged.select(*values, "_file", "_row", "_reason", given.alias("_given"))


def _raw(asked: Request, record: Resolved, wanted: dict[str, bool]) -> dict[str, Column]:
    """What stands for each field, as text, or as a list of texts."""
    found = {}
    for name, slot in record.state[0].items():
        column = files.column_of(asked.files, wanted, asked.mapping[name])
        if asked.files.kind == "parquet":
            kind = (asked.files.columns or {})[asked.mapping[name]]
            assert kind is not None
            column = fitting.as_text(column, kind, slot.type)
        found[name] = column
    return found


def _told(found: Files, counts: list[Row]) -> tuple[list[dict[str, Any]], int, int]:
    """Of each reason how many rows were kept aside and which was the first, most first; the events; all rows.

    Raises:
        BadInput: A file is damaged.
    """
    for row in counts:
        if row["at"]["_row"] == 0:
            why = row["_reason"].removeprefix(files.UNREADABLE)
            name = found.names[row["at"]["_file"]]
            raise BadInput(f"{name} cannot be read: it is damaged, or not what its name says ({why})")
    aside = [
        {"reason": row["_reason"], "rows": row["rows"], "file": found.names[row["at"][0]], "row": row["at"][1]}
        for row in counts
        if row["_reason"] is not None
    ]
    total = sum(row["rows"] for row in counts)
    events = sum(row["rows"] for row in counts if row["_reason"] is None)
    return sorted(aside, key=lambda one: (-one["rows"], one["reason"])), events, total


def _at(one: dict[str, Any]) -> str:
    return f"{one['file']}, row {one['row']}"


def _keep(fitted: DataFrame, found: Files, folder: Path) -> None:
    """Writes what is no event, as it was, in the order of the files: values by column, and the bytes of a text file."""
    names = list(found.columns or ())
    given = [F.col("_given._line").alias("_line"), F.col("_given._raw").alias("_raw")]
    types = dict(fitted.select("_given.*").dtypes)
    for i, name in enumerate(names):
        column = F.col(f"_given.c{i}")
        given.append((F.make_valid_utf8(column) if types[f"c{i}"] == "string" else column).alias(name))
    named = F.get(F.array(*map(F.lit, found.names)), F.col("_file")).alias("_file")
    aside = fitted.where(F.col("_reason").isNotNull()).orderBy("_file", "_row")
    aside.select(named, "_row", "_reason", *given).write.parquet(str(folder))
    for number, path in enumerate(_written(folder)):
        path.rename(part_path(folder, number))
    for path in folder.iterdir():
        if path.name.startswith((".", "_")):
            path.unlink()


def _add_samples(folder: Path, aside: list[dict[str, Any]]) -> None:
    """Add to the first reasons a few of their rows: where each is, and its first characters.

    Bytes that are not UTF-8 become half surrogates, so that a page can tell them from text.
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
    """The parts that Spark wrote, in the order of the rows."""
    return sorted(folder.glob("part-*.parquet"))


def _numbered(folder: Path, asked: Request) -> Iterator[pa.Table]:
    """The sorted events as a workload's chunks."""
    schema, start = workload.schema(asked.app, asked.params), 0
    for table in Parts(_written(folder)).slices(workload.CHUNK):
        seq = to_arrow(np.arange(start, start + table.num_rows))
        yield table.add_column(0, "seq", seq).cast(schema)
        start += table.num_rows
