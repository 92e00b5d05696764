"""Text: (address, length), with 64 readable bytes behind every buffer."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from streaming_core.oracle.loop.checks import index
from streaming_core.oracle.loop.layout import SITE
from streaming_core.oracle.loop.machine import compiled
from streaming_core.oracle.loop.memory import get_u8, get_u64, put

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


@compiled
def text_item(ctx, text, i, site):
    """The byte at i."""
    return get_u8(text[0] + index(ctx, i, text[1], site))


@compiled
def text_slice(ctx, text, low, high, site):
    """`text[low:high]`."""
    if low < 0 or high < 0:
        put(ctx + SITE, 16 * site + 6)
        raise IndexError("text: a bound of a slice is negative")
    low = min(low, text[1])
    high = max(low, min(high, text[1]))
    return (text[0] + low, high - low)


@intrinsic
def find_in_16(typingctx, address, byte):
    """Position of the first `byte` among the 16 bytes at an address; 16 or more when it is not there."""

    def codegen(context, builder, signature, args):
        lanes = ir.VectorType(_I8, 16)
        here = builder.load(builder.inttoptr(args[0], ir.PointerType(lanes)), align=1)
        wanted = builder.insert_element(ir.Constant(lanes, ir.Undefined), builder.trunc(args[1], _I8), _I32(0))
        spread = ir.Constant(ir.VectorType(_I32, 16), [0] * 16)
        wanted = builder.shuffle_vector(wanted, ir.Constant(lanes, ir.Undefined), spread)
        bits = builder.bitcast(builder.icmp_unsigned("==", here, wanted), ir.IntType(16))
        return builder.cttz(builder.or_(builder.zext(bits, _I64), _I64(1 << 16)), ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64, types.int64), codegen


@compiled
def text_find(ctx, text, byte, start, site):
    """Position of the first `byte` at or after start, or -1: sixteen bytes at a time."""
    if start < 0:
        put(ctx + SITE, 16 * site + 7)
        raise IndexError("text: a search starts before the text")
    if byte < 0 or byte > 255:
        put(ctx + SITE, 16 * site + 8)
        raise ValueError("text: a byte lies in 0..255")
    at = start
    while at < text[1]:
        position = find_in_16(text[0] + at, byte)
        if position < 16:
            return at + position if at + position < text[1] else -1
        at += 16
    return -1


@compiled
def text_word(address, length):
    """The first min(8, length) bytes as a number, the others zero."""
    # No branches: lengths of words cannot be predicted.
    bits = types.uint64(8 * max(0, min(8, length)))
    partial = (types.uint64(1) << (bits & types.uint64(63))) - types.uint64(1)
    return get_u64(address) & (~types.uint64(0) if bits == types.uint64(64) else partial)


@compiled
def same_bytes(a, b, length):
    """Whether two runs of bytes are equal."""
    at = 0
    while at < length:
        if text_word(a + at, length - at) != text_word(b + at, length - at):
            return False
        at += 8
    return True


@compiled
def text_equal(one, other):
    """Whether two texts are equal."""
    return one[1] == other[1] and same_bytes(one[0], other[0], one[1])
