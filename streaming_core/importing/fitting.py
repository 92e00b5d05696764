"""Converts values of files to the types of an application's fields, or gives the reason why a value does not fit.

It rounds, cuts, wraps and guesses nothing.

    integers   decimal digits, 12 or 12.0, in the range of the field; or a time, counted in the application's unit
    floats     decimal digits with or without an exponent, NaN, Infinity; converted to the nearest double
    decimals   decimal digits with at most as many after the point as the field has
    boolean    true, false, 1, 0
    text       UTF-8, or the bytes of a binary column; an empty CSV value is an empty text, because CSV has no null
    nullable   null, or a value that does not exist; an empty CSV value, also of a text
    arrays     a list with the declared number of items; in CSV written as in JSON: [1, 2]

A time is a Parquet timestamp, or ISO 8601: 2026-01-02T03:04:05.678Z. The time of day and the time zone may be missing;
they default to midnight and UTC.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any

from streaming_core.language.decimals import units_of
from streaming_core.language.extent import UNITS
from streaming_core.language.record import Array, Resolved, Scalar, Slot, Text

_INTEGER = re.compile(r"\s*([+-]?)0*(\d+)(?:\.0*)?\s*", re.ASCII)
_FLOAT = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_WORD = re.compile(r"\s*[+-]?(nan|inf(inity)?)\s*", re.ASCII | re.IGNORECASE)
_TIME = re.compile(
    r"\s*(\d{4})-(\d\d)-(\d\d)"
    r"(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?\s?(?:Z|([+-])(\d\d)(?::?(\d\d))?)?)?\s*",
    re.ASCII,
)
_DIGITS = 40  # no integer type holds so many
_EPOCH = date(1970, 1, 1).toordinal()
_SECOND = 10**9

Read = Callable[[Any], Any]


class Unfit(Exception):
    """The reason why a value does not fit."""


def reader(declared: Resolved, name: str, unit: str, empty: bool) -> Read:
    """The function that reads a value of a field. It raises Unfit.

    Args:
        declared: The record of the events.
        name: The field.
        unit: The unit of integers that are read from times (language/extent.py).
        empty: Whether a missing value is an empty text (CSV).

    Returns:
        A function of a text, of bytes or of a list of texts. A missing value is None.
    """
    slot = declared.state[0][name]
    if slot.is_nullable:
        return partial(_nullable, _reader(slot, unit, False), empty)
    return _reader(slot, unit, empty)


def _nullable(read: Read, empty: bool, raw: Any) -> Any:
    return None if raw is None or (empty and not raw.strip()) else read(raw)


def _reader(slot: Slot, unit: str, empty: bool) -> Read:
    match slot.type:
        case Text():
            return partial(_text, b"" if empty else None)
        case Array(item):
            return partial(_array, _scalar(item, unit), slot.count)
        case _:
            assert isinstance(slot.type, Scalar)
            return _scalar(slot.type, unit)


def _text(missing: bytes | None, raw: str | bytes | None) -> bytes:
    value = missing if raw is None else raw
    if value is None:
        raise Unfit("has no value")
    return value.encode() if isinstance(value, str) else value


def _array(read: Read, count: int, raw: list[str | None] | None) -> list[Any]:
    if raw is None:
        raise Unfit("is not a list")
    if len(raw) != count:
        raise Unfit(f"does not have {count} items")
    try:
        return [read(item) for item in raw]
    except Unfit as unfit:
        raise Unfit(f"has an item that {unfit}") from None


def _scalar(scalar: Scalar, unit: str) -> Read:
    known: dict[str, Read] = {"f64": _float, "boolean": _boolean}
    if scalar.scale is not None:
        known = {scalar.name: partial(_decimal, scalar.scale)}
    read = known.get(scalar.name) or partial(_integer, scalar.name, scalar.bounds, UNITS[unit], unit)

    def value(raw: str | bytes | None) -> Any:
        text = raw.decode(errors="replace") if isinstance(raw, bytes) else raw
        if text is None or not text.strip():
            raise Unfit("has no value")
        return read(text)

    return value


def _float(text: str) -> float:
    if _FLOAT.fullmatch(text):
        value = float(text)
        if math.isinf(value):
            raise Unfit("does not fit f64")
        return value
    if _WORD.fullmatch(text):
        value = float(text)
        return math.nan if math.isnan(value) else value  # there is one NaN
    raise Unfit("is not a number")


def _decimal(scale: int, text: str) -> Decimal:
    value = units_of(text.strip(), scale)
    if value is None:
        raise Unfit("is not a decimal number")
    if isinstance(value, str):
        raise Unfit(value)
    return Decimal(value).scaleb(-scale)


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "1", "false", "0"):
        raise Unfit("is not true, false, 1 or 0")
    return word in ("true", "1")


def _integer(name: str, bounds: tuple[int, int], nanoseconds: int, unit: str, text: str) -> int:
    if match := _INTEGER.fullmatch(text):
        sign, digits = match.groups()
        value = int(sign + digits) if len(digits) < _DIGITS else None
    elif match := _TIME.fullmatch(text):
        value, rest = divmod(_nanoseconds(match), nanoseconds)
        if rest:
            raise Unfit(f"is a time with a fraction of a unit ({unit}): declare a smaller one with App(..., time=)")
    else:
        raise Unfit("is neither an integer nor a time")
    if value is None or not bounds[0] <= value <= bounds[1]:
        raise Unfit(f"does not fit {name}, which holds {bounds[0]} to {bounds[1]}")
    return value


def _nanoseconds(time: re.Match[str]) -> int:
    """The nanoseconds from 1970 to a time (_TIME)."""
    year, month, day, hour, minute, second, fraction, sign, hours, minutes = time.groups()
    try:
        days = date(int(year), int(month), int(day)).toordinal() - _EPOCH
    except ValueError:
        days = None
    clock, zone = [int(part or 0) for part in (hour, minute, second)], [int(part or 0) for part in (hours, minutes)]
    if days is None or clock[0] > 23 or max(clock[1:]) > 59 or zone[0] > 18 or zone[1] > 59:
        raise Unfit("is not a valid time")
    offset = (zone[0] * 60 + zone[1]) * (-60 if sign == "-" else 60)
    seconds = days * 86400 + clock[0] * 3600 + clock[1] * 60 + clock[2] - offset
    return seconds * _SECOND + int((fraction or "").ljust(9, "0"))
