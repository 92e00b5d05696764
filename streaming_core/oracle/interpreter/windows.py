"""A windowed operator at work (language/window.py says what windows mean)."""

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
CELLS = 1024  # which owners have; a cell is as many neighbouring groups
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
    """The key group of a key: the high bits of its hash.

    A key that is one text is hashed as texts are; else the fields' words are, in order: of an integer it is itself,
    modulo 2^64, of a text its hash.
    """
    if len(key) == 1 and isinstance(key[0], bytes):
        return _of_text(key[0]) * GROUPS >> 64
    h = _SEED
    for field in key:
        h = _step(h, _of_text(field) if isinstance(field, bytes) else int(field) & _ALL)
    return _finish(h) * GROUPS >> 64


def group_of_index(index: int) -> int:
    """The key group of a key that every row has (`every`): such keys lie in the cells in turn."""
    return index % CELLS * (GROUPS // CELLS) + index // CELLS % (GROUPS // CELLS)


class _View:
    """A window as functions see it."""

    __slots__ = ("end", "key", "start")

    def __init__(self, start: int, end: int, key: Any):
        self.start, self.end, self.key = start, end, key


@dataclass(slots=True)
class _Set:
    """The states of one key in one window. `order`: its key group, and how many were touched before it; `last`: the
    latest `ts` of its key's rows."""

    window: _View
    states: list
    order: tuple[int, int]
    number: int
    last: int


class Windowed(Step):
    """Windows of the kind `multi`: a set of states for each key and window."""

    def __init__(self, shared: Shared, operator: Operator, is_last: bool):
        super().__init__(shared, operator, is_last)
        declared = operator.window
        assert declared is not None
        self.declared, self.bounds = declared, declared.bound(operator.name, shared.program.params)
        self.resolved = shared.program.resolved(declared.key)
        self.make_key = row_class(self.resolved, header=False)
        self.new = [zero(shared.program.resolved(state)) for state in declared.states]
        self.marks: list[int | None] = [None] * len(declared.states)  # of each stream its highest `ts`
        self.watermark: int | None = None
        self.touched = itertools.count()
        self.given: list[tuple] = []
        self.namespace["_key"] = self.given.append
        self.result = self.compiled("result") if "result" in operator.functions else None
        self.slide = self.compiled("slide") if "slide" in operator.functions else None
        self.takers = [self._taker(i) for i in range(len(declared.states))]
        self.by_window: dict[int, dict[tuple, _Set]] = {}  # of each open window, its sets by key
        self.open: list[int] = []  # a heap of these windows

    def start(self, number: int) -> int:
        """Where a window begins: a row at it falls in."""
        return number * self.bounds.advance

    def end(self, number: int) -> int:
        """Where a window ends: a row at it does not fall in."""
        return number * self.bounds.advance + self.bounds.size

    def first_beyond(self, ts: int) -> int:
        """The earliest window that ends behind `ts`: that a row falls in, or that a watermark leaves open."""
        return (ts - self.bounds.size) // self.bounds.advance + 1

    def taker(self, position: int) -> Callable[[Any], None]:
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
            given = keys(row)
            for number in self.numbers(first, last):
                for key in given:
                    found = self.find(key, number, ts)
                    update(row, found.window, *found.states, None)

        return take

    def advance_to(self, stream: int, ts: int) -> None:
        """A row of a stream raises the watermark: the lowest mark that counts, less `delay`."""
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
        """What gives the keys of a row, in order."""
        if self.declared.every is not None:
            all_of_them: list[tuple] = [(index,) for index in range(self.bounds.every or 0)]
            return lambda row: all_of_them
        if (field := self.declared.field) is not None:
            return lambda row: [(getattr(row, field),)]
        function, given, is_set = self.compiled(f"keys_{stream}"), self.given, self.bounds.is_set

        def keys(row: Any) -> list[tuple]:
            given.clear()
            function(row, None)
            return list(dict.fromkeys(given)) if is_set else given[:]

        return keys

    def numbers(self, first: int, last: int) -> range:
        """Which of a row's open windows it meets."""
        return range(first, last + 1)

    def find(self, key: tuple, number: int, ts: int) -> _Set:
        """The set of a key in a window, made if it is not there."""
        sets = self.sets_of(number)
        if key not in sets:
            sets[key] = self.make(key, number, ts)
        return sets[key]

    def sets_of(self, number: int) -> dict[tuple, _Set]:
        """The sets that stand in a window, which is open from now on."""
        if number not in self.by_window:
            self.by_window[number] = {}
            heapq.heappush(self.open, number)
        return self.by_window[number]

    def make(self, key: tuple, number: int, ts: int) -> _Set:
        window = _View(self.start(number), self.end(number), self.make_key(*key))
        group = key_group(key) if self.declared.every is None else group_of_index(*key)
        return _Set(window, [new() for new in self.new], (group, next(self.touched)), number, ts)

    def expire(self, before: int | None) -> None:
        """Windows before this one expire; all of them if it is None."""
        while self.open and (before is None or self.open[0] < before):
            number = heapq.heappop(self.open)
            for key, found in self.in_order(number):
                self.expired(key, found)

    def in_order(self, number: int) -> Iterator[tuple[tuple, _Set]]:
        """The sets of a window, which is open no more."""
        return iter(sorted(self.by_window.pop(number).items(), key=lambda item: item[1].order))

    def expired(self, key: tuple, found: _Set) -> None:
        if self.result is not None:
            self.result(found.window, *found.states, None)

    def flush(self) -> None:
        self.expire(None)


class Sliding(Windowed):
    """Windows of the kind `single`: a set of states for each key, which advances until no row of its key falls in.

    A set is found by its key, and in the window where it stands. Where nobody is told of an expiry, sets advance when
    they are touched again: an advance of one millisecond does not mean a thousand steps a second.
    """

    def __init__(self, shared: Shared, operator: Operator, is_last: bool):
        super().__init__(shared, operator, is_last)
        self.sets: dict[tuple, _Set] = {}  # by key; if nobody is told of an expiry, longest untouched first
        self.is_told = self.result is not None or self.slide is not None

    def numbers(self, first: int, last: int) -> range:
        return range(first, first + 1)

    def find(self, key: tuple, number: int, ts: int) -> _Set:
        found = self.sets.get(key)
        if found is None or found.last < self.start(number):  # nobody was told that it has gone
            found = self.sets[key] = self.make(key, number, ts)
            if self.is_told:
                self._stands(key, found)
        found.last = max(found.last, ts)
        if not self.is_told:
            self._move(found, number)
            self.sets[key] = self.sets.pop(key)
        return found

    def expire(self, before: int | None) -> None:
        if self.is_told:
            super().expire(before)
        elif before is None:
            self.sets.clear()
        else:
            start = self.start(before)
            for key in list(itertools.takewhile(lambda key: self.sets[key].last < start, self.sets)):
                del self.sets[key]

    def expired(self, key: tuple, found: _Set) -> None:
        super().expired(key, found)
        if found.last < self.start(found.number + 1):
            del self.sets[key]
            return
        self._move(found, found.number + 1)
        if self.slide is not None:
            self.slide(found.window, *found.states)
        self._stands(key, found)

    def _move(self, found: _Set, number: int) -> None:
        found.number = number
        found.window.start, found.window.end = self.start(number), self.end(number)

    def _stands(self, key: tuple, found: _Set) -> None:
        self.sets_of(found.number)[key] = found


class Sessions(Windowed):
    """Windows of the kind `session`: a set of states for each burst of rows of a key.

    A session stands where it would end if its first row had been its last. When that time has come, it stands where it
    ends by then, or has ended.
    """

    def __init__(self, shared: Shared, operator: Operator, is_last: bool):
        """Begin without a session."""
        super().__init__(shared, operator, is_last)
        self.sets: dict[tuple, _Set] = {}  # by key

    def numbers(self, first: int, last: int) -> range:
        """A row meets the session of its key."""
        return range(last, last + 1)

    def find(self, key: tuple, number: int, ts: int) -> _Set:
        """The session of a key, begun if there is none."""
        if key not in self.sets:
            self.sets[key] = super().find(key, number, ts)
        found = self.sets[key]
        found.last = max(found.last, ts)
        found.window.start, found.window.end = min(found.window.start, ts), self.end(found.last)
        return found

    def expired(self, key: tuple, found: _Set) -> None:
        """A session ends, or stands in the window of its latest row."""
        if found.last == found.number:
            super().expired(key, found)
            del self.sets[key]
            return
        found.number = found.last
        self.sets_of(found.number)[key] = found


KINDS = {"multi": Windowed, "single": Sliding, "session": Sessions}


def windowed(shared: Shared, operator: Operator, is_last: bool) -> Windowed:
    """The operator as its windows are kept."""
    assert operator.window is not None
    return KINDS[operator.window.kind](shared, operator, is_last)
