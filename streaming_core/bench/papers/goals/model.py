"""The time of an event on any number of threads, expected from measurements on one and two.

On T threads, a way takes `max((work + exchange * c(T) * r(T)) / T + waiting * r(T), serial)` nanoseconds per event.

| term | meaning | measured as |
|---|---|---|
| exchange | time for which cache lines cross cores | what two threads work more than one, without dealing |
| work | the rest, which threads share | what two threads work, summed over them, less `exchange` |
| waiting | time for which a thread waits for others | the waiting of two threads, divided by two |
| serial | the longest step that only one thread takes at a time | delivery, or the longest task without equals |
| c(T) | rows and events that concern another thread, relative to two threads | (1 - 1/T) / (1 - 1/2) |
| r(T) | the round trip between T cores, relative to two; 1 where it is unknown | `round_trip_ns` |

If that is slower than one thread, the others stay idle. The model assumes that an event meets every thread alike, that
a thread waits as long as on two, and that the memory keeps up. A machine of many cores refutes it where a way has
another limit. Plans of executor `pinned` can have tasks without equals on two threads that have several on more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streaming_core.bench.race.ratios import Row


@dataclass(frozen=True)
class Model:
    """The terms of the module's formula, in nanoseconds per event; `trip` is two cores' round trip, 0 if unknown."""

    work: float
    exchange: float
    waiting: float
    serial: float
    trip: float = 0.0

    @classmethod
    def of(cls, single: Row, two: Row) -> Model:
        """Return the model of a way from its rows on one and two threads."""
        costs = two.get("costs", {})
        busy = _busy(two["breakdown"])
        exchange = max(0.0, busy - _busy(single["breakdown"]) - costs.get("dealing", 0.0))
        serial = costs.get("delivery", costs.get("alone", 0.0))
        return cls(busy - exchange, exchange, two["breakdown"]["sync"] / 2, serial, two.get("round_trip_ns") or 0.0)

    def nanoseconds(self, threads: int, trip: float | None = None) -> float:
        """Return the time of an event on some threads, at least two, between whose cores a round trip takes `trip`."""
        farther = trip / self.trip if trip and self.trip else 1.0
        crossing = 2 * (1 - 1 / threads)
        shared = (self.work + self.exchange * crossing * farther) / threads
        return max(shared + self.waiting * farther, self.serial)

    def __str__(self) -> str:
        return (
            f"{self.work:.1f} ns of work, {self.exchange:.1f} of exchange, {self.waiting:.1f} of waiting, "
            f"{self.serial:.1f} of the longest serial step, at a round trip of {self.trip:.0f}"
        )


def _busy(breakdown: Mapping[str, float]) -> float:
    return sum(spent for part, spent in breakdown.items() if part != "sync")
