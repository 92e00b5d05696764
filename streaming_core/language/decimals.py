"""Decimals in operator code: literals, and texts.

The value of a field `Decimal[scale]` is an i64: a number of units of 10^-scale.

`decimal_text` is operator code itself, so every engine computes it as it computes the application's functions.
"""

from __future__ import annotations

import re
from typing import Any

from streaming_core.errors import BadInput
from streaming_core.language.declaration import declares
from streaming_core.language.record import MOST_SCALE, i64

_DECIMAL = re.compile(r"([+-]?)(\d*)\.?(\d*)(?:[eE]([+-]?\d{1,4}))?", re.ASCII)


@declares
def decimal(text: str, scale: int) -> int:
    """The number of units of 10^-scale of a decimal number: `decimal("0.908", 3)` is 908.

    Raises:
        BadInput: The text is no decimal number, has more than `scale` digits after the point, or does not fit 64 bits.
    """
    if not 0 <= scale <= MOST_SCALE:
        raise BadInput(f"decimal: the scale must be between 0 and {MOST_SCALE}, got {scale}")
    if (value := units_of(text, scale)) is None:
        raise BadInput(f'{text!r} is not a decimal number; write for example "0.908"')
    if isinstance(value, str):
        raise BadInput(f"{text!r} {value}")
    return value


def units_of(text: str, scale: int) -> int | str | None:
    """The units of 10^-scale of a decimal number; why there are none; None if the text is no decimal number."""
    match = _DECIMAL.fullmatch(text)
    if match is None or not match[2] + match[3]:
        return None
    digits = (match[2] + match[3]).lstrip("0")
    shift = scale + int(match[4] or 0) - len(match[3])
    if digits and shift < 0:
        if digits[shift:].strip("0") or -shift > len(digits):
            return f"has more than {scale} digit{'s' * (scale != 1)} after the point"
        digits, shift = digits[:shift], 0
    if len(digits) + shift > 19 and digits:
        return _TOO_LARGE.format(scale)
    value = int(match[1] + (digits or "0") + "0" * (shift if digits else 0))
    low, high = i64.bounds
    return value if low <= value <= high else _TOO_LARGE.format(scale)


_TOO_LARGE = "does not fit Decimal[{}], which holds 64 bits of units"


def decimal_text(units: int, scale: int) -> Any:
    """A number of units of 10^-scale as a text such as "-0.05", for a scale from 0 to 18."""
    sign = ""
    digits = str(units)
    if units < 0:
        sign = "-"
        digits = digits[1:]
    if scale == 0:
        return sign + digits
    if len(digits) <= scale:
        digits = ("0000000000000000000" + digits)[-scale - 1 :]
    return sign + digits[:-scale] + "." + digits[-scale:]
