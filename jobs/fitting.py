"""What stands in files as the fields of an application's events: each value in its field's type, or why it does not
fit. Nothing is rounded, cut, wrapped or guessed.

    integers   decimal digits, 12 or 12.0, within the field's range; or a time, as an integer of the unit that is given
    floats     decimal digits, with an exponent or without; NaN, Infinity; the nearest double
    boolean    true, false, 1, 0
    text       UTF-8, or the bytes of a binary column; of an empty field of CSV, which has no null, none
    arrays     a list of that many of these, in CSV as JSON writes it: [1, 2]

A time is ISO 8601, 2026-01-02T03:04:05.678Z with or without its parts behind the date, UTC unless it says otherwise;
or a timestamp of Parquet.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming_core.language.record import Array, FieldType, Resolved, Scalar, Text

UNITS = ("s", "ms", "us", "ns")
_INTEGER = r"^\s*[+-]?\d+(\.0*)?\s*$"
_FLOAT = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_WORDS = r"(?i)^\s*([+-]?nan|[+-]?inf(inity)?)\s*$"
_TIME = r"^\s*\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?\s?(Z|[+-]\d{2}:\d{2})?)?\s*$"
_PARTS = {"s": 1_000_000, "ms": 1_000, "us": 1}  # microseconds of a unit

Fitted = tuple[Column, Column]  # a value; why there is none, or null


def field(declared: Resolved, name: str, raw: Column, unit: str | None, empty: bool) -> Fitted:
    """The value of a field of events, from text, or from bytes where it is one of text.

    Args:
        unit: what an integer counts that is made of a time; None: there are no times.
        empty: nothing stands for a text without letters (CSV).
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
            value, why = _scalar(slot.type, unit)(raw)
            return value, _first(name, why)


def as_text(column: Column, kind: pa.DataType, wanted: FieldType) -> Column:
    """A column of Parquet as the text, or the list of texts, that is read as above."""
    if isinstance(wanted, Array):
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
            return F.lit(None).cast("array<string>")
        return F.transform(column, lambda one: as_text(one, kind.value_type, wanted.item))
    if pa.types.is_floating(kind):
        if isinstance(wanted, Scalar) and not wanted.is_float:  # 1.0E10 is an integer, too
            whole = (column == F.rint(column)) & (F.abs(column) < float(1 << 63))
            return F.when(whole, column.cast("decimal(20,0)").cast("string")).otherwise(column.cast("string"))
        return column.cast("double").cast("string")
    if pa.types.is_timestamp(kind) and kind.unit == "ns":  # which Spark reads as an integer (files.py)
        moment = F.date_format(F.timestamp_micros(_whole(column, 1000).cast("bigint")), "yyyy-MM-dd HH:mm:ss.SSSSSS")
        return F.concat(moment, F.lpad(F.pmod(column, F.lit(1000)).cast("string"), 3, "0"))
    return column.cast("string")


def _whole(number: Column, part: int) -> Column:
    """How often `part` goes into an integer."""
    return ((number - F.pmod(number, F.lit(part))).cast("decimal(20,0)") / F.lit(part)).cast("decimal(38,0)")


def _first(name: str, why: Column) -> Column:
    return F.when(why.isNotNull(), F.concat(F.lit(f"{name} "), why))


def _nothing(raw: Column) -> Column:
    return F.when(raw.isNull(), F.lit("has no value"))


def _array(name: str, raw: Column, item: Scalar, count: int, unit: str | None) -> Fitted:
    read = _scalar(item, unit)
    wrong = F.get(F.filter(F.transform(raw, lambda one: read(one)[1]), lambda why: why.isNotNull()), F.lit(0))
    why = F.coalesce(
        F.when(raw.isNull(), F.lit("is no list")),
        F.when(F.size(raw) != count, F.lit(f"has not {count} items")),
        F.when(wrong.isNotNull(), F.concat(F.lit("has an item that "), wrong)),
    )
    return F.transform(raw, lambda one: read(one)[0]), _first(name, why)


def _scalar(scalar: Scalar, unit: str | None) -> Callable[[Column], Fitted]:
    """What reads a text as a value of this type."""
    return {"f64": _float, "boolean": _boolean}.get(scalar.name) or (lambda raw: _integer(raw, scalar, unit))


def _float(raw: Column) -> Fitted:
    value = F.trim(raw).try_cast("double")
    is_number, is_word = raw.rlike(_FLOAT), raw.rlike(_WORDS)
    # That there is no larger number than what a double holds is no reason to make one infinite.
    large = is_number & (F.abs(value) == float("inf"))
    why = (
        F.when(raw.isNull() | (F.trim(raw) == ""), "has no value")
        .when(large, "does not fit f64")
        .when(~(is_number | is_word), "is no number")
    )
    return F.when(why.isNull(), value), why


def _boolean(raw: Column) -> Fitted:
    word = F.lower(F.trim(raw))
    value = F.when(word.isin("true", "1"), True).when(word.isin("false", "0"), False)
    why = F.when(raw.isNull() | (word == ""), "has no value").when(value.isNull(), "is neither true nor false")
    return value, why


def _integer(raw: Column, scalar: Scalar, unit: str | None) -> Fitted:
    low, high = scalar.bounds
    wide = F.regexp_extract(raw, r"^\s*([+-]?\d+)", 1).try_cast("decimal(38,0)")
    is_integer, is_time = raw.rlike(_INTEGER), raw.rlike(_TIME)
    micros = F.unix_micros(F.trim(raw).try_cast("timestamp"))
    finer = F.rpad(F.regexp_extract(raw, r"\.\d{6}(\d+)", 1), 3, "0").cast("int")  # nanoseconds beyond
    if unit == "ns":
        counted = F.try_add(F.try_multiply(micros, F.lit(1000)), finer)
        between = F.lit(False)
    elif unit is not None:
        part = _PARTS[unit]
        counted = _whole(micros, part)
        between = (F.pmod(micros, F.lit(part)) != 0) | (finer != 0)
    why = F.when(raw.isNull() | (F.trim(raw) == ""), "has no value")
    if unit is None:
        number = F.when(is_integer, wide)
        why = why.when(is_time, "is a time: say what its integers count (--unit s, ms, us or ns)")
        why = why.when(~is_integer, "is no integer")
    else:
        number = F.when(is_integer, wide).when(is_time, counted.cast("decimal(38,0)"))
        why = why.when(is_time & micros.isNull(), "is no time that there is")
        why = why.when(is_time & between, f"is a time between two {unit}")
        why = why.when(~(is_integer | is_time), "is neither an integer nor a time")
    why = why.when(number.isNull() | ~number.between(low, high), f"does not fit {scalar.name}, {low}..{high}")
    return F.when(why.isNull(), number).cast("bigint"), why
