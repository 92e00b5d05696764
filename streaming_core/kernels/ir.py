"""Building blocks of the words' code: loads that widen, stores that refuse to lose bits, raising, calling back.

Everything here runs while numba lowers a kernel; addresses are i8*, integers i64, floats double, booleans i1.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types

from streaming_core.language.record import NAN_BITS, Scalar

I1, I8, I32, I64, F64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.DoubleType()
PTR = ir.PointerType(I8)


def i64(value: int) -> ir.Constant:
    """A 64-bit constant."""
    return ir.Constant(I64, value)


def at(builder: ir.IRBuilder, address: ir.Value, offset: int | ir.Value) -> ir.Value:
    """`address + offset` bytes."""
    return builder.gep(address, [i64(offset) if isinstance(offset, int) else offset])


# The memory of an access, for the optimiser: contexts and emitters never overlap rows, states, accesses or results.
# With these tags, it keeps a context's counters in registers while a kernel writes rows.
CONTEXT, ROW = "context", "row"


def _tagged(builder: ir.IRBuilder, instruction: ir.Instruction, memory: str | None):
    if memory is not None:
        module = builder.module
        root = module.add_metadata(["lockstep"])
        kind = module.add_metadata([memory, root, i64(0)])
        instruction.set_metadata("tbaa", module.add_metadata([kind, kind, i64(0)]))
    return instruction


def load(builder: ir.IRBuilder, address: ir.Value, offset: int | ir.Value, kind: ir.Type, memory: str | None = None):
    """Loads a value of LLVM type `kind`; rows keep natural alignment only up to 8 bytes."""
    pointer = builder.bitcast(at(builder, address, offset), ir.PointerType(kind))
    return _tagged(builder, builder.load(pointer, align=1), memory)


def store(builder: ir.IRBuilder, value: ir.Value, address: ir.Value, offset: int | ir.Value, memory: str | None = None):
    """Stores `value` as it is."""
    pointer = builder.bitcast(at(builder, address, offset), ir.PointerType(value.type))
    _tagged(builder, builder.store(value, pointer, align=1), memory)


def numba_type(scalar: Scalar) -> types.Type:
    """Return the type that an operator sees of a scalar field."""
    if scalar.is_float:
        return types.float64
    return types.boolean if scalar.name == "boolean" else types.int64


def load_scalar(builder: ir.IRBuilder, address: ir.Value, offset: int | ir.Value, scalar: Scalar) -> ir.Value:
    """Loads and widens: i64, double or i1."""
    if scalar.is_float:
        return load(builder, address, offset, F64, ROW)
    raw = load(builder, address, offset, ir.IntType(scalar.width * 8), ROW)
    if scalar.name == "boolean":
        return builder.icmp_unsigned("!=", raw, raw.type(0))
    if scalar.width == 8:
        return raw
    return builder.sext(raw, I64) if scalar.bounds[0] < 0 else builder.zext(raw, I64)


def raise_error(context, builder: ir.IRBuilder, error: type[Exception], message: str) -> None:
    """Leaves the current function with an exception."""
    context.call_conv.return_user_exc(builder, error, (message,))


def raise_if(context, builder: ir.IRBuilder, condition: ir.Value, error: type[Exception], message: str) -> None:
    """Raises when `condition` holds."""
    with builder.if_then(condition, likely=False):
        raise_error(context, builder, error, message)


def kept_bits(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Return the i64 that stands for a double; all NaNs have the same."""
    return builder.select(builder.fcmp_unordered("uno", value, value), i64(NAN_BITS), builder.bitcast(value, I64))


def convert(context, builder: ir.IRBuilder, value: ir.Value, kind: types.Type, scalar: Scalar, where: str) -> ir.Value:
    """Convert `value`, of numba type `kind`, to the width of the field; raises OverflowError if it does not fit."""
    if scalar.is_float:
        return kept_bits(builder, context.cast(builder, value, kind, types.float64))
    wide = context.cast(builder, value, kind, types.int64)
    if scalar.name == "boolean":
        if isinstance(kind, types.Boolean):
            return builder.trunc(wide, I8)
    elif scalar.width == 8:
        return wide
    low, high = scalar.bounds
    shifted = builder.sub(wide, i64(low))
    too_far = builder.icmp_unsigned(">", shifted, i64(high - low))
    raise_if(context, builder, too_far, OverflowError, f"{where}: the value does not fit {scalar.name}")
    return builder.trunc(wide, ir.IntType(scalar.width * 8))


def store_scalar(context, builder, value, kind, address, offset, scalar: Scalar, where: str) -> None:
    """Converts and stores."""
    store(builder, convert(context, builder, value, kind, scalar, where), address, offset, ROW)


def call(builder: ir.IRBuilder, function: ir.Value, *args: ir.Value) -> ir.Value:
    """Calls a C function `(i8* or i64, ...) -> i64` at an address held in an i8*."""
    kind = ir.FunctionType(I64, [a.type for a in args])
    return builder.call(builder.bitcast(function, ir.PointerType(kind)), list(args))


def checked_index(context, builder, index: ir.Value, length: ir.Value, what: str) -> ir.Value:
    """`index` if 0 <= index < length, else raises IndexError."""
    bad = builder.icmp_unsigned(">=", index, length)
    raise_if(context, builder, bad, IndexError, f"{what}: index out of range")
    return index


def copy(builder: ir.IRBuilder, target: ir.Value, source: ir.Value, size: int) -> None:
    """Copy a fixed number of bytes; LLVM copies a multiple of 8 in words."""
    cgutils.raw_memcpy(builder, target, source, i64(size), 1)
