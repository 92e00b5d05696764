"""Windowed operators at work (language/window.py defines the meaning of windows)."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from streaming_core.language.operator import Operator
from streaming_core.language.window import MOST
from streaming_core.oracle.interpreter.rows import row_class, zero
from streaming_core.oracle.interpreter.steps import Shared, Step

GROUPS = 4096  # key groups
CELLS = 1024  # units of ownership; a cell is GROUPS / CELLS neighbouring groups
_SEED, _K1, _K2 = 0x2545_F491_4F6C_DD1D, 0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93
_ALL = (1 << 64) - 1


def _step(h: int, word: int) -> int:
    h = (h ^ word) * _K1 & _ALL
    return h ^ (h >> 32)


def _finish(h: int) -> int:
    h = h * _K2 & _ALL
    return h ^ (h >> 29)


def _of_text(text: bytes) -> int:
    h = (len(text) ^ _SEED) * _K1 & _ALL
    for at in range(0, len(text), 8):
        h = _step(h, int.from_bytes(text[at : at + 8], "little"))
    return _finish(h)


def key_group(key: tuple) -> int:
    """Return the key group of a key: the high bits of its hash.

    The hash of a key of one text is that of the text. Else it covers the words of the fields, in order. The word of an
    integer is the integer modulo 2^64, and that of a text is its hash.
    """
    if len(key) == 1 and isinstance(key[0], bytes):
        return _of_text(key[0]) * GROUPS >> 64
    h = _SEED
    for field in key:
        h = _step(h, _of_text(field) if isinstance(field, bytes) else int(field) & _ALL)
    return _finish(h) * GROUPS >> 64


def group_of_index(index: int) -> int:
    """Return the key group of a key that every row has (`every`): such keys lie in the cells in turn."""
    return index % CELLS * (GROUPS // CELLS) + index // CELLS % (GROUPS // CELLS)


class _View:
    """A window as functions see it."""

    __slots__ = ("end", "key", "start")

    def __init__(self, start: int, end: int, key: Any):
        self.start, self.end, self.key = start, end, key


@dataclass(slots=True)
class _Set:
    """The states of one key in one window.

    Attributes:
        window: The window.
        states: The states, by stream.
        order: The key group, and the number of sets begun before this one.
        number: The number of the window.
        last: The latest `ts` of the key's rows.
    """

    window: _View
    states: list
    order: tuple[int, int]
    number: int
    last: int


class Windowed(Step):
    """Windows of the kind `multi`: a set of states for each key and window."""

    lasting: tuple[str, ...] = ("marks", "watermark", "touched", "by_window", "open")

    def __init__(self, shared: Shared, operator: Operator, is_last: bool):
        super().__init__(shared, operator, is_last)
        declared = operator.window
        assert declared is not None
        self.declared, self.bounds = declared, shared.program.windows[operator]
        self.resolved = shared.program.records[declared.key]
        self.make_key = row_class(self.resolved, header=False)
        self.new = [zero(shared.program.records[state]) for state in declared.states]
        self.marks: list[int | None] = [None] * len(declared.states)  # the highest `ts` of each stream
        self.watermark: int | None = None
        self.touched = 0  # sets begun so far
        self.row_keys: list[tuple] = []
        self.namespace["_key"] = self.row_keys.append
        self.result = self.compiled("result") if "result" in operator.functions else None
        self.slide = self.compiled("slide") if "slide" in operator.functions else None
        self.takers = [self._taker(i) for i in range(len(declared.states))]
        self.by_window: dict[int, dict[tuple, _Set]] = {}  # the sets of each open window, by key
        self.open: list[int] = []  # a heap of these windows

    def start(self, number: int) -> int:
        """Return the start of a window; a row at the start is in the window."""
        return number * self.bounds.advance

    def end(self, number: int) -> int:
        """Return the end of a window; a row at the end is not in the window."""
        return number * self.bounds.advance + self.bounds.size

    def first_beyond(self, ts: int) -> int:
        """Return the earliest window that ends after `ts`: of a row, or left open by a watermark."""
        return (ts - self.bounds.size) // self.bounds.advance + 1

    def taker(self, position: int) -> Callable[[Any], None]:
        """Return the function that takes the rows of an input's stream."""
        return self.takers[self.declared.streams[position]]

    def _taker(self, stream: int) -> Callable[[Any], None]:
        keys, update, bounds, seq = self._keys(stream), self.compiled(f"update_{stream}"), self.bounds, self.seq

        def take(row: Any) -> None:
            seq[0], ts = row.seq, row.ts
            if not -MOST <= ts <= MOST:
                raise OverflowError(f"ts {ts} has no window: it must lie in -2^61..2^61")
            self.advance_to(stream, ts)
            first = self.first_beyond(ts)
            if self.watermark is not None:
                first = max(first, self.first_beyond(self.watermark))
            last = ts // bounds.advance
            if first > last:
                self.shared.dropped_late += 1
                return
            row_keys = keys(row)
            for number in self.numbers(first, last):
                for key in row_keys:
                    key_set = self.find(key, number, ts)
                    update(row, key_set.window, *key_set.states, None)

        return take

    def advance_to(self, stream: int, ts: int) -> None:
        """Raise the watermark for a row of a stream, to the lowest mark that counts, less `delay`."""
        mark = self.marks[stream]
        self.marks[stream] = ts if mark is None else max(mark, ts)
        counted = [mark for mark in self.marks if mark is not None]
        if self.bounds.idle is not None:
            counted = [mark for mark in counted if max(counted) - mark <= self.bounds.idle]
        elif len(counted) < len(self.marks):
            return
        low = min(counted) - self.bounds.delay
        if self.watermark is None or low > self.watermark:
            self.watermark = low
            self.expire(self.first_beyond(low))

    def _keys(self, stream: int) -> Callable[[Any], list[tuple]]:
        """Return the function that returns the keys of a row, in order."""
        if self.declared.every is not None:
            all_of_them: list[tuple] = [(index,) for index in range(self.bounds.every or 0)]
            return lambda row: all_of_them
        if (field := self.declared.field) is not None:
            return lambda row: [(getattr(row, field),)]
        function, row_keys, is_set = self.compiled(f"keys_{stream}"), self.row_keys, self.bounds.is_set

        def keys(row: Any) -> list[tuple]:
            row_keys.clear()
            function(row, None)
            return list(dict.fromkeys(row_keys)) if is_set else row_keys[:]

        return keys

    def numbers(self, first: int, last: int) -> range:
        """Return the open windows that a row updates."""
        return range(first, last + 1)

    def find(self, key: tuple, number: int, ts: int) -> _Set:
        """Return the set of a key in a window; a missing one begins."""
        sets = self.sets_of(number)
        if key not in sets:
            sets[key] = self.make(key, number, ts)
        return sets[key]

    def sets_of(self, number: int) -> dict[tuple, _Set]:
        """Return the sets of a window, which opens if it is not open."""
        if number not in self.by_window:
            self.by_window[number] = {}
            heapq.heappush(self.open, number)
        return self.by_window[number]

    def make(self, key: tuple, number: int, ts: int) -> _Set:
        """Begin the set of a key in a window."""
        window = _View(self.start(number), self.end(number), self.make_key(*key))
        group = key_group(key) if self.declared.every is None else group_of_index(*key)
        self.touched += 1
        return _Set(window, [new() for new in self.new], (group, self.touched), number, ts)

    def expire(self, before: int | None) -> None:
        """Expire the windows before this one; all of them if it is None."""
        while self.open and (before is None or self.open[0] < before):
            number = heapq.heappop(self.open)
            for key, key_set in self.in_order(number):
                self.expired(key, key_set)

    def in_order(self, number: int) -> Iterator[tuple[tuple, _Set]]:
        """Close a window; returns its sets."""
        return iter(sorted(self.by_window.pop(number).items(), key=lambda item: item[1].order))

    def expired(self, key: tuple, key_set: _Set) -> None:
        """Emit the result of an expired set."""
        if self.result is not None:
            self.result(key_set.window, *key_set.states, None)

    def flush(self) -> None:
        """Expire all windows."""
        self.expire(None)

    def snapshot(self) -> Any:
        """Return the watermark and the sets of states."""
        return {name: getattr(self, name) for name in self.lasting}

    def restore(self, snapshot: Any) -> None:
        """Take over the watermark and the sets of states."""
        for name in self.lasting:
            setattr(self, name, snapshot[name])


class Sliding(Windowed):
    """Windows of the kind `single`: a set of states for each key, which advances until no row of its key falls in.

    A set is in `sets` by its key, and in the window where it stands. If no function observes expiries, sets advance
    only when a row updates them. So an advance of one millisecond does not mean a thousand steps a second.
    """

    lasting = (*Windowed.lasting, "sets")

    def __init__(self, shared: Shared, operator: Operator, is_last: bool):
        super().__init__(shared, operator, is_last)
        self.sets: dict[tuple, _Set] = {}  # by key; without observers of expiries, in the order of their last update
        self.is_observed = self.declared.is_observed

    def numbers(self, first: int, last: int) -> range:
        """Return the first of the row's open windows."""
        return range(first, first + 1)

    def find(self, key: tuple, number: int, ts: int) -> _Set:
        """Return the set of a key, moved to this window if no function observes expiries."""
        key_set = self.sets.get(key)
        if key_set is None or key_set.last < self.start(number):  # it has expired unobserved
            key_set = self.sets[key] = self.make(key, number, ts)
            if self.is_observed:
                self._stands(key, key_set)
        key_set.last = max(key_set.last, ts)
        if not self.is_observed:
            self._move(key_set, number)
            self.sets[key] = self.sets.pop(key)
        return key_set

    def expire(self, before: int | None) -> None:
        """Expire the windows before this one; all of them if it is None."""
        if self.is_observed:
            super().expire(before)
        elif before is None:
            self.sets.clear()
        else:
            start = self.start(before)
            for key in list(itertools.takewhile(lambda key: self.sets[key].last < start, self.sets)):
                del self.sets[key]

    def expired(self, key: tuple, key_set: _Set) -> None:
        """Emit the result of a set, which then advances, or goes if no row of its key is left."""
        super().expired(key, key_set)
        if key_set.last < self.start(key_set.number + 1):
            del self.sets[key]
            return
        self._move(key_set, key_set.number + 1)
        if self.slide is not None:
            self.slide(key_set.window, *key_set.states)
        self._stands(key, key_set)

    def _move(self, key_set: _Set, number: int) -> None:
        key_set.number = number
        key_set.window.start, key_set.window.end = self.start(number), self.end(number)

    def _stands(self, key: tuple, key_set: _Set) -> None:
        self.sets_of(key_set.number)[key] = key_set


class Sessions(Windowed):
    """Windows of the kind `session`: a set of states for each burst of rows of a key.

    A session stands where it would end if its first row were its last. At that time, it moves to its present end, or
    it has ended.
    """

    lasting = (*Windowed.lasting, "sets")

    def __init__(self, shared: Shared, operator: Operator, is_last: bool):
        super().__init__(shared, operator, is_last)
        self.sets: dict[tuple, _Set] = {}  # by key

    def numbers(self, first: int, last: int) -> range:
        """Return the number of the window that begins at the row."""
        return range(last, last + 1)

    def find(self, key: tuple, number: int, ts: int) -> _Set:
        """Return the session of a key; a missing one begins."""
        if key not in self.sets:
            self.sets[key] = super().find(key, number, ts)
        key_set = self.sets[key]
        window, most = key_set.window, self.bounds.most
        if most is None:
            key_set.last, window.start = max(key_set.last, ts), min(window.start, ts)
        else:
            key_set.last = min(max(key_set.last, ts), window.start + most - self.bounds.size)
        window.end = self.end(key_set.last)
        return key_set

    def expired(self, key: tuple, key_set: _Set) -> None:
        """End a session, or move it to the window of its latest row."""
        if key_set.last == key_set.number:
            super().expired(key, key_set)
            del self.sets[key]
            return
        key_set.number = key_set.last
        self.sets_of(key_set.number)[key] = key_set


KINDS = {"multi": Windowed, "single": Sliding, "session": Sessions}


def windowed(shared: Shared, operator: Operator, is_last: bool) -> Windowed:
    """Return the step of a windowed operator, by the kind of its windows."""
    assert operator.window is not None
    return KINDS[operator.window.kind](shared, operator, is_last)
