"""Parts of a timestamp, and durations in operator code.

A timestamp is a number of units since 1970-01-01 00:00 UTC; the application's `time` is the unit. The calendar is the
proleptic Gregorian one, with a year 0 as in ISO 8601. A day has 86,400 seconds.

These functions are operator code themselves, so every engine computes them as it computes the application's functions.
"""

from __future__ import annotations

from typing import Any

from streaming_core.language.extent import duration

_DAY = duration("1d")


def year(ts: int) -> int:
    """The year, such as 2026; the year before 1 is 0."""
    return _months(ts // _DAY) // 12


def month(ts: int) -> int:
    """The month, from 1 to 12."""
    return _months(ts // _DAY) % 12 + 1


def day(ts: int) -> int:
    """The day of the month, from 1 to 31."""
    rest = _day_of_march_year(ts // _DAY)
    return rest - (153 * ((5 * rest + 2) // 153) + 2) // 5 + 1


def weekday(ts: int) -> int:
    """The day of the week, from 0 for Monday to 6 for Sunday."""
    return (ts // _DAY + 3) % 7


def hour(ts: int) -> int:
    """The hour, from 0 to 23."""
    return ts % _DAY * 24 // _DAY


def minute(ts: int) -> int:
    """The minute, from 0 to 59."""
    return ts % _DAY * 1440 // _DAY % 60


def second(ts: int) -> int:
    """The second, from 0 to 59."""
    return ts % _DAY * 86400 // _DAY % 60


def date_text(ts: int) -> Any:
    """The date as a text such as "2026-11-29". A year before 0 has a minus, one after 9999 more digits."""
    months = _months(ts // _DAY)
    years = months // 12
    digits = str(abs(years))
    if len(digits) < 4:
        digits = str(10000 + abs(years))[1:]
    if years < 0:
        digits = "-" + digits
    rest = str(10100 + months % 12 * 100 + day(ts))
    return digits + "-" + rest[1:3] + "-" + rest[3:]


def time_text(ts: int) -> Any:
    """The time of day as a text such as "23:59:59"; its first five bytes are hour and minute."""
    digits = str(1000000 + hour(ts) * 10000 + minute(ts) * 100 + second(ts))
    return digits[1:3] + ":" + digits[3:5] + ":" + digits[5:]


# A year that begins in March has its leap day at the end. 400 years have 146,097 days.


def _march_days(days: int) -> int:
    """The days since March 1 of year 0."""
    return days + 719468


def _year_of_era(days: int) -> int:
    """The year that begins in March, from 0 to 399 since the last one that 400 divides."""
    rest = _march_days(days) % 146097
    return (rest - rest // 1460 + rest // 36524 - rest // 146096) // 365


def _day_of_march_year(days: int) -> int:
    """The days since March 1."""
    years = _year_of_era(days)
    return _march_days(days) % 146097 - (365 * years + years // 4 - years // 100)


def _months(days: int) -> int:
    """The months since January of year 0."""
    months = (5 * _day_of_march_year(days) + 2) // 153
    return 12 * (_march_days(days) // 146097 * 400 + _year_of_era(days)) + months + 2
