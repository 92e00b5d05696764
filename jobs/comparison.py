"""Two Parquet tables side by side, in Arrow, in constant memory: equality, and the rows that differ, row by row.

Equal means: the same columns of the same types, the same rows in the same order, floats bit by bit. That is enough
as long as the keys of both agree row by row. Where one is missing, extra or elsewhere, Spark joins the two
(validate_outputs).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_core.regression.warehouse import VIOLATION_CAP

BATCH_ROWS = 65_536


def parts(folder: Path) -> list[Path]:
    """The Parquet files of a folder in delivered order: by number, whatever the number of digits."""
    return sorted((p for p in folder.glob("*.parquet") if p.name[0] not in "._"), key=lambda p: (len(p.name), p.name))


def plain(kind: pa.DataType) -> pa.DataType:
    """The logical type behind a way of storing it (large offsets, dictionaries), names of list items dropped."""
    if pa.types.is_dictionary(kind):
        return plain(kind.value_type)
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(plain(kind.value_type), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(kind.field(i).name, plain(kind.field(i).type)) for i in range(kind.num_fields)])
    return kind


def plain_schema(paths: list[Path]) -> dict[str, pa.DataType]:
    """Column name -> logical type over all files; a column that the files disagree on has type null."""
    columns: dict[str, pa.DataType] = {}
    for path in paths:
        for field in pq.read_schema(path):
            kind = plain(field.type)
            columns[field.name] = kind if columns.get(field.name, kind) == kind else pa.null()
    return columns


def schema_differences(expected: dict[str, pa.DataType], actual: dict[str, pa.DataType]) -> list[str]:
    """One phrase per column that is missing, unexpected or of another type."""
    lines = [f"column {name} is missing" for name in expected if name not in actual]
    lines += [f"column {name} is unexpected" for name in actual if name not in expected]
    for name in expected:
        if name in actual and actual[name] != expected[name]:
            lines.append(f"column {name} is {actual[name]}, expected {expected[name]}")
    return lines


def _batches(paths: list[Path], columns: list[str]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=columns):
                arrays = [batch.column(name) for name in columns]
                yield pa.RecordBatch.from_arrays(
                    [a if a.type == plain(a.type) else a.cast(plain(a.type)) for a in arrays], names=columns
                )


def identical(a: pa.Array, b: pa.Array) -> bool:
    """Whether two arrays of one type hold the same values, floats bit by bit."""
    kind = a.type
    if len(a) != len(b) or a.null_count != b.null_count:
        return False
    if pa.types.is_floating(kind):
        bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
        return a.view(bits).equals(b.view(bits))
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pc.list_value_length(a).equals(pc.list_value_length(b)) and identical(a.flatten(), b.flatten())
    if pa.types.is_struct(kind):
        same_nulls = pc.is_valid(a).equals(pc.is_valid(b))
        return same_nulls and all(identical(x, y) for x, y in zip(a.flatten(), b.flatten(), strict=True))
    return a.equals(b)


def unequal_rows(a: pa.Array, b: pa.Array) -> np.ndarray:
    """Mask of the rows in which two arrays of one type and length differ, by the rule of `identical`."""
    if identical(a, b):
        return np.zeros(len(a), bool)
    if pa.types.is_nested(a.type):
        return np.array([not identical(a.slice(i, 1), b.slice(i, 1)) for i in range(len(a))], bool)
    if pa.types.is_floating(a.type):
        bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[a.type.bit_width]
        a, b = a.view(bits), b.view(bits)
    differ = pc.fill_null(pc.not_equal(a, b), False)
    return pc.or_(differ, pc.xor(a.is_null(), b.is_null())).to_numpy(zero_copy_only=False)


def row_by_row(
    expected: list[Path], actual: list[Path], columns: list[str], keys: list[str]
) -> tuple[int, list[dict]] | None:
    """Compares two tables whose keys agree row by row; how rows are spread over files does not matter.

    Returns:
        The number of rows that differ and the first of them ({expected, actual}), or None where a row is missing,
        extra or elsewhere, so that only a join can tell which.
    """
    count = 0
    first: list[dict] = []
    left, right = _batches(expected, columns), _batches(actual, columns)
    a, b = next(left, None), next(right, None)
    while a is not None and b is not None:
        size = min(len(a), len(b))
        x, y = a.slice(0, size), b.slice(0, size)
        masks = {name: unequal_rows(x.column(name), y.column(name)) for name in columns}
        if any(masks[name].any() for name in keys):
            return None
        where = np.flatnonzero(np.logical_or.reduce(list(masks.values())))
        count += len(where)
        for row in where[: VIOLATION_CAP - len(first)].tolist():
            first.append({"expected": x.slice(row, 1).to_pylist()[0], "actual": y.slice(row, 1).to_pylist()[0]})
        a = a.slice(size) if size < len(a) else next(left, None)
        b = b.slice(size) if size < len(b) else next(right, None)
    return (count, first) if a is None and b is None else None


def same_multiset(expected: list[Path], actual: list[Path], columns: list[str]) -> bool:
    """Whether two tables hold the same rows equally often; False also where values cannot be grouped by."""
    sides = [[*_batches(paths, columns)] for paths in (expected, actual)]
    signs = [np.repeat(sign, sum(map(len, side))) for sign, side in zip((1, -1), sides, strict=True)]
    batches = [*sides[0], *sides[1]]
    if not batches:
        return True
    rows = pa.Table.from_batches(batches).append_column("", pa.array(np.concatenate(signs)))
    try:
        counted = rows.group_by(columns).aggregate([("", "sum")])
    except pa.ArrowNotImplementedError:
        return False
    return not pc.any(pc.not_equal(counted["_sum"], 0)).as_py()


def out_of_order(paths: list[Path]) -> tuple[int, list[int]]:
    """Rows delivered directly after one that comes later in (seq, sub): their number, and the first positions."""
    count, position = 0, 0
    first: list[int] = []
    last = (np.iinfo(np.int64).min, np.iinfo(np.int64).min)
    for batch in _batches(paths, ["seq", "sub"]):
        if not len(batch):
            continue
        seq, sub = (np.concatenate([[before], batch.column(i).to_numpy()]) for i, before in enumerate(last))
        earlier = (seq[1:] < seq[:-1]) | ((seq[1:] == seq[:-1]) & (sub[1:] < sub[:-1]))
        where = np.flatnonzero(earlier)
        count += len(where)
        first += (where[: VIOLATION_CAP - len(first)] + position).tolist()
        position += len(batch)
        last = (int(seq[-1]), int(sub[-1]))
    return count, first


def rows_at(paths: list[Path], positions: list[int], columns: list[str]) -> dict[int, dict]:
    """The rows at ascending positions, as far as there are that many rows."""
    rows, wanted, start = {}, list(positions), 0
    batches = _batches(paths, columns)
    while wanted and (batch := next(batches, None)) is not None:
        while wanted and wanted[0] < start + len(batch):
            rows[wanted[0]] = batch.slice(wanted[0] - start, 1).to_pylist()[0]
            wanted.pop(0)
        start += len(batch)
    return rows


def compare(expected: list[Path], actual: list[Path], keys: list[str], multiset: list[str] | None = None) -> dict:
    """What can be said about two tables without joining them.

    Args:
        expected, actual: Parquet files, in order; each non-empty.
        keys: columns by which rows are matched; with `seq` and `sub` delivery in their order is judged too. Empty:
            the first column.
        multiset: compare these columns instead, rows in any order; both tables are held in memory for that.

    Returns:
        JSON-able: `expected_rows`, `actual_rows`; `faults` (phrases: unreadable files, wrong columns); `different`
        (how many rows differ; None if that takes a join or makes no sense) and the first of them in `rows` ({seq,
        sub, expected, actual}); `out_of_order` and the first `misplaced` rows, like `rows`, where `expected` is what
        the oracle delivers at that position.
    """
    facts = _no_facts()
    try:
        _count(facts, expected, actual)
        wanted = plain_schema(expected)
        facts["faults"] = schema_differences(wanted, plain_schema(actual))
        if facts["faults"]:
            return facts
        if multiset is not None:
            facts["different"] = 0 if same_multiset(expected, actual, multiset) else None
            return facts
        columns = list(wanted)
        if facts["expected_rows"] == facts["actual_rows"]:
            found = row_by_row(expected, actual, columns, keys or columns[:1])
            if found:
                facts["different"], rows = found
                facts["rows"] = [_evidence(row["expected"], row["actual"]) for row in rows]
        if "seq" in keys:
            facts["out_of_order"], positions = out_of_order(actual)
            there, here = rows_at(expected, positions, columns), rows_at(actual, positions, columns)
            facts["misplaced"] = [_evidence(there.get(p), here[p]) for p in positions]
    except (pa.ArrowException, OSError) as error:
        message = str(error).partition("\n")[0]
        facts["faults"] = [f"a file cannot be read: {message}"]
    return facts


def one_sided(expected: list[Path], actual: list[Path]) -> dict:
    """`compare` where one side, or both, wrote no file."""
    facts = _no_facts()
    facts["faults"] = ["no file was written" if not actual else "the oracle has no such table"]
    with suppress(pa.ArrowException, OSError):
        _count(facts, expected, actual)
    return facts


def _no_facts() -> dict:
    return {
        "expected_rows": 0,
        "actual_rows": 0,
        "faults": [],
        "different": None,
        "rows": [],
        "out_of_order": 0,
        "misplaced": [],
    }


def _count(facts: dict, expected: list[Path], actual: list[Path]) -> None:
    for side, paths in (("expected_rows", expected), ("actual_rows", actual)):
        facts[side] = sum(pq.read_metadata(path).num_rows for path in paths)


def _evidence(expected: dict | None, actual: dict) -> dict:
    return {
        "seq": actual.get("seq"),
        "sub": actual.get("sub"),
        "expected": row_json(expected),
        "actual": row_json(actual),
    }


def readable(value: object) -> Any:
    """A value as it may stand in JSON: bytes as text where they are UTF-8 (else 0x...), NaN and infinities by name."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return "0x" + value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: readable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [readable(item) for item in value]
    return value


def row_json(row: dict | None) -> str | None:
    """Canonical JSON of a row for people: sorted keys, text as text."""
    if row is None:
        return None
    return json.dumps(readable(row), sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
