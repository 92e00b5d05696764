"""Lines of text that consist of tokens from lists."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streaming_core.generator.draws import splitmix64


class Tokens:
    """Lists of tokens, end to end; a line is a series of tokens without anything between them.

    `**lists`: The tokens by list; token k of a list has the id `first[list] + k`.
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
        """Return these lists and some more, for tokens that only a slice of the events needs."""
        more = Tokens()
        more.first, more._tokens = dict(self.first), self._tokens
        more._append(lists)
        return more

    def lines(self, columns: Sequence[np.ndarray]) -> pa.BinaryArray:
        """Write line i: the tokens with the ids columns[0][i], columns[1][i], ..."""
        ids = np.empty((len(columns[0]), len(columns)), np.int32)
        for j, column in enumerate(columns):
            ids[:, j] = column
        count, width = ids.shape
        return self._written(ids.reshape(-1), slice(None, None, width), count)

    def texts(self, ids: np.ndarray, sizes: np.ndarray) -> pa.BinaryArray:
        """Write line i: the next sizes[i] of the tokens `ids`."""
        return self._written(ids.astype(np.int32), np.concatenate([[0], np.cumsum(sizes)]), len(sizes))

    def lengths(self, ids: np.ndarray) -> np.ndarray:
        """Return the number of bytes of each of the tokens `ids`."""
        _, offsets, _ = self._tokens.buffers()
        return np.diff(np.frombuffer(offsets, np.int32, len(self._tokens) + 1))[ids]

    def _written(self, ids: np.ndarray, rows: np.ndarray | slice, count: int) -> pa.BinaryArray:
        """Write the tokens one after the other; `rows` says where each line begins. Arrow copies the bytes once."""
        taken = self._tokens.take(pa.array(ids))
        _, offsets, data = taken.buffers()
        starts = np.frombuffer(offsets, np.int32, len(ids) + 1)[rows]
        return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(np.ascontiguousarray(starts)), data])


def words(size: int) -> list[bytes]:
    """Return words `w<k>` that letters extend to 3 to 12 characters; the length depends on k alone."""
    hashes = splitmix64(np.arange(size, dtype=np.uint64)).tolist()
    vocabulary = []
    for k, h in enumerate(hashes):
        word = b"w%d" % k
        letters = bytes(97 + (h >> (5 + 4 * j)) % 16 for j in range(max(0, 3 + h % 10 - len(word))))
        vocabulary.append(word + letters)
    return vocabulary
