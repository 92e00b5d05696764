"""Requests for other replicas of a windowed operator, from a thread beside a pass: one at a time, each when the last
one is settled.

The thread is one more than the engine has: where that has as many as there are cores, one of them stands aside for the
some microseconds in which a request is made, and these are part of what is measured.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from streaming_core.run import engine

SOONEST = 0.002  # seconds from one request to the next, at least


@dataclass(frozen=True)
class Requests:
    """What is asked for in turn, and how often.

    Attributes:
        kind: `halves`, from all replicas to half of them and back; `swaps`, from one half to the other, but for the
            first request, before which all have keys.
        times: how many there are, about, in as long as the loop takes for a pass; the first is there before the first
            event.
    """

    operator: str
    kind: str
    replicas: int
    times: int

    def shares(self) -> list[list[int]]:
        """Which replicas share the keys, in turn."""
        half = self.replicas // 2
        first = list(range(half))
        return [first, list(range(self.replicas)) if self.kind == "halves" else list(range(half, 2 * half))]

    def beside(self, loop_seconds: float) -> engine.Beside:
        """What goes on beside a pass (engine.one_pass)."""
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
