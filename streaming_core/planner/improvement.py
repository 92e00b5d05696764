"""Local improvement of a placement: the good plan that a search for a better one starts with.

It knows `sustained` alone. As a step rarely frees every replica that is the bottleneck, steps are judged by a smooth
maximum of all loads, in which a second bottleneck counts nearly as much as the first. A step puts a unit on another
socket, or exchanges two, one of which is among those that suffer most.
"""

from __future__ import annotations

import numpy as np

from streaming_core.planner.compressed import Array, Compressed
from streaming_core.planner.model import ROUNDING

SHARPNESS = 24  # exponent of the smooth maximum: a load of nine tenths counts a twelfth of the largest
SUFFERING = 4  # units of exchanges, by class and socket


def completed(problem: Compressed, plan: Array) -> Array:
    """The plan with all its units placed, each in topological order where it costs least then; None has room: as it
    is."""
    for unit in range(len(problem.classes)):
        while plan[unit, problem.nowhere] > 0:
            free = problem.room - plan[:, : problem.sockets].sum(axis=0)
            sockets = np.flatnonzero(free >= problem.sizes[unit]).tolist()
            if not sockets:
                return plan
            made = np.stack([problem.moved(plan, unit, socket) for socket in sockets], axis=1)
            plan = made[:, _first(_smooth(problem, made))]
    return plan


def improved(problem: Compressed, plan: Array, steps: int) -> Array:
    """A whole plan after at most so many steps, each of which is the best there is."""
    best, best_pressure = plan, float(problem.pressure(plan[:, None, :])[0])
    for _ in range(steps):
        made = _relocations(problem, plan)
        now = float(_smooth(problem, plan[:, None, :])[0])
        found = _smooth(problem, made) if made.shape[1] else np.array([np.inf])
        if not found.min() < now * (1 - ROUNDING):
            made = _exchanges(problem, plan)
            found = _smooth(problem, made) if made.shape[1] else np.array([np.inf])
        if not found.min() < now * (1 - ROUNDING):
            break
        plan = np.ascontiguousarray(made[:, _first(found)])
        pressure = float(problem.pressure(plan[:, None, :])[0])
        if pressure < best_pressure * (1 - ROUNDING):
            best, best_pressure = plan, pressure
    return best


def _first(values: Array) -> int:
    """The first of the least, whatever they were rounded to."""
    return int(np.flatnonzero(values <= values.min() * (1 + ROUNDING))[0])


def _smooth(problem: Compressed, plans: Array) -> Array:
    """The smooth maximum of all loads of each plan."""
    shared, of_replicas = problem.loads(plans)
    largest = np.maximum(shared.max(axis=1), of_replicas.max(axis=(0, 2)))
    scale = np.where(largest > 0, largest, 1.0)
    powers = _sharpened(shared / scale[:, None]).sum(axis=1)
    powers += (plans * _sharpened(of_replicas / scale[None, :, None])).sum(axis=(0, 2))
    return largest * powers ** (1 / SHARPNESS)


def _sharpened(loads: Array) -> Array:
    """The power, by squaring: a dozen times as fast as numpy's."""
    cubed = loads * loads * loads
    for _ in range(3):
        cubed *= cubed
    return cubed


def _relocations(problem: Compressed, plan: Array) -> Array:
    """Plans in which one unit is on another socket."""
    n = problem.sockets
    free = problem.room - plan[:, :n].sum(axis=0)
    units, sources = np.nonzero(plan[:, :n])
    targets = np.arange(n)
    units, sources, targets = np.repeat(units, n), np.repeat(sources, n), np.tile(targets, len(units))
    possible = (sources != targets) & (free[targets] >= problem.sizes[units])
    units, sources, targets = units[possible], sources[possible], targets[possible]
    made = np.repeat(plan[:, None, :], len(units), axis=1)
    number = np.arange(len(units))
    made[units, number, sources] -= problem.sizes[units]
    made[units, number, targets] += problem.sizes[units]
    return made


def _exchanges(problem: Compressed, plan: Array) -> Array:
    """Plans in which two units have changed sockets, one of them among those that ask for most where they are."""
    n = problem.sockets
    free = problem.room - plan[:, :n].sum(axis=0)
    asked = problem.loads(plan[:, None, :])[1][:, 0, :n]
    worst = np.argsort(-asked, axis=None, kind="stable")[:SUFFERING]
    one, one_at = np.unravel_index(worst, asked.shape)
    other, other_at = np.nonzero(plan[:, :n])
    count = len(other)
    one, one_at = np.repeat(one, count), np.repeat(one_at, count)
    other, other_at = np.tile(other, SUFFERING)[: len(one)], np.tile(other_at, SUFFERING)[: len(one)]
    more = problem.sizes[one] - problem.sizes[other]
    possible = (plan[one, one_at] > 0) & (one != other) & (one_at != other_at)
    possible &= (free[one_at] + more >= 0) & (free[other_at] - more >= 0)
    one, one_at, other, other_at = one[possible], one_at[possible], other[possible], other_at[possible]
    made = np.repeat(plan[:, None, :], len(one), axis=1)
    number = np.arange(len(one))
    made[one, number, one_at] -= problem.sizes[one]
    made[one, number, other_at] += problem.sizes[one]
    made[other, number, other_at] -= problem.sizes[other]
    made[other, number, one_at] += problem.sizes[other]
    return made
