"""The digest of a set of rows: one 64-bit hash per row, summed modulo 2^64, beside the number of rows.

The sum does not depend on order, so parts of a table can be hashed anywhere and added up. The hash of a row covers the
columns that make it unique: `seq` and `sub`, or a key. The runtime computes the same value from its own rows;
runtime/ABI.md, section Digest, defines the words of a row and how they are mixed.

Exported containers are lists and structs. A list contributes its length and then its items, a struct its fields in
order. An array of fixed length contributes its items alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pyarrow as pa

from streaming_core.data.arrow import to_numpy, without_nulls
from streaming_core.errors import BadInput, unknown

SEED = 0x243F6A8885A308D3
K1 = np.uint64(0x9E3779B97F4A7C15)
K2 = np.uint64(0xD6E8FEB86659FD93)
MASK = (1 << 64) - 1
NULL = np.uint64(0x6C6C756E)  # a word behind a value that is null


def digest_table(table: pa.Table, leading: tuple[str, ...] = ()) -> tuple[int, int]:
    """Number of rows and sum of their hashes modulo 2^64.

    Args:
        table: integers, decimals, booleans, doubles, binary or string, fixed-size lists of scalars, lists of scalars
            or of structs of scalars.
        leading: the columns hashed first (`("seq", "sub")` for outputs); the others follow in their own order.

    Raises:
        BadInput: a leading column is missing, or a column has a type no digest is defined for.
    """
    total = sum(int(hashes.sum(dtype=np.uint64)) for hashes in _hashes(table, leading))
    return table.num_rows, total & MASK


def row_hashes(table: pa.Table) -> np.ndarray:
    """The hash of each row, uint64 of shape (rows,); for tables as in `digest_table`."""
    return np.concatenate([np.empty(0, np.uint64), *_hashes(table)])


def _hashes(table: pa.Table, leading: tuple[str, ...] = ()) -> Iterator[np.ndarray]:
    names = table.column_names
    for name in leading:
        if name not in names:
            raise BadInput(unknown("column", name, names))
    order = [*leading, *(name for name in names if name not in leading)]
    for batch in table.select(order).to_batches(max_chunksize=1 << 16):
        hashes = np.full(batch.num_rows, SEED, np.uint64)
        for name, column in zip(order, batch.columns, strict=True):
            _fold_column(hashes, column, name)
        hashes *= K2
        hashes ^= hashes >> np.uint64(29)
        yield hashes


def add(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    """The digest of two sets of rows together."""
    return left[0] + right[0], (left[1] + right[1]) & MASK


def format_digest(rows: int, value: int) -> str:
    """`<rows>:<16 hex digits>`, as manifests and reports write it."""
    return f"{rows}:{value & MASK:016x}"


def state_digest(tables: dict[str, pa.Table]) -> str:
    """`<rows>:<16 hex>` over tables by name."""
    return joint_digest(
        {name: digest_table(table, ("key",) if "key" in table.column_names else ()) for name, table in tables.items()}
    )


def joint_digest(digests: dict[str, tuple[int, int]]) -> str:
    """`<rows>:<16 hex>` over the digests of tables by name.

    The place of a table among the sorted names weighs its digest, so that rows cannot change tables unnoticed.
    """
    rows, total = 0, 0
    for place, name in enumerate(sorted(digests)):
        count, value = digests[name]
        rows += count
        total = (total + value * (2 * place + 3)) & MASK
    return format_digest(rows, total)


def _fold_column(hashes: np.ndarray, column: pa.Array, name: str) -> None:
    """Fold one column into the rows' hashes, in place."""
    if column.null_count:
        is_null = to_numpy(column.is_null())
        _fold_column(hashes, without_nulls(column), name)
        hashes[is_null] = _mixed(hashes[is_null] ^ NULL)
        return
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        column = column.cast(pa.binary())
        kind = column.type
    if pa.types.is_binary(kind):
        offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
        data = column.buffers()[2]
        _kernels()[0](hashes, offsets, np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8))
    elif pa.types.is_list(kind):
        offsets = to_numpy(column.offsets)
        items = np.ascontiguousarray(_words(column.values, name))
        _kernels()[1](hashes, offsets, items)
    else:
        for words in _words(column, name).T:
            np.bitwise_xor(hashes, words, out=hashes)
            hashes *= K1
            hashes ^= hashes >> np.uint64(32)


def _mixed(words: np.ndarray) -> np.ndarray:
    words = words * K1
    return words ^ (words >> np.uint64(32))


def _words(column: pa.Array, name: str) -> np.ndarray:
    """The words of a column of fixed width, or of texts: uint64 of shape (rows, words per row)."""
    if column.null_count:
        words = _words(without_nulls(column), name).copy()
        words[to_numpy(column.is_null())] = NULL
        return words
    kind = column.type
    if pa.types.is_fixed_size_list(kind):
        words = _words(column.flatten(), name)
        return words.reshape(len(column), kind.list_size * words.shape[1])
    if pa.types.is_struct(kind):
        return np.concatenate([_words(field, name) for field in column.flatten()], axis=1)
    if pa.types.is_boolean(kind):
        words = to_numpy(column).astype(np.uint64)
    elif pa.types.is_unsigned_integer(kind):
        words = to_numpy(column).astype(np.uint64, copy=False)
    elif pa.types.is_signed_integer(kind) or pa.types.is_decimal128(kind):
        words = to_numpy(column).astype(np.int64, copy=False).view(np.uint64)
    elif pa.types.is_float64(kind):
        words = to_numpy(column).view(np.uint64)
    elif pa.types.is_binary(kind):  # of each text, its hash
        words = np.full(len(column), SEED, np.uint64)
        _fold_column(words, column, name)
    else:
        raise BadInput(f"column {name} has type {kind}, which has no digest")
    return words.reshape(-1, 1)


@cache
def _kernels() -> tuple[Callable, Callable]:
    """Return two loops over rows of varying length: over bytes, and over items.

    They are compiled at the first call, because importing numba is slow.
    """
    from numba import njit

    k1, half, three = K1, np.uint64(32), np.uint64(3)

    @njit(cache=True)
    def fold_bytes(hashes: np.ndarray, offsets: np.ndarray, data: np.ndarray) -> None:
        for row in range(hashes.size):
            start, stop = offsets[row], offsets[row + 1]
            h = (hashes[row] ^ np.uint64(stop - start)) * k1
            h ^= h >> half
            at = start
            while at < stop:
                word = np.uint64(0)
                for k in range(min(8, stop - at)):
                    word |= np.uint64(data[at + k]) << (np.uint64(k) << three)
                h = (h ^ word) * k1
                h ^= h >> half
                at += 8
            hashes[row] = h

    @njit(cache=True)
    def fold_items(hashes: np.ndarray, offsets: np.ndarray, items: np.ndarray) -> None:
        for row in range(hashes.size):
            start, stop = offsets[row], offsets[row + 1]
            h = (hashes[row] ^ np.uint64(stop - start)) * k1
            h ^= h >> half
            for at in range(start, stop):
                for k in range(items.shape[1]):
                    h = (h ^ items[at, k]) * k1
                    h ^= h >> half
            hashes[row] = h

    return fold_bytes, fold_items
