"""Converts values of files to the types of an application's fields, or gives the reason why a value does not fit.

It rounds, cuts, wraps and guesses nothing.

    integers   decimal digits, 12 or 12.0, in the range of the field; or a time, if --unit is given
    floats     decimal digits with or without an exponent, NaN, Infinity; converted to the nearest double
    boolean    true, false, 1, 0
    text       UTF-8, or the bytes of a binary column; an empty CSV value is an empty text, because CSV has no null
    arrays     a list with the declared number of items; in CSV written as in JSON: [1, 2]

A time is a Parquet timestamp, or ISO 8601: 2026-01-02T03:04:05.678Z. The time of day and the time zone may be missing;
they default to midnight and UTC.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming_core.language.record import Array, Resolved, Scalar, Text

UNITS = ("s", "ms", "us", "ns")
_INTEGER = r"^\s*[+-]?\d+(\.0*)?\s*$"
_FLOAT = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_WORDS = r"(?i)^\s*([+-]?nan|[+-]?inf(inity)?)\s*$"
_TIME = r"^\s*\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?\s?(Z|[+-]\d{2}(:?\d{2})?)?)?\s*$"
_PARTS = {"s": 1_000_000, "ms": 1_000, "us": 1}  # microseconds per unit

Fitted = tuple[Column, Column]  # the value; the reason why it does not fit, or null


def field(declared: Resolved, name: str, raw: Column, unit: str | None, empty: bool) -> Fitted:
    """The value of a field, from text or, for a field of text, from bytes.

    Args:
        declared: The record of the events.
        name: The field.
        raw: The column with the text.
        unit: The unit of integers that are read from times; None refuses times.
        empty: Whether a missing value is an empty text (CSV).
    """
    slot = declared.state[0][name]
    match slot.type:
        case Text():
            value = F.coalesce(raw, F.lit("")) if empty else raw
            return value.cast("binary"), _first(name, _nothing(value))
        case Array(item):
            return _array(name, raw, item, slot.count, unit)
        case _:
            assert isinstance(slot.type, Scalar)
            value, reason = _scalar(slot.type, unit)(raw.cast("string"))
            return value, _first(name, reason)


def _whole(number: Column, part: int) -> Column:
    """The quotient of an integer and `part`, rounded down."""
    return ((number - F.pmod(number, F.lit(part))).cast("decimal(20,0)") / F.lit(part)).cast("decimal(38,0)")


def _first(name: str, why: Column) -> Column:
    return F.when(why.isNotNull(), F.concat(F.lit(f"{name} "), why))


def _nothing(raw: Column) -> Column:
    return F.when(raw.isNull(), F.lit("has no value"))


def _array(name: str, raw: Column, item: Scalar, count: int, unit: str | None) -> Fitted:
    read = _scalar(item, unit)
    wrong = F.get(F.filter(F.transform(raw, lambda one: read(one)[1]), lambda why: why.isNotNull()), F.lit(0))
    why = F.coalesce(
        F.when(raw.isNull(), F.lit("is not a list")),
        F.when(F.size(raw) != count, F.lit(f"does not have {count} items")),
        F.when(wrong.isNotNull(), F.concat(F.lit("has an item that "), wrong)),
    )
    return F.transform(raw, lambda one: read(one)[0]), _first(name, why)


def _scalar(scalar: Scalar, unit: str | None) -> Callable[[Column], Fitted]:
    """The function that reads a text as a value of this type."""

    def read(raw: Column) -> Fitted:
        known = {"f64": _float, "boolean": _boolean}.get(scalar.name)
        value, reason = known(raw) if known else _integer(raw, scalar, unit)
        return value, F.coalesce(reason, F.when(value.isNull(), f"cannot be read as {scalar.name}"))

    return read


def _float(raw: Column) -> Fitted:
    value = F.regexp_replace(raw, r"[+-](?=[nN])", "").try_cast("double")  # Spark knows no NaN with a sign
    is_number, is_word = raw.rlike(_FLOAT), raw.rlike(_WORDS)
    # A number beyond the range of a double does not fit; it must not become infinite.
    large = is_number & (F.abs(value) == float("inf"))
    reason = (
        F.when(raw.isNull() | (F.trim(raw) == ""), "has no value")
        .when(large, "does not fit f64")
        .when(~(is_number | is_word), "is not a number")
    )
    return F.when(reason.isNull(), value), reason


def _boolean(raw: Column) -> Fitted:
    word = F.lower(F.trim(raw))
    value = F.when(word.isin("true", "1"), True).when(word.isin("false", "0"), False)
    reason = F.when(raw.isNull() | (word == ""), "has no value").when(value.isNull(), "is not true, false, 1 or 0")
    return value, reason


def _integer(raw: Column, scalar: Scalar, unit: str | None) -> Fitted:
    low, high = scalar.bounds
    wide = F.regexp_extract(raw, r"^\s*([+-]?\d+)", 1).try_cast("decimal(38,0)")
    is_integer, is_time = raw.rlike(_INTEGER), raw.rlike(_TIME)
    micros = F.unix_micros(F.trim(raw).try_cast("timestamp"))
    finer = F.rpad(F.regexp_extract(raw, r"\.\d{6}(\d+)", 1), 3, "0").cast(
        "int"
    )  # the last three digits of nanoseconds
    if unit == "ns":
        counted = F.try_add(F.try_multiply(micros, F.lit(1000)), finer)
        between = F.lit(False)
    elif unit is not None:
        part = _PARTS[unit]
        counted = _whole(micros, part)
        between = (F.pmod(micros, F.lit(part)) != 0) | (finer != 0)
    reason = F.when(raw.isNull() | (F.trim(raw) == ""), "has no value")
    if unit is None:
        number = F.when(is_integer, wide)
        reason = reason.when(is_time, "is a time: give the unit of the integer field with --unit s, ms, us or ns")
        reason = reason.when(~is_integer, "is not an integer")
    else:
        number = F.when(is_integer, wide).when(is_time, counted.cast("decimal(38,0)"))
        reason = reason.when(is_time & micros.isNull(), "is not a valid time")
        reason = reason.when(is_time & between, f"is a time with a fraction of a unit ({unit}): use a smaller --unit")
        reason = reason.when(~(is_integer | is_time), "is neither an integer nor a time")
    reason = reason.when(
        number.isNull() | ~number.between(low, high), f"does not fit {scalar.name}, which holds {low} to {high}"
    )
    return F.when(reason.isNull(), number).cast("bigint"), reason
