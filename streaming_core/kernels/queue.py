"""Queues, compiled: rows of scalars and texts, oldest first, in columns.

The 32-byte head in the row is `{data: pointer, length: u32, capacity: u32, first: u64, ...}`. `data` holds one column
of `capacity` values behind the other, in the fields' order and widths; row i has place `first + i` in each. Places do
not wrap around, so a scan over a field reads adjacent memory. When the last place is full, the rows move to the front
of their columns if they fill at most half of them. Else they move to a block of twice the capacity, and the old block
stays with the arena. An append therefore moves two rows on average at most, and capacity stays below four times the
greatest length. A text is the word of a text that the queue owns (owned.py).
"""

from __future__ import annotations

import operator

from numba.core import cgutils, types
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, overload, overload_method

from streaming_core.kernels import ir as code
from streaming_core.kernels import owned
from streaming_core.kernels.containers import CAPACITY, LENGTH, compiled, part
from streaming_core.kernels.memory import allocate, copy_bytes, load_half, load_word, store_half, store_word
from streaming_core.kernels.values import (
    QueuedType,
    QueueType,
    parts_of_text,
    raw,
    refuse_null,
    text_of_word,
    text_type,
)
from streaming_core.language.record import VALID, Text

FIRST = 16
_LEAST = 8  # capacity: each column begins at a multiple of 8 bytes
_head, _arena = part("address"), part("arena")


@compiled
def _reserve(head, arena, widths):
    """Free the place behind the last row; operators see no difference."""
    first, length, capacity = load_word(head, FIRST), load_half(head, LENGTH), load_half(head, CAPACITY)
    if first + length < capacity:
        return
    larger = max(_LEAST, 2 * capacity if 2 * length > capacity else capacity)
    width = 0
    for bytes_ in widths:
        width += bytes_
    old = load_word(head, 0)
    data = allocate(arena, larger * width) if larger != capacity else old
    offset = 0
    for bytes_ in widths:
        # In place, rows of the second half come to lie in the first.
        copy_bytes(data + offset * larger, old + offset * capacity + first * bytes_, length * bytes_)
        offset += bytes_
    store_word(head, 0, data)
    store_half(head, CAPACITY, larger)
    store_word(head, FIRST, 0)


@compiled
def _pop(head):
    length = load_half(head, LENGTH)
    if length == 0:
        raise IndexError("popleft of an empty queue")
    store_half(head, LENGTH, length - 1)
    store_word(head, FIRST, load_word(head, FIRST) + 1 if length > 1 else 0)


@compiled
def _empty(head):
    store_half(head, LENGTH, 0)
    store_word(head, FIRST, 0)


@compiled
def _disown(head, arena, columns, count):
    """Give the texts of the oldest rows back; `columns`: the widths of the fields before each text."""
    first, capacity = load_word(head, FIRST), load_half(head, CAPACITY)
    for before in columns:
        for i in range(count):
            owned.disown(arena, load_word(load_word(head, 0) + before * capacity, (first + i) * 8))


def _text_columns(queue: QueueType) -> tuple[int, ...]:
    return tuple(_column(queue, name) for name, kind in queue.fields.items() if isinstance(kind, Text))


def _column(queue: QueueType, name: str) -> int:
    """Return the bytes of the fields before this one, for one row."""
    names = list(queue.fields)
    return sum(queue.fields[name].width for name in names[: names.index(name)])


def _place_of(builder, queue: QueueType, name: str, capacity, place):
    """Return the offset of a field's value in the columns."""
    column = builder.mul(capacity, code.i64(_column(queue, name)))
    return builder.add(column, builder.mul(place, code.i64(queue.fields[name].width)))


def _parts(context, builder, queue: QueueType, value):
    """Load the columns, the length, the capacity and the first row's place."""
    address = cgutils.create_struct_proxy(queue)(context, builder, value).address

    def load(offset, kind):
        return code.load(builder, address, offset, kind, code.ROW)

    length, capacity = (builder.zext(load(offset, code.I32), code.I64) for offset in (LENGTH, CAPACITY))
    return load(0, code.PTR), length, capacity, load(FIRST, code.I64)


@intrinsic(prefer_literal=True)
def _store(typingctx, queue, names, values):
    """Write a row behind the others, into a free place; raises before anything is written."""
    written = names.literal_value.split()

    def codegen(context, builder, signature, args):
        columns, length, capacity, first = _parts(context, builder, queue, args[0])
        converted = []
        for i, (name, kind) in enumerate(zip(written, signature.args[2].types, strict=True)):
            value, where = builder.extract_value(args[2], i), f"{queue.record.name}.{name}"
            if name not in queue.fields:  # the validity of a value for a field that cannot be null
                refuse_null(context, builder, value, f"{queue.record.name}.{name.removeprefix(VALID)}")
                continue
            field = queue.fields[name]
            if isinstance(field, Text):
                converted.append(parts_of_text(context, builder, value))
            else:
                converted.append(code.convert(context, builder, value, kind, field, where))
        arena = builder.ptrtoint(cgutils.create_struct_proxy(queue)(context, builder, args[0]).arena, code.I64)
        own = types.int64(*[types.int64] * 4)
        for i, value in enumerate(converted):
            if isinstance(value, tuple):
                words = [arena, *value, code.i64(0)]
                converted[i] = context.compile_internal(builder, owned.own.py_func, own, words)
        place = builder.add(first, length)
        for name, value in zip((field for field in written if field in queue.fields), converted, strict=True):
            code.store(builder, value, columns, _place_of(builder, queue, name, capacity, place), code.ROW)
        longer = builder.trunc(builder.add(length, code.i64(1)), code.I32)
        address = cgutils.create_struct_proxy(queue)(context, builder, args[0]).address
        code.store(builder, longer, address, LENGTH, code.ROW)
        return context.get_dummy_value()

    return types.none(queue, names, values), codegen


def queue_append(queue, names, values):
    """`queue.append(...)`: the fields in one string, in the order of the source, and their values."""


@overload(queue_append, prefer_literal=True)
def _append(queue, names, values):
    if not isinstance(queue, QueueType):
        return None
    widths = tuple(scalar.width for scalar in queue.fields.values())

    def append(queue, names, values):
        _reserve(_head(queue), _arena(queue), widths)
        _store(queue, names, values)

    return append


@overload(len)
def _len(queue):
    return (lambda queue: load_half(_head(queue), LENGTH)) if isinstance(queue, QueueType) else None


@overload_method(QueueType, "popleft")
def _popleft(queue):
    columns = _text_columns(queue)
    if not columns:
        return lambda queue: _pop(_head(queue))

    def popleft(queue):
        _disown(_head(queue), _arena(queue), columns, min(load_half(_head(queue), LENGTH), 1))
        _pop(_head(queue))

    return popleft


@overload_method(QueueType, "clear")
def _clear(queue):
    columns = _text_columns(queue)
    if not columns:
        return lambda queue: _empty(_head(queue))

    def clear(queue):
        _disown(_head(queue), _arena(queue), columns, load_half(_head(queue), LENGTH))
        _empty(_head(queue))

    return clear


@intrinsic
def _row(typingctx, queue, index):
    row = QueuedType(queue)

    def codegen(context, builder, signature, args):
        columns, length, capacity, first = _parts(context, builder, queue, args[0])
        index = context.cast(builder, args[1], signature.args[1], types.int64)
        code.checked_index(context, builder, index, length, queue.field)
        held = cgutils.create_struct_proxy(row)(context, builder)
        held.columns, held.capacity, held.place = columns, capacity, builder.add(first, index)
        return held._getvalue()

    return row(queue, index), codegen


@intrinsic
def queue_at(typingctx, queue, index):
    """Row `index`, which must lie in the queue: nothing checks it, so that a scan has no branch (scan.py)."""
    row = QueuedType(queue)

    def codegen(context, builder, signature, args):
        columns, _, capacity, first = _parts(context, builder, queue, args[0])
        index = context.cast(builder, args[1], signature.args[1], types.int64)
        held = cgutils.create_struct_proxy(row)(context, builder)
        held.columns, held.capacity, held.place = columns, capacity, builder.add(first, index)
        return held._getvalue()

    return row(queue, index), codegen


@overload(operator.getitem)
def _getitem(queue, index):
    if not isinstance(queue, QueueType) or not isinstance(index, types.Integer | types.Boolean):
        return None
    return lambda queue, index: _row(queue, index)


@infer_getattr
class _QueuedAttributes(AttributeTemplate):
    key = QueuedType

    def generic_resolve(self, row, name):
        """Return the type of a field; None if the queue has no such field."""
        kind = row.queue.fields.get(name)
        return text_type if isinstance(kind, Text) else code.numba_type(kind) if kind else None


@lower_getattr_generic(QueuedType)
def _load_field(context, builder, kind, value, name):
    row = cgutils.create_struct_proxy(kind)(context, builder, value)
    if VALID + name in kind.queue.fields:
        valid = _load_queued(context, builder, kind, row, VALID + name)
        refuse_null(context, builder, valid, f"{kind.queue.record.name}.{name}")
    return _load_queued(context, builder, kind, row, name)


def _load_queued(context, builder, kind, row, name):
    """Load a field of a row of a queue, whether it is null or not."""
    place = _place_of(builder, kind.queue, name, row.capacity, row.place)
    if isinstance(kind.queue.fields[name], Text):
        return text_of_word(context, builder, code.load(builder, row.columns, place, code.I64, code.ROW))
    return code.load_scalar(builder, row.columns, place, kind.queue.fields[name])


@overload(raw, prefer_literal=True)
def _raw(row, name):
    if not isinstance(name, types.StringLiteral):
        return None
    if isinstance(row, QueuedType) and VALID + name.literal_value in row.queue.fields:
        return lambda row, name: _raw_field(row, name)
    return None


@intrinsic(prefer_literal=True)
def _raw_field(typingctx, row, name):
    field = name.literal_value

    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(row)(context, builder, args[0])
        return _load_queued(context, builder, row, held, field)

    kind = row.queue.fields[field]
    return (text_type if isinstance(kind, Text) else code.numba_type(kind))(row, name), codegen
