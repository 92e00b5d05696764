"""The distance of the cores on which the threads of a pass begin.

The host of a virtual machine moves its cores. They may be neighbours in one moment, and far apart in the next. A cache
line that threads share then takes several times as long from one to the other. So a pass waits a fraction of
a second until its cores are near each other, and it keeps the round trip.
"""

from __future__ import annotations

import math
import time

from streaming_core.bench.race.ratios import is_same_distance
from streaming_core.run import cores
from streaming_core.run.way import RunSpec

TRIES, PAUSE = 10, 0.03  # measurements of a distance, and the seconds between two: an idle core may move


class Distance:
    """The distances of cores in a race so far."""

    def __init__(self) -> None:
        self._least, self._most = math.inf, 0.0

    def trip(self, spec: RunSpec) -> float | None:
        """Wait until the cores of a way are near each other, and return the round trip between them, in nanoseconds.

        Returns None for one thread, and for another engine's process.
        """
        trip = None
        for number in range(TRIES):
            if number:
                time.sleep(PAUSE)
            trip = cores.round_trip(spec.threads) if spec.is_engine else None
            if trip is None:
                break
            self._least, self._most = min(trip, self._least), max(trip, self._most)
            if is_same_distance(self._least, self._most) or not is_same_distance(trip, self._most):
                break
        return trip
