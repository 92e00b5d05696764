"""The rows of several streams as one sequence of events: in the order of (ts, stream, place in the stream).

If `ts` of a stream may go back, the highest `ts` up to a row stands for its `ts`. To know it, the rows before a slice
are made once more, by each process that makes slices.

Every stream has a generator of its own, addressed by row, which knows nothing of the others; which rows are events
start..stop-1 is found by looking at single rows of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from streaming_core.errors import BadInput
from streaming_core.generator.periods import Columns

_BLOCK = 1 << 12  # rows whose highest `ts` is known together
Places = tuple[int, ...]  # of each stream, how many of its rows lie before


class Merge:
    """Streams being merged.

    Args:
        app: for refusals.
        names: of the streams, in their order.
        generators: what makes the rows of each. One that gives fewer than it is asked for has no more.
        is_sorted: whether `ts` of a stream must not decrease.

    One thread at a time may call it.
    """

    def __init__(self, app: str, names: Sequence[str], generators: Sequence[Callable], is_sorted: bool):
        self.app, self.names, self.generators, self.is_sorted = app, names, generators, is_sorted
        # Where the last slice ended: the next one begins there, mostly.
        self._last: tuple[Any, int, Places] | None = None
        self._blocks: tuple[Any, list[list[int]]] = None, []  # of each stream, the highest `ts` before each block

    def rows(self, params: dict, seed: int, start: int, stop: int) -> tuple[list[tuple[Columns, int]], np.ndarray]:
        """The rows that are events start..stop-1.

        Returns:
            Of each stream the columns of its rows, and how many these are: of none there is no column. And in which
            order these rows, one stream's behind the other's, are the events.

        Raises:
            BadInput: the streams end before, `ts` is missing or decreases, or there are not as many rows as before.
        """
        asked = (seed, *sorted(params.items()))
        if self._blocks[0] != asked:
            self._blocks = asked, [[np.iinfo(np.int64).min] for _ in self.names]
        if self._last is not None and self._last[:2] == (asked, start):
            first = self._last[2]
        else:
            first = self._beyond((0,) * len(self.names), start, params, seed)
        end = self._beyond(first, stop - start, params, seed)
        self._last = asked, stop, end
        made: list[tuple[Columns, int]] = []
        times = []
        for stream, (begin, behind) in enumerate(zip(first, end, strict=True)):
            columns: Columns = {}
            ts = np.empty(0, np.int64)
            if behind > begin:
                columns = self._made(stream, params, seed, begin, behind)
                ts = self._times(stream, columns)
                if len(ts) != behind - begin:
                    raise self._refusal(stream, f"ts has {len(ts)} values for rows {begin} to {behind}")
                if self.is_sorted:
                    # With the row before: what was made of it may be known to another process alone.
                    before = (
                        self._times(stream, self._made(stream, params, seed, begin - 1, begin)) if begin else ts[:1]
                    )
                    if (np.diff(ts, prepend=before) < 0).any():
                        rows = f"rows {max(begin - 1, 0)} to {behind}"
                        raise self._refusal(
                            stream,
                            f"ts must not decrease, but does in {rows}; declare app.sources(..., delay=...) if it may",
                        )
                else:
                    ts = self._marks(stream, params, seed, begin, ts)
            made.append((columns, len(ts)))
            times.append(ts)
        return made, np.argsort(np.concatenate(times), kind="stable")  # of one ts: by stream

    def _marks(self, stream: int, params: dict, seed: int, start: int, ts: np.ndarray) -> np.ndarray:
        """The highest `ts` up to each of some rows, which follow each other from `start` on."""
        blocks = self._blocks[1][stream]
        while len(blocks) <= start // _BLOCK:
            block = (len(blocks) - 1) * _BLOCK
            times = self._times(stream, self._made(stream, params, seed, block, block + _BLOCK))
            blocks.append(max(blocks[-1], int(times.max())))
        before = [blocks[start // _BLOCK]]
        if first := start % _BLOCK:
            before += self._times(stream, self._made(stream, params, seed, start - first, start)).tolist()
        return np.maximum(np.maximum.accumulate(ts), max(before))

    def _beyond(self, places: Places, events: int, params: dict, seed: int) -> Places:
        """Places behind the first `events` events that come after these.

        Of k streams one looks at the row `events // k` rows on. The least of these rows, and those before it in its
        stream, have fewer than `events` before them: they are among the first. So a k-th is found in each turn.
        """
        found = list(places)
        while events:
            step = max(1, events // len(found))
            least: tuple[int, int] | None = None
            for stream, place in enumerate(found):
                row = place + step - 1
                ts = self._times(stream, self._made(stream, params, seed, row, row + 1))
                if len(ts) and not self.is_sorted:
                    ts = self._marks(stream, params, seed, row, ts)
                if len(ts) and (least is None or (int(ts[0]), stream) < least):
                    least = int(ts[0]), stream
            if least is None:
                raise BadInput(f"generator of {self.app}: all streams end before event {sum(found) + events}")
            found[least[1]] += step
            events -= step
        return tuple(found)

    def _made(self, stream: int, params: dict, seed: int, start: int, stop: int) -> Columns:
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
    """Streams being merged, the same for the same: where the last slice ended is known then."""
    return Merge(app, names, generators, is_sorted)
