"""A second implementation of the trend's rule, in Python, and synthetic histories to try it on.

Tests of error rates over a thousand nights of a hundred cells use it. Another test compares it with the warehouse's SQL
(dbt/macros/trend.sql), night by night.
"""

import math
import random
from dataclasses import dataclass

NEW, MOST, ENOUGH, AGAIN, BACK = 3, 60, 12, 5, 7
LEAST_NOISE, LEAST_CHANGE, USELESS = 0.002, 0.02, 0.25


@dataclass
class Night:
    """The verdict on a series after one of its nights; `since`, `changed` and `bridge` are numbers of nights.

    `bridge`: the night of the gate, while the verdict is the gate's.
    """

    verdict: str
    noise: float | None
    smallest: float | None
    since: int | None
    changed: int | None
    change: float | None
    bridge: int | None = None


@dataclass
class Gate:
    """The verdict of the speed gate on a night against an earlier one, with the size of a change."""

    baseline: int
    verdict: str
    change: float = 0.0
    smallest: float = 0.03


@dataclass
class Past:
    """The epoch before, while no gate has bridged it."""

    nights: list[int]
    noise: float | None
    estimated: int
    since: int | None
    changed: int | None
    change_by_gate: float | None


def trend(points: list[float], epochs: list[str] | None = None, gates: dict[int, Gate] | None = None) -> list[Night]:
    """The verdicts on a series of logarithms of ratios to the loop, by default of one epoch, night by night."""
    kept: list[tuple[int, float]] = []
    noise, estimated, before, since, changed = None, 0, None, None, None
    change_by_gate, bridge, bridge_smallest, past, first = None, None, None, None, None
    judged: list[Night] = []
    for number, y in enumerate(points):
        if epochs and number and epochs[number] != epochs[number - 1]:
            size = judged[-1].change if since is not None else None
            past = past or Past([i for i, _ in kept], noise, estimated, since, changed, size)
            kept, noise, estimated, before, since, changed, change_by_gate = [], None, 0, None, None, None, None
            bridge, first = None, number
        gate = (gates or {}).get(number)
        bridged = past is not None and gate is not None and gate.baseline in past.nights
        if bridged:
            noise, estimated = past.noise, past.estimated
            since, changed, change_by_gate = past.since, past.changed, past.change_by_gate
            bridge, bridge_smallest, past = number, gate.smallest, None
            if gate.verdict != "unchanged":
                since, changed, change_by_gate = first, number, gate.change
        kept = [*kept[-(MOST + NEW - 1) :], (number, y)]
        old, fresh = [y for _, y in kept[:-NEW]], [y for _, y in kept[-NEW:]]
        level = median(old) if old else None
        if len(old) >= ENOUGH:
            far = sorted(abs(y - level) for y in old)
            noise, estimated = max(LEAST_NOISE, far[math.ceil(0.8 * len(far)) - 1] / 1.2816), len(old)
            past = None
        margin = max(LEAST_CHANGE, (2.5 + 30 / estimated) * noise) if estimated else None
        by_gate = bridge is not None and (not estimated or len(old) < AGAIN)
        if estimated and len(old) >= AGAIN and (max(fresh) < level - margin or min(fresh) > level + margin):
            target = median(fresh)
            far = [
                (sum(abs(y - (level if i < j else target)) for i, (_, y) in enumerate(kept)), j)
                for j in range(max(1, len(kept) - NEW - BACK), len(kept) - NEW + 1)
            ]
            kept = kept[min(far)[1] :]
            before, since, changed, change_by_gate = level, kept[0][0], number, None
        now = median([y for _, y in kept])
        smallest = 1 - math.exp(-margin - 1.81 * noise) if estimated else None
        smallest = bridge_smallest if by_gate else smallest
        change = None if since is None else change_by_gate if change_by_gate is not None else math.exp(now - before) - 1
        if change is not None:
            verdict = "slower" if change < 0 else "faster"
        elif past is not None:
            verdict = "not_judged"
        elif by_gate:
            verdict = "unchanged"
        else:
            verdict = "too_new" if not estimated else "too_noisy" if smallest > USELESS else "unchanged"
        judged.append(Night(verdict, noise, smallest, since, changed, change, bridge if by_gate else None))
    return judged


def median(values: list[float]) -> float:
    """Of at least one value."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


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


def alarms(judged: list[Night]) -> list[int]:
    """The nights in which the rule detects a change."""
    return sorted({night.changed for night in judged if night.changed is not None})
