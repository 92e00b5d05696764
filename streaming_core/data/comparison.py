"""The comparison of two tables: their columns, and their rows one by one, by key or as multisets.

Read `Difference` first, then `matched`, which compares two tables in files.

`expected` is the table of the oracle, and `actual` the one to check. Two rows are equal if all their values are; floats
are compared bit by bit. A wrong row is `missing` (only the oracle has it), `extra` (the oracle lacks it), `different`
or `out_of_order`. `streaming-core diff` and the raw warehouse use the same kinds.

Memory does not grow with the rows of tables in files. If rows line up, key by key, a slice of either side is in memory.
Otherwise it is a range of `seq`, and of multisets a bucket of a temporary file. Only a final table whose keys do not
line up is in memory as a whole.
"""

from __future__ import annotations

import math
import struct
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise, takewhile, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_core.data.arrow import to_arrow, to_numpy
from streaming_core.data.digest import row_hashes
from streaming_core.data.parts import Parts
from streaming_core.language.operator import KEY_COLUMN
from streaming_core.language.record import NAN_BITS

SHOWN = 10  # differences to keep of a table; all are counted
_SLICE = 1 << 17  # rows of either side in memory at a time
_BUCKETS = 256  # temporary files at most
_MORE = "how often more"  # column of a counted multiset: how often the oracle has a row more than the other side


@dataclass(frozen=True)
class Difference:
    """One difference between two results.

    Attributes:
        table: The table.
        kind: `missing`, `extra`, `different` or `out_of_order` for a row; `column` for all rows; `table` or `digest`
            for a result.
        row: The key of the row: {"seq", "sub"}, {"key"} or {"position"}. For other kinds, the place.
        expected, actual: The rest of the row on either side. If the row is out of order, `expected` is the key of the
            row before it. If one side has equal rows more often, that side holds how often more. For other kinds, both
            sides in words.
        columns: The columns in which the two sides differ.
    """

    table: str
    kind: str
    row: dict[str, Any] = field(default_factory=dict)
    expected: Any = None
    actual: Any = None
    columns: tuple[str, ...] = ()

    def sides(self) -> list[dict[str, Any]]:
        """Return the fields of the difference; a different row has an entry for each column."""
        about = {"table": self.table, "kind": self.kind, "row": self.row}
        if self.kind == "different":
            return [
                about | {"column": name, "expected": self.expected[name], "actual": self.actual[name]}
                for name in self.columns
            ]
        return [about | {"column": next(iter(self.columns), None), "expected": self.expected, "actual": self.actual}]

    def lines(self) -> list[str]:
        """Say what differs and where, in a line for each of `sides`."""
        where = ", ".join(f"{name} {shown(value)}" for name, value in self.row.items())
        return [f"{self.table}: {f'{where}: ' if where else ''}{words}" for words in self.words()]

    def words(self) -> list[str]:
        """Say what differs, in a phrase for each of `sides`."""
        return [self._phrase(side["column"], side["expected"], side["actual"]) for side in self.sides()]

    def _phrase(self, column: str | None, expected: Any, actual: Any) -> str:
        match self.kind:
            case "missing":
                return f"missing row: {shown(expected)}"
            case "extra":
                return f"unexpected row: {shown(actual)}"
            case "out_of_order":
                return f"out of order, delivered after {shown(expected)}"
            case "column" if expected is None or actual is None:
                return f"column {column} is {'unexpected' if expected is None else 'missing'}"
            case "column":
                return f"column {column} is {actual}, expected {expected}"
        expected, actual = _apart(expected, actual)
        return f"{f'{column}: ' if column else ''}expected {expected}, got {actual}"


@dataclass
class Differences:
    """The differences of two tables: the number of rows of each kind, and the first differences, `keep` at most."""

    table: str
    keep: int = SHOWN
    counts: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)

    def add(self, kind: str, rows: np.ndarray, details: Callable[[int], tuple], count: int | None = None) -> None:
        """Add differences of one kind.

        Args:
            kind: The kind of the differences.
            rows: The numbers of the rows; each is a difference.
            details: `details(row)` returns the other fields of its Difference, from `row` on.
            count: The number of rows that the differences stand for. Default: one each.
        """
        if len(rows):
            self.counts[kind] += len(rows) if count is None else count
            first = rows[: self.keep - len(self.differences)].tolist()
            self.differences += [Difference(self.table, kind, *details(at)) for at in first]


# --- columns ---------------------------------------------------------------------------------------------------------


def columns(
    table: str, expected: pa.Schema, actual: pa.Schema, needed: Sequence[str] | None = None
) -> list[Difference]:
    """Return the columns that are missing, unexpected or of another type; those not `needed` may be missing."""
    kinds = [{column.name: column.type for column in schema} for schema in (expected, actual)]
    differences = []
    for name in kinds[0] | kinds[1]:
        left, right = (kind.get(name) for kind in kinds)
        if left != right and (right is not None or needed is None or name in needed):
            words = [None if kind is None else str(kind) for kind in (left, right)]
            differences.append(Difference(table, "column", {}, words[0], words[1], (name,)))
    return differences


OUTPUT_KEY = ("seq", "sub")


def keys_of(names: list[str]) -> list[str]:
    """Return the columns that identify a row of outputs or of a final table; none if the table has one row."""
    if "seq" in names:
        return [*OUTPUT_KEY]
    return ["key"] if "key" in names else [*takewhile(KEY_COLUMN.fullmatch, names)]


# --- rows ------------------------------------------------------------------------------------------------------------


def in_slices(table: str, expected: Parts, actual: Parts, names: list[str], keep: int = SHOWN) -> Differences | None:
    """Compare `row_by_row` over the columns of these names, with a slice of either side in memory."""
    if expected.rows != actual.rows:
        return None
    return row_by_row(table, expected.slices(_SLICE, names), actual.slices(_SLICE, names), keep)


def matched(table: str, expected: Parts, actual: Parts, names: list[str]) -> Differences:
    """Compare two tables in files over these columns: slice by slice if their rows line up, else key by key."""
    if lined_up := in_slices(table, expected, actual, names):
        return lined_up
    if "seq" in names:
        return by_range(table, expected, actual, names)
    return by_key(table, expected.read(names), actual.read(names))


def in_memory(table: str, expected: pa.Table, actual: pa.Table, keep: int = SHOWN) -> Differences:
    """Compare two tables of the same columns: row by row if their rows line up, else by key."""
    return row_by_row(table, [expected], [actual], keep) or by_key(table, expected, actual, keep)


def row_by_row(
    table: str, expected: Iterable[pa.Table], actual: Iterable[pa.Table], keep: int = SHOWN
) -> Differences | None:
    """Compare two tables of the same columns, slice by slice; None if their rows do not line up, key by key."""
    differences, start = Differences(table, keep), 0
    for left, right in zip_longest(expected, actual):
        if left is None or right is None or left.num_rows != right.num_rows:
            return None
        if any(unequal(left[key], right[key]).any() for key in keys_of(left.column_names)):
            return None
        _add_different(differences, left, right, start)
        start += left.num_rows
    return differences


def _add_different(differences: Differences, expected: pa.Table, actual: pa.Table, start: int = 0) -> None:
    """Add the differences between rows of the same key; the first row has the number `start`."""
    keys = keys_of(expected.column_names)
    compared = {name: unequal(expected[name], actual[name]) for name in expected.column_names if name not in keys}
    wrong = {name: rows for name, rows in compared.items() if rows.any()}

    def details(at: int) -> tuple:
        names = tuple(name for name, rows in wrong.items() if rows[at])
        return _key(expected, keys, at, start), _rest(expected, keys, at), _rest(actual, keys, at), names

    if wrong:
        differences.add("different", np.flatnonzero(np.logical_or.reduce([*wrong.values()])), details)


def by_key(table: str, expected: pa.Table, actual: pa.Table, keep: int = SHOWN) -> Differences:
    """Compare two tables of the same columns, in memory, whose rows do not line up.

    Of several rows with one key, the first is compared, and the others are extra. Without keys, rows at the same
    position are compared.
    """
    differences, keys = Differences(table, keep), keys_of(expected.column_names)
    late = np.flatnonzero(is_late(_codes(expected, actual, keys)[1]))
    differences.add("out_of_order", late, lambda at: (_key(actual, keys, at), _key(actual, keys, at - 1)))
    _match(differences, expected, actual)
    return differences


def by_range(table: str, expected: Parts, actual: Parts, names: list[str]) -> Differences:
    """Compare outputs in files `by_key`, over the columns of these names, with a range of `seq` in memory at a time."""
    differences = Differences(table)
    for _, rows, keys in late_rows(actual.slices(_SLICE, list(OUTPUT_KEY))):

        def details(at: int, keys: tuple[np.ndarray, ...] = keys) -> tuple:
            late, before = (dict(zip(OUTPUT_KEY, (int(key[row]) for key in keys), strict=True)) for row in (at + 1, at))
            return late, before

        differences.add("out_of_order", rows, details)
    longer = max(expected, actual, key=lambda parts: parts.rows)
    # Each slice ends a range. The last range has no end.
    ends = sorted({pc.max(part["seq"]).as_py() for part in longer.slices(_SLICE, ["seq"])})[:-1]
    limits = np.iinfo(np.int64)
    for low, high in zip([limits.min, *(end + 1 for end in ends)], [*ends, limits.max], strict=True):
        _match(differences, *(side.between(low, high, names) for side in (expected, actual)))
    return differences


def _match(differences: Differences, expected: pa.Table, actual: pa.Table) -> None:
    """Add the differences between rows with the same key, and the rows whose key only one side has."""
    keys = keys_of(expected.column_names)
    theirs, ours = _codes(expected, actual, keys)
    order = np.argsort(ours, kind="stable")
    ours = ours[order]
    place = np.searchsorted(ours, theirs)
    there = place < len(ours)
    there[there] = ours[place[there]] == theirs[there]
    differences.add("missing", np.flatnonzero(~there), lambda at: (_key(expected, keys, at), _rest(expected, keys, at)))
    again = np.zeros(len(ours), bool)
    again[1:] = ours[1:] == ours[:-1]
    extra = order[again | ~np.isin(ours, theirs)]
    differences.add("extra", extra, lambda at: (_key(actual, keys, at), None, _rest(actual, keys, at)))
    common = np.flatnonzero(there)
    _add_different(differences, expected.take(common), actual.take(order[place[common]]))


def multisets(
    table: str, expected: Iterable[pa.Table], actual: Iterable[pa.Table], rows: int, keep: int = SHOWN
) -> Differences:
    """Compare two tables of the same columns by how often each row occurs, whatever its place.

    Equal rows go to the same bucket, which is a temporary file, and one bucket at a time is in memory.

    Args:
        table: The name of the table.
        expected: The oracle's table in slices.
        actual: The other table in slices.
        rows: The number of rows of both together, which sets the number of buckets.
        keep: The number of differences to keep.
    """
    differences = Differences(table, keep)
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        for bucket in _buckets(Path(folder), expected, actual, min(_BUCKETS, 1 + rows // (4 * _SLICE))):
            counted = _counted(bucket)
            wrong = counted.filter(pc.not_equal(counted[_MORE], 0))
            items = _items(wrong)
            wrong = wrong.take(pc.sort_indices(items, sort_keys=[(name, "ascending") for name in items.column_names]))
            more, columns = to_numpy(wrong[_MORE]), wrong.drop_columns(_MORE)

            def details(at: int, more: np.ndarray = more, columns: pa.Table = columns) -> tuple:
                row, times = columns.slice(at, 1).to_pylist()[0], {"times": abs(int(more[at]))}
                return (row, times) if more[at] > 0 else (row, None, times)

            for kind, chosen in (("missing", more > 0), ("extra", more < 0)):
                differences.add(kind, np.flatnonzero(chosen), details, abs(int(more[chosen].sum())))
    return differences


def in_buckets(table: str, expected: Parts, actual: Parts, names: list[str], keep: int = SHOWN) -> Differences:
    """Compare two tables in files as `multisets`, over the columns of these names."""
    rows = expected.rows + actual.rows
    return multisets(table, expected.slices(_SLICE, names), actual.slices(_SLICE, names), rows, keep)


def _buckets(folder: Path, expected: Iterable[pa.Table], actual: Iterable[pa.Table], count: int) -> Iterator[pa.Table]:
    """Yield the rows of both sides, counted, in at most `count` tables by their hashes."""
    paths = [folder / f"{number}.arrow" for number in range(count)]
    writers: dict[Path, pa.ipc.RecordBatchStreamWriter] = {}
    with ExitStack() as stack:
        for more, side in ((1, expected), (-1, actual)):
            for rows in side:
                rows = _counted(rows.append_column(_MORE, to_arrow(np.full(rows.num_rows, more))))
                place = row_hashes(rows.drop_columns(_MORE)) % np.uint64(count) if count > 1 else np.zeros(len(rows))
                order = np.argsort(place, kind="stable")
                rows, ends = rows.take(order), np.searchsorted(place[order], np.arange(count + 1))
                for path, (first, end) in zip(paths, pairwise(ends.tolist()), strict=True):
                    if first == end:
                        continue
                    if path not in writers:
                        writers[path] = stack.enter_context(pa.ipc.new_stream(str(path), rows.schema))
                    writers[path].write_table(rows.slice(first, end - first))
    for path in sorted(writers, key=paths.index):
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as reader:
            yield reader.read_all()


def _counted(rows: pa.Table) -> pa.Table:
    """Merge equal rows into one, with the sum of their counts."""
    items = _items(rows)
    numbered = items.append_column("at", to_arrow(np.arange(rows.num_rows))).append_column(_MORE, rows[_MORE])
    grouped = numbered.group_by(items.column_names, use_threads=False).aggregate([(_MORE, "sum"), ("at", "min")])
    return rows.take(grouped["at_min"]).set_column(rows.num_columns - 1, _MORE, grouped[f"{_MORE}_sum"])


def _items(rows: pa.Table) -> pa.Table:
    """Return all columns except the counts. Arrow groups and sorts by scalars, so each item of an array is a column."""
    result: dict[str, Any] = {}
    for name in rows.column_names[:-1]:
        column = rows[name]
        size = column.type.list_size if pa.types.is_fixed_size_list(column.type) else None
        items = [column] if size is None else [pc.list_element(column, i) for i in range(size)]
        result |= {f"{name} {i}": item for i, item in enumerate(items)}
    return pa.table(result)


def late_rows(slices: Iterable[pa.Table]) -> Iterator[tuple[pa.Table, np.ndarray, tuple[np.ndarray, ...]]]:
    """Find the rows of outputs that come directly after a row with a larger (seq, sub).

    Args:
        slices: Outputs in delivered order.

    Yields:
        Each slice; the numbers of its late rows; its seq and sub, preceded by those of the row before the slice.
    """
    last = [np.iinfo(np.int64).min] * 2
    for rows in slices:
        keys = tuple(np.append(before, to_numpy(rows[name])) for before, name in zip(last, OUTPUT_KEY, strict=True))
        last = [key[-1] for key in keys]
        yield rows, np.flatnonzero(is_late(*keys)) - 1, keys


def is_late(*keys: np.ndarray) -> np.ndarray:
    """Tell for each row whether it comes directly after a row that is later by these keys."""
    late, same = (np.full(max(0, len(keys[0]) - 1), value) for value in (False, True))
    for key in keys:
        late |= same & (key[1:] < key[:-1])
        same &= key[1:] == key[:-1]
    return np.concatenate([np.zeros(len(keys[0]) - len(late), bool), late])


def _codes(expected: pa.Table, actual: pa.Table, keys: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return a number for each row of either side, in the order of the keys; without keys, its position."""
    n = expected.num_rows
    if not keys:
        return np.arange(n), np.arange(actual.num_rows)
    total = np.zeros(n + actual.num_rows, np.int64)
    for key in keys:
        both = _whole(_together(expected[key], actual[key]))
        # Dense ranks: the order of the values, equal values alike.
        ranks = to_numpy(pc.rank(both, sort_keys="ascending", tiebreaker="dense")).astype(np.int64)
        total = total * (int(ranks.max(initial=0)) + 1) + ranks
    return total[:n], total[n:]


def _key(table: pa.Table, keys: list[str], at: int, start: int = 0) -> dict[str, Any]:
    return {key: table[key][at].as_py() for key in keys} or {"position": start + at}


def _rest(table: pa.Table, keys: list[str], at: int) -> dict[str, Any]:
    return {name: table[name][at].as_py() for name in table.column_names if name not in keys}


# --- columns of values -----------------------------------------------------------------------------------------------


def unequal(expected: pa.Array | pa.ChunkedArray, actual: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Tell for each row whether the values differ.

    Floats differ by their bits. Null differs from everything but null. Both columns have the same type and length.
    """
    expected, actual = _whole(expected), _whole(actual)
    kind, n = expected.type, len(expected)
    if expected.null_count or actual.null_count:
        here, there = (to_numpy(side.is_valid()) for side in (expected, actual))
        wrong, both = here != there, to_arrow(here & there)
        wrong[here & there] = unequal(expected.filter(both), actual.filter(both))
        return wrong
    if pa.types.is_struct(kind):
        wrong = np.zeros(n, bool)
        for left, right in zip(expected.flatten(), actual.flatten(), strict=True):
            wrong |= unequal(left, right)
        return wrong
    if pa.types.is_fixed_size_list(kind):
        items = unequal(expected.flatten(), actual.flatten()).reshape(n, kind.list_size)
        return np.logical_or.reduce(items, axis=1)
    if pa.types.is_list(kind):
        lengths, others = (to_numpy(pc.list_value_length(side)) for side in (expected, actual))
        wrong = lengths != others
        alike = to_arrow(~wrong)
        items = unequal(expected.filter(alike).flatten(), actual.filter(alike).flatten())
        wrong[np.repeat(np.flatnonzero(~wrong), lengths[~wrong])[items]] = True
        return wrong
    if pa.types.is_floating(kind):
        expected, actual = (side.view(f"uint{kind.bit_width}") for side in (expected, actual))
    return to_numpy(pc.not_equal(expected, actual)) if not expected.equals(actual) else np.zeros(n, bool)


def _together(expected: pa.ChunkedArray, actual: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([*expected.chunks, *actual.chunks], expected.type)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()  # which copies
    return column


# --- values ----------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Return a value that JSON can hold.

    Bytes become text if they are UTF-8, else 0x... NaN and infinities become their names. A NaN with other bits than
    Lockstep's also shows them.
    """
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"0x{value.hex()}"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float) and not math.isfinite(value):
        [bits] = struct.unpack("<Q", struct.pack("<d", value))
        if math.isnan(value):
            return "NaN" if bits == NAN_BITS else f"NaN (bits 0x{bits:016x})"
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def shown(value: Any) -> str:
    """Return a value as text for people, cut off after 200 characters."""
    if isinstance(value, dict):
        text = ", ".join(f"{name} {shown(item)}" for name, item in value.items())
    elif isinstance(value, list):
        text = f"[{', '.join(map(shown, value))}]"
    elif isinstance(value, bytes):
        text = plain(value)
        text = repr(text) if text.encode() == value else text
    else:
        text = str(plain(value))
    return text if len(text) <= 200 else f"{text[:197]}..."


def _apart(expected: Any, actual: Any) -> tuple[str, str]:
    """Return two different texts for two different values: the first items that differ, if the cut hides them."""
    texts = shown(expected), shown(actual)
    if texts[0] != texts[1] or not isinstance(expected, list) or not isinstance(actual, list):
        return texts
    for i, (left, right) in enumerate(zip(expected, actual, strict=False)):
        if shown(left) != shown(right):
            return f"{shown(left)} at [{i}]", f"{shown(right)} at [{i}]"
    return f"{len(expected)} items", f"{len(actual)} items"
