"""Faults that a run injects into itself: which ones a user asks for, and when they happen in a workload.

`supervision.py` makes them happen. The same faults on the same workload happen at the same events.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import NamedTuple

# Kind -> what it does, and what the number behind `@` means.
KINDS = {
    "kill": "the process is killed once N events are processed, and the next one resumes",
    "stall": "threads pause at random moments, which follow from the seed N",
    "full-disk": "from event N on, nothing can be written until the process has ended",
    "clock": "the clocks jump at event N",
}
ENDING = ("kill", "full-disk")  # the kinds that end a process
KILLS = 3  # of `kill` without a number
MOST = 16
_ENTRY = re.compile(r"([a-z-]+)(?:@(0|[1-9][0-9]{0,14}))?")
RULE = f"must be a list such as kill@100,stall, with kinds {', '.join(KINDS)}"


class Fault(NamedTuple):
    """A fault of a request.

    Attributes:
        kind: One of KINDS.
        at: The number behind `@`: an event, or the seed of a stall. None: it follows from the workload.
    """

    kind: str
    at: int | None = None

    @property
    def text(self) -> str:
        """The fault as `Faults.parse` reads it."""
        return self.kind if self.at is None else f"{self.kind}@{self.at}"


@dataclass(frozen=True)
class Faults:
    """The faults that a user asks for, in the order of the request."""

    entries: tuple[Fault, ...] = ()

    @classmethod
    def parse(cls, value: object) -> Faults:
        """Read faults, such as `kill@100,stall`; an empty text has none.

        Raises:
            ValueError: The value is no list of faults.
        """
        if not isinstance(value, str):
            raise ValueError(f"{RULE}, got {value!r}")
        entries: list[Fault] = []
        for text in filter(None, (part.strip() for part in value.split(","))):
            match = _ENTRY.fullmatch(text)
            if match is None or match[1] not in KINDS:
                raise ValueError(f"{RULE}, got {text!r}")
            fault = Fault(match[1], None if match[2] is None else int(match[2]))
            if fault in entries or (fault.kind == "stall" and "stall" in (entry.kind for entry in entries)):
                raise ValueError(f"{fault.text} is one too many, because {fault.kind} is listed before")
            entries.append(fault)
        if len(entries) > MOST:
            raise ValueError(f"must have at most {MOST} faults, got {len(entries)}")
        return cls(tuple(entries))

    @property
    def text(self) -> str:
        """The faults as `parse` reads them."""
        return ",".join(fault.text for fault in self.entries)

    def schedule(self, events: int, digest: str, step: int) -> list[Fault]:
        """The faults of a workload, each with a number. Events beyond the end become the end.

        Args:
            events: The number of events.
            digest: The digest of the events.
            step: The number of events that cannot be parted.
        """
        schedule: list[Fault] = []
        for fault in self.entries:
            r = random.Random(f"{digest} {fault.kind}")
            numbers = [r.randint(1, max(1, events)) for _ in range(KILLS if fault.kind == "kill" else 1)]
            schedule += [fault] if fault.at is not None else [Fault(fault.kind, number) for number in numbers]
        return [
            fault if fault.kind == "stall" else fault._replace(at=min(events, -(-(fault.at or 0) // step) * step))
            for fault in schedule
        ]
