"""Blocks: the pieces in which a workload enters the engine.

A block holds the events of whole punctuation intervals as fixed-width rows, with their text beside them. Decoding
Parquet into blocks is not part of a pass's time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from streaming_core.data import rows as row_format
from streaming_core.data import workload
from streaming_core.kernels.program import Program
from streaming_core.run.way import RunSpec

BLOCK = 1 << 17  # events per block, rounded up to whole punctuation intervals
KEPT_BLOCKS = 4  # blocks kept decoded between passes; longer workloads are read again


class Blocks:
    """The workload as (rows, text) blocks, decoded once if it has at most `keep` of them, else on every pass.

    Attributes:
        events: Number of events.
        end: Sequence number behind the last event.
    """

    def __init__(
        self,
        source: workload.Source,
        program: Program,
        size: int,
        keep: int = KEPT_BLOCKS,
        decode: Callable[[pa.Table], tuple[np.ndarray, np.ndarray]] | None = None,
    ):
        """Prepare to read a source.

        Args:
            source: The workload, or a recording.
            program: The compiled application.
            size: Events in a block.
            keep: Most blocks that stay in memory between passes.
            decode: Makes a block of a table. None: the block is for the engine.
        """
        self._source, self._size, self._keep = source, size, keep

        def decode_and_hash(table: pa.Table) -> tuple[tuple[np.ndarray, np.ndarray], int]:
            if decode is not None:
                return decode(table), source.hashes(table)
            rows, text, hashes = row_format.encode(table, program.bound.event)
            return (rows, text), hashes

        self._decode = decode_and_hash
        self._kept: list[tuple[np.ndarray, np.ndarray]] | None = None
        self.events, self.end = source.rows, source.end

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return self.read()

    def read(self, reading: Callable[[Iterable], Iterable] = iter) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the blocks.

        Args:
            reading: `ahead` reads the next block in a thread of its own; `iter` reads each block on demand.
        """
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[tuple[np.ndarray, np.ndarray]] | None = []
        for block, _ in self._source.read_on((0, 0), self._size, self._decode, reading=reading):
            if kept is not None:
                kept.append(block)
                if len(kept) > self._keep:
                    kept = None
            yield block
        self._kept = kept

    def read_on(
        self, read: tuple[int, int], room: workload.Room, reading: Callable[[Iterable], Iterable] = iter
    ) -> Iterator[tuple[np.ndarray, np.ndarray, tuple[int, int]]]:
        """Yield the blocks after a position, each with the position at its end.

        Args:
            read: The position: the number of events before it, and the sum of their hashes.
            room: Limits the block behind a number of events.
            reading: As for `read`.
        """
        for block, total in self._source.read_on(read, self._size, self._decode, room, reading):
            yield *block, total


def block_size(spec: RunSpec) -> int:
    """Events in a block: whole punctuation intervals."""
    if spec.executor != "transactional":
        return BLOCK
    return -(-BLOCK // spec.punctuation) * spec.punctuation
