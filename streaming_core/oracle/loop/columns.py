"""Rows of the loop as columns: views of its memory, and fields of rows as Arrow arrays."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_core.data.rows import nulled
from streaming_core.language.record import Array, Counter, Map, Queue, Ring, Scalar, Set, Text, TopK, texts_in, visible
from streaming_core.oracle.loop.containers import GONE
from streaming_core.oracle.loop.memory_functions import memory_functions
from streaming_core.oracle.loop.owned import HEAD


def word_at(address: int) -> int:
    """The int64 at an address."""
    return int(view(address, 8).view(np.int64)[0])


def view(address: int, size: int) -> np.ndarray:
    """`size` bytes of raw memory."""
    if not size:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_uint8)), (size,))


def column_of(values: np.ndarray, slot: Any, text: np.ndarray | None) -> pa.Array:
    """One field of rows as an arrow array (copied)."""
    match slot.type:
        case Scalar(name="boolean"):
            return pa.array(values != 0)
        case Scalar():
            return pa.array(np.ascontiguousarray(values))
        case Text():
            if text is None:
                return _parts(values, slot.type)
            lengths = values["length"].astype(np.int64)
            offsets = np.zeros(len(values) + 1, np.int64)
            np.cumsum(lengths, out=offsets[1:])
            data = np.empty(int(offsets[-1]) + 1, np.uint8)
            begins = np.ascontiguousarray(values["offset"].astype(np.int64)) + text.ctypes.data
            memory_functions()["gather"](begins.ctypes.data, len(begins), offsets.ctypes.data, data.ctypes.data)
            buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
            return pa.Array.from_buffers(pa.large_binary(), len(values), buffers).cast(pa.binary())
        case Array(item):
            flat = np.ascontiguousarray(values).reshape(-1)
            inner = pa.array(flat != 0) if item.name == "boolean" else pa.array(flat)
            return pa.FixedSizeListArray.from_arrays(inner, slot.count)
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), slot.size)
    if isinstance(slot.type, Ring):
        return _rings(raw, slot.type.item, slot.count)
    if isinstance(slot.type, Queue):
        return _queues(raw, slot.type)
    return _boxes(raw, slot.type)


def _rings(raw: np.ndarray, item: Scalar, capacity: int) -> pa.Array:
    heads = raw[:, :8].copy().view(np.uint32).astype(np.int64)
    items = np.ascontiguousarray(raw[:, 8 : 8 + capacity * item.width]).view(item.dtype).reshape(len(raw), capacity)
    positions = np.arange(capacity)
    order = (heads[:, :1] + positions) % capacity
    values = np.take_along_axis(items, order, 1)[positions < heads[:, 1:2]]
    return _lists(heads[:, 1], pa.array(values != 0) if item.name == "boolean" else pa.array(values))


def _lists(lengths: np.ndarray, values: pa.Array) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _queues(raw: np.ndarray, queue: Queue) -> pa.Array:
    heads = raw[:, :24].copy().view(np.int64)
    lengths, before, fields = heads[:, 1] & 0xFFFFFFFF, 0, {}
    for name, scalar in queue.fields.items():
        dtype = np.dtype(np.int64) if isinstance(scalar, Text) else scalar.dtype
        chunks = [np.empty(0, dtype)]
        for address, sizes, first in heads.tolist():
            length, capacity = sizes & 0xFFFFFFFF, sizes >> 32
            at = address + capacity * before + first * scalar.width
            chunks.append(view(at, length * scalar.width).view(dtype))
        fields[name] = _parts(np.concatenate(chunks), scalar)
        before += scalar.width
    return _lists(lengths, pa.StructArray.from_arrays(nulled(fields), names=visible(fields)))


def _boxes(raw: np.ndarray, kind: Any) -> pa.Array:
    heads = raw[:, :32].copy().view(np.int64)
    lengths = heads[:, 1] & 0xFFFFFFFF
    pairs = [np.empty((n, 2), np.int64) for n in lengths.tolist()]
    for head, live in zip(heads, pairs, strict=True):
        gaps = int(head[3])
        if len(live) and gaps and 0 in texts_in(kind):
            places = view(int(head[0]), live.nbytes + 16 * gaps).view(np.int64).reshape(-1, 2)
            live[:] = places[places[:, 0] != GONE]
        elif len(live) and gaps:
            memory_functions()["box_live"](head.ctypes.data, live.ctypes.data)
        elif len(live):
            live[:] = view(int(head[0]), live.nbytes).view(np.int64).reshape(-1, 2)
    keys, values = np.concatenate([*pairs, np.empty((0, 2), np.int64)]).T.copy()
    match kind:
        case Set(item):
            return _lists(lengths, _parts(keys, item))
        case Map(key, value):
            is_float = isinstance(value, Scalar) and value.is_float
            held = values.view(np.float64) if is_float else values
            fields = {"key": _parts(keys, key), "value": _parts(held, value)}
        case Counter(key):
            fields = {"key": _parts(keys, key), "value": pa.array(values)}
        case TopK():
            fields = {"key": pa.array(keys), "score": pa.array(values)}
    return _lists(lengths, pa.StructArray.from_arrays(list(fields.values()), names=list(fields)))


def _parts(words: np.ndarray, kind: Scalar | Text) -> pa.Array:
    """Parts of containers as operators see them; of texts, the words are addresses of copies (owned.py)."""
    if isinstance(kind, Scalar):
        return pa.array(words != 0 if kind.name == "boolean" else words.astype(kind.dtype))
    blocks = [int(word) for word in words]
    texts = [view(at + HEAD, word_at(at + 8)).tobytes() if at else b"" for at in blocks]
    return pa.array(texts, pa.binary())
