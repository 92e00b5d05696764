"""Arithmetic, and access to texts and arrays, where plain Python differs from the language."""

from __future__ import annotations

import re
from typing import Any

from streaming_core.language.record import NAN, Scalar


def wrap(value: int) -> int:
    """`value` modulo 2^64, as a signed 64-bit integer."""
    return ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def shift_left(value: int, count: int) -> int:
    """`value << count` modulo 2^64."""
    if not 0 <= count <= 63:
        raise ValueError("shift count outside 0..63")
    return wrap(value << count)


def shift_right(value: int, count: int) -> int:
    """`value >> count` with sign."""
    if not 0 <= count <= 63:
        raise ValueError("shift count outside 0..63")
    return value >> count


def truncate(value: float) -> int:
    """`int(value)`; outside 64 bits, or not a number: OverflowError."""
    if not -9223372036854775808.0 <= value < 9223372036854775808.0:
        raise OverflowError("int() of a float outside 64 bits")
    return int(value)


def narrow(value: int, scalar: Scalar, where: str) -> int:
    """Return `value` if the field can hold it, else raise OverflowError."""
    if not scalar.low <= value <= scalar.high:
        raise OverflowError(f"{where}: the value {value} does not fit {scalar.name}")
    return value


def kept(value: float) -> float:
    """Return a double as fields store it: all NaNs are one."""
    return value if value == value else NAN


def item(items: Any, index: int) -> Any:
    """`items[index]`; negative positions are out of range."""
    if not 0 <= index < len(items):
        raise IndexError(f"index {index} out of range 0..{len(items) - 1}")
    return items[index]


def negative() -> Any:
    """Raise IndexError, in place of an item at a negative position."""
    raise IndexError("index is negative")


def null(where: str) -> Any:
    """Raise ValueError, in place of a value that is null."""
    raise ValueError(f"{where} is null; test it with `is None` first")


def set_item(value: Any, items: list, index: int) -> None:
    """`items[index] = value`; negative positions are out of range."""
    if not 0 <= index < len(items):
        raise IndexError(f"index {index} out of range 0..{len(items) - 1}")
    items[index] = value


def text_find(text: bytes, byte: int, start: int) -> int:
    """Position of the first `byte` at or after `start`, or -1."""
    if not 0 <= byte <= 255:
        raise ValueError("text: a byte lies in 0..255")
    return text.find(byte, start)


def integer_of(text: bytes) -> int:
    """The integer with these decimal digits, after a sign or none."""
    if not re.fullmatch(rb"[+-]?[0-9]+", text):
        raise ValueError("int() of a text that is no decimal integer")
    sign, digits = text[:1] == b"-", text.lstrip(b"+-").lstrip(b"0")
    value = int(digits or b"0") if len(digits) <= 19 else 1 << 64  # Python refuses to convert thousands of digits
    value = -value if sign else value
    if not -(1 << 63) <= value < 1 << 63:
        raise OverflowError("int() of a text outside 64 bits")
    return value


def float_of(text: bytes) -> float:
    """The double nearest to a decimal number."""
    if not re.fullmatch(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        raise ValueError("float() of a text that is no decimal number")
    return float(text)
