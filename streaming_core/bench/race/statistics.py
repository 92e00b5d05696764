"""Medians over rounds, and their 95 % bootstrap intervals.

The interval of a median is the percentile bootstrap: draw as many rounds as there are, with replacement, take their
median, and repeat. The interval spans the middle 95 % of these medians. The seed is fixed, so the same rounds always
give the same interval. With five rounds the interval spans all of them; from six rounds on it can leave out extremes.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

import numpy as np

SEED = 20_200_217
DRAWS = 4_000  # resamples; their number moves an end of the interval by less than the rounds differ
CONFIDENCE = 0.95

Interval = list[float]


def median(values: Iterable[float | None]) -> float | None:
    """Return the median, or None if a value is None or there are none."""
    numbers = list(values)
    known = [value for value in numbers if value is not None]
    return statistics.median(known) if known and len(known) == len(numbers) else None


def interval(values: Sequence[float]) -> Interval:
    """Return the 95 % interval of the median of `values`, [low, high]; of a single value, that value twice."""
    return _middle(np.median(_resampled(values, np.random.default_rng(SEED)), axis=1))


def interval_of_ratio(over: Sequence[float], under: Sequence[float]) -> Interval:
    """Return the 95 % interval of the ratio of two medians whose rounds are not paired."""
    draw = np.random.default_rng(SEED)
    medians = [np.median(_resampled(values, draw), axis=1) for values in (over, under)]
    return _middle(medians[0] / medians[1])


def summary(name: str, values: Sequence[float | None], of: Callable[[float], float] = lambda x: x) -> dict:
    """Return the columns `name` (the median) and `name_range` (its interval); without values, both are None."""
    middle = median(values)
    known = [of(value) for value in values if value is not None]
    return {name: None if middle is None else of(middle), f"{name}_range": None if middle is None else interval(known)}


def _resampled(values: Sequence[float], draw: np.random.Generator) -> np.ndarray:
    numbers = np.asarray(values, float)
    return numbers[draw.integers(0, len(numbers), (DRAWS, len(numbers)))]


def _middle(medians: np.ndarray) -> Interval:
    outside = (1 - CONFIDENCE) / 2
    # One of the medians, not a value between two of them.
    ends = np.quantile(medians, [outside, 1 - outside], method="inverted_cdf")
    return [float(end) for end in ends]
