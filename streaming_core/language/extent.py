"""The extent of windows, in the words of other stream processors, and durations as text.

    tumbling("1m")                  [0:00, 0:01), [0:01, 0:02), ...
    sliding("1h", every="5m")       [0:00, 1:00), [0:05, 1:05), ...
    rolling("1h")                   one window for each key, which follows the rows
    session("30s")                  from a row of a key to 30 seconds after its latest row
    count_window(100)               a hundred rows of a key, and the next hundred
    global_window()                 all rows of a key

A duration is a number of units of `ts`, the name of a parameter, or text such as "1h30m". The application says which
unit its `ts` has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from streaming_core.errors import BadInput, unknown
from streaming_core.language.declaration import declares

# Nanoseconds of the units of a duration.
UNITS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
_PART = re.compile(r"([0-9]+)(ns|us|ms|s|m|h|d)")


class Duration(str):
    """A duration that operator code can name: it stands for a number of units of `ts`."""


@declares
def duration(text: str) -> Any:
    """A duration such as "1h30m". Operator code reads it as a number of units of `ts`, and declarations take it."""
    return Duration(text)


class Timed(Protocol):
    """The application: its name, the unit of `ts`, and its parameters."""

    name: str
    time: str
    declared: dict[str, Any]


@dataclass(frozen=True)
class Extent:
    """Where windows over event time begin and end: the kind, advance, size and most of language/window.py."""

    WORDS: ClassVar[str] = 'tumbling("1m"), sliding("1h", every="5m"), rolling("1h"), session("30s")'

    advance: int | str
    size: int | str
    kind: str = "multi"
    most: int | str | None = None


@declares
def tumbling(size: int | str) -> Extent:
    """Windows of this size, one after the other."""
    return Extent(size, size)


@declares
def sliding(size: int | str, every: int | str) -> Extent:
    """Windows of this size, which begin every so often and overlap."""
    return Extent(every, size)


@declares
def rolling(size: int | str, every: int | str = 1) -> Extent:
    """One window for each key, whose state stays while the window advances with the rows, by `every` at a time.

    Only functions of your own know how to remove rows from a state, so `apply` takes it and `aggregate` does not.
    """
    return Extent(every, size, "single")


@declares
def session(gap: int | str, most: int | str | None = None) -> Extent:
    """A window for each burst of rows of a key: it ends once the key has had no row for `gap`.

    With `most`, at least `gap`, it also ends so long after its first row. A later row begins the next one.
    """
    return Extent(1, gap, "session", most)


@dataclass(frozen=True)
class CountWindow:
    """Windows are so many rows of a key, one after the other, whatever their `ts`. None: all rows of the key."""

    WORDS: ClassVar[str] = "count_window(100), global_window()"

    rows: int | str | None

    @property
    def name(self) -> str:
        """The function that declares it."""
        return "global_window" if self.rows is None else "count_window"


@declares
def count_window(rows: int | str) -> CountWindow:
    """Windows of this many rows of each key, or of as many as the parameter of this name says."""
    return CountWindow(rows)


def global_window() -> CountWindow:
    """One window for each key, with all of its rows. It ends with the stream."""
    return CountWindow(None)


def in_units(duration: int | str, app: Timed) -> int | str:
    """A duration as a number of units of `ts`. Numbers and names of parameters stay as they are.

    Raises:
        BadInput: The text is neither a duration nor the name of a parameter, or not a whole number of units.
    """
    if not isinstance(duration, str) or duration in app.declared:
        return duration
    if not duration[:1].isdigit():
        raise BadInput(f"app {app.name}: {unknown('duration or parameter', duration, app.declared)}")
    return units(duration, app)


def units(duration: str, app: Timed) -> int:
    """A duration as a number of units of `ts`.

    Raises:
        BadInput: The text is no duration, or not a whole number of units.
    """
    parts = _PART.findall(duration)
    if not parts or "".join(number + name for number, name in parts) != duration:
        raise BadInput(f"{duration!r} is not a duration; write for example 90s, 1h30m or 250ms")
    total = sum(int(number) * UNITS[name] for number, name in parts)
    if total % UNITS[app.time]:
        raise BadInput(f"{duration!r} is no whole number of the application's unit of time, {app.time}")
    return total // UNITS[app.time]


def check_unit(unit: str) -> None:
    """Raise BadInput unless there is a unit of this name."""
    if unit not in UNITS:
        raise BadInput(unknown("unit of time", unit, UNITS))
