"""Arithmetic words: operations that plain compiled code would get wrong, or leave undefined."""

from __future__ import annotations

from numba.core import types
from numba.extending import overload

import streaming_core.language.wrapping  # noqa: F401 - its import makes sums and products wrap


def floordiv(a, b):
    """`a // b`: floors; by zero is an error; INT_MIN // -1 wraps around."""


def modulo(a, b):
    """`a % b`: sign of the divisor; by zero is an error."""


def shift_left(a, b):
    """`a << b` modulo 2^64; counts outside 0..63 are an error."""


def shift_right(a, b):
    """`a >> b` with sign; counts outside 0..63 are an error."""


def to_integer(x):
    """`int(x)`: truncates; outside 64 bits, or not a number, is an error."""


def to_float(x):
    """`float(x)`."""


def invert(x):
    """`~x` of an integer."""


def contains(x, container):
    """`x in container`."""


def _whole(*kinds: types.Type) -> bool:
    return all(isinstance(k, types.Integer | types.Boolean) for k in kinds)


def _number(*kinds: types.Type) -> bool:
    return all(isinstance(k, types.Integer | types.Boolean | types.Float) for k in kinds)


@overload(floordiv)
def _floordiv(a, b):
    if _whole(a, b):

        def whole(a, b):
            x = types.int64(a)
            y = types.int64(b)
            if y == 0:
                raise ZeroDivisionError("division by zero")
            if y == -1:
                return -x
            return x // y

        return whole
    if _number(a, b):

        def real(a, b):
            y = types.float64(b)
            if y == 0.0:
                raise ZeroDivisionError("division by zero")
            return types.float64(a) // y

        return real
    return None


@overload(modulo)
def _modulo(a, b):
    if _whole(a, b):

        def whole(a, b):
            x = types.int64(a)
            y = types.int64(b)
            if y == 0:
                raise ZeroDivisionError("division by zero")
            if y == -1:
                return 0
            return x % y

        return whole
    if _number(a, b):

        def real(a, b):
            y = types.float64(b)
            if y == 0.0:
                raise ZeroDivisionError("division by zero")
            return types.float64(a) % y

        return real
    return None


@overload(shift_left)
def _shift_left(a, b):
    def implementation(a, b):
        x = types.int64(a)
        y = types.int64(b)
        if y < 0 or y > 63:
            raise ValueError("shift count outside 0..63")
        return x << y

    return implementation


@overload(shift_right)
def _shift_right(a, b):
    def implementation(a, b):
        x = types.int64(a)
        y = types.int64(b)
        if y < 0 or y > 63:
            raise ValueError("shift count outside 0..63")
        return x >> y

    return implementation


@overload(to_integer)
def _to_integer(x):
    if _whole(x):
        return lambda x: types.int64(x)
    if _number(x):

        def implementation(x):
            # 2^63 is exact; -2^63 itself fits. NaN fails both comparisons.
            if not (x >= -9223372036854775808.0 and x < 9223372036854775808.0):
                raise OverflowError("int() of a float outside 64 bits")
            return types.int64(x)

        return implementation
    return None


@overload(to_float)
def _to_float(x):
    return (lambda x: types.float64(x)) if _number(x) else None


@overload(invert)
def _invert(x):
    return lambda x: ~types.int64(x)
