"""Arrow columns as numpy arrays and back, by their buffers.

pyarrow's own conversions first import pandas to see whether it is there, which takes a second: as long as most runs.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def to_numpy(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """The values of a column of numbers or booleans without nulls; read only, and not copied unless it must be.

    Raises:
        ValueError: there are nulls.
    """
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks != 1:
            parts = [to_numpy(chunk) for chunk in column.chunks]
            return np.concatenate(parts) if parts else np.empty(0, column.type.to_pandas_dtype())
        column = column.chunk(0)
    if column.null_count:
        raise ValueError(f"{column.null_count} nulls")
    data, at, n = column.buffers()[1], column.offset, len(column)
    if pa.types.is_boolean(column.type):
        bits = np.frombuffer(data, np.uint8) if n else np.empty(0, np.uint8)
        return np.unpackbits(bits, count=at + n, bitorder="little")[at:].view(bool)
    dtype = np.dtype(column.type.to_pandas_dtype())
    return np.frombuffer(data, dtype, n, at * dtype.itemsize) if n else np.empty(0, dtype)


def from_bytes(texts: list[bytes]) -> pa.Array:
    """The texts as a binary column."""
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])


def to_arrow(values: np.ndarray) -> pa.Array:
    """The values of a one-dimensional array of numbers or booleans as a column; not copied if they are contiguous."""
    data = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(data)])
