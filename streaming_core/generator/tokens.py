"""Lines of text, written from lists of tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streaming_core.generator.draws import splitmix64


class Tokens:
    """Lists of tokens, laid end to end; a line is a series of tokens, written without anything between them.

    Args:
        lists: tokens by list; token k of a list has the id `first[list] + k`.
    """

    def __init__(self, **lists: Sequence[bytes]):
        self.first: dict[str, int] = {}
        self._tokens = pa.array([], pa.binary())
        self._append(lists)

    def _append(self, lists: dict[str, Sequence[bytes]]) -> None:
        for name, items in lists.items():
            self.first[name] = len(self._tokens)
            self._tokens = pa.concat_arrays([self._tokens, pa.array(items, pa.binary())])

    def plus(self, **lists: Sequence[bytes]) -> Tokens:
        """These lists and some more: for tokens that only a slice of the events needs."""
        more = Tokens()
        more.first, more._tokens = dict(self.first), self._tokens
        more._append(lists)
        return more

    def lines(self, columns: Sequence[np.ndarray]) -> pa.BinaryArray:
        """Row i is token columns[0][i], then columns[1][i], ... (ids)."""
        ids = np.empty((len(columns[0]), len(columns)), np.int32)
        for j, column in enumerate(columns):
            ids[:, j] = column
        count, width = ids.shape
        return self._written(ids.reshape(-1), slice(None, None, width), count)

    def texts(self, ids: np.ndarray, sizes: np.ndarray) -> pa.BinaryArray:
        """Row i is the next sizes[i] of the tokens `ids`."""
        return self._written(ids.astype(np.int32), np.concatenate([[0], np.cumsum(sizes)]), len(sizes))

    def lengths(self, ids: np.ndarray) -> np.ndarray:
        """How many bytes each of the tokens `ids` has."""
        _, offsets, _ = self._tokens.buffers()
        return np.diff(np.frombuffer(offsets, np.int32, len(self._tokens) + 1))[ids]

    def _written(self, ids: np.ndarray, rows: np.ndarray | slice, count: int) -> pa.BinaryArray:
        """The tokens one after the other; `rows`: where each row begins. The bytes are copied once, by Arrow's take."""
        taken = self._tokens.take(pa.array(ids))
        _, offsets, data = taken.buffers()
        starts = np.frombuffer(offsets, np.int32, len(ids) + 1)[rows]
        return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(np.ascontiguousarray(starts)), data])


def words(size: int) -> list[bytes]:
    """`w<k>`, then letters up to a length of 3 to 12 that hangs on k alone."""
    hashes = splitmix64(np.arange(size, dtype=np.uint64)).tolist()
    made = []
    for k, h in enumerate(hashes):
        word = b"w%d" % k
        letters = bytes(97 + (h >> (5 + 4 * j)) % 16 for j in range(max(0, 3 + h % 10 - len(word))))
        made.append(word + letters)
    return made
