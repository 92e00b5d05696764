"""Reads Parquet files: each value as the text that a CSV file would have. Binary values stay bytes.

pyarrow reads them. Spark's reader rejects a whole file for one column of an unknown type, such as a UUID or a time of
day. It also cuts INT96 times to microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming_core.importing.paths import open_regular

# Whole doubles in this range get all their digits. Arrow writes an exponent, which no integer field takes.
_EXPONENT_FROM, _INTEGERS_TO = 1e15, float(1 << 63)


@dataclass(frozen=True)
class Rows:
    """Some rows of a file.

    Attributes:
        values: A column of text or of bytes for each column of the file.
        items: Number of a column -> its lists of texts; null for a value that is no list.
        raw: The bytes of a text that is not UTF-8, or null.
        reasons: Why a row does not fit, or null.
        lines: The number of the row's first line; None in Parquet.
    """

    values: list[pa.Array]
    items: dict[int, pa.Array]
    raw: pa.Array
    reasons: pa.Array
    lines: pa.Array | None = None


def read(target: Path, needed: Sequence[int], lists: Sequence[int], limits: tuple[int, int]) -> Iterator[Rows]:
    """The rows of a file in order.

    Args:
        target: The file.
        needed: Numbers of the columns that fields need.
        lists: Those of them that hold lists.
        limits: Most rows and bytes to read at a time. The bytes are an estimate.

    Raises:
        OSError: The file cannot be read.
        pa.ArrowException: It is damaged.
    """
    most_rows, most_bytes = limits
    with open_regular(target) as raw, open_regular(target) as again:
        # In nanoseconds, INT96 overflows beyond the years 1677 to 2262. In microseconds, it is cut.
        file, exact = pq.ParquetFile(raw, coerce_int96_timestamp_unit="us"), pq.ParquetFile(again)
        about = file.metadata
        size = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
        rows = max(1, min(most_rows, most_bytes * about.num_rows // max(size, 1)))
        batches = file.iter_batches(rows)
        if file.schema_arrow == exact.schema_arrow:
            yield from (_rows(batch, batch, needed, lists) for batch in batches)
        else:
            pairs = zip(batches, exact.iter_batches(rows), strict=True)
            yield from (_rows(batch, finer, needed, lists) for batch, finer in pairs)


def is_binary(kind: pa.DataType | None) -> bool:
    """Whether values of this type stay bytes."""
    binary = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return kind is not None and any(is_of(kind) for is_of in binary)


def _rows(batch: pa.RecordBatch, finer: pa.RecordBatch, needed: Sequence[int], lists: Sequence[int]) -> Rows:
    values, items = [], {}
    raw, reasons = pa.nulls(len(batch), pa.binary()), pa.nulls(len(batch), pa.string())
    for i, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        if i in lists and _is_list(column.type):
            items[i] = _lists(column, finer.column(i))
            values.append(pa.nulls(len(batch), pa.string()))
            continue
        text, wrong = _text(column, finer.column(i))
        values.append(text)
        if i in lists:
            items[i] = pa.nulls(len(batch), pa.list_(pa.string()))
            continue
        if i not in needed:
            continue
        reasons = pc.coalesce(reasons, pc.if_else(wrong.is_valid(), f"{name} is not UTF-8", None))
        raw = pc.coalesce(raw, wrong)
        if pa.types.is_nested(column.type):
            fault = f"{name} is a list or an object instead of a value"
            reasons = pc.coalesce(reasons, pc.if_else(column.is_valid(), fault, None))
    return Rows(values, items, raw, reasons)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _lists(column: pa.Array, finer: pa.Array) -> pa.Array:
    texts, _ = _text(pc.list_flatten(column), pc.list_flatten(finer))
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    ends = pc.cumulative_sum(lengths).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, texts.cast(pa.string()), mask=column.is_null())


def _text(column: pa.Array, finer: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The values as text or bytes, and the bytes of texts that are not UTF-8, else null.

    Args:
        column: The values.
        finer: The same, with INT96 times in nanoseconds, which may have overflowed.
    """
    kind, right = column.type, pa.nulls(len(column), pa.binary())
    if pa.types.is_dictionary(kind):
        return _text(column.dictionary_decode(), finer)
    if is_binary(kind):
        return column.cast(pa.binary()), right
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _checked(column.cast(pa.binary()))
    if pa.types.is_floating(kind):
        return _number(column.cast(pa.float64())), right
    if pa.types.is_timestamp(kind):
        zone = kind.tz and "UTC"
        text = column.cast(pa.timestamp(kind.unit, zone)).cast(pa.string())
        if finer.type == kind or pa.types.is_dictionary(finer.type):
            return text, right
        cut = pc.subtract(finer.cast(pa.int64()), pc.multiply(column.cast(pa.int64()), 1000))  # both overflow alike
        return pc.binary_join_element_wise(text, pc.utf8_lpad(cut.cast(pa.string()), 3, "0"), ""), right
    if pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType) or pa.types.is_interval(kind):
        return pa.array([_written(value) for value in column.to_pylist()], pa.string()), right
    return column.cast(pa.string()), right


def _checked(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    try:
        return column.cast(pa.string()), pa.nulls(len(column), pa.binary())
    except pa.ArrowInvalid:
        pairs = [(value, value and value.decode(errors="replace")) for value in column.to_pylist()]
    wrong = [None if value is None or text.encode() == value else value for value, text in pairs]
    return pa.array([text for _, text in pairs], pa.string()), pa.array(wrong, pa.binary())


def _number(column: pa.Array) -> pa.Array:
    size = pc.abs(column)
    is_long = pc.and_(pc.greater_equal(size, _EXPONENT_FROM), pc.less(size, _INTEGERS_TO))
    whole = pc.if_else(pc.and_(is_long, pc.equal(pc.floor(column), column)), column, None)
    return pc.coalesce(whole.cast(pa.int64()).cast(pa.string()), column.cast(pa.string()))


def _written(value: object) -> str | None:
    if value is None:
        return None
    is_nested = isinstance(value, list | dict)
    return json.dumps(value, ensure_ascii=False, default=str) if is_nested else str(value)
