"""Files that a user names: which there are, of which kind, with which columns; and their rows, untouched, in Spark.

Rows come as columns c0, c1, ... in the file's order, whatever their names, beside `_file`, the number of the file among
those that were named, `_row`, the number of the row in it (the first is 1; of JSON lines it is the line), and `_torn`:
why the row could not be told apart into columns, if it could not. All but Parquet's are strings of the very bytes of
the file.

Every file is read by one task, whole: so its rows keep their order and have numbers.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from streaming_core.errors import BadInput

KINDS = {".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
COMPRESSED = {".gz": gzip.open, ".bz2": bz2.open}
READ = f"{', '.join(KINDS)}; all but .parquet also as .gz or .bz2"
# CSV is read as if each byte were a letter, so that texts keep the bytes that they have.
BYTES = "ISO-8859-1"
_SETTINGS = {
    # A file to a task.
    "spark.sql.files.maxPartitionBytes": str(1 << 50),
    "spark.sql.files.openCostInBytes": str(1 << 50),
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # pandas writes such timestamps, and Spark has none.
    "spark.sql.legacy.parquet.nanosAsLong": "true",
}


@dataclass(frozen=True)
class Files:
    """Files of one kind and the same columns: `kind` is parquet, csv or json; `columns` are names and, of Parquet,
    types. What JSON lines have, each says by itself: None."""

    paths: list[Path]
    kind: str
    columns: dict[str, pa.DataType | None] | None
    separator: str

    @property
    def names(self) -> list[str]:
        """As the user named them."""
        return [str(path) for path in self.paths]


def found(named: list[Path], separator: str | None) -> Files:
    """The files that are named, and those in folders that are, by name.

    Args:
        separator: of the columns of CSV; None: a comma, or a tab in .tsv.

    Raises:
        BadInput: there is none, or one that cannot be read, is of no known or another kind, is named twice, or has no
            columns or others than the first one.
    """
    paths: list[Path] = []
    for path in named:
        if path.is_dir():
            within = sorted(p for p in path.rglob("*") if p.is_file() and not _hidden(p.relative_to(path)))
            if not within:
                raise BadInput(f"folder {path} holds no file")
            paths += within
        elif path.exists():
            paths.append(path)
        else:
            raise BadInput(f"{path}: no such file")
    places = [path.resolve() for path in paths]
    if twice := next((path for path, place in zip(paths, places, strict=True) if places.count(place) > 1), None):
        raise BadInput(f"{twice} is named twice: each of its rows would be two events")
    kinds = {path: _kind(path) for path in paths}
    kind = kinds[paths[0]]
    if other := next((path for path in paths if kinds[path] != kind), None):
        raise BadInput(f"{paths[0]} is {kind} and {other} is {kinds[other]}: import files of one kind at a time")
    if separator is None:
        separator = "\t" if ".tsv" in (suffix.lower() for suffix in paths[0].suffixes) else ","
    if len(separator) != 1 or separator in '"\r\n':
        raise BadInput(f"--separator {separator!r}: give the one letter that stands between columns")
    columns = {path: _columns(path, kind, separator) for path in paths}
    first = columns[paths[0]]
    for path in paths:
        if columns[path] != first:
            raise BadInput(f"{path} has other columns than {paths[0]}: {_list(columns[path])}; there: {_list(first)}")
    return Files(paths, kind, first, separator)


def _hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _kind(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compressed = bool(suffixes) and suffixes[-1] in COMPRESSED
    kind = KINDS.get(suffixes[-2 if compressed else -1]) if len(suffixes) > compressed else None
    if kind is None or (kind == "parquet" and compressed):
        raise BadInput(f"{path}: a file is taken for what its name ends in: {READ}")
    return kind


def _list(columns: dict[str, pa.DataType | None] | None) -> str:
    return ", ".join(name if kind is None else f"{name} ({kind})" for name, kind in (columns or {}).items())


def _columns(path: Path, kind: str, separator: str) -> dict[str, pa.DataType | None] | None:
    """The columns of one file, which can be read."""
    try:
        if kind == "parquet":
            with pq.ParquetFile(path) as file:
                columns = [(field.name, field.type) for field in file.schema_arrow]
        else:
            start = _start(path)
            if kind == "json":
                return None
            text = start.decode(BYTES).removeprefix("\ufeff".encode().decode(BYTES))
            header = next(csv.reader(io.StringIO(text, newline=""), delimiter=separator), [])
            columns = [(name.encode(BYTES).decode("utf-8", "replace").strip(), None) for name in header]
            if not any(name for name, _ in columns):
                raise BadInput(f"{path} is empty: its first line must be the names of its columns")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error, pa.ArrowException, csv.Error) as error:
        raise BadInput(f"{path} cannot be read: {str(error).strip().partition(chr(10))[0]}") from None
    names = [name for name, _ in columns]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInput(f"{path} has two columns {twice!r}: name them apart")
    return dict(columns)


def _start(path: Path) -> bytes:
    """What a file begins with, unpacked: more than the names of columns take."""
    with COMPRESSED.get(path.suffix.lower(), open)(path, "rb") as file:  # type: ignore[operator]
        return file.read(1 << 20)


# --- in Spark --------------------------------------------------------------------------------------------------------


@contextmanager
def settings(spark: SparkSession) -> Iterator[None]:
    """The session reads files as is said above for the length of the block."""
    before = {name: spark.conf.get(name, None) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, was in before.items():
            spark.conf.unset(name) if was is None else spark.conf.set(name, was)


def rows(spark: SparkSession, files: Files, links: Path) -> DataFrame:
    """All rows. `links`: an empty folder, for names that Spark cannot take amiss; they are there until it is done."""
    for number, path in enumerate(files.paths):
        packed = path.suffix.lower() if path.suffix.lower() in COMPRESSED else ""
        (links / f"{number:06d}.{files.kind}{packed}").symlink_to(path.resolve())
    if files.kind == "parquet":
        frame, torn = spark.read.parquet(str(links)), F.lit(None).cast("string")
    elif files.kind == "csv":
        frame, torn = _csv(spark, files, links)
    else:
        frame = spark.read.text(str(links))
        torn = F.when(~F.expr("is_valid_utf8(value)"), "the line is not UTF-8")
    given = [column for column in frame.columns if column != "_torn"]
    numbered = frame.select(
        *(_column(frame, name).alias(f"c{i}") for i, name in enumerate(given)),
        torn.alias("_torn"),
        F.substring(F.col("_metadata.file_name"), 1, 6).cast("int").alias("_file"),
        (F.monotonically_increasing_id().bitwiseAND((1 << 33) - 1) + 1).alias("_row"),  # a task is a file
    )
    # A last line break is no row, nor is a line without any letter.
    return numbered.where(F.trim("c0") != "") if files.kind == "json" else numbered


def _csv(spark: SparkSession, files: Files, links: Path) -> tuple[DataFrame, Column]:
    names = [f"c{i}" for i in range(len(files.columns or ()))]
    frame = spark.read.csv(
        str(links),
        schema=T.StructType([T.StructField(name, T.StringType()) for name in [*names, "_torn"]]),
        sep=files.separator,
        header=True,
        multiLine=True,  # what stands in quotes may have several lines
        encoding=BYTES,
        quote='"',
        escape='"',
        mode="PERMISSIVE",
        columnNameOfCorruptRecord="_torn",
    )
    bytes_of = [F.encode(F.col(name), BYTES).cast("string").alias(name) for name in names]
    wrong = F.when(F.col("_torn").isNotNull(), f"the row has not {len(names)} columns")
    return frame.select(*bytes_of, "_torn", "_metadata"), wrong


def _column(frame: DataFrame, name: str) -> Column:
    return frame[f"`{name.replace('`', '``')}`"]
