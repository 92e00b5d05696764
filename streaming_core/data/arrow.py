"""Arrow columns as numpy arrays and back, by their buffers.

pyarrow's own conversions first import pandas to see whether it is there, which takes a second: as long as most runs.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def to_numpy(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """The values of a column of numbers or booleans without nulls; read only, and not copied unless it must be.

    Those of decimals are their units (language/record.py, Decimal).

    Raises:
        ValueError: there are nulls.
    """
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks != 1:
            parts = [to_numpy(chunk) for chunk in column.chunks]
            return np.concatenate(parts) if parts else to_numpy(pa.array([], column.type))
        column = column.chunk(0)
    if column.null_count:
        raise ValueError(f"{column.null_count} nulls")
    data, at, n = column.buffers()[1], column.offset, len(column)
    if pa.types.is_boolean(column.type):
        bits = np.frombuffer(data, np.uint8) if n else np.empty(0, np.uint8)
        return np.unpackbits(bits, count=at + n, bitorder="little")[at:].view(bool)
    if pa.types.is_decimal128(column.type):
        words = np.frombuffer(data, "<i8", 2 * n, 16 * at) if n else np.empty(0, np.int64)
        return words[::2].copy()
    dtype = np.dtype(column.type.to_pandas_dtype())
    return np.frombuffer(data, dtype, n, at * dtype.itemsize) if n else np.empty(0, dtype)


def units(column: pa.Array) -> pa.Array:
    """The column with the units of its decimals, which have no nulls, or of those in its lists of fixed length."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind) and pa.types.is_decimal128(kind.value_type):
        return pa.FixedSizeListArray.from_arrays(units(column.flatten()), kind.list_size)
    return to_arrow(to_numpy(column)) if pa.types.is_decimal128(kind) else column


def unit_type(kind: pa.DataType) -> pa.DataType:
    """The type with int64 for its decimals."""
    if pa.types.is_decimal128(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(unit_type(field.type)) for field in kind])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(unit_type(kind.value_type), kind.list_size)
    return pa.list_(unit_type(kind.value_type)) if pa.types.is_list(kind) else kind


def of_units(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of `unit_type(kind)` as one of this type: decimals of units."""
    if unit_type(kind) == kind:
        return column if column.type == kind else column.cast(kind)
    if pa.types.is_decimal128(kind):
        low = to_numpy(column.fill_null(0))
        decimals = pa.Array.from_buffers(kind, len(low), [None, pa.py_buffer(np.stack([low, low >> 63], axis=1))])
        return with_nulls(decimals, column.is_valid()) if column.null_count else decimals
    if pa.types.is_struct(kind):
        fields = [of_units(part, field.type) for part, field in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(fields, fields=[*kind])
    items = of_units(column.flatten(), kind.value_type)
    if pa.types.is_fixed_size_list(kind):
        return pa.FixedSizeListArray.from_arrays(items, type=kind)
    return pa.ListArray.from_arrays(pc.subtract(column.offsets, column.offsets[0]), items, type=kind)


def from_bytes(texts: list[bytes]) -> pa.Array:
    """The texts as a binary column."""
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])


def to_arrow(values: np.ndarray) -> pa.Array:
    """The values of a one-dimensional array of numbers or booleans as a column; not copied if they are contiguous."""
    data = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(data)])


def nothing(kind: pa.DataType) -> pa.Scalar:
    """The zero, false or empty value of a type."""
    if pa.types.is_fixed_size_list(kind):
        return pa.scalar([nothing(kind.value_type)] * kind.list_size, kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.scalar("", kind)
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return pa.scalar(b"" if is_bytes else False if pa.types.is_boolean(kind) else 0, kind)


def without_nulls(column: pa.Array) -> pa.Array:
    """The column with `nothing` for its nulls, which rows hold beside a validity (language/record.py, Nullable)."""
    return column.fill_null(nothing(column.type)) if column.null_count else column


def with_nulls(values: pa.Array, valid: pa.Array) -> pa.Array:
    """The column whose values are null where they are not valid."""
    return pc.if_else(valid, values, pa.scalar(None, values.type))
