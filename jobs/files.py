"""Reads a user's files for an import: their kind and columns, and their rows as a Spark table, unchanged.

The table has the columns c0, c1, ... in the order of the file, and:

- `_file`: the number of the file among all files of the import;
- `_row`: the number of the row in the file, from 1;
- `_line`: the number of the row's first line; null for Parquet;
- `_raw`: the bytes of the row without its line break; for Parquet, the bytes of a text that is not UTF-8;
- `_torn`: why the row could not be split into values, or null;
- l0, l1, ... for columns that hold lists: null for a value that is not a list.

One task reads a whole file, so that rows keep their order and have numbers. Spark reads Parquet. records.py reads the
other kinds in Python, and explains why.
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

from jobs import records
from jobs.paths import open_regular, regular_files
from jobs.records import Record, Value
from streaming_core.errors import BadInput

# Parquet types that Spark cannot read, by their name in the error.
UNREAD: dict[str, Callable[[pa.DataType], bool]] = {
    "float16": pa.types.is_float16,
    "time of day": pa.types.is_time,
    "decimal of more than 38 digits": pa.types.is_decimal256,
}
KINDS = {".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}
SUFFIXES = f"{', '.join(KINDS)}; all except .parquet also with .gz or .bz2"
UNREADABLE = "the file cannot be read: "
# The size of the batches that a task gives to Spark.
BATCH_ROWS, BATCH_CHARACTERS = 8192, 8 << 20
_SETTINGS = {
    # One file per task.
    "spark.sql.files.maxPartitionBytes": str(1 << 50),
    "spark.sql.files.openCostInBytes": str(1 << 50),
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # pandas writes timestamps in nanoseconds, which Spark does not have.
    "spark.sql.legacy.parquet.nanosAsLong": "true",
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
    kinds = {path: _kind(path) for path in paths}
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


def _kind(path: Path) -> str:
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
    except (EOFError, zlib.error, pa.ArrowException, csv.Error) as error:
        raise BadInput(f"{path} cannot be read: {str(error).strip().partition(chr(10))[0]}") from None
    names = [name for name, _ in columns]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInput(f"{path} has two columns named {twice!r}: rename one")
    for name, type_ in columns:
        if type_ is not None and (unread := _unread(type_)):
            raise BadInput(
                f"{path}: column {name!r} is {type_}; the type {unread} cannot be imported: convert the column"
            )
    return dict(columns)


def _unread(kind: pa.DataType) -> str | None:
    """The name of the part of a type that Spark cannot read; None if it can read all of it."""
    parts = [kind.field(i).type for i in range(kind.num_fields)]
    if pa.types.is_dictionary(kind):
        parts.append(kind.value_type)
    own = next((name for name, is_of in UNREAD.items() if is_of(kind)), None)
    return own or next((unread for part in parts if (unread := _unread(part))), None)


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


def rows(spark: SparkSession, files: Files, links: Path, columns: dict[str, bool], first: int) -> DataFrame:
    """The rows of all files.

    Args:
        spark: The session.
        files: The files.
        links: An empty folder for links with plain names to Parquet files, because Spark reads some characters in names
            as patterns. Spark needs it until it has read the files.
        columns: The columns that fields need -> whether the column holds lists. Other keys of JSON lines are ignored.
        first: The number of the first file.
    """
    if files.kind == "parquet":
        return _parquet(spark, files, links, columns, first)
    names = list(columns) if files.columns is None else list(files.columns)
    lists = [i for i, name in enumerate(names) if columns.get(name)]
    sources = [(target, path.suffix) for path, target in zip(files.paths, files.targets, strict=True)]
    schema = ", ".join(
        [
            "_file int, _row bigint, _line bigint, _raw binary, _torn string",
            *(f"c{i} string" for i in range(len(names))),
            *(f"l{i} array<string>" for i in lists),
        ]
    )
    kind, separator = files.kind, files.separator

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                target, suffix = sources[number]
                yield from _batches(first + number, target, suffix, kind, separator, names, lists)

    return spark.range(0, len(sources), 1, len(sources)).mapInArrow(read, schema)


def column_of(files: Files, columns: dict[str, bool], name: str) -> Column:
    """The column of `rows` with a column of the files; the list column if the field is a list, except for Parquet."""
    names = list(columns) if files.columns is None else list(files.columns)
    is_list = columns[name] and files.kind != "parquet"
    return F.col(f"{'l' if is_list else 'c'}{names.index(name)}")


def _parquet(spark: SparkSession, files: Files, links: Path, columns: dict[str, bool], first: int) -> DataFrame:
    for number, target in enumerate(files.targets, first):
        (links / f"{number:06d}.parquet").symlink_to(target)
    frame = spark.read.parquet(str(links))
    # Spark accepts any bytes in a text column. A binary column may have any bytes.
    texts = [name for name, kind in frame.dtypes if kind == "string" and name in columns]
    wrong = {name: ~F.is_valid_utf8(_column(frame, name)) for name in texts}
    faults = [F.when(is_wrong, F.lit(f"{name} is not UTF-8")) for name, is_wrong in wrong.items()]
    bytes_of = [F.when(is_wrong, _column(frame, name).cast("binary")) for name, is_wrong in wrong.items()]
    return frame.select(
        *(_column(frame, name).alias(f"c{i}") for i, name in enumerate(frame.columns)),
        F.coalesce(F.lit(None).cast("string"), *faults).alias("_torn"),
        F.lit(None).cast("bigint").alias("_line"),
        F.coalesce(F.lit(None).cast("binary"), *bytes_of).alias("_raw"),
        F.substring(F.col("_metadata.file_name"), 1, 6).cast("int").alias("_file"),
        (F.monotonically_increasing_id().bitwiseAND((1 << 33) - 1) + 1).alias("_row"),  # a task is a file
    )


def _column(frame: DataFrame, name: str) -> Column:
    return frame[f"`{name.replace('`', '``')}`"]


def _batches(
    number: int, target: Path, suffix: str, kind: str, separator: str, names: list[str], lists: list[int]
) -> Iterator[pa.RecordBatch]:
    """The rows of one file, in a task. For a damaged file, the last row has number 0 and the reason in `_torn`."""
    held: list[Record] = []
    characters = rows = 0
    try:
        with _opened(target, suffix) as packed, records.decoded(packed) as text:
            if kind == "json":
                read = records.json_records(text, names, frozenset(names[i] for i in lists))
            else:
                read = records.csv_records(text, separator, len(names))
            for record in read:
                held.append(record)
                characters += len(record.text)
                if len(held) == BATCH_ROWS or characters > BATCH_CHARACTERS:
                    yield _batch(number, rows, held, kind, len(names), lists)
                    rows += len(held)
                    held, characters = [], 0
    except (OSError, EOFError, zlib.error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        yield _batch(number, -1, [Record(0, "", None, UNREADABLE + reason)], kind, len(names), lists)
        return
    if held:
        yield _batch(number, rows, held, kind, len(names), lists)


def _batch(number: int, before: int, held: list[Record], kind: str, columns: int, lists: list[int]) -> pa.RecordBatch:
    """Records as a batch for Spark.

    Args:
        number: Number of the file.
        before: Number of earlier records of the file.
        held: The records.
        kind: Kind of the file: csv or json.
        columns: Number of columns.
        lists: Numbers of the columns that hold lists.
    """
    nothing: list[Value] = [None] * columns
    values = [list(column) for column in zip(*(nothing if r.values is None else r.values for r in held), strict=True)]
    items: dict[int, list] = {}
    for i in lists:
        if kind == "json":
            items[i], values[i] = values[i], [None] * len(held)
        else:
            items[i] = [None if value is None else records.items(value) for value in values[i]]
    arrays = [
        pa.array([number] * len(held), pa.int32()),
        pa.array(range(before + 1, before + 1 + len(held)), pa.int64()),
        pa.array([record.line for record in held], pa.int64()),
        pa.array([record.raw for record in held], pa.binary()),
        pa.array([record.reason for record in held], pa.string()),
        *(pa.array(column, pa.string()) for column in values),
        *(pa.array(items[i], pa.list_(pa.string())) for i in lists),
    ]
    fixed = ["_file", "_row", "_line", "_raw", "_torn"]
    return pa.RecordBatch.from_arrays(
        arrays, names=[*fixed, *(f"c{i}" for i in range(columns)), *(f"l{i}" for i in lists)]
    )
