"""Rows and columns: Arrow tables as the runtime's fixed-width rows with text beside them, and back.

A block is (rows, text): `rows` a structured array of the event record's dtype, `text` a byte array with 64 bytes of
padding behind (runtime/ABI.md). Exported state comes back as one table per shared table or keyed state.
"""

from __future__ import annotations

import ctypes
import json
import mmap
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_core.data.arrow import from_bytes, of_units, to_arrow, to_numpy, with_nulls, without_nulls
from streaming_core.data.digest import MASK
from streaming_core.errors import BadInput
from streaming_core.language.operator import key_columns
from streaming_core.language.record import (
    VALID,
    Array,
    Counter,
    Map,
    Queue,
    Resolved,
    Ring,
    Scalar,
    Set,
    Slot,
    Text,
    TopK,
    visible,
)

TEXT_PADDING = 64
_LAZY = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)


def nameable_text() -> np.ndarray:
    """Bytes for all texts that rows can name, 4 GiB with their padding, zero: what is used of them becomes memory.

    A block's text goes to their start; behind it operators put texts that they have kept from earlier blocks.
    """
    return np.frombuffer(mmap.mmap(-1, 1 << 32, flags=_LAZY), np.uint8)


def encode(table: pa.Table, record: Resolved) -> tuple[np.ndarray, np.ndarray, int]:
    """Columns as rows and text, with the sum of the hashes of the rows (digest.py).

    Args:
        table: Columns `seq`, `sub` if it counts in the digest, and the record's fields.
        record: The layout of the rows, which do not have `sub`.

    Raises:
        BadInput: A block holds 4 GiB of text or more.
    """
    from streaming_core import _runtime  # whatever reads no events does without it

    rows = np.empty(table.num_rows, dtype=record.dtype(header=True))
    batches = [batch for batch in table.to_batches() if batch.num_rows]
    batches = [_with_validities(batch, record) for batch in batches]
    texts = [[_text(batch.column(name)) for name in text_fields(record)] for batch in batches]
    bases = np.cumsum([0, *(len(text) for of_batch in texts for text in of_batch)]).tolist()
    if bases[-1] >= 1 << 32:
        raise BadInput("the text of a block must be smaller than 4 GiB; use fewer events per block")
    text = np.concatenate([*(text for of_batch in texts for text in of_batch), np.zeros(TEXT_PADDING, np.uint8)])
    columns = json.dumps(record.layout)
    sub = "sub" in table.column_names
    at = total = 0
    for batch in batches:
        values, begins = [], []
        for name, slot in record.event[0].items():
            column = batch.column(name)
            if isinstance(slot.type, Text):
                offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
                values.append(offsets.view(np.uint8))
            else:
                items = to_numpy(column.flatten() if isinstance(slot.type, Array) else column)
                values.append(items.view(np.uint8))
            begins.append(bases.pop(0) if isinstance(slot.type, Text) else 0)
        n = batch.num_rows
        seq, subs = to_numpy(batch["seq"]).view(np.uint8), to_numpy(batch["sub"]).view(np.uint8) if sub else None
        part = rows[at : at + n].view(np.uint8)
        total += _runtime.fill_rows(part, (n, rows.itemsize), text, (seq, subs), columns, values, begins)
        at += n
    return rows, text, total & MASK


def _with_validities(batch: pa.RecordBatch, record: Resolved) -> pa.RecordBatch:
    """A batch as rows have it: for each column that may have nulls, its values and their validity."""
    for name, slot in record.event[0].items():
        if slot.nullable:
            batch = batch.append_column(name, batch.column(slot.nullable).is_valid())
    for at, name in enumerate(batch.schema.names):
        if name in record.event[0] and record.event[0][name].is_nullable:
            batch = batch.set_column(at, name, without_nulls(batch.column(at)))
    return batch


def nulled(columns: dict[str, pa.Array]) -> list[pa.Array]:
    """Columns of rows as tables have them: each with the nulls that its validity says."""
    return [
        with_nulls(column, columns[VALID + name]) if VALID + name in columns else column
        for name, column in columns.items()
        if not name.startswith(VALID)
    ]


def _text(column: pa.Array) -> np.ndarray:
    """The bytes of a column of texts."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    data = column.buffers()[2]
    begin, end = offsets[column.offset], offsets[column.offset + len(column)]
    return np.frombuffer(data, np.uint8)[begin:end] if data else np.empty(0, np.uint8)


def decode(rows: np.ndarray, text: np.ndarray, record: Resolved, subs: np.ndarray) -> pa.Table:
    """Output rows as columns `seq`, `sub` and the record's fields. `rows` has the record's dtype with header."""
    schema = record.arrow(("seq", "sub"))
    columns = {"seq": to_arrow(rows["seq"]), "sub": to_arrow(subs.astype(np.int64))}
    for slot in record.event[0].values():
        if isinstance(slot.type, Text):
            columns[slot.name] = gather(rows[slot.name]["offset"], rows[slot.name]["length"], text)
        else:
            columns[slot.name] = _column(rows[slot.name], slot)
    return pa.Table.from_arrays(typed(columns, schema), schema=schema)


def typed(columns: dict[str, pa.Array], schema: pa.Schema) -> list[pa.Array]:
    """Columns of rows as a table of this schema has them."""
    return [of_units(column, field.type) for column, field in zip(nulled(columns), schema, strict=True)]


def gather(offsets: np.ndarray, lengths: np.ndarray, text: np.ndarray) -> pa.Array:
    """The slices `text[offset:offset+length]` as a binary array."""
    ends, data = _copy()(np.ascontiguousarray(offsets), np.ascontiguousarray(lengths), text)
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(ends), pa.py_buffer(data)])


@cache
def _copy() -> Callable:
    """Return the loop that copies slices of a text, one behind the other; compiled at the first call."""
    from numba import njit

    @njit(cache=True)
    def copy(offsets: np.ndarray, lengths: np.ndarray, text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ends = np.zeros(lengths.size + 1, np.int32)
        for row in range(lengths.size):
            ends[row + 1] = ends[row] + np.int64(lengths[row])
        data = np.empty(ends[-1], np.uint8)
        for row in range(lengths.size):
            at = np.int64(offsets[row]) - ends[row]
            for to in range(ends[row], ends[row + 1]):
                data[to] = text[at + to]
        return ends, data

    return copy


def _column(values: np.ndarray, slot: Slot) -> pa.Array:
    if isinstance(slot.type, Array):
        items = to_arrow(np.ascontiguousarray(values).reshape(-1))
        if slot.type.item.name == "boolean":
            items = items.cast(pa.bool_())
        return pa.FixedSizeListArray.from_arrays(items, slot.count)
    assert isinstance(slot.type, Scalar)
    array = to_arrow(values)
    return array.cast(pa.bool_()) if slot.type.name == "boolean" else array


def decode_state(data: bytes, record: Resolved, keys: list[pa.Array]) -> pa.Table:
    """Table rows or key states as the columns of the key and the record's fields, containers as lists.

    Growing containers and texts are read through the addresses in `data`: their arena must still live.
    """
    rows = np.frombuffer(data, dtype=record.dtype(header=False))
    columns = {}
    names = key_columns(len(keys))
    fields = [pa.field(name, key.type, nullable=False) for name, key in zip(names, keys, strict=True)]
    schema = record.arrow()
    for slot in record.columns:
        if isinstance(slot.type, Scalar | Array):
            columns[slot.name] = _column(rows[slot.name], slot)
        elif isinstance(slot.type, Text):
            columns[slot.name] = _parts(rows[slot.name], slot.type)
        else:
            raw = np.ascontiguousarray(rows[slot.name]).view(np.uint8).reshape(len(rows), slot.size)
            read = _rings if isinstance(slot.type, Ring) else _queues if isinstance(slot.type, Queue) else _growing
            columns[slot.name] = read(raw, slot)
    return pa.Table.from_arrays([*keys, *typed(columns, schema)], schema=pa.schema([*fields, *schema]))


def decode_keys(keys: bytes | list[bytes] | tuple | None) -> list[pa.Array]:
    """Keys of the runtime as columns: integers or texts; a tuple has those of several fields."""
    if isinstance(keys, tuple):
        return [column for field in keys for column in decode_keys(field)]
    if keys is None:
        return []
    return [to_arrow(np.frombuffer(keys, "<i8")) if isinstance(keys, bytes) else from_bytes(keys)]


def _rings(raw: np.ndarray, slot: Slot) -> pa.Array:
    """Rings as lists, oldest first."""
    assert isinstance(slot.type, Ring)
    item = slot.type.item
    start, lengths = raw[:, :8].copy().view("<u4").astype(np.int64).T
    items = np.ascontiguousarray(raw[:, 8 : 8 + slot.count * item.width]).view(item.dtype)
    steps = np.arange(slot.count)
    ordered = np.take_along_axis(items, (start[:, None] + steps) % slot.count, axis=1)
    return _lists(lengths, _scalars(ordered[steps < lengths[:, None]], item))


def _queues(raw: np.ndarray, slot: Slot) -> pa.Array:
    """Queues as lists of rows, oldest first."""
    assert isinstance(slot.type, Queue)
    data, first, lengths, capacities = (
        raw[:, at : at + size].copy().view(f"<u{size}")[:, 0].astype(np.int64)
        for at, size in ((0, 8), (16, 8), (8, 4), (12, 4))
    )
    columns, before = {}, 0  # bytes of a row's fields before the one at hand
    for name, kind in slot.type.fields.items():
        begins = data + before * capacities + first * kind.width
        parts = [ctypes.string_at(a, n * kind.width) for a, n in zip(begins.tolist(), lengths.tolist(), strict=True)]
        words = np.frombuffer(b"".join(parts), "<u8" if isinstance(kind, Text) else kind.dtype)
        columns[name] = _parts(words, kind)
        before += kind.width
    return _lists(lengths, pa.StructArray.from_arrays(nulled(columns), names=visible(columns)))


def _gaps(tree: int, capacity: int) -> np.ndarray:
    """Whether each place of a container is a gap, from the tree that counts them (kernels/containers.py)."""
    counts = np.frombuffer(ctypes.string_at(tree, capacity * 4), "<u4").copy()
    step = capacity // 2
    while step:
        counts[2 * step - 1 :: 2 * step] -= counts[step - 1 :: 2 * step]
        step //= 2
    return counts != 0


def _growing(raw: np.ndarray, slot: Slot) -> pa.Array:
    """Sets as lists of keys, other growing containers as lists of pairs."""
    heads = raw[:, :32].copy()
    lengths = heads.view("<u4")[:, 2].astype(np.int64)
    parts = [np.empty((0, 2), "<i8")]
    for (data, _, _, tree), (_, _, length, capacity, gaps, *_) in zip(
        heads.view("<u8").tolist(), heads.view("<u4").tolist(), strict=True
    ):
        if length:
            entries = np.frombuffer(ctypes.string_at(data, (length + gaps) * 16), "<i8").reshape(-1, 2)
            parts.append(entries[~_gaps(tree, capacity)[: len(entries)]] if gaps else entries)
    keys, values = np.concatenate(parts).T.copy()
    match slot.type:
        case Set(item):
            return _lists(lengths, _parts(keys, item))
        case Map(key, value):
            is_float = isinstance(value, Scalar) and value.is_float
            pairs = {"key": _parts(keys, key), "value": _parts(values.view("<f8") if is_float else values, value)}
        case Counter(key):
            pairs = {"key": _parts(keys, key), "value": to_arrow(values)}
        case TopK():
            pairs = {"key": to_arrow(keys), "score": to_arrow(values)}
    return _lists(lengths, pa.StructArray.from_arrays(list(pairs.values()), names=list(pairs)))


def _parts(values: np.ndarray, kind: Scalar | Text) -> pa.Array:
    """Values of a container, or texts by their words (kernels/owned.py)."""
    if isinstance(kind, Scalar):
        return _scalars(values, kind)
    heads = [ctypes.string_at(word, 4) if word else bytes(4) for word in values.tolist()]
    words = zip(values.tolist(), heads, strict=True)
    return from_bytes([ctypes.string_at(word + 8, int.from_bytes(head, "little")) for word, head in words])


def _scalars(values: np.ndarray, scalar: Scalar) -> pa.Array:
    array = to_arrow(values.astype(scalar.dtype))
    return array.cast(pa.bool_()) if scalar.name == "boolean" else array


def _lists(lengths: np.ndarray, values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(to_arrow(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)), values)


def text_fields(record: Resolved) -> list[str]:
    """The fields of a record that are texts."""
    return [name for name, slot in record.event[0].items() if isinstance(slot.type, Text)]


def row_bytes(record: Resolved, tables: Iterable[pa.Table], rows: int) -> float | None:
    """Return the mean size of a row in the runtime, in bytes: header, fields and text; None if there are no rows.

    Args:
        record: The record of the rows.
        tables: The rows as columns; read only if the record has texts.
        rows: The number of rows.
    """
    texts, total = text_fields(record), rows * record.event[1]
    for table in tables if texts else ():
        total += sum(pc.sum(pc.binary_length(table[name])).as_py() or 0 for name in texts)
    return total / rows if rows else None
