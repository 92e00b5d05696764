"""The output side of a kernel: `emit` writes a row into the runtime's buffer and asks for room on the slow path."""

from __future__ import annotations

from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.extending import intrinsic, overload, register_model

from streaming_core.kernels import abi
from streaming_core.kernels import ir as code
from streaming_core.kernels.values import text_type
from streaming_core.language.record import Array, Resolved, Scalar


class EmitterType(types.Type):
    """An operator's `out`: the emitter, and the input that the operator is processing.

    `homes` says that the operator may emit texts that do not lie in the batch; the rows then refer to copies of them.
    """

    def __init__(self, output: Resolved, homes: bool = False):
        self.output, self.homes = output, homes
        super().__init__(f"Emitter({output.name}@{id(output):x}, homes={homes})")


@register_model(EmitterType)
class _Model(models.StructModel):
    def __init__(self, manager, fe_type):
        members = [("address", types.voidptr), ("seq", types.int64), ("position", types.int64)]
        super().__init__(manager, fe_type, members)


def convert_values(context, builder, out: EmitterType, emitter, values: types.BaseTuple, packed) -> list:
    """Convert every value to the width of its field, an array to its address; raises before anything is written."""
    output = out.output
    converted = []
    for i, slot in enumerate(output.event[0].values()):
        value = builder.extract_value(packed, i)
        if isinstance(slot.type, Scalar):
            where = f"{output.name}.{slot.name}"
            converted.append(code.convert(context, builder, value, values.types[i], slot.type, where))
        elif isinstance(slot.type, Array):
            converted.append(cgutils.create_struct_proxy(values.types[i])(context, builder, value).address)
        else:
            text = cgutils.create_struct_proxy(text_type)(context, builder, value)
            is_home = not (out.homes or values.types[i].is_foreign)
            offset = text.offset if is_home else _home(context, builder, emitter, text)
            converted.append((builder.trunc(offset, code.I32), builder.trunc(text.length, code.I32)))
    return converted


def _home(context, builder, emitter, text):
    """Return the offset in the batch's text of a text, or of a copy that the runtime puts there."""
    offset_in_batch, before = text.offset, builder.basic_block
    with builder.if_then(builder.icmp_signed("<", offset_in_batch, code.i64(0)), likely=False):
        home = code.load(builder, emitter, abi.EMITTER_HOME, code.PTR, code.CONTEXT)
        offset_of_copy = code.call(builder, home, emitter, text.address, text.length)
        none = builder.icmp_signed("<", offset_of_copy, code.i64(0))
        code.raise_if(context, builder, none, MemoryError, abi.NO_ROOM)
        inside = builder.basic_block
    offset = builder.phi(code.I64)
    offset.add_incoming(offset_in_batch, before)
    offset.add_incoming(offset_of_copy, inside)
    return offset


def write_row(builder, output: Resolved, row, seq, converted: list) -> None:
    """Writes header and fields of an output row."""
    code.store(builder, seq, row, 0, code.ROW)
    for slot, value in zip(output.event[0].values(), converted, strict=True):
        if isinstance(slot.type, Array):
            # What is emitted lies in an input, a state or scratch, never among the outputs.
            code.copy(builder, code.at(builder, row, slot.offset), value, slot.size)
        elif isinstance(value, tuple):
            code.store(builder, value[0], row, slot.offset, code.ROW)
            code.store(builder, value[1], row, slot.offset + 4, code.ROW)
        else:
            code.store(builder, value, row, slot.offset, code.ROW)


@intrinsic
def _emit(typingctx, out, values):
    output, size = out.output, out.output.event[1]

    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(out)(context, builder, args[0])
        converted = convert_values(context, builder, out, held.address, values, args[1])
        length = code.load(builder, held.address, abi.EMITTER_LEN, code.I64, code.CONTEXT)
        full = builder.icmp_unsigned(
            "==", length, code.load(builder, held.address, abi.EMITTER_CAP, code.I64, code.CONTEXT)
        )
        with builder.if_then(full, likely=False):
            grow = code.load(builder, held.address, abi.EMITTER_GROW, code.PTR, code.CONTEXT)
            failed = builder.icmp_unsigned("!=", code.call(builder, grow, held.address), code.i64(0))
            code.raise_if(context, builder, failed, MemoryError, "no room for outputs")
        rows = code.load(builder, held.address, abi.EMITTER_ROWS, code.PTR, code.CONTEXT)
        write_row(builder, output, code.at(builder, rows, builder.mul(length, code.i64(size))), held.seq, converted)
        origin = code.load(builder, held.address, abi.EMITTER_ORIGIN, code.PTR, code.CONTEXT)
        with builder.if_then(cgutils.is_not_null(builder, origin)):
            place = builder.mul(length, code.i64(4))
            code.store(builder, builder.trunc(held.position, code.I32), origin, place, code.ROW)
        code.store(builder, builder.add(length, code.i64(1)), held.address, abi.EMITTER_LEN, code.CONTEXT)
        return context.get_dummy_value()

    return types.none(out, values), codegen


@intrinsic
def _drop(typingctx, out):
    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(out)(context, builder, args[0])
        dropped = code.load(builder, held.address, abi.EMITTER_DROPPED, code.I64, code.CONTEXT)
        code.store(builder, builder.add(dropped, code.i64(1)), held.address, abi.EMITTER_DROPPED, code.CONTEXT)
        return context.get_dummy_value()

    return types.none(out), codegen


def emit(out, values):
    """`out.emit(...)`: values in the order of the output record's fields."""


def drop(out):
    """`out.drop()` / `txn.drop()`."""


@overload(emit)
def _emit_row(out, values):
    return (lambda out, values: _emit(out, values)) if isinstance(out, EmitterType) else None


@overload(drop)
def _drop_input(out):
    return (lambda out: _drop(out)) if isinstance(out, EmitterType) else None
