"""Text: (address, length), with 64 readable bytes behind every buffer."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from streaming_core.oracle.loop.checks import index
from streaming_core.oracle.loop.layout import MOST_TEXT, SCRATCH, SCRATCH_AT, SITE
from streaming_core.oracle.loop.machine import compiled
from streaming_core.oracle.loop.memory import copy_bytes, get, get_u8, get_u64, put, put_u8

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


@compiled
def text_item(ctx, text, i, site):
    """The byte at i, which counts from the end if it is negative."""
    return get_u8(text[0] + index(ctx, i + text[1] if i < 0 else i, text[1], site))


@compiled
def bound(text, i):
    """A bound of a slice or search, not negative: a negative one counts from the end."""
    return max(i + text[1], 0) if i < 0 else i


@compiled
def text_slice(text, low, high):
    """`text[low:high]`."""
    low = min(bound(text, low), text[1])
    high = max(low, min(bound(text, high), text[1]))
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
    if byte < 0 or byte > 255:
        put(ctx + SITE, 16 * site + 8)
        raise ValueError("text: a byte lies in 0..255")
    at = bound(text, start)
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
def text_equal(left, right):
    """Whether two texts are equal."""
    return left[1] == right[1] and same_bytes(left[0], right[0], left[1])


@compiled
def text_search(text, part, start):
    """Position of the first occurrence of a part at or after start, or -1."""
    at = bound(text, start)
    while at <= text[1] - part[1]:  # a start may be so large that a sum would wrap
        if same_bytes(text[0] + at, part[0], part[1]):
            return at
        at += 1
    return -1


@compiled
def text_compare(left, right):
    """Negative, zero or positive, as one text is less than another, equal or greater."""
    for at in range(min(left[1], right[1])):
        a, b = get_u8(left[0] + at), get_u8(right[0] + at)
        if a != b:
            return a - b
    return left[1] - right[1]


@compiled
def text_among(text, options):
    """Whether a text is one of several."""
    for option in options:  # noqa: SIM110 - numba compiles no generators
        if text_equal(text, option):
            return True
    return False


@compiled
def text_starts(text, part):
    """Whether a text starts with a part."""
    return part[1] <= text[1] and same_bytes(text[0], part[0], part[1])


@compiled
def text_ends(text, part):
    """Whether a text ends with a part."""
    return part[1] <= text[1] and same_bytes(text[0] + text[1] - part[1], part[0], part[1])


@compiled
def is_blank(byte):
    """Whether a byte is ASCII whitespace."""
    return byte == 32 or (byte >= 9 and byte <= 13)


@compiled
def text_strip(text):
    """A text without the whitespace around it."""
    low = blank_end(text, 0)
    high = text[1]
    while high > low and is_blank(get_u8(text[0] + high - 1)):
        high -= 1
    return (text[0] + low, high - low)


@compiled
def part_end(text, byte, at):
    """Where the part that begins at `at` ends: at the next separator, or with the text."""
    while at < text[1]:
        position = find_in_16(text[0] + at, byte)
        if position < 16:
            return min(at + position, text[1])
        at += 16
    return text[1]


@compiled
def blank_end(text, at):
    """Where the whitespace at `at` ends."""
    while at < text[1] and is_blank(get_u8(text[0] + at)):
        at += 1
    return at


@compiled
def word_end(text, at):
    """Where the word at `at` ends."""
    while at < text[1] and not is_blank(get_u8(text[0] + at)):
        at += 1
    return at


@compiled
def room(ctx, size):
    """Address of so many bytes that live as long as the event."""
    at = get(ctx + SCRATCH_AT)
    if at + size > get(ctx + SCRATCH) + MOST_TEXT:
        raise MemoryError("out of memory")
    put(ctx + SCRATCH_AT, at + size)
    return at


@compiled
def text_concat(ctx, left, right):
    """`one + other`. What was built last grows in place, so that a loop that appends takes linear time."""
    at = left[0]
    if at < get(ctx + SCRATCH) or at + left[1] != get(ctx + SCRATCH_AT):
        at = room(ctx, left[1])
        copy_bytes(at, left[0], left[1])
    copy_bytes(room(ctx, right[1]), right[0], right[1])
    return (at, left[1] + right[1])


@compiled
def text_cased(ctx, text, low, high):
    """A text in which the letters from low to high have the other case."""
    at = room(ctx, text[1])
    for i in range(text[1]):
        byte = get_u8(text[0] + i)
        put_u8(at + i, byte ^ 32 if byte >= low and byte <= high else byte)
    return (at, text[1])


@compiled
def text_decimal(ctx, value):
    """The decimal digits of an integer, after a minus or nothing."""
    rest = types.uint64(-value) if value < 0 else types.uint64(value)
    size = 1 + (value < 0)
    power = types.uint64(10)
    while size < 19 + (value < 0) and rest >= power:
        power *= types.uint64(10)
        size += 1
    at = room(ctx, size)
    for i in range(size - 1, -1, -1):
        put_u8(at + i, types.int64(types.uint64(48) + rest % types.uint64(10)))
        rest //= types.uint64(10)
    if value < 0:
        put_u8(at, 45)
    return (at, types.int64(size))


@compiled
def digits_end(text, at):
    """Where the digits at `at` end."""
    while at < text[1] and get_u8(text[0] + at) - 48 >= 0 and get_u8(text[0] + at) - 48 <= 9:
        at += 1
    return at


@compiled
def sign_end(text, at):
    """Where the sign at `at` ends, if there is one."""
    if at < text[1] and (get_u8(text[0] + at) == 43 or get_u8(text[0] + at) == 45):
        return at + 1
    return at


@compiled
def text_integer(ctx, text, site):
    """`int(text)`."""
    begin = sign_end(text, 0)
    if begin == text[1] or digits_end(text, begin) < text[1]:
        put(ctx + SITE, 16 * site + 6)
        raise ValueError("int() of a text that is no decimal integer")
    is_negative = get_u8(text[0]) == 45
    value = 0  # negative, because the least integer has no opposite
    for i in range(begin, text[1]):
        digit = get_u8(text[0] + i) - 48
        # -2^63 = 10 * -922337203685477580 - 8
        if value < -922337203685477580 or (value == -922337203685477580 and digit > 8):
            put(ctx + SITE, 16 * site + 7)
            raise OverflowError("int() of a text outside 64 bits")
        value = 10 * value - digit
    if not is_negative and value == -(2**63 - 1) - 1:
        put(ctx + SITE, 16 * site + 7)
        raise OverflowError("int() of a text outside 64 bits")
    return value if is_negative else -value


@intrinsic
def _strtod(typingctx, address):
    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.DoubleType(), [_I64, _I64])
        function = cgutils.get_or_insert_function(builder.module, kind, "strtod")
        return builder.call(function, [args[0], ir.Constant(_I64, 0)])

    return types.float64(types.int64), codegen


@compiled
def text_float(ctx, text, site):
    """`float(text)`: the C library converts a copy that ends with a zero byte."""
    begin = sign_end(text, 0)
    end = digits_end(text, begin)
    digits = end - begin
    if end < text[1] and get_u8(text[0] + end) == 46:
        begin = end + 1
        end = digits_end(text, begin)
        digits += end - begin
    is_number = digits > 0
    if is_number and end < text[1] and (get_u8(text[0] + end) | 32) == 101:
        begin = sign_end(text, end + 1)
        end = digits_end(text, begin)
        is_number = end > begin
    if not is_number or end < text[1]:
        put(ctx + SITE, 16 * site + 12)
        raise ValueError("float() of a text that is no decimal number")
    at = room(ctx, text[1] + 1)
    copy_bytes(at, text[0], text[1])
    put_u8(at + text[1], 0)
    return _strtod(at)
