"""Events by the period: a generator of events out of one that makes those of a second, a visit, a vehicle."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
import pyarrow as pa

from streaming_core.errors import BadInput
from streaming_core.generator.distributions import note, recorded

Columns = Mapping[str, "np.ndarray | pa.Array | list[bytes]"]
Key = TypeVar("Key")
Value = TypeVar("Value")
RECENT = 4  # streams, and periods of each, that are kept
EMPTY = 10_000  # periods one after the other in which nothing may happen


def by_period(
    make: Callable[[dict, int, int], Columns], count: Callable[[dict, int, int], int] | None = None
) -> Callable[[dict, int, int, int], Columns]:
    """A generator of events out of one of periods: the events of period 0, then those of period 1, without end.

    For events that are no function of their number alone: those of a visit, of a vehicle, of a second. Draws are
    addressed by (period or unit, draw), so any period can be made by itself; where it begins in the stream hangs on how
    many events those before it have. These numbers are kept, and the columns of the last few periods, so that a stream
    that is asked for slice by slice makes every period once. A period should have 2^20 events at most: a few are in
    memory, and nothing else that grows but 8 bytes a period.

    Args:
        make: `make(params, seed, period)` gives the columns of a period, of 0 or more events in their final order, `ts`
            not less than in the periods before. Always the same ones, whatever else was asked for.
        count: `count(params, seed, period)`, how many events `make` gives, where that is cheaper to say: who makes a
            part far into the stream then counts what is before it, and makes none of it.

    Returns:
        What `App.generates` takes. One thread at a time may call it.

    Raises:
        BadInput: (the generator) columns of different lengths, not as many events as counted, or none for long.
    """
    streams: OrderedDict[tuple, _Stream] = OrderedDict()

    def generate(params: dict, seed: int, start: int, stop: int) -> Columns:
        key = (seed, *sorted(params.items()))
        if key not in streams:
            streams[key] = _Stream(make, count, params, seed)
        return _used(streams, key).events(start, stop)

    return generate


class _Stream:
    """The events of one workload, made by the period."""

    def __init__(self, make: Callable, count: Callable | None, params: dict, seed: int):
        self._make, self._count, self._asked = make, count, (dict(params), seed)
        self._ends: list[int] = []  # how many events there are up to the end of each period
        # Columns of the last periods, and the Zipf thresholds they were drawn with: those are recorded (`recorded`)
        # whether a period is made or only served.
        self._recent: OrderedDict[int, tuple[Columns, dict[str, np.ndarray]]] = OrderedDict()

    def events(self, start: int, stop: int) -> Columns:
        """Events start..stop-1."""
        while not self._ends or self._ends[-1] <= start:
            period = len(self._ends)
            if self._count is None:
                self._columns(period)
            else:
                self._end(period, self._count(*self._asked, period))
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
            with recorded() as tables:
                columns = self._make(*self._asked, period)
            lengths = {len(values) for values in columns.values()}
            if len(lengths) != 1:
                raise BadInput(
                    f"generator: in period {period}, all columns must have one length, got {sorted(lengths)}"
                )
            self._end(period, lengths.pop())
            self._recent[period] = columns, tables
        columns, tables = _used(self._recent, period)
        note(tables)
        return columns

    def _end(self, period: int, events: int) -> None:
        """Notes or checks how many events a period has; it is at most one behind those that are known."""
        end = events + (self._ends[period - 1] if period else 0)
        if period == len(self._ends):
            self._ends.append(end)
        if end != self._ends[period]:
            raise BadInput(f"generator: period {period} has {events} events, which is not the number that it counted")
        if period >= EMPTY and self._ends[period - EMPTY] == end:
            raise BadInput(f"generator: the periods {period - EMPTY + 1} to {period} have no events")


def _used(recent: OrderedDict[Key, Value], key: Key) -> Value:
    """The value of `key`, now the last to go when there are more than a few."""
    recent.move_to_end(key)
    if len(recent) > RECENT:
        recent.popitem(last=False)
    return recent[key]


def _joined(parts: list) -> np.ndarray | pa.Array | list[bytes]:
    """Values one after the other."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], pa.Array):
        return pa.concat_arrays(parts)
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else [value for part in parts for value in part]
