"""The event that causes a difference: the last one of the smallest prefix of a workload that differs already."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Prefix:
    """The first events of a workload, which differ.

    Attributes:
        events: Their number.
        is_smallest: Whether the events without the last one are known to be equal.
        is_steady: Whether the engine gives a wrong answer each time.
    """

    events: int
    is_smallest: bool
    is_steady: bool = True


def smallest(
    differs: Callable[[int], bool],
    events: int,
    guess: int | None,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> Prefix:
    """Find a prefix that differs and whose last event makes it differ, by bisection.

    Args:
        differs: Runs the first so many events; returns whether the answer is wrong.
        events: The number of all events, with which the answer was wrong.
        guess: The event that caused the first differing row, if known. The search tries it first.
        seconds: No run begins after this time.
        clock: Returns the time in seconds.
    """
    end = clock() + seconds
    good, bad, is_confirmed = -1, events, False
    hints = [] if guess is None else [guess, guess + 1]
    while bad - good > 1 and clock() < end:
        count = hints.pop() if hints else (good + bad) // 2
        if not good < count < bad:
            continue
        if differs(count):
            bad, is_confirmed = count, True
        else:
            good = count
    # So far, one run says that all events differ. An engine with a race may give the right answer in another run.
    is_steady = is_confirmed or clock() >= end or differs(events)
    return Prefix(bad, bad - good <= 1, is_steady)
