"""Tables in Parquet files: their names, how to write and read them, and the refusal of damaged files.

A table of outputs, events or a recording's rows is a folder of part-00000.parquet, part-00001.parquet, and so on. The
parts by number hold its rows in delivered order. A table without rows has a part too, which holds the columns. A final
table is one file of its name in the folder state/.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_core import interruption, storage
from streaming_core.errors import BadInput

PART_ROWS = 1 << 20  # rows after which a writer begins another part
AHEAD = 2  # tables that are read while one is in use
WAITING = 4  # tables at most that wait for a writer
_INT64 = np.iinfo(np.int64)
T = TypeVar("T")


def part_path(folder: Path, number: int) -> Path:
    """The file of part `number` of the table in a folder."""
    return folder / f"part-{number:05d}.parquet"


def part_number(path: Path) -> int:
    """The number of the part in a file."""
    return int(path.stem.removeprefix("part-"))


def states(folder: Path) -> dict[str, Parts]:
    """The final tables below the folder of a result, by name."""
    return {path.stem: Parts([path]) for path in sorted((folder / "state").glob("[!._]*.parquet"))}


# --- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """A table in files, in delivered order.

    Every method that reads raises BadInput for a missing, truncated or damaged file, and names the file.
    """

    paths: list[Path]

    @classmethod
    def of(cls, folder: Path) -> Parts:
        """The parts in a folder, by number, whatever the number of digits."""
        return cls(sorted(folder.glob("part-*.parquet"), key=lambda path: (len(path.name), path.name)))

    @cached_property
    def _footers(self) -> list[tuple[pa.Schema, int]]:
        footers = []
        for path in self.paths:
            with _open(path) as file:
                footers.append((file.schema_arrow, file.metadata.num_rows))
            if footers[-1][0] != footers[0][0]:
                raise BadInput(f"{path} must have the same columns as {self.paths[0].name}")
        return footers

    @property
    def schema(self) -> pa.Schema:
        """The columns; there is a file."""
        return self._footers[0][0]

    @property
    def sizes(self) -> list[int]:
        """Number of rows in each file."""
        return [rows for _, rows in self._footers]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(self.sizes)

    def slices(self, size: int, columns: list[str] | None = None, start: int = 0) -> Iterator[pa.Table]:
        """The rows from number `start` on, `size` at a time whatever the files and row groups, but for the last."""
        pending: list[pa.RecordBatch] = []
        rows = 0
        for path in self.paths:
            with _open(path) as file:
                if start >= file.metadata.num_rows:
                    start -= file.metadata.num_rows
                    continue
                for batch in file.iter_batches(size, columns=columns):
                    interruption.check()
                    start, batch = max(0, start - batch.num_rows), batch.slice(start)
                    pending.append(batch)
                    rows += batch.num_rows
                    while rows >= size:
                        table = _whole(pending, columns)
                        yield table.slice(0, size)
                        pending, rows = table.slice(size).to_batches(), rows - size
        if rows:
            yield _whole(pending, columns)

    @cached_property
    def _groups(self) -> list[tuple[Path, int, int, int]]:
        """File and number of each row group, and its smallest and largest seq."""
        groups = []
        for path in self.paths:
            with _open(path) as file:
                at = file.schema.names.index("seq")
                for number in range(file.num_row_groups):
                    seqs = file.metadata.row_group(number).column(at).statistics
                    limits = (seqs.min, seqs.max) if seqs and seqs.has_min_max else (_INT64.min, _INT64.max)
                    groups.append((path, number, *limits))
        return groups

    def between(self, low: int, high: int, columns: list[str]) -> pa.Table:
        """The rows with low <= seq <= high, in order, of these columns. There is a file.

        It reads only row groups that may hold such rows.
        """
        tables = [self.schema.empty_table().select(columns)]
        for path, number, least, most in self._groups:
            if least <= high and most >= low:
                with _open(path) as file:
                    rows = file.read_row_group(number, columns).select(columns)
                tables.append(rows.filter((pc.field("seq") >= low) & (pc.field("seq") <= high)))
        return pa.concat_tables(tables)

    def read(self, columns: list[str] | None = None) -> pa.Table:
        """All rows, in memory; nothing is made of the names of the folders above. There is a file."""
        tables = []
        for path in self.paths:
            with _open(path) as file:
                table = file.read(columns)
            tables.append(table if columns is None else table.select(columns))
        return pa.concat_tables(tables)


def ahead(tables: Iterable[T]) -> Iterator[T]:
    """The same tables. While one is in use, a thread reads the next ones.

    Yields:
        Each table. What fails in the thread is raised where the table would have come.
    """
    left = iter(tables)
    with ThreadPoolExecutor(1, "reading") as reading:
        coming = deque(reading.submit(next, left, None) for _ in range(AHEAD))
        while (table := coming.popleft().result()) is not None:
            coming.append(reading.submit(next, left, None))
            yield table


@contextmanager
def _open(path: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except MemoryError:  # one of Arrow's errors, and nothing the file can help
        raise
    except FileNotFoundError:
        raise BadInput(f"{path} is missing") from None
    except (OSError, pa.ArrowException) as error:
        raise BadInput(f"cannot read {path}: {str(error).strip().partition(chr(10))[0]}") from None


def _whole(batches: list[pa.RecordBatch], columns: list[str] | None) -> pa.Table:
    table = pa.Table.from_batches(batches)
    return table if columns is None else table.select(columns)


# --- writing ---------------------------------------------------------------------------------------------------------


def write_file(path: Path, table: pa.Table, **layout: Any) -> None:
    """Writes one file; `layout` as for pyarrow."""
    pq.write_table(table, path, **_layout(table.schema) | layout)


def write_tables(path: Path | BinaryIO, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Write one file of several tables. One of them is in memory at a time."""
    with pq.ParquetWriter(path, schema, **_layout(schema)) as file:
        for table in tables:
            file.write_table(table)


def write_whole(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """As `write_tables`, but the file is absent or whole at any moment."""
    with storage.replacing(path) as file:
        write_tables(file, schema, tables)


def write_states(folder: Path, tables: dict[str, pa.Table]) -> None:
    """Writes the final tables of a result, by name, into its folder."""
    (folder / "state").mkdir()
    for name, table in tables.items():
        write_file(folder / "state" / f"{name}.parquet", table)


def _layout(schema: pa.Schema) -> dict[str, Any]:
    """How columns are written: numbers as they are, because dictionaries of numbers cost time and seldom save space."""
    texts = [field.name for field in schema if pa.types.is_binary(field.type) or pa.types.is_string(field.type)]
    return {"compression": "zstd", "compression_level": 1, "use_dictionary": texts or False}


class Writer:
    """Rows in delivered order into the parts of a folder; the first `parts` of them are there already.

    Files are written in a thread of their own; what fails there is raised by one of the next calls. A writer is a
    context: when it is left, no thread writes any more, and without an error all is written. `parts` is right after
    `cut`, and in the end.
    """

    def __init__(self, folder: Path, schema: pa.Schema, parts: int = 0):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._schema = folder, schema
        self._writing = ThreadPoolExecutor(1, "writing")
        self._waiting: deque[Future] = deque()
        # Its thread's while a table waits, else the caller's.
        self._file: pq.ParquetWriter | None = None
        self._rows = 0
        self.parts = parts

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        try:
            if error is None:
                self.cut()
                if self.parts == 0:
                    self._open()
                    self._end_part()
        finally:
            self._writing.shutdown(cancel_futures=True)

    def _open(self) -> pq.ParquetWriter:
        self._file = pq.ParquetWriter(part_path(self.folder, self.parts), self._schema, **_layout(self._schema))
        self.parts += 1
        self._rows = 0
        return self._file

    def _end_part(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, table: pa.Table) -> None:
        if self._rows >= PART_ROWS:
            self._end_part()
        (self._file or self._open()).write_table(table)
        self._rows += table.num_rows

    def settle(self, waiting: int = 0) -> None:
        """Waits until no more tables wait than these."""
        while len(self._waiting) > waiting:
            self._waiting.popleft().result()

    def write(self, table: pa.Table) -> None:
        """Appends rows, which stay as they are."""
        self.settle(WAITING - 1)
        self._waiting.append(self._writing.submit(self._write, table))

    def cut(self) -> None:
        """Ends the current part, when all rows are in it; more rows start a new one."""
        self.settle(0)
        self._end_part()
