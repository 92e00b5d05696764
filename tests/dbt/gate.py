"""A second implementation of the gate's rule, in Python, and synthetic pairs to try it on.

Tests of error rates over many cells use it. Another test compares it with the warehouse's SQL (dbt/macros/gate.sql).
"""

import math
from typing import NamedTuple

import numpy as np

PAIRS, LIKELY, CERTAIN = 32, 159, 52
LEAST_CHANGE, DETECTION_FACTOR, USELESS = 0.01, 1.7, 0.25
TWO = np.triu_indices(PAIRS)


class Gate(NamedTuple):
    """The verdict on the pairs of a cell."""

    verdict: str
    change: float
    change_low: float
    change_high: float
    smallest: float


def gate(faster: np.ndarray) -> Gate:
    """The verdict on logarithms of ratios of speeds, shape (PAIRS,)."""
    means = np.sort((faster[:, None] + faster[None, :])[TWO] / 2)
    middle, most = float(np.median(means)), float(means[-1 - CERTAIN])
    smallest = 1 - math.exp(-LEAST_CHANGE - DETECTION_FACTOR * (most - middle))
    if most < -LEAST_CHANGE:
        verdict = "slower"
    elif means[CERTAIN] > LEAST_CHANGE:
        verdict = "faster"
    else:
        verdict = "too_noisy" if smallest > USELESS else "unchanged"
    low, high = float(means[LIKELY]), float(means[-1 - LIKELY])
    return Gate(verdict, math.expm1(middle), math.expm1(low), math.expm1(high), smallest)


def pairs(
    seed: int,
    noise: float = 0.01,
    outliers: float = 0.02,
    second: float = 0.005,
    skew: bool = False,
    slower: float = 0.0,
) -> np.ndarray:
    """Logarithms of ratios of speeds, as pairs of processes on a shared machine give them, shape (PAIRS,).

    The machine's speed wanders by factors, and both processes of a pair share almost all of that.
    `noise` is that of each process, and `outliers` the share of processes with twelve times the noise. `second` is how
    much slower the second process of a pair is, in random order. With `skew`, noise only slows processes down.
    """
    draw = np.random.default_rng(seed)
    own = draw.exponential(noise, (PAIRS, 2)) if skew else draw.normal(0, noise, (PAIRS, 2))
    own *= np.where(draw.random((PAIRS, 2)) < outliers, 12, 1)
    own[:, 1] += second + draw.normal(0, 0.005, PAIRS)  # and what the machine has gone on to meanwhile
    first = draw.integers(0, 2, PAIRS)
    places = np.arange(PAIRS)
    return own[places, first] - own[places, 1 - first] + math.log(1 - slower)
