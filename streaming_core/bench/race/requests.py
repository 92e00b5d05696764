"""Requests to change the owners of the cells of a windowed operator, made during a run.

A thread makes one request at a time, and the next one when the last is settled. It comes in addition to the engine's
threads. If the engine has one thread per core, one of them pauses for the few microseconds of a request. These are part
of the measurement.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

SOONEST = 0.002  # shortest time between two requests, in seconds


@dataclass(frozen=True)
class Requests:
    """The requests during a pass, and how often they come. They switch from all replicas to half of them and back.

    Attributes:
        operator: The windowed operator.
        replicas: The number of replicas of the operator.
        times: The approximate number of requests in the time of one pass of the loop. The first comes before the first
            event.
    """

    operator: str
    replicas: int
    times: int

    def shares(self) -> list[list[int]]:
        """Return the patterns of owners that take turns."""
        return [list(range(self.replicas // 2)), list(range(self.replicas))]


@contextmanager
def repeatedly(ask: Callable[[], bool], pause: float) -> Iterator[None]:
    """Call `ask` in a thread, every `pause` seconds while the block runs, until it returns false."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(pause) and ask():
            pass

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Asking:
    """The requests of one run."""

    def __init__(self, requests: Requests, loop_seconds: float):
        """Take the requests, and the seconds of a pass of the loop."""
        self._requests, self._pause = requests, max(SOONEST, loop_seconds / requests.times)
        self._shares = itertools.cycle(requests.shares())
        self._control: Any = None

    @contextmanager
    def beside(self, runtime: Any) -> Iterator[None]:
        """Make the first request, and those of the thread while the block runs."""
        self._control = runtime.control(self._requests.operator)
        self._control.request(next(self._shares))
        with repeatedly(self._ask, self._pause):
            yield

    def _ask(self) -> bool:
        if self._control.is_settled():
            self._control.request(next(self._shares))
        return True
