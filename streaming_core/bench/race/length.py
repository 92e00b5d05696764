"""How long a pass is, and how many events a workload has.

A pass lasts at least 100 times the longest pause that this machine imposed on a busy thread, and 1 to 2 seconds. A
pilot measures the rate of the slowest way. A workload has a tenth more events than the slowest way processes in a
pass, so that its pass is one run and not two. The pass of a faster way is several runs over the workload, one after
the other.

An experiment with a limited time has shorter passes, and declares its events, because a pilot takes time. Its heats
share the time that is left.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import psutil

from streaming_core.bench.race.race import Race
from streaming_core.run.way import RunSpec

SHORTEST, LONGEST = 1.0, 2.0  # seconds of a pass; with longer ones, a suite takes more than a quarter of an hour
PAUSES = 100  # a pass lasts so many times the longest pause
SLACK = 1.1  # a run of the slowest way lasts so many passes
QUICK_EVENTS = 2_000  # of a workload with --quick

PILOT_EVENTS = 64  # of the first workload of a pilot: an event may take milliseconds
PILOT_SECONDS = 0.1  # a run of a pilot that lasts so long is long enough to tell the rate
GROWTH = 16  # the workloads of a pilot grow at most by this factor
BYTES, PART = 4 << 30, 4  # a workload takes at most so many bytes, and this part of the free memory
PREPARATION = 30.0  # seconds to generate and decode a workload

LEAST = 0.1  # seconds of a pass of an experiment with a limited time
MEASURED = 0.6  # the part of the time of passes that is measured; the rest prepares and checks runs


def pass_seconds(longest_pause: float) -> float:
    """Return the target length of a pass on a machine with such a longest pause; both in seconds."""
    return min(LONGEST, max(SHORTEST, PAUSES * longest_pause))


def shared(left: float, prepared: Sequence[float], passes: Sequence[int]) -> float:
    """Return the length of a pass, in seconds, for a heat of an experiment with a limited time.

    Args:
        left: The seconds that are left.
        prepared: The seconds that each heat so far took to prepare, with this one.
        passes: The passes of each heat that is left, with this one.
    """
    preparation = statistics.mean(prepared) * (len(passes) - 1)
    return max(LEAST, MEASURED * (left - preparation) / sum(passes))


def chosen(app: str, params: dict[str, Any], ways: Sequence[RunSpec], seconds: float) -> int:
    """Return the events of a workload over which a run of the slowest way takes about `seconds`, and SLACK more.

    Memory and the time to generate the events bound the result.
    """
    known = [way for way in ways if not way.needs_plan]  # a plan that has to be found is hardly slower than others
    events = PILOT_EVENTS
    while True:
        race = Race(app, params, events)
        slowest = race.slowest(known)
        target = events * seconds * SLACK / slowest
        memory = min(BYTES, psutil.virtual_memory().available // PART) / race.bytes_per_event
        limit = min(memory, PREPARATION * events / race.preparation)
        if slowest >= PILOT_SECONDS or events >= limit:
            return max(1, math.floor(min(target, max(limit, events))))
        events = math.ceil(min(limit, events * min(GROWTH, max(2.0, 1.5 * PILOT_SECONDS / slowest))))
