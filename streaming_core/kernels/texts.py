"""Text words: literals, comparisons, searches, numbers, and texts that operators build.

The runtime builds texts (runtime/src/rows/built.rs): each thread has memory for them, which lasts until the kernel
returns. An emitted one is copied to the texts of its block (`home`).
"""

from __future__ import annotations

import operator

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, overload, overload_method

from streaming_core.kernels import abi
from streaming_core.kernels import ir as code
from streaming_core.kernels.arithmetic import contains, to_float, to_integer
from streaming_core.kernels.values import ELSEWHERE, TextType, foreign_type, text_find, text_type

_PADDING = bytes(abi.TEXT_PADDING)


def _parts(context, builder, value):
    held = cgutils.create_struct_proxy(text_type)(context, builder, value)
    return held.address, held.length


def _foreign(context, builder, address, length):
    """Return a text that lies outside the batch."""
    text = cgutils.create_struct_proxy(foreign_type)(context, builder)
    text.address, text.length, text.offset = address, length, code.i64(ELSEWHERE)
    return text._getvalue()


def _called(builder, number, *args):
    """Call a function of the runtime's table; returns its result."""
    name = abi.TEXT_FUNCTIONS
    table = builder.module.globals.get(name) or ir.GlobalVariable(builder.module, code.I8, name)
    return code.call(builder, code.load(builder, table, 8 * number, code.PTR), *args)


def _built(context, builder, number, length, *args):
    """Return a text that the runtime builds."""
    address = _called(builder, number, *args)
    none = builder.icmp_unsigned("==", address, code.i64(0))
    code.raise_if(context, builder, none, MemoryError, abi.NO_ROOM)
    return _foreign(context, builder, builder.inttoptr(address, code.PTR), length)


@intrinsic(prefer_literal=True)
def literal(typingctx, content):
    """The text with these bytes, which are characters from 0 to 255."""

    def codegen(context, builder, signature, args):
        content_bytes = content.literal_value.encode("latin-1")
        constant = cgutils.global_constant(builder, "text", cgutils.make_bytearray(content_bytes + _PADDING))
        return _foreign(context, builder, builder.bitcast(constant, code.PTR), code.i64(len(content_bytes)))

    return foreign_type(content), codegen


# --- comparisons and searches --------------------------------------------------------------------------------------


def _memcmp(builder, left, right, length):
    kind = ir.FunctionType(code.I32, [code.PTR, code.PTR, code.I64])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, "memcmp"), [left, right, length])


@intrinsic
def _compare(typingctx, left, right):
    """Negative, zero or positive, as one text is less than the other, equal or greater."""

    def codegen(context, builder, signature, args):
        (a, n), (b, m) = (_parts(context, builder, value) for value in args)
        least = builder.select(builder.icmp_signed("<", n, m), n, m)
        order = builder.sext(_memcmp(builder, a, b, least), code.I64)
        same = builder.icmp_signed("==", order, code.i64(0))
        return builder.select(same, builder.sub(n, m), order)

    return types.int64(left, right), codegen


def _order(sign, holds):
    @overload(sign)
    def compare(left, right):
        return holds if isinstance(left, TextType) and isinstance(right, TextType) else None


_order(operator.lt, lambda left, right: _compare(left, right) < 0)
_order(operator.le, lambda left, right: _compare(left, right) <= 0)
_order(operator.gt, lambda left, right: _compare(left, right) > 0)
_order(operator.ge, lambda left, right: _compare(left, right) >= 0)


@intrinsic
def _has_at(typingctx, text, part, at):
    """Whether a part stands at a position, from which the rest of the text is at least as long."""

    def codegen(context, builder, signature, args):
        (a, _), (b, length) = (_parts(context, builder, value) for value in args[:2])
        return builder.icmp_signed("==", _memcmp(builder, code.at(builder, a, args[2]), b, length), code.I32(0))

    return types.boolean(text, part, types.int64), codegen


@overload_method(TextType, "startswith")
def _startswith(text, part):
    return lambda text, part: len(part) <= len(text) and _has_at(text, part, 0)


@overload_method(TextType, "endswith")
def _endswith(text, part):
    return lambda text, part: len(part) <= len(text) and _has_at(text, part, len(text) - len(part))


@intrinsic
def _search(typingctx, text, part, start):
    """Position of the first occurrence of a part at or after a start within the text, or -1."""

    def codegen(context, builder, signature, args):
        (a, n), (b, m) = (_parts(context, builder, value) for value in args[:2])
        kind = ir.FunctionType(code.PTR, [code.PTR, code.I64, code.PTR, code.I64])
        memmem = cgutils.get_or_insert_function(builder.module, kind, "memmem")
        hit = builder.call(memmem, [code.at(builder, a, args[2]), builder.sub(n, args[2]), b, m])
        position = builder.sub(builder.ptrtoint(hit, code.I64), builder.ptrtoint(a, code.I64))
        return builder.select(cgutils.is_null(builder, hit), code.i64(-1), position)

    return types.int64(text, part, types.int64), codegen


@overload_method(TextType, "find")
def _find(text, wanted, start=0):
    if not isinstance(wanted, TextType):
        return lambda text, wanted, start=0: text_find(text, wanted, start)

    def find(text, wanted, start=0):
        at = max(start + len(text), 0) if start < 0 else types.int64(start)
        return _search(text, wanted, at) if at <= len(text) else -1

    return find


@overload(contains)
def _contains(x, container):
    return (lambda x, container: container.find(x, 0) >= 0) if isinstance(container, TextType) else None


def among(x, *options):
    """`x in (one, other, ...)`."""


@overload(among)
def _among(x, *options):
    tests = " or ".join(f"x == options[{i}]" for i in range(len(options)))
    namespace: dict = {}
    exec(f"def among(x, *options):\n    return {tests}\n", namespace)
    return namespace["among"]


# --- parts ---------------------------------------------------------------------------------------------------------


@intrinsic
def _byte(typingctx, text, index):
    """The byte at a position within the text."""

    def codegen(context, builder, signature, args):
        address, _ = _parts(context, builder, args[0])
        return builder.zext(code.load(builder, address, args[1], code.I8), code.I64)

    return types.int64(text, types.int64), codegen


@intrinsic
def text_part(typingctx, text, low, high):
    """`text[low:high]`, where 0 <= low <= high <= len(text)."""

    def codegen(context, builder, signature, args):
        held = cgutils.create_struct_proxy(text)(context, builder, args[0])
        part = cgutils.create_struct_proxy(text)(context, builder)
        part.address, part.length = code.at(builder, held.address, args[1]), builder.sub(args[2], args[1])
        part.offset = builder.add(held.offset, args[1])
        return part._getvalue()

    return text(text, types.int64, types.int64), codegen


def part_end(text, byte, at):
    """Where the part of a split that begins at `at` ends."""


def blank_end(text, at):
    """Where the whitespace at `at` ends."""


def word_end(text, at):
    """Where the word at `at` ends."""


@overload(part_end)
def _part_end(text, byte, at):
    def implementation(text, byte, at):
        end = text_find(text, byte, at)
        return end if end >= 0 else len(text)

    return implementation


def _is_blank(byte):
    return byte == 32 or 9 <= byte <= 13


@overload(_is_blank)
def _tells_blank(byte):
    return _is_blank


@overload(blank_end)
def _blank_end(text, at):
    def implementation(text, at):
        while at < len(text) and _is_blank(_byte(text, at)):
            at += 1
        return at

    return implementation


@overload(word_end)
def _word_end(text, at):
    def implementation(text, at):
        while at < len(text) and not _is_blank(_byte(text, at)):
            at += 1
        return at

    return implementation


@overload_method(TextType, "strip")
def _strip(text):
    def strip(text):
        high = len(text)
        low = blank_end(text, 0)
        while high > low and _is_blank(_byte(text, high - 1)):
            high -= 1
        return text_part(text, low, high)

    return strip


# --- numbers -------------------------------------------------------------------------------------------------------


def _parser(kind, number, error):
    """Return an intrinsic that converts a text to a number."""

    @intrinsic
    def parse(typingctx, text):
        def codegen(context, builder, signature, args):
            address, length = _parts(context, builder, args[0])
            place = cgutils.alloca_once(builder, context.get_value_type(kind))
            status = _called(builder, number, address, length, builder.bitcast(place, code.PTR))
            wrong = builder.icmp_unsigned("==", status, code.i64(1))
            code.raise_if(context, builder, wrong, ValueError, error)
            beyond = builder.icmp_unsigned("==", status, code.i64(2))
            code.raise_if(context, builder, beyond, OverflowError, "int() of a text outside 64 bits")
            return builder.load(place)

        return kind(text), codegen

    return parse


_integer = _parser(types.int64, abi.TEXT_INTEGER, "int() of a text that is no decimal integer")
_float = _parser(types.float64, abi.TEXT_FLOAT, "float() of a text that is no decimal number")


@overload(to_integer)
def _to_integer(x):
    return (lambda x: _integer(x)) if isinstance(x, TextType) else None


@overload(to_float)
def _to_float(x):
    return (lambda x: _float(x)) if isinstance(x, TextType) else None


# --- built texts ---------------------------------------------------------------------------------------------------


@intrinsic
def decimal(typingctx, value):
    """The decimal digits of an integer."""

    def codegen(context, builder, signature, args):
        place = cgutils.alloca_once(builder, code.I64)
        address = _called(builder, abi.TEXT_DECIMAL, args[0], builder.bitcast(place, code.PTR))
        none = builder.icmp_unsigned("==", address, code.i64(0))
        code.raise_if(context, builder, none, MemoryError, abi.NO_ROOM)
        return _foreign(context, builder, builder.inttoptr(address, code.PTR), builder.load(place))

    return foreign_type(types.int64), codegen


@intrinsic
def _concat(typingctx, left, right):
    def codegen(context, builder, signature, args):
        (a, n), (b, m) = (_parts(context, builder, value) for value in args)
        return _built(context, builder, abi.TEXT_CONCAT, builder.add(n, m), a, n, b, m)

    return foreign_type(left, right), codegen


@overload(operator.add)
def _add(left, right):
    if isinstance(left, TextType) and isinstance(right, TextType):
        return lambda left, right: _concat(left, right)
    return None


def _cased(number):
    @intrinsic
    def cased(typingctx, text):
        def codegen(context, builder, signature, args):
            address, length = _parts(context, builder, args[0])
            return _built(context, builder, number, length, address, length)

        return foreign_type(text), codegen

    return cased


_lower, _upper = _cased(abi.TEXT_LOWER), _cased(abi.TEXT_UPPER)


@overload_method(TextType, "lower")
def _to_lower(text):
    return lambda text: _lower(text)


@overload_method(TextType, "upper")
def _to_upper(text):
    return lambda text: _upper(text)
