"""Synthetic nights and pairs from fixed seeds, to count how often the rules on speed err."""

import math
import random

import numpy as np

from jobs.gate import PAIRS


def history(
    seed: int,
    nights: int,
    noise: float = 0.01,
    outliers: float = 0.02,
    wander: float = 0.0005,
    slower: float = 0.0,
    at: int | None = None,
) -> list[float]:
    """Logarithms of ratios to the loop, as a shared machine gives them.

    The machine's own speed drifts by factors from night to night. The loop and the cell share that drift, so the ratio
    does not show it. `noise` is the standard deviation of a night, and `outliers` the share of nights with twelve times
    the noise. `wander` is the step of the level's random walk, and `slower` the slowdown from the night `at` on.
    """
    draw = random.Random(seed)
    machine, level, points = 0.0, 0.0, []
    for night in range(nights):
        machine += draw.gauss(0, 0.2) - 0.1 * machine
        level += draw.gauss(0, wander)
        wide = 12 if draw.random() < outliers else 1
        loop = 0.002 * math.exp(machine)
        slow = 1 / (1 - slower) if at is not None and night >= at else 1.0
        cell = 0.002 * math.exp(machine + level + draw.gauss(0, noise * wide)) * slow
        points.append(math.log(loop / cell))
    return points


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
