"""The rule of the speed gate (docs/explanation/speed-verdicts.md).

It is Wilcoxon's signed-rank test, by the interval that goes with it (Hodges and Lehmann's). Of the 528 means of two
pairs, each with itself too, the middle one estimates the change. Those that `LIKELY` others lie beyond enclose it with
probability 0.95. Where the builds are the same, `CERTAIN` of them and less lie on one side of nothing with probability
9.0e-6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

PAIRS, LIKELY, CERTAIN = 32, 159, 52
LEAST_CHANGE = 0.01  # the least change that is believed, as a logarithm
DETECTION_FACTOR = 1.7  # times the half of the test's interval: the slowdown that it finds nine times of ten
USELESS = 0.25  # from this smallest slowdown on there is no verdict
_TWO = np.triu_indices(PAIRS)


class Gate(NamedTuple):
    """The verdict on a cell: slower, faster, unchanged or too_noisy. A change is relative: -0.05 is 5 % slower."""

    verdict: str
    change: float
    change_low: float
    change_high: float
    smallest: float


def gate(faster: Sequence[float]) -> Gate | None:
    """Judge the pairs of a cell.

    Args:
        faster: Of each pair the logarithm of the ratio of the build's speed to the baseline's.

    Returns:
        The verdict; None unless there are `PAIRS` pairs, because the numbers of the rule are for so many.
    """
    if len(faster) != PAIRS:
        return None
    pairs = np.asarray(faster)
    means = np.sort((pairs[:, None] + pairs[None, :])[_TWO] / 2)
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
