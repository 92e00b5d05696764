"""The containers of the language in plain Python."""

from __future__ import annotations

from bisect import insort
from itertools import islice
from types import SimpleNamespace
from typing import Any

from streaming_core.language.record import VALID, Counter, Map, Queue, Ring, Scalar, Set, Text, TopK
from streaming_core.oracle.interpreter.arithmetic import kept, narrow, wrap


def _stored(value: Any, kind: Scalar | Text, where: str) -> Any:
    """Return a value as a container of this type stores it.

    Raises:
        OverflowError: The value does not fit.
    """
    if isinstance(kind, Text):
        return value
    if kind.is_float:
        return kept(value)
    value = narrow(value, kind, where)
    return bool(value) if kind.name == "boolean" else value


class PlainRing:
    """The last `capacity` values, oldest first."""

    __slots__ = ("capacity", "head", "items", "scalar", "where")

    def __init__(self, scalar: Scalar, capacity: int, where: str):
        self.scalar, self.capacity, self.where = scalar, capacity, where
        self.items: list = []
        self.head = 0

    def append(self, value: int | float) -> None:
        """Append a value; a full ring loses its oldest one."""
        value = _stored(value, self.scalar, self.where)
        if len(self.items) < self.capacity:
            self.items.append(value)
        else:
            self.items[self.head] = value
            self.head = (self.head + 1) % self.capacity

    def length(self) -> int:
        """Return the number of items."""
        return len(self.items)

    def copy(self) -> PlainRing:
        """Return a copy."""
        other = PlainRing(self.scalar, self.capacity, self.where)
        other.items, other.head = self.items[:], self.head
        return other

    def item(self, index: int) -> Any:
        """Return the i-th oldest item."""
        if not 0 <= index < len(self.items):
            raise IndexError(f"{self.where}: index {index} out of range 0..{len(self.items) - 1}")
        return self.items[(self.head + index) % len(self.items)]

    def clear(self) -> None:
        """Remove all items."""
        self.items, self.head = [], 0

    def export(self) -> list:
        """Return the items for the table of states."""
        return self.items[self.head :] + self.items[: self.head]


class PlainMap:
    """Integer or text keys to values in insertion order; a set is a map of its keys, a counter one of counts."""

    __slots__ = ("entries", "key", "order", "value", "where")

    def __init__(self, key: Scalar | Text, value: Scalar | Text | None, where: str):
        self.key, self.value, self.where = key, value, where
        self.clear()

    def clear(self) -> None:
        """Remove all items."""
        self.entries: dict[int | bytes, Any] = {}
        self.order: list = []  # the keys by position; shorter than the entries if positions have changed

    def length(self) -> int:
        """Return the number of items."""
        return len(self.entries)

    def _fitted(self, key: Any) -> Any:
        """Return a key; raises OverflowError if its type cannot hold it."""
        return key if isinstance(self.key, Text) else narrow(key, self.key, self.where)

    def contains(self, key: int | bytes) -> bool:
        """Whether a key is present."""
        return key in self.entries

    def remove(self, key: int | bytes) -> bool:
        """Remove a key; returns whether it was present."""
        if key not in self.entries:
            return False
        del self.entries[key]
        self.order = []
        return True

    def key_at(self, index: int) -> Any:
        """Return the key at a position."""
        if not 0 <= index < len(self.entries):
            raise IndexError(f"{self.where}: index {index} out of range 0..{len(self.entries) - 1}")
        if len(self.order) < len(self.entries):
            self.order += [*islice(reversed(self.entries), len(self.entries) - len(self.order))][::-1]
        return self.order[index]

    def value_at(self, index: int) -> Any:
        """Return the value at a position."""
        return self.entries[self.key_at(index)]

    def get(self, key: int | bytes, default: Any) -> Any:
        """Return the value of a key, or the default."""
        return self.entries.get(key, default)

    def put(self, key: int | bytes, value: Any) -> None:
        """Set the value of a key."""
        key = self._fitted(key)
        self.entries[key] = _stored(value, self.value, self.where)

    def stored(self) -> list:
        """Return the keys as the state's table has them; operators see all of them as integers."""
        return [bool(key) for key in self.entries] if self.key.name == "boolean" else [*self.entries]

    def export(self) -> list:
        """Return the items for the table of states."""
        return [{"key": k, "value": v} for k, v in zip(self.stored(), self.entries.values(), strict=True)]


class PlainSet(PlainMap):
    """Distinct integers or texts in insertion order."""

    __slots__ = ()

    def add(self, key: int | bytes) -> bool:
        """Add a key; returns whether it is new."""
        if key in self.entries:
            return False
        self.entries[self._fitted(key)] = None
        return True

    at = PlainMap.key_at

    def export(self) -> list:
        """Return the items for the table of states."""
        return self.stored()


class PlainCounter(PlainMap):
    """Integer or text keys to counts in insertion order."""

    __slots__ = ()

    def add(self, key: int | bytes, count: int) -> int:
        """Add to the count of a key; returns the new count."""
        if key in self.entries:
            count = wrap(self.entries[key] + count)
        else:
            key = self._fitted(key)
        self.entries[key] = count
        return count

    def get(self, key: int | bytes) -> int:
        """Return the count of a key; 0 for an absent one."""
        return super().get(key, 0)


class PlainTopK:
    """The `capacity` best (score, key) pairs, score descending then key ascending."""

    __slots__ = ("capacity", "pairs", "where")

    def __init__(self, capacity: int, where: str):
        self.capacity, self.where = capacity, where
        self.pairs: list[tuple[int, int]] = []  # (-score, key)

    def offer(self, key: int, score: int) -> None:
        """Set the score of a key, and keep the best pairs."""
        for i, (_, known) in enumerate(self.pairs):
            if known == key:
                del self.pairs[i]
                break
        insort(self.pairs, (-score, key))
        del self.pairs[self.capacity :]

    def length(self) -> int:
        """Return the number of items."""
        return len(self.pairs)

    def _pair(self, index: int) -> tuple[int, int]:
        if not 0 <= index < len(self.pairs):
            raise IndexError(f"{self.where}: index {index} out of range 0..{len(self.pairs) - 1}")
        return self.pairs[index]

    def key_at(self, index: int) -> int:
        """Return the key at a position."""
        return self._pair(index)[1]

    def score_at(self, index: int) -> int:
        """Return the score at a position."""
        return -self._pair(index)[0]

    def clear(self) -> None:
        """Remove all items."""
        self.pairs = []

    def export(self) -> list:
        """Return the items for the table of states."""
        return [{"key": key, "score": -negative} for negative, key in self.pairs]


class PlainQueue:
    """Rows, oldest first, as many as are appended and not yet removed."""

    __slots__ = ("first", "rows", "where")

    def __init__(self, where: str):
        self.where = where
        self.clear()

    def clear(self) -> None:
        """Remove all items."""
        self.rows: list = []
        self.first = 0  # earlier rows have been removed

    def append(self, /, **values: Any) -> None:
        """Append a row."""
        self.rows.append(SimpleNamespace(**values))

    def popleft(self) -> None:
        """Remove the oldest row."""
        if not self.length():
            raise IndexError(f"{self.where}: popleft of an empty queue")
        self.first += 1
        if 2 * self.first > len(self.rows):
            del self.rows[: self.first]
            self.first = 0

    def length(self) -> int:
        """Return the number of items."""
        return len(self.rows) - self.first

    def item(self, index: int) -> Any:
        """Return the i-th oldest item."""
        if not 0 <= index < self.length():
            raise IndexError(f"{self.where}: index {index} out of range 0..{self.length() - 1}")
        return self.rows[self.first + index]

    def export(self) -> list:
        """Return the items for the table of states."""
        rows = [vars(row) for row in self.rows[self.first :]]
        return [
            {
                name: value if row.get(VALID + name, True) else None
                for name, value in row.items()
                if not name.startswith(VALID)
            }
            for row in rows
        ]


def empty(declared: Any, count: int, where: str) -> Any:
    """Return an empty container of the declared type; `count` is its capacity, if it has one."""
    match declared:
        case Ring(item=scalar):
            return PlainRing(scalar, count, where)
        case Set(item=scalar):
            return PlainSet(scalar, None, where)
        case Map(key=key, value=value):
            return PlainMap(key, value, where)
        case Counter(key=key):
            return PlainCounter(key, None, where)
        case TopK():
            return PlainTopK(count, where)
        case Queue():
            return PlainQueue(where)
    raise AssertionError(declared)
