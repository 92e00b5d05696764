"""Reads a user's files for an import: their kind and columns, and their rows as a Spark table, unchanged.

The table has the columns c0, c1, ... in the order of the file, and:

- `_file`: the number of the file among all files of the import;
- `_row`: the number of the row in the file, from 1;
- `_line`: the number of the row's first line; null for Parquet;
- `_raw`: the bytes of the row without its line break; for Parquet, the bytes of a text that is not UTF-8;
- `_torn`: why the row could not be split into values, or null;
- l0, l1, ... for columns that hold lists: null for a value that is not a list.

Values are text, except for binary columns of Parquet. One task reads a whole file, so that rows keep their order and
have numbers. parquet.py reads Parquet, and records.py reads the other kinds. Both explain why Spark does not.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs import parquet, records
from jobs.parquet import Rows, is_binary
from jobs.paths import open_regular, regular_files
from jobs.records import Record, Value
from streaming_core.errors import BadInput

KINDS = {".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}
SUFFIXES = f"{', '.join(KINDS)}; all except .parquet also with .gz or .bz2"
UNREADABLE = "the file cannot be read: "
# The size of the batches that a task gives to Spark.
BATCH_ROWS, BATCH_CHARACTERS = 8192, 8 << 20
_SETTINGS = {
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
}


@dataclass(frozen=True)
class Files:
    """Files of one kind with the same columns.

    Attributes:
        paths: The files, as the user names them.
        targets: The same files, without links.
        kind: parquet, csv or json.
        columns: Name -> type, which is None for CSV. None for JSON lines, where each line has its own columns.
        separator: The character between the columns of CSV.
    """

    paths: list[Path]
    targets: list[Path]
    kind: str
    columns: dict[str, pa.DataType | None] | None
    separator: str

    @property
    def names(self) -> list[str]:
        """The paths as text."""
        return [str(path) for path in self.paths]


def find_files(named: list[Path], separator: str | None, roots: Sequence[Path] | None = None) -> Files:
    """Find the named files, and the files in named folders.

    Args:
        named: Files and folders.
        separator: The character between the columns of CSV; None means a comma, or a tab in .tsv files.
        roots: The folders that may be read; None means every folder.

    Raises:
        BadInput: A file may not be read (paths.regular_files), is of an unknown kind, in the list twice, or without
            columns. Or two files have different kinds or columns.
    """
    pairs = [pair for path in named for pair in regular_files(path, roots)]
    paths, targets = [path for path, _ in pairs], [target for _, target in pairs]
    if twice := next((path for path, target in pairs if targets.count(target) > 1), None):
        raise BadInput(f"{twice} is in the list twice: name each file once")
    kinds = {path: kind_of(path) for path in paths}
    kind = kinds[paths[0]]
    if other := next((path for path in paths if kinds[path] != kind), None):
        raise BadInput(f"{paths[0]} is {kind}, but {other} is {kinds[other]}: import files of one kind at a time")
    if separator is None:
        separator = "\t" if ".tsv" in (suffix.lower() for suffix in paths[0].suffixes) else ","
    if len(separator) != 1 or separator in '"\r\n':
        raise BadInput(f"--separator {separator!r}: give one character, which is not a quote or a line break")
    columns = {path: _columns(path, target, kind, separator) for path, target in pairs}
    first = columns[paths[0]]
    for path in paths:
        if columns[path] != first:
            raise BadInput(
                f"{path} and {paths[0]} have different columns: {_list(columns[path])}; {_list(first)}. "
                "Import them one at a time"
            )
    return Files(paths, targets, kind, first, separator)


def kind_of(path: Path) -> str:
    """The kind of a file by its name.

    Raises:
        BadInput: It has none.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compressed = bool(suffixes) and suffixes[-1] in COMPRESSED
    kind = KINDS.get(suffixes[-2 if compressed else -1]) if len(suffixes) > compressed else None
    if kind is None or (kind == "parquet" and compressed):
        raise BadInput(f"{path}: the name of a file must end in one of {SUFFIXES}")
    return kind


def _list(columns: dict[str, pa.DataType | None] | None) -> str:
    return ", ".join(name if kind is None else f"{name} ({kind})" for name, kind in (columns or {}).items())


def _columns(path: Path, target: Path, kind: str, separator: str) -> dict[str, pa.DataType | None] | None:
    """The columns of a file; None for JSON lines. Raises BadInput if the file cannot be read."""
    try:
        if kind == "parquet":
            with open_regular(target) as raw, pq.ParquetFile(raw) as file:
                columns = [(field.name, field.type) for field in file.schema_arrow]
        else:
            if kind == "json":
                _start(target, path.suffix)
                return None
            header = records.csv_header(io.StringIO(_start(target, path.suffix), newline=""), separator)
            if not all(records.is_utf8(name) for name in header):
                raise BadInput(f"{path}: the names of its columns are not UTF-8: convert the file to UTF-8")
            columns = [(name.strip(), None) for name in header]
            if not any(name for name, _ in columns):
                raise BadInput(f"{path} has no column names: its first line must contain them")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error, pa.ArrowException, csv.Error, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {str(error).strip().partition(chr(10))[0]}") from None
    names = [name for name, _ in columns]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInput(f"{path} has two columns named {twice!r}: rename one")
    return dict(columns)


def _start(target: Path, suffix: str) -> str:
    """The first megabyte of a file, uncompressed, which holds more than the column names."""
    with _opened(target, suffix) as file:
        text = file.read(1 << 20)
    # The last character may be cut.
    return text.decode("utf-8", "surrogateescape")


@contextmanager
def _opened(target: Path, suffix: str) -> Iterator[BinaryIO]:
    """The content of a file, uncompressed. The suffix is that of the name that the user gave."""
    with open_regular(target) as raw:
        unpack = COMPRESSED.get(suffix.lower())
        if unpack is None:
            yield raw
        else:
            with unpack(raw, "rb") as file:
                yield file


# --- in Spark --------------------------------------------------------------------------------------------------------


@contextmanager
def settings(spark: SparkSession) -> Iterator[None]:
    """Apply _SETTINGS to the session during the block."""
    before = {name: spark.conf.get(name, None) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def rows(spark: SparkSession, files: Files, columns: dict[str, bool], first: int) -> DataFrame:
    """The rows of all files.

    Args:
        spark: The session.
        files: The files.
        columns: The columns that fields need -> whether the column holds lists. Other keys of JSON lines are ignored.
        first: The number of the first file.
    """
    names = list(columns) if files.columns is None else list(files.columns)
    types = [pa.binary() if files.columns and is_binary(files.columns[name]) else pa.string() for name in names]
    lists = [i for i, name in enumerate(names) if columns.get(name)]
    needed = [i for i, name in enumerate(names) if name in columns]
    sources = [(target, path.suffix) for path, target in zip(files.paths, files.targets, strict=True)]
    schema = ", ".join(
        [
            "_file int, _row bigint, _line bigint, _raw binary, _torn string",
            *(f"c{i} {type_}" for i, type_ in enumerate(types)),
            *(f"l{i} array<string>" for i in lists),
        ]
    )
    kind, separator = files.kind, files.separator

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                target, suffix = sources[number]
                if kind == "parquet":
                    read_rows = parquet.read(target, needed, lists, (BATCH_ROWS, BATCH_CHARACTERS))
                else:
                    read_rows = _text_rows(target, suffix, kind, separator, names, lists)
                yield from _batches(first + number, types, lists, read_rows)

    return spark.range(0, len(sources), 1, len(sources)).mapInArrow(read, schema)


def column_of(files: Files, columns: dict[str, bool], name: str) -> Column:
    """The column of `rows` with a column of the files; the list column if the field is a list."""
    names = list(columns) if files.columns is None else list(files.columns)
    return F.col(f"{'l' if columns[name] else 'c'}{names.index(name)}")


def _batches(number: int, types: list[pa.DataType], lists: list[int], read: Iterator[Rows]) -> Iterator[pa.RecordBatch]:
    """The rows of one file, in a task. For a damaged file, the last row has number 0 and the reason in `_torn`."""
    before = 0
    try:
        for rows in read:
            yield _batch(number, before, lists, rows)
            before += len(rows.raw)
    except (OSError, EOFError, zlib.error, pa.ArrowException, ValueError, OverflowError) as error:
        text = (error.strerror if isinstance(error, OSError) else None) or str(error).partition("\n")[0]
        values = [pa.nulls(1, type_) for type_ in types]
        items = {i: pa.nulls(1, pa.list_(pa.string())) for i in lists}
        reason = Rows(values, items, pa.nulls(1, pa.binary()), pa.array([UNREADABLE + text]))
        yield _batch(number, -1, lists, reason)


def _batch(number: int, before: int, lists: list[int], rows: Rows) -> pa.RecordBatch:
    """Rows as a batch for Spark, behind so many earlier rows of the file of this number."""
    count = len(rows.raw)
    lines = pa.nulls(count, pa.int64()) if rows.lines is None else rows.lines
    numbers = [pa.array([number] * count, pa.int32()), pa.array(range(before + 1, before + 1 + count), pa.int64())]
    names = ["_file", "_row", "_line", "_raw", "_torn", *(f"c{i}" for i in range(len(rows.values)))]
    items = [rows.items[i] for i in lists]
    return pa.RecordBatch.from_arrays(
        [*numbers, lines, rows.raw, rows.reasons, *rows.values, *items], names=[*names, *(f"l{i}" for i in lists)]
    )


def _text_rows(
    target: Path, suffix: str, kind: str, separator: str, names: list[str], lists: list[int]
) -> Iterator[Rows]:
    """The rows of a file of text."""
    held: list[Record] = []
    characters = 0
    with _opened(target, suffix) as packed, records.decoded(packed) as text:
        if kind == "json":
            read = records.json_records(text, names, frozenset(names[i] for i in lists))
        else:
            read = records.csv_records(text, separator, len(names))
        for record in read:
            held.append(record)
            characters += len(record.text)
            if len(held) == BATCH_ROWS or characters > BATCH_CHARACTERS:
                yield _rows(held, kind, len(names), lists)
                held, characters = [], 0
    if held:
        yield _rows(held, kind, len(names), lists)


def _rows(held: list[Record], kind: str, columns: int, lists: list[int]) -> Rows:
    nothing: list[Value] = [None] * columns
    values = [list(column) for column in zip(*(nothing if r.values is None else r.values for r in held), strict=True)]
    items: dict[int, list] = {}
    for i in lists:
        if kind == "json":
            items[i], values[i] = values[i], [None] * len(held)
        else:
            items[i] = [None if value is None else records.items(value) for value in values[i]]
    return Rows(
        [pa.array(column, pa.string()) for column in values],
        {i: pa.array(column, pa.list_(pa.string())) for i, column in items.items()},
        pa.array([record.raw for record in held], pa.binary()),
        pa.array([record.reason for record in held], pa.string()),
        pa.array([record.line for record in held], pa.int64()),
    )
