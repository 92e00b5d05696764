"""Lines of text, written from lists of tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa


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
        """Row i is token columns[0][i], then columns[1][i], ... (ids). The bytes are copied once, by Arrow's take."""
        ids = np.empty((len(columns[0]), len(columns)), np.int32)
        for j, column in enumerate(columns):
            ids[:, j] = column
        count, width = ids.shape
        taken = self._tokens.take(pa.array(ids.reshape(-1)))
        _, offsets, data = taken.buffers()
        starts = np.frombuffer(offsets, np.int32, count * width + 1)[::width]
        return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(np.ascontiguousarray(starts)), data])
