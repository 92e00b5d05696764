"""Reads a user's files for an import: their kind and columns, and their rows, unchanged.

Values are text, except for binary columns of Parquet. parquet.py reads Parquet, and records.py reads the other kinds.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_core.errors import BadInput
from streaming_core.importing import parquet, records
from streaming_core.importing.parquet import Rows
from streaming_core.importing.paths import open_regular, regular_files
from streaming_core.importing.records import Record, Value

KINDS = {".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}
SUFFIXES = f"{', '.join(KINDS)}; all except .parquet also with .gz or .bz2"
NO_NAMES = "the first line must contain the column names, but looks like a row"
# Most rows and characters that are read at a time.
BATCH_ROWS, BATCH_CHARACTERS = 8192, 8 << 20


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
        if kind == "csv" and looks_like_row(names):
            raise BadInput(f"{path}: {NO_NAMES}: {', '.join(names)}")
        raise BadInput(f"{path} has two columns named {twice!r}: rename one")
    return dict(columns)


def looks_like_row(names: Iterable[str]) -> bool:
    """Whether the first line of a CSV file has values instead of names."""
    return any(re.fullmatch(r"[+-]?\d+(\.\d+)?", name.strip()) for name in names)


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


# --- rows ------------------------------------------------------------------------------------------------------------


def rows(files: Files, number: int, names: list[str], needed: Sequence[int], lists: Sequence[int]) -> Iterator[Rows]:
    """The rows of a file in order.

    Args:
        files: The files.
        number: The number of the file.
        names: Its columns; for JSON lines, the keys that fields need. Other keys are ignored.
        needed: Numbers of the columns that fields need.
        lists: Those of them that hold lists.

    Raises:
        BadInput: The file is damaged.
    """
    path, target = files.paths[number], files.targets[number]
    try:
        if files.kind == "parquet":
            yield from parquet.read(target, needed, lists, (BATCH_ROWS, BATCH_CHARACTERS))
        else:
            yield from _text_rows(target, path.suffix, files.kind, files.separator, names, lists)
    except (OSError, EOFError, zlib.error, pa.ArrowException, ValueError, OverflowError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error).partition("\n")[0]
        damage = "it is damaged, or its name has the wrong ending"
        raise BadInput(f"{path} cannot be read: {damage} ({why})") from None


def _text_rows(
    target: Path, suffix: str, kind: str, separator: str, names: list[str], lists: Sequence[int]
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


def _rows(held: list[Record], kind: str, columns: int, lists: Sequence[int]) -> Rows:
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
