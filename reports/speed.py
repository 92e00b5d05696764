"""The verdict of the trend on a cell's speed, in words.

The mart `speed` holds it (docs/explanation/speed-verdicts.md). It never turns a run red.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Self

ENOUGH = 15  # nights, of which the last three are held against the others (macros/trend.sql)


@dataclass(frozen=True)
class Speed:
    """A row of the mart `speed`."""

    verdict: str
    to_loop: float | None = None
    nights: int | None = None
    noise: float | None = None
    smallest: float | None = None
    since_run: str | None = None
    since_at: datetime | None = None
    since_build: str | None = None
    found_run: str | None = None
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None
    spread: float | None = None
    steal: float | None = None
    others: float | None = None

    @classmethod
    def of(cls, row: dict) -> Self:
        """Of a row, whatever else is in it."""
        return cls(**{name: row[name] for name in cls.__dataclass_fields__ if name in row})

    @property
    def changed(self) -> bool:
        """Whether it is slower or faster than before."""
        return self.verdict in ("slower", "faster")

    @property
    def text(self) -> str:
        """`5.1 % slower`, `unchanged`, `too new`."""
        if self.changed and self.change is not None:
            return f"{percent(self.change)} {self.verdict}"
        return self.verdict.replace("_", " ")

    @property
    def since(self) -> str:
        """The day from which on it has been slower or faster; empty if it has not."""
        return f"{self.since_at:%Y-%m-%d}" if self.changed and self.since_at else ""

    @property
    def interval(self) -> str:
        """`3.8 to 6.4 %`, in which the change lies nineteen times of twenty; empty without one."""
        if not self.changed or self.change_low is None or self.change_high is None:
            return ""
        ends = sorted(-end if self.verdict == "slower" else end for end in (self.change_low, self.change_high))
        return f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f} %"

    @property
    def visible(self) -> str:
        """The smallest slowdown that would be found; empty where nothing is known yet."""
        return percent(self.smallest) if self.smallest is not None else ""

    @property
    def why(self) -> str:
        """What there is to say of it beside `text`, in one line."""
        if self.verdict == "too_new":
            return f"{self.nights} of {ENOUGH} nights that it takes to know its noise"
        if self.verdict == "too_short":
            return "its passes, or all of the measuring, take too little time to be compared: take more events"
        if self.verdict == "too_noisy" and self.nights is None:
            others = percent((self.steal or 0) + (self.others or 0))
            return f"not compared: others had {others} of the cores, repetitions lie {percent(self.spread)} apart"
        return f"a slowdown of {self.visible} would be found within three nights" if self.visible else ""


def percent(value: float | None) -> str:
    """`5.1 %`, without its sign."""
    return "" if value is None else f"{100 * abs(value):.1f} %"


JUDGED = ("slower", "faster", "unchanged")
# What makes a verdict possible, by the reason why there is none.
REMEDIES = {
    "too_noisy": "leave the host to the run",
    "too_short": "run more events",
    "too_new": f"a verdict takes {ENOUGH} nights",
}


def sentence(speeds: Iterable[tuple[str, str, Speed]], measurable: int) -> str:
    """Summarise the speed of a run.

    Args:
        speeds: of each cell with a verdict on its speed, its label, the short revision of its change, and the verdict.
        measurable: the number of cells that equal the oracle.

    Returns:
        One sentence without a full stop; empty if no cell equals the oracle.
    """
    known = list(speeds)
    if not measurable:
        return ""
    if not known:
        return f"Speed: none of {_cells(measurable)} could be judged: the marts hold no measurement of this run"
    counts = Counter(speed.verdict for _, _, speed in known)
    clauses = [] if any(counts[verdict] for verdict in JUDGED) else [f"none of {_cells(measurable)} could be judged"]
    for verdict in ("slower", "faster"):
        # The newest change comes first.
        changed = sorted((one for one in known if one[2].verdict == verdict), key=lambda one: one[2].found_run or "")
        for label, build, speed in changed[: -4 if len(changed) > 3 else None : -1]:
            clauses.append(f"{label} is {speed.text} since build {build}, {speed.since}")
        if len(changed) > 3:
            clauses.append(f"{len(changed) - 3} more {verdict}")
    if counts["unchanged"]:
        clauses.append(f"{counts['unchanged']} unchanged")
    for verdict, remedy in REMEDIES.items():
        if counts[verdict]:
            clauses.append(f"{counts[verdict]} {verdict.replace('_', ' ')} ({remedy})")
    return "Speed: " + "; ".join(clauses)


def heading(speeds: Iterable[Speed]) -> str:
    """The heading of the speed section: whether a speed changed, none did, or none could be judged."""
    verdicts = {speed.verdict for speed in speeds}
    if verdicts & {"slower", "faster"}:
        return "What became slower or faster"
    return "No change of speed was found" if "unchanged" in verdicts else "No speed could be judged"


def _cells(count: int) -> str:
    return f"{count} cell{'s' * (count > 1)}"
