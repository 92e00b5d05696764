"""The merge of several streams into one sequence of events, in the order of (ts, stream, place in the stream).

Each stream has its own generator, addressed by row, which knows nothing of the others. `Merge` looks at single rows of
each stream to find the rows that become the events start..stop-1.

If the `ts` of a stream may go back, the highest `ts` up to a row stands for its `ts`. To know it, each process makes
the rows before its slices once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from streaming_core.errors import BadInput
from streaming_core.generator.periods import Columns

_BLOCK = 1 << 12  # rows whose highest `ts` is known together
Places = tuple[int, ...]  # for each stream, the number of its rows before


class Merge:
    """A merge of streams. One thread at a time may call it.

    Args:
        app: The name of the application, for errors.
        names: The names of the streams, in their order.
        generators: The generator of each stream. A generator that returns fewer rows than requested has no more.
        is_sorted: Whether `ts` of a stream must not decrease.
    """

    def __init__(self, app: str, names: Sequence[str], generators: Sequence[Callable], is_sorted: bool):
        self.app, self.names, self.generators, self.is_sorted = app, names, generators, is_sorted
        # The end of the last slice, where the next one usually begins.
        self._last: tuple[Any, int, Places] | None = None
        self._blocks: tuple[Any, list[list[int]]] = None, []  # for each stream, the highest `ts` before each block

    def rows(self, params: dict, seed: int, start: int, stop: int) -> tuple[list[tuple[Columns, int]], np.ndarray]:
        """Make the rows of the events start..stop-1.

        Returns:
            For each stream, the columns and the number of its rows; a stream without rows has no columns. Then the
            order that turns these rows, stream after stream, into the events.

        Raises:
            BadInput: The streams end too early, `ts` is missing or decreases, or the number of rows has changed.
        """
        workload = (seed, *sorted(params.items()))
        if self._blocks[0] != workload:
            self._blocks = workload, [[np.iinfo(np.int64).min] for _ in self.names]
        if self._last is not None and self._last[:2] == (workload, start):
            first = self._last[2]
        else:
            first = self._beyond((0,) * len(self.names), start, params, seed)
        end = self._beyond(first, stop - start, params, seed)
        self._last = workload, stop, end
        slices: list[tuple[Columns, int]] = []
        times = []
        for stream, (begin, behind) in enumerate(zip(first, end, strict=True)):
            columns: Columns = {}
            ts = np.empty(0, np.int64)
            if behind > begin:
                columns = self._rows_of(stream, params, seed, begin, behind)
                ts = self._times(stream, columns)
                if len(ts) != behind - begin:
                    raise self._refusal(stream, f"ts has {len(ts)} values for rows {begin} to {behind}")
                if self.is_sorted:
                    # Make the row before once more, because another process may have made it.
                    before = (
                        self._times(stream, self._rows_of(stream, params, seed, begin - 1, begin)) if begin else ts[:1]
                    )
                    if (np.diff(ts, prepend=before) < 0).any():
                        rows = f"rows {max(begin - 1, 0)} to {behind}"
                        raise self._refusal(
                            stream,
                            f"ts must not decrease, but does in {rows}; declare app.sources(..., delay=...) if it may",
                        )
                else:
                    ts = self._marks(stream, params, seed, begin, ts)
            slices.append((columns, len(ts)))
            times.append(ts)
        return slices, np.argsort(np.concatenate(times), kind="stable")  # equal ts: by stream

    def _marks(self, stream: int, params: dict, seed: int, start: int, ts: np.ndarray) -> np.ndarray:
        """Return the highest `ts` up to each of these consecutive rows, the first of them number `start`."""
        blocks = self._blocks[1][stream]
        while len(blocks) <= start // _BLOCK:
            block = (len(blocks) - 1) * _BLOCK
            times = self._times(stream, self._rows_of(stream, params, seed, block, block + _BLOCK))
            blocks.append(max(blocks[-1], int(times.max())))
        before = [blocks[start // _BLOCK]]
        if first := start % _BLOCK:
            before += self._times(stream, self._rows_of(stream, params, seed, start - first, start)).tolist()
        return np.maximum(np.maximum.accumulate(ts), max(before))

    def _beyond(self, places: Places, events: int, params: dict, seed: int) -> Places:
        """Return the places after the next `events` events.

        In each of k streams, look `events // k` rows ahead. The least of these k rows has fewer than `events` rows
        before it. So this row and those before it in its stream are among the events. Each turn thus places a k-th of
        the events.
        """
        ahead = list(places)
        while events:
            step = max(1, events // len(ahead))
            least: tuple[int, int] | None = None
            for stream, place in enumerate(ahead):
                row = place + step - 1
                ts = self._times(stream, self._rows_of(stream, params, seed, row, row + 1))
                if len(ts) and not self.is_sorted:
                    ts = self._marks(stream, params, seed, row, ts)
                if len(ts) and (least is None or (int(ts[0]), stream) < least):
                    least = int(ts[0]), stream
            if least is None:
                raise BadInput(f"generator of {self.app}: all streams end before event {sum(ahead) + events}")
            ahead[least[1]] += step
            events -= step
        return tuple(ahead)

    def _rows_of(self, stream: int, params: dict, seed: int, start: int, stop: int) -> Columns:
        return self.generators[stream](params, seed, start, stop)

    def _times(self, stream: int, columns: Columns) -> np.ndarray:
        if "ts" not in columns:
            raise self._refusal(stream, f"must return a column ts, got {', '.join(sorted(columns))}")
        try:
            return np.asarray(columns["ts"], np.int64)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._refusal(stream, f"ts: {error}") from None

    def _refusal(self, stream: int, why: str) -> BadInput:
        return BadInput(f"generator of {self.app}: stream {self.names[stream]}: {why}")


@lru_cache(maxsize=8)
def merge(app: str, names: tuple[str, ...], generators: tuple[Callable, ...], is_sorted: bool) -> Merge:
    """Return the one merge of these streams, which still knows the end of its last slice."""
    return Merge(app, names, generators, is_sorted)
