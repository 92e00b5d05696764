"""Ranks: the order of the rows of an event on their way to one consumer.

A rank is a path of bits. Each step appends its part to it: the number of an input, or the order of an output among
those of its input. No part is the beginning of another part of the same step, so ranks compare bit by bit. Nearly all
paths fit into one word, and then a sort by (seq, rank) has one integer as its key.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streaming_core.data.arrow import to_arrow, to_numpy

WORD = 64  # bits


@dataclass(frozen=True)
class Ranks:
    """The ranks of n rows.

    Attributes:
        words: Their bits from the highest one on, and zeros behind them; uint64 of shape (n, words).
        bits: The number of bits of each; int64 of shape (n,).
    """

    words: np.ndarray
    bits: np.ndarray

    def __len__(self) -> int:
        return len(self.bits)

    @classmethod
    def empty(cls, n: int) -> Ranks:
        """The ranks of n rows that no step has taken yet."""
        return cls(np.zeros((n, 0), np.uint64), np.zeros(n, np.int64))

    @classmethod
    def number(cls, numbers: np.ndarray | int, bits: int, n: int) -> Ranks:
        """Numbers below 2^bits as the ranks of n rows."""
        word = np.full(n, numbers, np.uint64) << np.uint64(WORD - bits)
        return cls(word[:, None], np.full(n, bits, np.int64))

    @classmethod
    def of_texts(cls, texts: list[bytes]) -> Ranks:
        """Byte strings as ranks."""
        lengths = np.array([len(text) for text in texts], np.int64)
        width = -(-int(lengths.max(initial=0)) // 8) * 8
        padded = b"".join(text.ljust(width, b"\x00") for text in texts)
        words = np.frombuffer(padded, ">u8").astype(np.uint64).reshape(len(texts), width // 8)
        return cls(words, lengths * 8)

    @classmethod
    def of_columns(cls, words: pa.Array, bits: pa.Array) -> Ranks:
        """Inverse of `columns`."""
        if pa.types.is_fixed_size_binary(words.type):
            width = words.type.byte_width // 8
            own = np.frombuffer(words.buffers()[1], np.uint64, len(words) * width).reshape(-1, width)
        else:
            narrow = to_numpy(words)
            own = (narrow.astype(np.uint64) << np.uint64(WORD - 8 * narrow.itemsize))[:, None]
        return cls(own, to_numpy(bits).astype(np.int64))

    def columns(self) -> tuple[pa.Array, pa.Array]:
        """The words as a column of integers, or of byte strings if they are several; and the numbers of bits."""
        longest, width = int(self.bits.max(initial=0)), self.words.shape[1]
        if width > 1:
            data = pa.py_buffer(np.ascontiguousarray(self.words))
            return pa.Array.from_buffers(pa.binary(8 * width), len(self), [None, data]), to_arrow(self.bits)
        kind = np.min_scalar_type((1 << longest) - 1)
        words = (_wide(self.words, 1)[:, 0] >> np.uint64(WORD - 8 * kind.itemsize)).astype(kind)
        return to_arrow(words), to_arrow(self.bits.astype(np.uint8))

    @classmethod
    def concat(cls, parts: list[Ranks]) -> Ranks:
        """The ranks of rows together."""
        width = max(part.words.shape[1] for part in parts)
        words = [_wide(part.words, width) for part in parts]
        return cls(np.concatenate(words), np.concatenate([part.bits for part in parts]))

    def take(self, positions: np.ndarray | slice) -> Ranks:
        """The ranks of the rows at these positions."""
        return Ranks(self.words[positions], self.bits[positions])

    def then(self, part: Ranks) -> Ranks:
        """The ranks with a further part each."""
        if not self.bits.any():
            return part
        bits = self.bits + part.bits
        words = _wide(self.words, -(-int(bits.max(initial=0)) // WORD))
        shift = (self.bits % WORD).astype(np.uint64)
        # A shift by a whole word gives 0.
        if words.shape[1] == 1:
            return Ranks(words | _wide(part.words, 1) >> shift[:, None], bits)
        words, first = words.copy(), self.bits // WORD
        for number in range(part.words.shape[1]):
            word = part.words[:, number]
            pieces = (word >> shift, word << (np.uint64(WORD) - shift))
            for at, piece in zip((first + number, first + number + 1), pieces, strict=True):
                rows = np.flatnonzero(at < words.shape[1])  # behind them, all bits are 0
                words[rows, at[rows]] |= piece[rows]
        return Ranks(words, bits)

    def sort(self, seqs: np.ndarray) -> np.ndarray | None:
        """The positions of rows in the order of (seq, rank), shape (n,); None if they are in order."""
        if len(seqs) < 2:
            return None
        longest, least = int(self.bits.max()), seqs.min()
        if longest + int(seqs.max() - least).bit_length() <= WORD and self.words.shape[1] <= 1:
            key = (seqs - least).astype(np.uint64) << np.uint64(longest)
            if longest:
                key |= self.words[:, 0] >> np.uint64(WORD - longest)
            # A stable sort merges what producers have sorted.
            return None if (key[1:] >= key[:-1]).all() else np.argsort(key, kind="stable")
        return np.lexsort((*self.words.T[::-1], seqs))


def _wide(words: np.ndarray, width: int) -> np.ndarray:
    """The words with zeros behind them, or without zeros behind them."""
    if words.shape[1] >= width:
        return words[:, :width]
    return np.concatenate([words, np.zeros((len(words), width - words.shape[1]), np.uint64)], axis=1)
