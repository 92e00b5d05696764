"""The picture of a find's events: one lane for each key, and a dot at each time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from streaming_core.apps import registry
from streaming_core.data.comparison import shown
from streaming_core.errors import BadInput

WIDTH, MARGIN, LANE, FOOT = 760, 150, 34, 22  # pixels
MOST_LANES = 10
_TIME = "ts"


class Dot(NamedTuple):
    """The events of one key and one time: where, their numbers, their time, and whether outputs differ."""

    x: float
    y: int
    events: str
    ts: int
    is_wrong: bool


@dataclass(frozen=True)
class Timeline:
    """The picture. `lanes` has the place and the name of each key, `ends` the first and the last time."""

    lanes: list[tuple[int, str]]
    dots: list[Dot]
    ends: tuple[int, int]
    width: int = WIDTH
    margin: int = MARGIN

    @property
    def height(self) -> int:
        """The height in pixels."""
        return LANE * len(self.lanes) + FOOT

    @classmethod
    def of(cls, app: str, events: list[dict[str, Any]], wrong: set[int | None]) -> Timeline | None:
        """The picture of some events; None if it shows nothing that the table does not."""
        times = [ts for event in events if isinstance(ts := event.get(_TIME), int)]
        names = _key(app, set(events[0]) if events else set())
        keys = list(dict.fromkeys(_text(event, names) for event in events))
        gaps = {later - earlier for earlier, later in pairwise(times)}
        if not gaps or len(times) < len(events) or (len(keys) == 1 and len(gaps) == 1) or len(keys) > MOST_LANES:
            return None
        first, last = min(times), max(times)
        together = defaultdict(list)
        for event in events:
            together[_text(event, names), event[_TIME]].append(event["seq"])
        dots = [
            Dot(
                MARGIN + (WIDTH - MARGIN - 40) * ((ts - first) / ((last - first) or 1)),
                LANE * keys.index(key) + LANE // 2,
                ", ".join(map(str, numbers)),
                ts,
                bool(wrong.intersection(numbers)),
            )
            for (key, ts), numbers in together.items()
        ]
        return cls([(LANE * at + LANE // 2, key) for at, key in enumerate(keys)], dots, (first, last))


def _key(app: str, fields: set[str]) -> tuple[str, ...]:
    """The fields of an event that the application first partitions by; none if it does so by others."""
    try:
        keys = [operator.key for operator in registry.load(app).operators if operator.key]
    except BadInput:
        return ()
    return next((key for key in keys if fields.issuperset(key)), ())


def _text(event: dict[str, Any], names: tuple[str, ...]) -> str:
    text = ", ".join(f"{name} {shown(event[name])}" for name in names) or "events"
    return text if len(text) <= 20 else f"{text[:19]}…"
