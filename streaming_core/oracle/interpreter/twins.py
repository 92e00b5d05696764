"""The containers of the language in plain Python, and the words of arithmetic that plain Python gets wrong."""

from __future__ import annotations

from bisect import insort
from collections import namedtuple
from functools import cache
from typing import Any

from streaming_core.language.record import NAN, Counter, Map, Queue, Record, Ring, Scalar, Set, TopK


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
    """`value` if the field can hold it, else OverflowError."""
    if not scalar.low <= value <= scalar.high:
        raise OverflowError(f"{where}: the value {value} does not fit {scalar.name}")
    return value


def kept(value: float) -> float:
    """A double as it is kept: of NaNs there is one."""
    return value if value == value else NAN


def item(items: Any, index: int) -> Any:
    """`items[index]`; negative positions are out of range."""
    if not 0 <= index < len(items):
        raise IndexError(f"index {index} out of range 0..{len(items) - 1}")
    return items[index]


def negative() -> Any:
    """What stands for an item at a negative position."""
    raise IndexError("index is negative")


def set_item(items: list, index: int, value: Any) -> None:
    """`items[index] = value`; negative positions are out of range."""
    if not 0 <= index < len(items):
        raise IndexError(f"index {index} out of range 0..{len(items) - 1}")
    items[index] = value


def text_slice(text: bytes, low: int, high: int) -> bytes:
    """`text[low:high]`; negative bounds are an error."""
    if low < 0 or high < 0:
        raise IndexError("text: slice bounds are not negative")
    return text[low:high]


def text_find(text: bytes, byte: int, start: int) -> int:
    """Position of the first `byte` at or after `start`, or -1."""
    if start < 0:
        raise IndexError("text: a search does not start before the text")
    if not 0 <= byte <= 255:
        raise ValueError("text: a byte lies in 0..255")
    return text.find(byte, start)


class RingTwin:
    """The last `capacity` values, oldest first."""

    __slots__ = ("capacity", "head", "items", "scalar", "where")

    def __init__(self, scalar: Scalar, capacity: int, where: str):
        self.scalar, self.capacity, self.where = scalar, capacity, where
        self.items: list = []
        self.head = 0

    def append(self, value: int | float) -> None:
        if self.scalar.is_float:
            value = kept(value)
        else:
            value = narrow(value, self.scalar, self.where)
            value = bool(value) if self.scalar.name == "boolean" else value
        if len(self.items) < self.capacity:
            self.items.append(value)
        else:
            self.items[self.head] = value
            self.head = (self.head + 1) % self.capacity

    def length(self) -> int:
        return len(self.items)

    def copy(self) -> RingTwin:
        other = RingTwin(self.scalar, self.capacity, self.where)
        other.items, other.head = self.items[:], self.head
        return other

    def item(self, index: int) -> Any:
        if not 0 <= index < len(self.items):
            raise IndexError(f"{self.where}: index {index} out of range 0..{len(self.items) - 1}")
        return self.items[(self.head + index) % len(self.items)]

    def clear(self) -> None:
        self.items, self.head = [], 0

    def export(self) -> list:
        return self.items[self.head :] + self.items[: self.head]


class MapTwin:
    """Integer keys to values in insertion order; a set is a map of its keys, a counter one of counts."""

    __slots__ = ("key", "keys", "places", "value", "values", "where")

    def __init__(self, key: Scalar, value: Scalar | None, where: str):
        self.key, self.value, self.where = key, value, where
        self.clear()

    def clear(self) -> None:
        self.places: dict[int, int] = {}
        self.keys: list[int] = []
        self.values: list = []

    def length(self) -> int:
        return len(self.keys)

    def contains(self, key: int) -> bool:
        return key in self.places

    def key_at(self, index: int) -> int:
        if not 0 <= index < len(self.keys):
            raise IndexError(f"{self.where}: index {index} out of range 0..{len(self.keys) - 1}")
        return self.keys[index]

    def value_at(self, index: int) -> Any:
        self.key_at(index)
        return self.values[index]

    def get(self, key: int, default: Any) -> Any:
        place = self.places.get(key)
        return default if place is None else self.values[place]

    def put(self, key: int, value: Any) -> None:
        key = narrow(key, self.key, self.where)
        if self.value.is_float:
            value = kept(value)
        else:
            value = narrow(value, self.value, self.where)
            value = bool(value) if self.value.name == "boolean" else value
        place = self.places.get(key)
        if place is None:
            self.places[key] = len(self.keys)
            self.keys.append(key)
            self.values.append(value)
        else:
            self.values[place] = value

    def stored(self) -> list:
        """The keys as the state's table has them; operators see all of them as integers."""
        return [bool(key) for key in self.keys] if self.key.name == "boolean" else self.keys

    def export(self) -> list:
        return [{"key": k, "value": v} for k, v in zip(self.stored(), self.values, strict=True)]


class SetTwin(MapTwin):
    """Distinct integers in insertion order."""

    __slots__ = ()

    def add(self, key: int) -> bool:
        if key in self.places:
            return False
        key = narrow(key, self.key, self.where)
        self.places[key] = len(self.keys)
        self.keys.append(key)
        return True

    at = MapTwin.key_at

    def export(self) -> list:
        return self.stored()


class CounterTwin(MapTwin):
    """Integer keys to counts in insertion order."""

    __slots__ = ()

    def add(self, key: int, count: int) -> int:
        place = self.places.get(key)
        if place is None:
            key = narrow(key, self.key, self.where)
            self.places[key] = len(self.keys)
            self.keys.append(key)
            self.values.append(count)
            return count
        self.values[place] = wrap(self.values[place] + count)
        return self.values[place]

    def get(self, key: int) -> int:
        return super().get(key, 0)


class TopKTwin:
    """The `capacity` best (score, key) pairs, score descending then key ascending."""

    __slots__ = ("capacity", "pairs", "where")

    def __init__(self, capacity: int, where: str):
        self.capacity, self.where = capacity, where
        self.pairs: list[tuple[int, int]] = []  # (-score, key)

    def offer(self, key: int, score: int) -> None:
        for i, (_, known) in enumerate(self.pairs):
            if known == key:
                del self.pairs[i]
                break
        insort(self.pairs, (-score, key))
        del self.pairs[self.capacity :]

    def length(self) -> int:
        return len(self.pairs)

    def _pair(self, index: int) -> tuple[int, int]:
        if not 0 <= index < len(self.pairs):
            raise IndexError(f"{self.where}: index {index} out of range 0..{len(self.pairs) - 1}")
        return self.pairs[index]

    def key_at(self, index: int) -> int:
        return self._pair(index)[1]

    def score_at(self, index: int) -> int:
        return -self._pair(index)[0]

    def clear(self) -> None:
        self.pairs = []

    def export(self) -> list:
        return [{"key": key, "score": -negative} for negative, key in self.pairs]


@cache
def _row(record: Record) -> Any:
    """Makes rows of a queue, which nobody changes."""
    return namedtuple(record.name, list(record.fields))


class QueueTwin:
    """Rows, oldest first, as many as are appended and not yet removed."""

    __slots__ = ("first", "make", "rows", "where")

    def __init__(self, record: Record, where: str):
        self.make, self.where = _row(record), where
        self.clear()

    def clear(self) -> None:
        self.rows: list = []
        self.first = 0  # what lies before it has been removed

    def append(self, /, **values: Any) -> None:
        self.rows.append(self.make(**values))

    def popleft(self) -> None:
        if not self.length():
            raise IndexError(f"{self.where}: popleft of an empty queue")
        self.first += 1
        if 2 * self.first > len(self.rows):
            del self.rows[: self.first]
            self.first = 0

    def length(self) -> int:
        return len(self.rows) - self.first

    def item(self, index: int) -> Any:
        if not 0 <= index < self.length():
            raise IndexError(f"{self.where}: index {index} out of range 0..{self.length() - 1}")
        return self.rows[self.first + index]

    def export(self) -> list:
        return [row._asdict() for row in self.rows[self.first :]]


def twin(declared: Any, count: int, where: str) -> Any:
    """An empty container of the declared type. `count`: its capacity, where it has one."""
    match declared:
        case Ring(item=scalar):
            return RingTwin(scalar, count, where)
        case Set(item=scalar):
            return SetTwin(scalar, None, where)
        case Map(key=key, value=value):
            return MapTwin(key, value, where)
        case Counter(key=key):
            return CounterTwin(key, None, where)
        case TopK():
            return TopKTwin(count, where)
        case Queue(item=record):
            return QueueTwin(record, where)
    raise AssertionError(declared)
