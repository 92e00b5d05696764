"""Local improvement of a placement: the good plan that starts the search for a better one.

It minimises the pressure of `sustained`. One step rarely relieves every bottleneck. So a smooth maximum of all loads
judges steps: a second bottleneck counts nearly as much as the first. A step moves one unit to another socket, or
exchanges two units.

To evaluate every step exactly would take most of the search. So a first-order estimate ranks all steps, and only the
most promising ones are evaluated. The estimate is exact in the times of the two sockets, and linear in the rows that
the unit's neighbours fetch.
"""

from __future__ import annotations

import numpy as np

from streaming_core.planner.compressed import Array, Compressed
from streaming_core.planner.machine import NS
from streaming_core.planner.model import ROUNDING

SHARPNESS = 24  # exponent of the smooth maximum: a load of nine tenths counts a twelfth of the largest


def completed(problem: Compressed, plan: Array) -> Array:
    """Place all units, each in topological order where it costs least then.

    Returns:
        The plan; some units are nowhere if there is no room for them.
    """
    for unit in range(len(problem.classes)):
        while plan[unit, problem.nowhere] > 0:
            free = problem.room - plan[:, : problem.sockets].sum(axis=0)
            sockets = np.flatnonzero(free >= problem.sizes[unit]).tolist()
            if not sockets:
                return plan
            plans = np.stack([problem.moved(plan, unit, socket) for socket in sockets], axis=1)
            plan = plans[:, _first(_smooth(problem, plans))]
    return plan


def improved(problem: Compressed, plan: Array, tries: int) -> Array:
    """Improve a whole plan step by step, until no step of those tried lowers the smooth maximum.

    Args:
        problem: The graph and the machine.
        plan: A plan in which every unit is placed.
        tries: The number of steps of each kind that are evaluated, the most promising ones.
    """
    best, best_pressure = plan, float(problem.pressure(plan[:, None, :])[0])
    now = float(_smooth(problem, plan[:, None, :])[0])
    while True:
        estimate = _Estimate(problem, plan)
        for steps in (estimate.moves, estimate.exchanges):
            plans = steps(tries)
            values = _smooth(problem, plans) if plans.shape[1] else np.array([np.inf])
            if values.min() < now * (1 - ROUNDING):
                break
        else:
            return best
        plan, now = np.ascontiguousarray(plans[:, _first(values)]), float(values.min())
        pressure = float(problem.pressure(plan[:, None, :])[0])
        if pressure < best_pressure * (1 - ROUNDING):
            best, best_pressure = plan, pressure


def _first(values: Array) -> int:
    """Return the first of the least values, apart from rounding."""
    return int(np.flatnonzero(values <= values.min() * (1 + ROUNDING))[0])


def _smooth(problem: Compressed, plans: Array) -> Array:
    """Compute the smooth maximum of all loads of each plan."""
    shared, of_replicas = problem.loads(plans)
    largest = np.maximum(shared.max(axis=1), of_replicas.max(axis=(0, 2)))
    scale = np.where(largest > 0, largest, 1.0)
    powers = _sharpened(shared / scale[:, None]).sum(axis=1)
    powers += (plans * _sharpened(of_replicas / scale[None, :, None])).sum(axis=(0, 2))
    return largest * powers ** (1 / SHARPNESS)


def _sharpened(loads: Array) -> Array:
    """Raise to the power SHARPNESS by squaring: a dozen times as fast as numpy's."""
    cubed = loads * loads * loads
    for _ in range(3):
        cubed *= cubed
    return cubed


class _Estimate:
    """The change of the sum of powers by each step, to first order."""

    def __init__(self, problem: Compressed, plan: Array):
        n = problem.sockets
        self._problem, self._plan = problem, plan
        self._here = plan[:, :n]
        self._free = problem.room - self._here.sum(axis=0)
        demand, sizes = problem.demand(plan[:, None, :])[:, 0, :n], problem.sizes[:, None]
        times = problem.time
        replicas = demand * (problem.excess[:, None] / NS)
        sockets = (self._here * demand).sum(axis=0) / times + problem.merging
        scale = max(float(sockets.max()), float(np.where(self._here > 0, replicas, 0.0).max())) or 1.0
        self._sockets = sockets / scale
        self._unit = sizes * demand / (times * scale)  # a unit's part of a socket's load
        powers = _sharpened(replicas / scale)
        by_demand = self._here * (
            SHARPNESS * (self._sockets ** (SHARPNESS - 1) / (times * scale))[None, :]
            + SHARPNESS * powers / np.maximum(demand, 1e-300)
        )
        # A unit adds its own load as a replica, and the rows that its neighbours fetch or regain.
        self._adds = sizes * (powers + problem.neighbours(self._here, by_demand, scale, SHARPNESS))

    def moves(self, number: int) -> Array:
        """Return the most promising plans in which one unit is on another socket."""
        n = self._problem.sockets
        units, sources = np.nonzero(self._here)
        targets = np.tile(np.arange(n), len(units))
        units, sources = np.repeat(units, n), np.repeat(sources, n)
        possible = (sources != targets) & (self._free[targets] >= self._problem.sizes[units])
        units, sources, targets = units[possible], sources[possible], targets[possible]
        change = self._changed(sources, -self._unit[units, sources]) + self._changed(
            targets, self._unit[units, targets]
        )
        change += self._adds[units, targets] - self._adds[units, sources]
        chosen = _lowest(change, number)
        plans = np.repeat(self._plan[:, None, :], len(chosen), axis=1)
        self._move(plans, units[chosen], sources[chosen], targets[chosen])
        return plans

    def exchanges(self, number: int) -> Array:
        """Return the most promising plans in which two units have changed sockets."""
        sizes = self._problem.sizes
        units, places = np.nonzero(self._here)
        left, right = np.triu_indices(len(units), 1)
        a, b, at, to = units[left], units[right], places[left], places[right]
        more = sizes[a] - sizes[b]
        possible = (a != b) & (at != to) & (self._free[to] >= more) & (self._free[at] >= -more)
        a, b, at, to = a[possible], b[possible], at[possible], to[possible]
        change = self._changed(at, self._unit[b, at] - self._unit[a, at])
        change += self._changed(to, self._unit[a, to] - self._unit[b, to])
        change += self._adds[a, to] - self._adds[a, at] + self._adds[b, at] - self._adds[b, to]
        chosen = _lowest(change, number)
        plans = np.repeat(self._plan[:, None, :], len(chosen), axis=1)
        self._move(plans, a[chosen], at[chosen], to[chosen])
        self._move(plans, b[chosen], to[chosen], at[chosen])
        return plans

    def _changed(self, sockets: Array, more: Array) -> Array:
        """Compute the change of the sum of powers by more load on sockets."""
        before = self._sockets[sockets]
        return _sharpened(before + more) - _sharpened(before)

    def _move(self, plans: Array, units: Array, sources: Array, targets: Array) -> None:
        number, sizes = np.arange(len(units)), self._problem.sizes[units]
        plans[units, number, sources] -= sizes
        plans[units, number, targets] += sizes


def _lowest(values: Array, number: int) -> Array:
    """Return the indexes of the lowest values, in a fixed order."""
    return np.argsort(values, kind="stable")[:number]
