"""The rule of the trend for one series, night by night (docs/explanation/speed-verdicts.md).

Ratios of one epoch are comparable. Another epoch begins when the source, the workload or the loop changes. It begins
without a level. The gate bridges it if it compared a build of this epoch with a build of the epoch before. Then the
noise and the last change go on. Without a bridge there is no verdict until the epoch has a noise of its own.

A night costs microseconds: it sorts at most 63 numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

NEW = 3  # nights that a decision looks at
MOST = 60  # nights that a baseline has at most
ENOUGH = 12  # nights from which noise is estimated
AGAIN = 5  # nights after which a new level is judged again
BACK = 7  # nights before a decision in which a change may have begun
LEAST_NOISE = 0.002  # the least noise that is believed, as a logarithm
LEAST_CHANGE = 0.02  # the least change that is believed, as a logarithm
USELESS = 0.25  # from this smallest slowdown on there is no verdict
BRIDGES = ("slower", "faster", "unchanged")  # the verdicts of the gate that carry a series over an edit


class Size(NamedTuple):
    """A change relative to the level before (-0.05 = 5 % slower), and its 95 % interval; the ends may be unknown."""

    change: float
    change_low: float | None
    change_high: float | None


@dataclass(frozen=True)
class Bridge:
    """What the speed gate said last of an epoch. `smallest` is the slowdown that it would have found."""

    run_id: str
    baseline: str
    verdict: str
    size: Size | None
    smallest: float | None


@dataclass(frozen=True)
class Night:
    """A run of a series. `y` is the logarithm of the ratio to the compiled loop."""

    run_id: str
    run_at: datetime
    build: str | None
    y: float
    epoch: str = ""
    bridge: Bridge | None = None


@dataclass(frozen=True)
class Verdict:
    """What the mart `speed` has of a night; its YAML describes the fields."""

    verdict: str
    nights: int
    level: float
    noise: float | None
    smallest: float | None
    since_run: str | None
    since_at: datetime | None
    since_build: str | None
    found_run: str | None
    change: float | None
    change_low: float | None
    change_high: float | None
    edited_build: str | None
    reference_build: str | None
    bridge_run: str | None


@dataclass
class _Epoch:
    """What the rule knows of an epoch after some of its nights.

    Attributes:
        first: Its first night; None for the first epoch of the series.
        past: The epoch before, until this one is bridged or has a noise of its own.
        window: The nights since the last change, at most 63. `nights` counts all of them.
        noise: The standard deviation of a night, estimated from so many nights (`estimated`).
        before: The level before the last change, of so many nights (`before_nights`).
        since: The first night of that change; `detected_in` is the run that detected it.
        size: The size of that change as measured by the gate or in an earlier epoch. None: the levels give it.
        last: The size of that change as last judged.
        bridge: What the gate said when it bridged the epoch.
    """

    first: Night | None = None
    past: _Epoch | None = None
    window: list[Night] = field(default_factory=list)
    nights: int = 0
    noise: float | None = None
    estimated: int = 0
    before: float | None = None
    before_nights: int = 0
    since: Night | None = None
    detected_in: str | None = None
    size: Size | None = None
    last: Size | None = None
    bridge: Bridge | None = None


def trend(series: Iterable[Night]) -> list[Verdict]:
    """Judge the nights of one series, in the order of its runs; a verdict for each."""
    epoch, name, verdicts = _Epoch(), None, []
    for night in series:
        if name is not None and name != night.epoch:
            epoch = _Epoch(night, epoch.past or epoch)
        name = night.epoch
        _cross(epoch, night)
        margin, by_gate = _advance(epoch, night)
        verdicts.append(_judge(epoch, margin, by_gate))
        epoch.last = _size(epoch)
    return verdicts


def _cross(epoch: _Epoch, night: Night) -> None:
    """Let the epoch go on from the one before, if the gate compared their builds."""
    past, bridge = epoch.past, night.bridge
    if past is None or bridge is None or bridge.verdict not in BRIDGES:
        return
    if not any(bridge.baseline.startswith(point.build) for point in past.window if point.build is not None):
        return
    epoch.past, epoch.bridge = None, bridge
    epoch.noise, epoch.estimated = past.noise, past.estimated
    if bridge.verdict == "unchanged":
        epoch.since, epoch.detected_in, epoch.size = past.since, past.detected_in, past.last
    else:
        epoch.since, epoch.detected_in, epoch.size = epoch.first, bridge.run_id, bridge.size


def _advance(epoch: _Epoch, night: Night) -> tuple[float, bool]:
    """Add a night, and look for a change; the margin, and whether the gate's verdict stands for the level."""
    window = [*epoch.window[-(MOST + NEW - 1) :], night]
    old, fresh = [point.y for point in window[:-NEW]], [point.y for point in window[-NEW:]]
    level = _median(old) if old else 0.0
    if len(old) >= ENOUGH:
        far = sorted(abs(y - level) for y in old)
        epoch.noise = max(LEAST_NOISE, far[math.ceil(0.8 * len(far)) - 1] / 1.2816)
        epoch.estimated, epoch.past = len(old), None
    margin = LEAST_CHANGE
    if epoch.estimated and epoch.noise is not None:
        margin = max(margin, (2.5 + 30 / epoch.estimated) * epoch.noise)
    epoch.window, epoch.nights = window, epoch.nights + 1
    if epoch.estimated and len(old) >= AGAIN and (max(fresh) < level - margin or min(fresh) > level + margin):
        cut = _cut([point.y for point in window], level, _median(fresh))
        epoch.window, epoch.nights = window[cut:], len(window) - cut
        epoch.before, epoch.before_nights = level, cut
        epoch.since, epoch.detected_in, epoch.size = window[cut], night.run_id, None
    return margin, epoch.bridge is not None and (not epoch.estimated or len(old) < AGAIN)


def _cut(points: list[float], level: float, target: float) -> int:
    """How many points came before a change: the cut from which they lie least far; the earliest of equal ones."""

    def distance(cut: int) -> float:
        return sum(abs(y - (level if i < cut else target)) for i, y in enumerate(points))

    return min(range(max(1, len(points) - NEW - BACK), len(points) - NEW + 1), key=distance)


def _size(epoch: _Epoch) -> Size | None:
    """The size of the last change: as the gate measured it, else the difference of both levels; None without one."""
    if epoch.since is None or epoch.size is not None or epoch.before is None or epoch.noise is None:
        return epoch.size
    step = _median([point.y for point in epoch.window]) - epoch.before
    half = 1.96 * epoch.noise * math.sqrt(1.57 / epoch.before_nights + 1.57 / len(epoch.window))
    return Size(math.exp(step) - 1, math.exp(step - half) - 1, math.exp(step + half) - 1)


def _judge(epoch: _Epoch, margin: float, by_gate: bool) -> Verdict:
    size = _size(epoch)
    smallest = None if epoch.noise is None else 1 - math.exp(-margin - 1.81 * epoch.noise)
    if by_gate and epoch.bridge:
        smallest = epoch.bridge.smallest
    if size is not None:
        verdict = "slower" if size.change < 0 else "faster"
    elif epoch.past is not None:
        verdict = "not_judged"
    elif by_gate:
        verdict = "unchanged"
    elif smallest is None:
        verdict = "too_new"
    else:
        verdict = "too_noisy" if smallest > USELESS else "unchanged"
    since = epoch.since
    return Verdict(
        verdict=verdict,
        nights=epoch.nights,
        level=math.exp(_median([point.y for point in epoch.window])),
        noise=epoch.noise,
        smallest=smallest,
        since_run=since.run_id if since else None,
        since_at=since.run_at if since else None,
        since_build=since.build if since else None,
        found_run=epoch.detected_in,
        change=size.change if size else None,
        change_low=size.change_low if size else None,
        change_high=size.change_high if size else None,
        edited_build=epoch.first.build if epoch.first else None,
        reference_build=(epoch.past.window[-1].build or "unknown") if epoch.past else None,
        bridge_run=epoch.bridge.run_id if by_gate and epoch.bridge else None,
    )


def _median(points: list[float]) -> float:
    ordered = sorted(points)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
