"""Operations that may fail; a failing one leaves its site in the context."""

from __future__ import annotations

from numba import types

from streaming_core.oracle.loop.layout import SITE
from streaming_core.oracle.loop.machine import compiled
from streaming_core.oracle.loop.memory import put

# Errors at a site: the context's SITE word is 16 * site + the place in this list.
ERRORS = (
    "IndexError: index out of range",
    "OverflowError: the value does not fit the field",
    "ZeroDivisionError: division by zero",
    "ValueError: shift count outside 0..63",
    "ValueError: range() arg 3 must not be zero",
    "OverflowError: int() of a float outside 64 bits",
    "ValueError: int() of a text that is no decimal integer",
    "OverflowError: int() of a text outside 64 bits",
    "ValueError: text: a byte lies in 0..255",
    "IndexError: popleft of an empty queue",
    "KeyError: the table has no row with this key",
    "OverflowError: the table is full",
    "ValueError: float() of a text that is no decimal number",
    "ValueError: the field is null; test it with `is None` first",
)


@compiled
def index(ctx, i, length, site):
    """`i` if 0 <= i < length."""
    if i < 0 or i >= length:
        put(ctx + SITE, 16 * site + 0)
        raise IndexError("index out of range")
    return i


@compiled
def present(ctx, value, valid, site):
    """`value` if it is valid."""
    if not valid:
        put(ctx + SITE, 16 * site + 13)
        raise ValueError("the field is null")
    return value


@compiled
def filled(ctx, length, site):
    """Checks that a queue is not empty."""
    if length == 0:
        put(ctx + SITE, 16 * site + 9)
        raise IndexError("popleft of an empty queue")


@compiled
def fit(ctx, value, low, high, site):
    """`value` if low <= value <= high."""
    if value < low or value > high:
        put(ctx + SITE, 16 * site + 1)
        raise OverflowError("the value does not fit the field")
    return value


@compiled
def divide(ctx, a, b, site):
    """Quotient of two doubles."""
    if b == 0.0:
        put(ctx + SITE, 16 * site + 2)
        raise ZeroDivisionError("division by zero")
    return a / b


@compiled
def floor_divide(ctx, a, b, site):
    """Floor of the quotient of two integers; INT_MIN // -1 wraps around."""
    if b == 0:
        put(ctx + SITE, 16 * site + 2)
        raise ZeroDivisionError("division by zero")
    if b == -1:
        return -a
    return a // b


@compiled
def modulo(ctx, a, b, site):
    """Remainder with the sign of the divisor."""
    if b == 0:
        put(ctx + SITE, 16 * site + 2)
        raise ZeroDivisionError("division by zero")
    if b == -1:
        return 0
    return a % b


@compiled
def float_floor_divide(ctx, a, b, site):
    """Python's `//` of doubles."""
    if b == 0.0:
        put(ctx + SITE, 16 * site + 2)
        raise ZeroDivisionError("division by zero")
    return a // b


@compiled
def float_modulo(ctx, a, b, site):
    """Python's `%` of doubles."""
    if b == 0.0:
        put(ctx + SITE, 16 * site + 2)
        raise ZeroDivisionError("division by zero")
    return a % b


@compiled
def shift_left(ctx, a, b, site):
    """`a << b` modulo 2^64."""
    if b < 0 or b > 63:
        put(ctx + SITE, 16 * site + 3)
        raise ValueError("shift count outside 0..63")
    return a << b


@compiled
def shift_right(ctx, a, b, site):
    """`a >> b` with sign."""
    if b < 0 or b > 63:
        put(ctx + SITE, 16 * site + 3)
        raise ValueError("shift count outside 0..63")
    return a >> b


@compiled
def step(ctx, value, site):
    """The step of a range, which is not zero."""
    if value == 0:
        put(ctx + SITE, 16 * site + 4)
        raise ValueError("range() arg 3 must not be zero")
    return value


@compiled
def truncate(ctx, value, site):
    """`int(value)`."""
    if not (value >= -9223372036854775808.0 and value < 9223372036854775808.0):
        put(ctx + SITE, 16 * site + 5)
        raise OverflowError("int() of a float outside 64 bits")
    return types.int64(value)
