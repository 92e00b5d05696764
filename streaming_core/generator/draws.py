"""Addressed draws: draw d of unit i of a substream is a function of (seed, substream, i, d) alone.

A draw is never consumed, so any slice of a workload can be made by itself, anywhere, and is always the same.
"""

from __future__ import annotations

import numpy as np

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def u64(value: int) -> np.uint64:
    """A 64-bit constant that keeps arithmetic in 64 bits."""
    return np.uint64(value & MASK)


def splitmix64(x: np.ndarray) -> np.ndarray:
    """The output of splitmix64 in state `x` (uint64 array)."""
    z = x + u64(GOLDEN)
    z ^= z >> u64(30)
    z *= u64(0xBF58476D1CE4E5B9)
    z ^= z >> u64(27)
    z *= u64(0x94D049BB133111EB)
    z ^= z >> u64(31)
    return z


mix64 = splitmix64


def fnv1a64(name: str) -> int:
    """FNV-1a of the name's bytes: tells substreams apart."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 & MASK
    return h


class Draws:
    """The draws of some units (events, entities, rounds, ...) in one substream.

    Unit i has a splitmix64 sequence of its own, started at splitmix64(substream + i * golden); draw d is its output d.

    Args:
        seed: the workload's seed.
        name: the substream, one per purpose.
        units: int64 array of unit numbers, or None with `start` and `stop` for consecutive ones.
    """

    def __init__(self, seed: int, name: str, start: int = 0, stop: int = 0, units: np.ndarray | None = None):
        unit = np.arange(start, stop, dtype=np.uint64) if units is None else units.astype(np.uint64)
        base = splitmix64(np.array([(seed ^ fnv1a64(name)) & MASK], np.uint64))
        self.states = splitmix64(base + unit * u64(GOLDEN))

    def __len__(self) -> int:
        return len(self.states)

    def bits(self, d: int, rows: np.ndarray | None = None) -> np.ndarray:
        """Draw `d`, uint64, of every unit or of those at the positions `rows`."""
        states = self.states if rows is None else self.states[rows]
        return splitmix64(states + u64(GOLDEN * d))

    def u53(self, d: int, rows: np.ndarray | None = None) -> np.ndarray:
        """The top 53 bits of draw `d`, as int64: what distributions are inverted with."""
        return (self.bits(d, rows) >> u64(11)).view(np.int64)

    def below(self, d: int, n: int | np.ndarray) -> np.ndarray:
        """Uniform in 0..n-1 (n < 2^32), int64: the high half of draw * n."""
        bits, n = self.bits(d), np.asarray(n, np.uint64)
        low = (bits & u64(0xFFFFFFFF)) * n
        return (((bits >> u64(32)) * n + (low >> u64(32))) >> u64(32)).view(np.int64)

    def chance(self, d: int, ratio: float) -> np.ndarray:
        """True with probability `ratio`."""
        return self.u53(d) < round(ratio * (1 << 53))


def of_eight(ratio: float, draws: Draws, d: int, start: int, stop: int, drawn: bool = False) -> np.ndarray:
    """Which of the events start..stop-1 are of the second kind: the last `ratio * 8` of every eight consecutive ones.

    Where `ratio * 8` is no whole number, or with `drawn`, draw `d` decides for each event.
    """
    slots = ratio * 8
    if drawn or slots != int(slots):
        return draws.chance(d, ratio)
    return np.arange(start, stop) % 8 >= 8 - int(slots)
