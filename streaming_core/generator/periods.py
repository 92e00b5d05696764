"""Generators by period: they turn a function that makes the events of a period into a generator of events."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
import pyarrow as pa

from streaming_core.errors import BadInput

Columns = Mapping[str, "np.ndarray | pa.Array | list[bytes]"]
RECENT = 4  # streams to keep, and periods of each
EMPTY = 10_000  # consecutive periods that may have no events


def by_period(
    make: Callable[[dict, int, int], Columns], count: Callable[[dict, int, int], int] | None = None
) -> Callable[[dict, int, int, int], Columns]:
    """Return a generator of the events of period 0, then those of period 1, without end.

    Use it for events that do not follow from their number alone, such as the events of a visit, a vehicle or a second.
    The period, or a unit within it, addresses the draws. So `make` can make any period by itself. The number of events
    in the periods before decides where a period begins in the stream.

    The generator keeps these numbers, and the columns of the last few periods. So a stream that a caller requests slice
    by slice makes each period once. A period should have 2^20 events at most, because a few periods are in memory.
    Beyond that, memory grows by 8 bytes per period.

    Args:
        make: `make(params, seed, period)` returns the columns of a period: any number of events in their final order.
            `ts` is not less than in the periods before. The same call always returns the same columns.
        count: `count(params, seed, period)` returns the number of events of `make`, if that is cheaper. A process that
            makes a part far into the stream then counts the events before it, and makes none of them.

    Returns:
        A generator for `App.generates`. One thread at a time may call it.
    """

    @lru_cache(RECENT)
    def stream(seed: int, *params: tuple) -> _Stream:
        return _Stream(make, count, dict(params), seed)

    def generate(params: dict, seed: int, start: int, stop: int) -> Columns:
        return stream(seed, *sorted(params.items())).events(start, stop)

    return generate


class _Stream:
    """The events of one workload, period by period."""

    def __init__(self, make: Callable, count: Callable | None, params: dict, seed: int):
        self._make, self._count, self._workload = make, count, (params, seed)
        self._ends: list[int] = []  # the number of events up to the end of each period
        self._recent: OrderedDict[int, Columns] = OrderedDict()

    def events(self, start: int, stop: int) -> Columns:
        """Return the events start..stop-1."""
        while not self._ends or self._ends[-1] <= start:
            period = len(self._ends)
            if self._count is None:
                self._columns(period)
            else:
                self._end(period, self._count(*self._workload, period))
        parts: list[Columns] = []
        period, at = bisect_right(self._ends, start), start
        while not parts or at < stop:
            columns = self._columns(period)
            first, end = self._ends[period - 1] if period else 0, min(stop, self._ends[period])
            if end > at or not parts:
                parts.append({name: values[at - first : end - first] for name, values in columns.items()})
                at = end
            period += 1
        return {name: _joined([part[name] for part in parts]) for name in parts[0]}

    def _columns(self, period: int) -> Columns:
        if period not in self._recent:
            columns = self._make(*self._workload, period)
            lengths = {len(values) for values in columns.values()}
            if len(lengths) != 1:
                raise BadInput(
                    f"generator: in period {period}, all columns must have one length, got {sorted(lengths)}"
                )
            self._end(period, lengths.pop())
            self._recent[period] = columns
            if len(self._recent) > RECENT:
                self._recent.popitem(last=False)
        self._recent.move_to_end(period)
        return self._recent[period]

    def _end(self, period: int, events: int) -> None:
        """Note the number of events of the next period, or check that of a known one."""
        end = events + (self._ends[period - 1] if period else 0)
        if period == len(self._ends):
            self._ends.append(end)
        if end != self._ends[period]:
            raise BadInput(f"generator: period {period} has {events} events, which is not the number that it counted")
        if period >= EMPTY and self._ends[period - EMPTY] == end:
            raise BadInput(f"generator: the periods {period - EMPTY + 1} to {period} have no events")


def _joined(parts: list) -> np.ndarray | pa.Array | list[bytes]:
    """Concatenate the values of several parts."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], pa.Array):
        return pa.concat_arrays(parts)
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else [value for part in parts for value in part]
