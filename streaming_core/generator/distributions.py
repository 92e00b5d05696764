"""Distributions with integer thresholds, and the arithmetic that computes the thresholds.

All values are integers, or doubles that only + - * / produce, because the last bits of libm differ between hosts. So
every host makes the same events.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from streaming_core.errors import BadInput


class Discrete:
    """A distribution over 0..n-1: a draw u of 53 bits picks the first k with threshold[k] >= u.

    A table holds where the search for each draw begins. Bisection finds the few thresholds that lie far from there.
    """

    def __init__(self, thresholds: np.ndarray):
        self.thresholds = thresholds
        bits = max(1, (4 * len(thresholds) - 1).bit_length())
        self._shift = 53 - bits
        cells = np.arange(1 << bits, dtype=np.int64) << self._shift
        self._guide = np.searchsorted(thresholds, cells).astype(np.int32)

    def pick(self, u: np.ndarray) -> np.ndarray:
        """Return the values for draws `u` (`Draws.u53`), as int64."""
        k = self._guide[u >> self._shift].astype(np.int64)
        behind = np.flatnonzero(self.thresholds[k] < u)
        for _ in range(3):
            if not len(behind):
                return k
            k[behind] += 1
            behind = behind[self.thresholds[k[behind]] < u[behind]]
        k[behind] = np.searchsorted(self.thresholds, u[behind])
        return k


@lru_cache(maxsize=256)
def zipf(n: int, theta: float) -> Discrete:
    """Return P(k) proportional to (k+1)^-theta for k = 0..n-1: small numbers are hot, and theta 0 is uniform."""
    if n < 1:
        raise BadInput(f"zipf: the number of values must be at least 1, got {n}")
    rank = np.arange(1, n + 1, dtype=np.float64)
    cumulated = np.cumsum(exponential(-theta * logarithm(rank)) if theta else np.ones(n))
    thresholds = np.floor(cumulated / cumulated[-1] * float(1 << 53)).astype(np.int64)
    thresholds[-1] = 1 << 53
    return Discrete(thresholds)


def weighted(weights: Sequence[int]) -> Discrete:
    """Return P(k) proportional to the integer weights."""
    total, sums = sum(weights), np.cumsum(np.array(weights, dtype=object))
    # A draw below T has the probability T / 2^53. The threshold is the last u that still belongs to k.
    return Discrete(np.array([(int(s) << 53) // total - 1 for s in sums], np.int64))


def proportional(weights: np.ndarray) -> Discrete:
    """Return P(k) proportional to the doubles `weights`; the first weight is above 0."""
    sums = np.cumsum(weights)
    thresholds = np.floor(sums / sums[-1] * float(1 << 53)).astype(np.int64)
    thresholds[-1] = 1 << 53
    return Discrete(thresholds)


def bell(n: int, deviation: float) -> np.ndarray:
    """Return the normal density around the middle of 0..n-1 at each number, as doubles that sum up to 1."""
    distance = (np.arange(n) - (n - 1) / 2.0) / deviation
    square = distance * distance
    weights = exponential(np.maximum((square - square.min()) * -0.5, -1000.0))
    return weights / np.cumsum(weights)[-1]


def logarithm(x: np.ndarray) -> np.ndarray:
    """Compute the natural logarithm of x >= 1 with + - * / only: x = m * 2^e, ln m = 2 artanh((m-1)/(m+1))."""
    m, e = np.frexp(x)
    low = m < 0.7071067811865476
    m, e = np.where(low, m * 2.0, m), np.where(low, e - 1, e)
    s = (m - 1.0) / (m + 1.0)
    square, total = s * s, np.zeros_like(s)
    for k in range(27, 0, -2):
        total = total * square + 1.0 / k
    return e * 0.6931471805599453 + 2.0 * s * total


def exponential(x: np.ndarray) -> np.ndarray:
    """Compute e^x with + - * / only: x = k ln 2 + r, Taylor in r."""
    k = np.floor(x / 0.6931471805599453 + 0.5)
    r, total = x - k * 0.6931471805599453, np.ones_like(x)
    for d in range(16, 0, -1):
        total = total * r / d + 1.0
    return np.ldexp(total, k.astype(np.int64))
