"""Values of operators: rows, texts, arrays and containers, as numba types over addresses."""

from __future__ import annotations

import functools
import operator
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.imputils import lower_cast, lower_getattr_generic
from numba.core.typeconv import Conversion
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import intrinsic, overload, overload_method, register_model

from streaming_core.kernels import ir as code
from streaming_core.kernels import owned
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
    boolean,
)


def _structure(kind: type[types.Type], *members: tuple[str, types.Type]) -> None:
    @register_model(kind)
    class Model(models.StructModel):
        def __init__(self, manager, fe_type):
            super().__init__(manager, fe_type, list(members))


class RowType(types.Type):
    """A row of `resolved`: events and outputs with header, table rows and states without.

    `seen` collects the names of the fields that code reads. `kept`: its texts outlive their block, because they lie in
    the state of a window, beside the row.
    """

    def __init__(self, resolved: Resolved, header: bool, seen: set[str] | None = None, kept: bool = False):
        self.resolved, self.header, self.seen, self.kept = resolved, header, seen, kept
        self.slots, self.size = resolved.event if header else resolved.state
        which = f"{resolved.name}@{id(resolved):x}, header={header}, kept={kept}"
        super().__init__(f"Row({which}{'' if seen is None else f', seen by {id(seen):x}'})")


class TextType(types.Type):
    """Bytes of the batch's text: address, length, offset from the text's start; of a text elsewhere it is negative.

    A foreign text may lie elsewhere: it is a literal, or an operator has built it.
    """

    def __init__(self, is_foreign: bool = False):
        self.is_foreign = is_foreign
        super().__init__("ForeignText" if is_foreign else "Text")

    def unify(self, typingctx, other):
        """Return the type of a variable that has a text of each type; None if the other one is no text."""
        return foreign_type if isinstance(other, TextType) else None

    def can_convert_to(self, typingctx, other):
        """Return how a text becomes one that may lie elsewhere."""
        return Conversion.safe if other == foreign_type else None


class ArrayType(types.Type):
    """A fixed array inside a row."""

    def __init__(self, item: Scalar, count: int, field: str):
        self.item, self.count, self.field = item, count, field
        super().__init__(f"Array({item.name}, {count}, {field})")


class RingType(types.Type):
    """A ring inside a state or table row."""

    def __init__(self, item: Scalar, count: int, field: str):
        self.item, self.count, self.field = item, count, field
        super().__init__(f"Ring({item.name}, {count}, {field})")


class GrowingType(types.Type):
    """A set, map, counter or top-k: its 32-byte head inside the row, its items in the arena."""

    def __init__(self, kind: type, key: Scalar | Text | None, value: Scalar | Text | None, count: int, field: str):
        self.kind, self.item, self.value, self.count, self.field = kind, key, value, count, field
        super().__init__(f"{kind.__name__}({key and key.name}, {value and value.name}, {count}, {field})")


class QueueType(types.Type):
    """A queue: its 32-byte head inside the row, its columns in the arena. `fields`: what its rows have, in order."""

    def __init__(self, declared: Queue, field: str):
        self.record, self.fields, self.field = declared.item, declared.fields, field
        super().__init__(f"Queue({self.record.name}@{id(self.record):x}, {field})")


class QueuedType(types.Type):
    """A row of a queue: the queue's columns, their length, and the row's place in each."""

    def __init__(self, queue: QueueType):
        self.queue = queue
        super().__init__(f"Queued({queue.name})")


text_type, foreign_type = TextType(), TextType(is_foreign=True)
ELSEWHERE = -(1 << 62)  # plus any offset in a text it stays negative
_structure(RowType, ("address", types.voidptr), ("text", types.voidptr), ("arena", types.voidptr))
_structure(TextType, ("address", types.voidptr), ("length", types.int64), ("offset", types.int64))
_structure(ArrayType, ("address", types.voidptr))
_structure(RingType, ("address", types.voidptr))
_structure(GrowingType, ("address", types.voidptr), ("arena", types.voidptr))
_structure(QueueType, ("address", types.voidptr), ("arena", types.voidptr))
_structure(QueuedType, ("columns", types.voidptr), ("capacity", types.int64), ("place", types.int64))


@lower_cast(text_type, foreign_type)
def _as_foreign(context, builder, source, target, value):
    return value


def field_type(slot: Slot) -> types.Type:
    """The numba type an operator sees when it loads the field."""
    match slot.type:
        case Scalar():
            return code.numba_type(slot.type)
        case Text():
            return text_type
        case Array(item):
            return ArrayType(item, slot.count, slot.name)
        case Ring(item):
            return RingType(item, slot.count, slot.name)
        case Set(item):
            return GrowingType(Set, item, None, 0, slot.name)
        case Map(key, value):
            return GrowingType(Map, key, value, 0, slot.name)
        case Counter(key):
            return GrowingType(Counter, key, None, 0, slot.name)
        case TopK():
            return GrowingType(TopK, None, None, slot.count, slot.name)
        case Queue():
            return QueueType(slot.type, slot.name)


@infer_getattr
class _RowAttributes(AttributeTemplate):
    key = RowType

    def generic_resolve(self, row, name):
        """Return the type of a field; None if the row has no such field."""
        if name == "seq" and row.header:
            return types.int64
        slot = row.slots.get(name)
        if slot and row.seen is not None:
            row.seen.add(name)
        return field_type(slot) if slot else None


@lower_getattr_generic(RowType)
def _load_field(context, builder, kind, value, name):
    row = cgutils.create_struct_proxy(kind)(context, builder, value)
    if name == "seq":
        return code.load(builder, row.address, 0, code.I64)
    slot = kind.slots[name]
    if slot.is_nullable:
        valid = code.load_scalar(builder, row.address, kind.slots[VALID + name].offset, boolean)
        refuse_null(context, builder, valid, f"{kind.resolved.name}.{name}")
    return _load_slot(context, builder, kind, row, slot)


def refuse_null(context, builder, valid, where: str) -> None:
    """Raise ValueError unless a field has a value."""
    message = f"{where} is null; test it with `is None` first"
    code.raise_if(context, builder, builder.not_(valid), ValueError, message)


def _load_slot(context, builder, kind, row, slot):
    """Load a field of a row, whether it is null or not."""
    match slot.type:
        case Scalar():
            return code.load_scalar(builder, row.address, slot.offset, slot.type)
        case Text() if not kind.header:
            return text_of_word(context, builder, code.load(builder, row.address, slot.offset, code.I64, code.ROW))
        case Text():
            offset = builder.zext(code.load(builder, row.address, slot.offset, code.I32), code.I64)
            length = builder.zext(code.load(builder, row.address, slot.offset + 4, code.I32), code.I64)
            text = cgutils.create_struct_proxy(text_type)(context, builder)
            text.address, text.length = code.at(builder, row.text, offset), length
            text.offset = builder.add(offset, code.i64(ELSEWHERE)) if kind.kept else offset
            return text._getvalue()
        case _:
            field = field_type(slot)
            held = cgutils.create_struct_proxy(field)(context, builder)
            held.address = code.at(builder, row.address, slot.offset)
            if isinstance(field, GrowingType | QueueType):
                held.arena = row.arena
            return held._getvalue()


def text_of_word(context, builder, word):
    """Return the text that a state owns (owned.py); an empty one lies in a block of zeros."""
    zeros = ir.Constant(ir.ArrayType(code.I8, owned.SMALLEST), bytearray(owned.SMALLEST))
    empty = builder.bitcast(cgutils.global_constant(builder, "empty_text", zeros), code.PTR)
    block = builder.select(builder.icmp_signed("==", word, code.i64(0)), empty, builder.inttoptr(word, code.PTR))
    text = cgutils.create_struct_proxy(text_type)(context, builder)
    text.length = builder.zext(code.load(builder, block, 0, code.I32), code.I64)
    text.address, text.offset = code.at(builder, block, owned.HEAD), code.i64(ELSEWHERE)
    return text._getvalue()


def parts_of_text(context, builder, value):
    """Return address and length of a text, as integers."""
    text = cgutils.create_struct_proxy(text_type)(context, builder, value)
    return builder.ptrtoint(text.address, code.I64), text.length


@intrinsic
def text_at(typingctx, word):
    """The text that a word of a state owns."""
    return text_type(word), lambda context, builder, signature, args: text_of_word(context, builder, args[0])


@intrinsic
def text_address(typingctx, text):
    """Address of a text's bytes."""
    return types.int64(text), lambda context, builder, signature, args: parts_of_text(context, builder, args[0])[0]


@intrinsic
def arena_of(typingctx, row):
    """Address of a row's arena."""

    def codegen(context, builder, signature, args):
        return builder.ptrtoint(cgutils.create_struct_proxy(row)(context, builder, args[0]).arena, code.I64)

    return types.int64(row), codegen


# --- words over fields that may be null ---------------------------------------------------------------------------


def raw(row, name):
    """`row.name`, or what stands there if it is null."""


def valid(row, name):
    """`row.name is not None`."""


def zero(row, name):
    """What stands in a field that is null."""


def set_optional(value, valid, row, name):
    """`row.name = value`, or null if it is not valid."""


def slots_of(row) -> dict[str, Any] | None:
    """The fields, with validities, of a row, an emitter or a queue, with their types; None of all else."""
    if isinstance(row, QueuedType | QueueType):
        return row.fields if isinstance(row, QueueType) else row.queue.fields
    resolved = getattr(row, "resolved", None) or getattr(row, "output", None)
    return {name: slot.type for name, slot in resolved.event[0].items()} if resolved else None


@overload(raw, prefer_literal=True)
def _raw(row, name):
    if not isinstance(name, types.StringLiteral):
        return None
    field = name.literal_value
    if VALID + field not in (slots_of(row) or {}):
        namespace: dict = {}
        exec(f"def get(row, name):\n    return row.{field}\n", namespace)
        return namespace["get"]
    return (lambda row, name: _raw_field(row, name)) if isinstance(row, RowType) else None


@intrinsic(prefer_literal=True)
def _raw_field(typingctx, row, name):
    field = name.literal_value

    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(row)(context, builder, args[0])
        return _load_slot(context, builder, row, held, row.slots[field])

    return field_type(row.slots[field])(row, name), codegen


@overload(valid, prefer_literal=True)
def _valid(row, name):
    field = VALID + name.literal_value
    if field not in (slots_of(row) or {}):
        return lambda row, name: True
    namespace: dict = {}
    exec(f"def get(row, name):\n    return row.{field}\n", namespace)
    return namespace["get"]


@overload(zero, prefer_literal=True)
def _zero(row, name):
    kind = (slots_of(row) or {})[name.literal_value]
    if isinstance(kind, Text):
        return lambda row, name: _empty_text()
    value = 0.0 if kind.is_float else False if kind.name == "boolean" else 0
    return lambda row, name: value


@intrinsic
def _empty_text(typingctx):
    def codegen(context, builder, signature, args):
        return text_of_word(context, builder, code.i64(0))

    return foreign_type(), codegen


@overload(set_optional, prefer_literal=True)
def _set_optional(value, valid, row, name):
    field = name.literal_value
    if VALID + field in row.slots:
        validity = VALID + field

        def store(value, valid, row, name):
            set_field(value, row, field)
            set_field(valid, row, validity)

        return store
    where = f"{row.resolved.name}.{field}"

    def check(value, valid, row, name):
        checked(valid, where)
        set_field(value, row, field)

    return check


@intrinsic(prefer_literal=True)
def checked(typingctx, valid, where):
    """Raise ValueError unless a field has a value."""

    def codegen(context, builder, signature, args):
        refuse_null(context, builder, args[0], where.literal_value)
        return context.get_dummy_value()

    return types.none(types.boolean, where), codegen


# --- words over rows and arrays ----------------------------------------------------------------------------------


@intrinsic(prefer_literal=True)
def set_field(typingctx, value, row, name):
    """`row.name = value`."""
    value, slot = types.unliteral(value), row.slots[name.literal_value]
    where = f"{row.resolved.name}.{slot.name}"

    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(row)(context, builder, args[1])
        kind = signature.args[0]
        if isinstance(slot.type, Text):
            arena = builder.ptrtoint(held.arena, code.I64)
            place = builder.ptrtoint(code.at(builder, held.address, slot.offset), code.I64)
            words = [arena, place, *parts_of_text(context, builder, args[0])]
            context.compile_internal(builder, owned.assign.py_func, types.none(*[types.int64] * 4), words)
            return context.get_dummy_value()
        code.store_scalar(context, builder, args[0], kind, held.address, slot.offset, slot.type, where)
        return context.get_dummy_value()

    return types.none(value, row, name), codegen


@intrinsic
def set_item(typingctx, value, array, index):
    """`row.field[index] = value`."""

    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(array)(context, builder, args[1])
        item = code.convert(context, builder, args[0], signature.args[0], array.item, array.field)
        index = context.cast(builder, args[2], signature.args[2], types.int64)
        code.checked_index(context, builder, index, code.i64(array.count), array.field)
        code.store(builder, item, held.address, builder.mul(index, code.i64(array.item.width)), code.ROW)
        return context.get_dummy_value()

    return types.none(value, array, index), codegen


@intrinsic
def _array_item(typingctx, array, index):
    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(array)(context, builder, args[0])
        index = context.cast(builder, args[1], signature.args[1], types.int64)
        code.checked_index(context, builder, index, code.i64(array.count), array.field)
        offset = builder.mul(index, code.i64(array.item.width))
        return code.load_scalar(builder, held.address, offset, array.item)

    return code.numba_type(array.item)(array, index), codegen


@overload(operator.getitem)
def _getitem(value, index):
    if not isinstance(index, types.Integer | types.Boolean):
        return None
    if isinstance(value, ArrayType):
        return lambda value, index: _array_item(value, index)
    if isinstance(value, TextType):
        return lambda value, index: _text_byte(value, index)
    if isinstance(value, RingType):
        return lambda value, index: _ring_item(value, index)
    return None


@overload(len)
def _len(value):
    if isinstance(value, ArrayType):
        count = value.count
        return lambda value: count
    if isinstance(value, TextType):
        return lambda value: _text_length(value)
    if isinstance(value, RingType):
        return lambda value: _ring_length(value)
    return None


# --- text ----------------------------------------------------------------------------------------------------------


@intrinsic
def _text_length(typingctx, text):
    def codegen(context, builder, signature, args):
        return cgutils.create_struct_proxy(text_type)(context, builder, args[0]).length

    return types.int64(text), codegen


def _rarely(builder, condition, usual, otherwise):
    """Return `usual`, or what `otherwise()` returns if a condition holds, for which a kernel expects not to jump."""
    before = builder.basic_block
    with builder.if_then(condition, likely=False):
        values = otherwise()
        rare = builder.basic_block
    chosen = []
    for value, other in zip(usual, values, strict=True):
        chosen.append(builder.phi(value.type))
        chosen[-1].add_incoming(value, before)
        chosen[-1].add_incoming(other, rare)
    return chosen


def _from_start(builder, bounds, length):
    """Return bounds that are not negative: a negative one counts from the end."""

    def counted():
        for bound in bounds:
            negative = builder.icmp_signed("<", bound, code.i64(0))
            from_end = builder.add(bound, length)
            from_end = builder.select(builder.icmp_signed("<", from_end, code.i64(0)), code.i64(0), from_end)
            yield builder.select(negative, from_end, bound)

    signs = functools.reduce(builder.or_, bounds)
    return _rarely(builder, builder.icmp_signed("<", signs, code.i64(0)), bounds, lambda: list(counted()))


@intrinsic
def _text_byte(typingctx, text, index):
    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(text)(context, builder, args[0])
        index = context.cast(builder, args[1], signature.args[1], types.int64)

        def counted():
            negative = builder.icmp_signed("<", index, code.i64(0))
            from_end = builder.select(negative, builder.add(index, held.length), index)
            return [code.checked_index(context, builder, from_end, held.length, "text")]

        [index] = _rarely(builder, builder.icmp_unsigned(">=", index, held.length), [index], counted)
        return builder.zext(code.load(builder, held.address, index, code.I8), code.I64)

    return types.int64(text, index), codegen


@intrinsic
def text_slice(typingctx, text, low, high):
    """`text[low:high]`."""

    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(text)(context, builder, args[0])
        low, high = (context.cast(builder, args[i], signature.args[i], types.int64) for i in (1, 2))
        low, high = _from_start(builder, [low, high], held.length)
        low = builder.select(builder.icmp_signed("<", low, held.length), low, held.length)
        high = builder.select(builder.icmp_signed("<", high, held.length), high, held.length)
        high = builder.select(builder.icmp_signed("<", high, low), low, high)
        part = cgutils.create_struct_proxy(text)(context, builder)
        part.address = code.at(builder, held.address, low)
        part.length = builder.sub(high, low)
        part.offset = builder.add(held.offset, low)
        return part._getvalue()

    return text(text, low, high), codegen


_LANES = 16  # bytes searched at once; every text buffer ends with at least 64 readable bytes


@intrinsic
def text_find(typingctx, text, byte, start):
    """Position of the first `byte` at or after `start`, or -1."""

    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(text_type)(context, builder, args[0])
        byte = context.cast(builder, args[1], signature.args[1], types.int64)
        start = context.cast(builder, args[2], signature.args[2], types.int64)
        [start] = _from_start(builder, [start], held.length)
        strange = builder.icmp_unsigned(">", byte, code.i64(255))
        code.raise_if(context, builder, strange, ValueError, "text: a byte lies in 0..255")
        vector = ir.VectorType(code.I8, _LANES)
        wanted = ir.Constant(vector, ir.Undefined)
        wanted = builder.insert_element(wanted, builder.trunc(byte, code.I8), ir.Constant(code.I32, 0))
        mask = ir.Constant(ir.VectorType(code.I32, _LANES), [0] * _LANES)
        wanted = builder.shuffle_vector(wanted, ir.Constant(vector, ir.Undefined), mask)
        before = builder.basic_block
        head, search, hit, done = (builder.append_basic_block(f"find.{n}") for n in ("head", "search", "hit", "done"))
        builder.branch(head)
        builder.position_at_end(head)
        position = builder.phi(code.I64)
        position.add_incoming(start, before)
        builder.cbranch(builder.icmp_signed("<", position, held.length), search, done)
        builder.position_at_end(search)
        here = code.load(builder, held.address, position, vector)
        bits = builder.bitcast(builder.icmp_unsigned("==", here, wanted), ir.IntType(_LANES))
        has_match = builder.icmp_unsigned("!=", bits, bits.type(0))
        position.add_incoming(builder.add(position, code.i64(_LANES)), search)
        builder.cbranch(has_match, hit, head)
        builder.position_at_end(hit)
        lane = builder.zext(builder.cttz(bits, code.I1(1)), code.I64)
        where = builder.add(position, lane)
        inside = builder.icmp_signed("<", where, held.length)
        where = builder.select(inside, where, code.i64(-1))
        builder.branch(done)
        builder.position_at_end(done)
        result = builder.phi(code.I64)
        result.add_incoming(code.i64(-1), head)
        result.add_incoming(where, hit)
        return result

    return types.int64(text, byte, start), codegen


@intrinsic
def _text_equal(typingctx, left, right):
    def codegen(context, builder, signature, args):
        a = cgutils.create_struct_proxy(text_type)(context, builder, args[0])
        b = cgutils.create_struct_proxy(text_type)(context, builder, args[1])
        same_length = builder.icmp_unsigned("==", a.length, b.length)
        before = builder.basic_block
        compare, done = builder.append_basic_block("text.compare"), builder.append_basic_block("text.done")
        builder.cbranch(same_length, compare, done)
        builder.position_at_end(compare)
        kind = ir.FunctionType(code.I32, [code.PTR, code.PTR, code.I64])
        memcmp = cgutils.get_or_insert_function(builder.module, kind, "memcmp")
        same = builder.icmp_unsigned("==", builder.call(memcmp, [a.address, b.address, a.length]), code.I32(0))
        builder.branch(done)
        builder.position_at_end(done)
        result = builder.phi(code.I1)
        result.add_incoming(code.I1(0), before)
        result.add_incoming(same, compare)
        return result

    return types.boolean(left, right), codegen


@overload(operator.eq)
def _eq(left, right):
    if isinstance(left, TextType) and isinstance(right, TextType):
        return lambda left, right: _text_equal(left, right)
    return None


@overload(operator.ne)
def _ne(left, right):
    if isinstance(left, TextType) and isinstance(right, TextType):
        return lambda left, right: not _text_equal(left, right)
    return None


# --- ring: {head: u32, length: u32, items} -------------------------------------------------------------------------


def _ring_parts(context, builder, ring, value):
    held = cgutils.create_struct_proxy(ring)(context, builder, value)
    head = builder.zext(code.load(builder, held.address, 0, code.I32), code.I64)
    length = builder.zext(code.load(builder, held.address, 4, code.I32), code.I64)
    return held.address, head, length


def _wrapped(builder, position, count):
    beyond = builder.icmp_unsigned(">=", position, code.i64(count))
    return builder.select(beyond, builder.sub(position, code.i64(count)), position)


@intrinsic
def _ring_length(typingctx, ring):
    def codegen(context, builder, signature, args):
        return _ring_parts(context, builder, ring, args[0])[2]

    return types.int64(ring), codegen


@intrinsic
def _ring_item(typingctx, ring, index):
    def codegen(context, builder, signature, args):
        address, head, length = _ring_parts(context, builder, ring, args[0])
        index = context.cast(builder, args[1], signature.args[1], types.int64)
        code.checked_index(context, builder, index, length, ring.field)
        place = _wrapped(builder, builder.add(head, index), ring.count)
        offset = builder.add(code.i64(8), builder.mul(place, code.i64(ring.item.width)))
        return code.load_scalar(builder, address, offset, ring.item)

    return code.numba_type(ring.item)(ring, index), codegen


@intrinsic
def _ring_append(typingctx, ring, value):
    def codegen(context, builder, signature, args):
        address, head, length = _ring_parts(context, builder, ring, args[0])
        item = code.convert(context, builder, args[1], signature.args[1], ring.item, ring.field)
        # Full: the new item takes the oldest one's place, which is where head + length wraps to.
        place = _wrapped(builder, builder.add(head, length), ring.count)
        offset = builder.add(code.i64(8), builder.mul(place, code.i64(ring.item.width)))
        code.store(builder, item, address, offset)
        full = builder.icmp_unsigned("==", length, code.i64(ring.count))
        next_head = _wrapped(builder, builder.add(head, code.i64(1)), ring.count)
        head = builder.select(full, next_head, head)
        length = builder.select(full, length, builder.add(length, code.i64(1)))
        code.store(builder, builder.trunc(head, code.I32), address, 0)
        code.store(builder, builder.trunc(length, code.I32), address, 4)
        return context.get_dummy_value()

    return types.none(ring, value), codegen


@intrinsic
def _ring_clear(typingctx, ring):
    def codegen(context, builder, signature, args):
        address, _, _ = _ring_parts(context, builder, ring, args[0])
        code.store(builder, code.i64(0), address, 0)
        return context.get_dummy_value()

    return types.none(ring), codegen


@overload_method(RingType, "append")
def _append(ring, value):
    return lambda ring, value: _ring_append(ring, value)


@overload_method(RingType, "clear")
def _clear(ring):
    return lambda ring: _ring_clear(ring)
