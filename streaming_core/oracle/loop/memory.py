"""Raw memory: loads and stores, memory that grows, and buffers for rows.

Everything is an address (int64). State comes from the loop's region (region.py), which a snapshot copies. Growing
containers use an arena that only ever grows. Rows between operators are no state: their buffers come from the C
library.

The word before a block of the region has its size in bytes, and its class. There is a class for each number of units
of 16 bytes up to 64, then four for each power of two. The free blocks of a class are a list: each has the
address of the next one in its first word. They are zeroed when they are used again.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from streaming_core.language.record import NAN_BITS, Scalar
from streaming_core.oracle.loop.layout import (
    ARENA,
    ARENA_LIMIT,
    BEGIN,
    COPIES,
    LIMIT,
    NEXT,
    R_END,
    R_FREE,
    R_NEXT,
    REGION,
    RESULT_CAPACITY,
    RESULTS,
    TAKEN,
)
from streaming_core.oracle.loop.machine import compiled

_I8, _I32, _I64, _F64 = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.DoubleType()
_PTR = ir.PointerType(_I8)


def loader(scalar: Scalar, of_column: bool = False):
    """Return an intrinsic `load(address)` -> int64, float64 or boolean; `load(column, position)` if `of_column`."""
    result = types.float64 if scalar.is_float else types.boolean if scalar.name == "boolean" else types.int64

    def codegen(context, builder, signature, args):
        kind = _F64 if scalar.is_float else ir.IntType(scalar.width * 8)
        place = builder.inttoptr(args[0], ir.PointerType(kind))
        if of_column:  # in this form, LLVM sees that a loop over positions reads adjacent memory
            place = builder.gep(place, [args[1]])
        raw = builder.load(place, align=scalar.width)
        if scalar.name == "boolean":
            return builder.icmp_unsigned("!=", raw, raw.type(0))
        if scalar.is_float or scalar.width == 8:
            return raw
        return builder.sext(raw, _I64) if scalar.low < 0 else builder.zext(raw, _I64)

    @intrinsic
    def load(typingctx, address):
        return result(types.int64), codegen

    @intrinsic
    def load_item(typingctx, column, position):
        return result(types.int64, types.int64), codegen

    return load_item if of_column else load


def _kept(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Return the bits that fields store of a double; all NaNs have the same."""
    is_nan = builder.fcmp_unordered("uno", value, value)
    return builder.select(is_nan, ir.Constant(_I64, NAN_BITS), builder.bitcast(value, _I64))


def storer(scalar: Scalar):
    """Return an intrinsic `store(address, value)`; the caller has checked that the value fits."""
    kind = types.float64 if scalar.is_float else types.boolean if scalar.name == "boolean" else types.int64

    @intrinsic
    def store(typingctx, address, value):
        def codegen(context, builder, signature, args):
            value = args[1]
            if scalar.is_float:
                value = _kept(builder, value)
            elif scalar.name == "boolean":
                value = builder.zext(value, _I8)
            elif scalar.width < 8:
                value = builder.trunc(value, ir.IntType(scalar.width * 8))
            builder.store(value, builder.inttoptr(args[0], ir.PointerType(value.type)), align=scalar.width)
            return context.get_dummy_value()

        return types.none(types.int64, kind), codegen

    return store


def place(symbol: str):
    """Return an intrinsic `place()` -> the address of a block of memory, which the loader of the code sets."""

    @intrinsic
    def address(typingctx):
        def codegen(context, builder, signature, args):
            block = builder.module.globals.get(symbol) or ir.GlobalVariable(builder.module, _I8, symbol)
            return block.ptrtoint(_I64)

        return types.int64(), codegen

    return address


def _word(scalar_type, unsigned: bool):
    """Loads and stores that need no alignment."""
    seen = types.uint64 if unsigned else types.int64

    @intrinsic
    def load(typingctx, address):
        def codegen(context, builder, signature, args):
            raw = builder.load(builder.inttoptr(args[0], ir.PointerType(scalar_type)), align=1)
            return raw if scalar_type == _I64 else builder.zext(raw, _I64)

        return seen(types.int64), codegen

    @intrinsic
    def store(typingctx, address, value):
        def codegen(context, builder, signature, args):
            value = args[1] if scalar_type == _I64 else builder.trunc(args[1], scalar_type)
            builder.store(value, builder.inttoptr(args[0], ir.PointerType(scalar_type)), align=1)
            return context.get_dummy_value()

        return types.none(types.int64, types.uint64 if unsigned else types.int64), codegen

    return load, store


get, put = _word(_I64, False)
get_u64, put_u64 = _word(_I64, True)
get_u32, put_u32 = _word(_I32, False)
get_u8, put_u8 = _word(_I8, False)


@intrinsic
def float_bits(typingctx, value):
    """Return the bits that fields store of a double, as uint64."""

    def codegen(context, builder, signature, args):
        return _kept(builder, args[0])

    return types.uint64(types.float64), codegen


@intrinsic
def bits_float(typingctx, value):
    """The double with these bits (int64)."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], _F64)

    return types.float64(types.int64), codegen


def _libc(name: str, arguments: int, returns: bool):
    @intrinsic
    def function(typingctx, a, b):
        def codegen(context, builder, signature, args):
            # realloc(block, size), free(block): pointers travel as integers of their width.
            kind = ir.FunctionType(_I64 if returns else ir.VoidType(), [_I64] * arguments)
            target = cgutils.get_or_insert_function(builder.module, kind, name)
            result = builder.call(target, args[:arguments])
            return result if returns else context.get_constant(types.int64, 0)

        return types.int64(types.int64, types.int64), codegen

    return function


_realloc, _free = _libc("realloc", 2, True), _libc("free", 1, False)


@intrinsic
def copy_bytes(typingctx, target, source, size):
    """Copy bytes between blocks that do not overlap."""

    def codegen(context, builder, signature, args):
        cgutils.raw_memcpy(builder, builder.inttoptr(args[0], _PTR), builder.inttoptr(args[1], _PTR), args[2], 1)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), codegen


@intrinsic
def wipe(typingctx, target, size):
    """Set bytes to zero."""

    def codegen(context, builder, signature, args):
        cgutils.memset(builder, builder.inttoptr(args[0], _PTR), args[1], 0)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), codegen


_SMALL = 64  # units of 16 bytes; larger blocks begin at a cache line


@compiled
def allocate(near, size):
    """Zeroed memory of the region in which `near` lies."""
    units = (size + 23) >> 4
    if units <= _SMALL:
        number, room, align = units, 16 * units - 8, 16
    else:
        units, shift = (size + 15) >> 4, 4
        while units >> shift >= 8:
            shift += 1
        parts = (units + (1 << shift) - 1) >> shift  # 4 to 8
        number, room, align = _SMALL + 4 * (shift - 4) + parts - 4, parts << shift << 4, 64
    region = near & -REGION
    block = get(region + R_FREE + 8 * number)
    if block != 0:
        put(region + R_FREE + 8 * number, get(block))
        wipe(block, room)
    else:
        block = (get(region + R_NEXT) + 8 + align - 1) & -align
        if block + room > get(region + R_END):
            raise MemoryError("out of memory")
        put(region + R_NEXT, block + room)
        put(block - 8, room << 8 | number)
    return block


@compiled
def release(block):
    """Frees memory (0 is fine)."""
    if block != 0:
        list_ = (block & -REGION) + R_FREE + 8 * (get(block - 8) & 255)
        put(block, get(list_))
        put(list_, block)


@compiled
def arena(ctx, size):
    """Zeroed memory that lives as long as the loop."""
    size = (size + 15) & ~15
    block = get(ctx + ARENA)
    if block + size > get(ctx + ARENA_LIMIT):
        room = max(size, 1 << 20)
        block = allocate(ctx, room)
        put(ctx + ARENA_LIMIT, block + room)
    put(ctx + ARENA, block + size)
    return block


@compiled
def release_chunks(chunk):
    """Frees a list of chunks: each begins with the address of the next."""
    while chunk != 0:
        following = get(chunk)
        release(chunk)
        chunk = following


@compiled
def more_buffer(block, room):
    """A buffer of this room with the content of another one (0: none), which is gone."""
    block = _realloc(block, room)
    if block == 0:
        raise MemoryError("out of memory")
    return block


@compiled
def free_buffer(block):
    """Frees a buffer (0 is fine)."""
    _free(block, 0)
    return 0


@compiled
def more_rows(emitter, stride):
    """Makes room for at least one more row; returns its address."""
    begin = get(emitter + BEGIN)
    used = get(emitter + NEXT) - begin
    room = max(2 * (get(emitter + LIMIT) - begin), 1 << 16, 2 * stride)
    block = more_buffer(begin, room)
    put(emitter + BEGIN, block)
    put(emitter + LIMIT, block + room)
    put(emitter + NEXT, block + used)
    return block + used


@compiled
def append_rows(emitter, begin, size):
    """Copies `size` bytes of rows behind those that the emitter holds."""
    at = get(emitter + NEXT)
    if at + size > get(emitter + LIMIT):
        at = more_rows(emitter, size)
    copy_bytes(at, begin, size)
    put(emitter + NEXT, at + size)


@compiled
def result_slot(ctx, i, stride):
    """Address of the i-th result of an event."""
    if (i + 1) * stride > get(ctx + RESULT_CAPACITY):
        more_results(ctx, (i + 1) * stride)
    return get(ctx + RESULTS) + i * stride


@compiled
def keep_row(ctx, row, size, stride):
    """Copies a row, as it is before the event, into the next of the slots in front of the event's results."""
    n = get(ctx + COPIES)
    copy_bytes(result_slot(ctx, n, stride), row, size)
    put(ctx + COPIES, n + 1)


@compiled
def taken_row(ctx, stride):
    """Address of the next copied row."""
    n = get(ctx + TAKEN)
    put(ctx + TAKEN, n + 1)
    return get(ctx + RESULTS) + n * stride


@compiled
def more_results(ctx, needed):
    """Makes the buffer of results larger."""
    limit = get(ctx + RESULT_CAPACITY)
    room = max(2 * limit, 4096 * needed)
    put(ctx + RESULTS, more_buffer(get(ctx + RESULTS), room))
    put(ctx + RESULT_CAPACITY, room)
