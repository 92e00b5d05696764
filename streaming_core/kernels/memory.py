"""Raw memory for code compiled by numba: words and halves at an address, and room from the arena."""

from __future__ import annotations

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from streaming_core.kernels import ir as code

LINE = 64  # bytes of a cache line
# A core prefetches consecutive lines, but not across a page. Of a long row, kernels read few lines.
AHEAD, FETCHED = 1024, 256


@intrinsic
def load_word(typingctx, address, offset):
    """u64 at address + offset, as i64."""

    def codegen(context, builder, signature, args):
        return code.load(builder, builder.inttoptr(args[0], code.PTR), args[1], code.I64)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def store_word(typingctx, address, offset, value):
    """Stores an i64 at address + offset."""

    def codegen(context, builder, signature, args):
        code.store(builder, args[2], builder.inttoptr(args[0], code.PTR), args[1])
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), codegen


@intrinsic
def load_half(typingctx, address, offset):
    """u32 at address + offset, as i64."""

    def codegen(context, builder, signature, args):
        raw = code.load(builder, builder.inttoptr(args[0], code.PTR), args[1], code.I32)
        return builder.zext(raw, code.I64)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def store_half(typingctx, address, offset, value):
    """Stores the low 32 bits at address + offset."""

    def codegen(context, builder, signature, args):
        low = builder.trunc(args[2], code.I32)
        code.store(builder, low, builder.inttoptr(args[0], code.PTR), args[1])
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), codegen


@intrinsic(prefer_literal=True)
def fetch(typingctx, row, size):
    """Lets the core fetch the row at an address, if there is one."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [code.PTR, code.I32, code.I32, code.I32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        lines = range(0, size.literal_value, LINE) if size.literal_value <= FETCHED else ()
        for begin in lines:
            place = code.at(builder, builder.inttoptr(args[0], code.PTR), begin)
            # For a read, with much reuse, into the data cache.
            builder.call(function, [place, code.I32(0), code.I32(3), code.I32(1)])
        return context.get_dummy_value()

    return types.none(types.int64, size), codegen


@intrinsic
def allocate(typingctx, arena, size):
    """Address of `size` zeroed bytes that live as long as the state; MemoryError when there are none."""

    def codegen(context, builder, signature, args):
        place = builder.inttoptr(args[0], code.PTR)
        block = code.call(builder, code.load(builder, place, 0, code.PTR), place, args[1])
        none = builder.icmp_unsigned("==", block, code.i64(0))
        code.raise_if(context, builder, none, MemoryError, "no room for state")
        return block

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def copy_bytes(typingctx, target, source, size):
    """Copies bytes between places that do not overlap."""

    def codegen(context, builder, signature, args):
        target, source = (builder.inttoptr(place, code.PTR) for place in args[:2])
        cgutils.raw_memcpy(builder, target, source, args[2], 1)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), codegen


@intrinsic
def same_bytes(typingctx, left, right, size):
    """Whether bytes at two addresses are the same."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(code.I32, [code.PTR, code.PTR, code.I64])
        memcmp = cgutils.get_or_insert_function(builder.module, kind, "memcmp")
        left, right = (builder.inttoptr(place, code.PTR) for place in args[:2])
        return builder.icmp_unsigned("==", builder.call(memcmp, [left, right, args[2]]), code.I32(0))

    return types.boolean(types.int64, types.int64, types.int64), codegen


@intrinsic
def as_bits(typingctx, value):
    """A number as the 64 bits it is kept as."""

    def codegen(context, builder, signature, args):
        if isinstance(signature.args[0], types.Float):
            return code.kept_bits(builder, args[0])
        return context.cast(builder, args[0], signature.args[0], types.int64)

    return types.int64(value), codegen


@intrinsic
def as_double(typingctx, bits):
    """The double kept in 64 bits."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], code.F64)

    return types.float64(types.int64), codegen
