"""Requests to change the owners of the cells of a windowed operator, made by a thread during a pass.

The thread makes one request at a time, and the next one when the last is settled. It comes in addition to the engine's
threads. If the engine has one thread per core, one of them pauses for the few microseconds of a request. These are part
of the measurement.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from streaming_core.run import engine

SOONEST = 0.002  # shortest time between two requests, in seconds


@dataclass(frozen=True)
class Requests:
    """The requests during a pass, and how often they come.

    Attributes:
        operator: The windowed operator.
        kind: `halves` switches from all replicas to half of them and back. `swaps` switches from one half to the other;
            before the first request, all replicas have keys.
        replicas: The number of replicas of the operator.
        times: The approximate number of requests in the time of one pass of the loop. The first comes before the first
            event.
    """

    operator: str
    kind: str
    replicas: int
    times: int

    def shares(self) -> list[list[int]]:
        """Returns the patterns of owners that take turns."""
        half = self.replicas // 2
        first = list(range(half))
        return [first, list(range(self.replicas)) if self.kind == "halves" else list(range(half, 2 * half))]

    def beside(self, loop_seconds: float) -> engine.Beside:
        """Returns the context in which `engine.one_pass` makes a pass."""
        pause = max(SOONEST, loop_seconds / self.times)

        @contextmanager
        def asking(runtime: Any) -> Iterator[None]:
            control, shares, over = runtime.control(self.operator), itertools.cycle(self.shares()), threading.Event()

            def ask() -> None:
                while not over.wait(pause):
                    if control.is_settled():
                        control.request(next(shares))

            control.request(next(shares))
            thread = threading.Thread(target=ask)
            thread.start()
            try:
                yield
            finally:
                over.set()
                thread.join()

        return asking
