"""The verdict of the trend on a cell's speed, in words.

The mart `speed` holds it (docs/explanation/speed-verdicts.md). It never turns a run red.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Self

ENOUGH = 15  # nights; the mart compares the last three with the others (jobs/trend.py)


@dataclass(frozen=True)
class Speed:
    """A row of the mart `speed`. The run that detected a change is its column `found_run`."""

    verdict: str
    to_loop: float | None = None
    nights: int | None = None
    smallest: float | None = None
    since_at: datetime | None = None
    since_build: str | None = None
    detected_in: str | None = None
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None
    spread: float | None = None
    steal: float | None = None
    others: float | None = None
    edited_build: str | None = None
    reference_build: str | None = None
    bridge_run: str | None = None

    @classmethod
    def of(cls, row: dict) -> Self:
        """The verdict in a row that may have other columns too."""
        columns = {name: {"detected_in": "found_run"}.get(name, name) for name in cls.__dataclass_fields__}
        return cls(**{name: row[column] for name, column in columns.items() if column in row})

    @property
    def is_judged(self) -> bool:
        """Whether the trend has a verdict. Pages show any other speed in grey, in no headline and in no ratio."""
        return self.verdict in JUDGED

    @property
    def is_fit(self) -> bool:
        """Whether the measurement can be compared within its run: long enough, and without much disturbance."""
        return self.verdict != "too_short" and not (self.verdict == "too_noisy" and self.nights is None)

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
        """The day since which it is slower or faster; empty if its speed is unchanged."""
        return f"{self.since_at:%Y-%m-%d}" if self.changed and self.since_at else ""

    @property
    def interval(self) -> str:
        """`3.8 to 6.4 %`, the 95 % interval of the change; empty without a change."""
        if not self.changed or self.change_low is None or self.change_high is None:
            return ""
        ends = sorted(-end if self.verdict == "slower" else end for end in (self.change_low, self.change_high))
        return f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f} %"

    @property
    def visible(self) -> str:
        """The smallest slowdown that Lockstep detects; empty while that is unknown."""
        return percent(self.smallest) if self.smallest is not None else ""

    @property
    def why(self) -> str:
        """The reason for the verdict in one line; empty without one."""
        if self.verdict == "too_new":
            return f"{self.nights} of the {ENOUGH} nights that a verdict needs"
        if self.verdict == "not_judged":
            before = self.reference_build or "REF"
            return (
                f"its source, or the loop, changed in build {self.edited_build or 'unknown'}, and the speed gate did "
                f"not measure the change; run `lockstep gate --against {before.removesuffix('-dirty')}`"
            )
        if self.verdict == "too_short":
            return "its passes are too short to compare: run more events"
        if self.verdict == "too_noisy" and self.nights is None:
            others = percent((self.steal or 0) + (self.others or 0))
            spread = percent(self.spread)
            return f"not compared: other work used {others} of the cores, and repetitions differ by {spread}"
        if self.bridge_run:
            power = f", and detects a slowdown of {self.visible}" if self.visible else ""
            return f"the speed gate compared its build with the one before the source changed{power}"
        return f"Lockstep detects a slowdown of {self.visible} within three nights" if self.visible else ""


def percent(value: float | None) -> str:
    """`5.1 %`, without its sign."""
    return "" if value is None else f"{100 * abs(value):.1f} %"


JUDGED = ("slower", "faster", "unchanged")
# How to get a verdict, by the reason for its absence.
REMEDIES = {
    "too_noisy": "keep other work off the host",
    "too_short": "run more events",
    "too_new": f"a verdict takes {ENOUGH} nights",
    "not_judged": "the source changed, and the speed gate did not measure the change",
    "not_measured": "it takes repetitions, seconds above 0, and marts, which `lockstep warehouse build` makes",
}


def counts(speeds: Iterable[Speed | None]) -> Counter[str]:
    """Cells per verdict on speed; `not_measured` counts those without any."""
    return Counter(speed.verdict if speed else "not_measured" for speed in speeds)


def sentence(speeds: Iterable[tuple[str, str, Speed | None]]) -> str:
    """Summarise the speed of a run.

    Args:
        speeds: label, short revision of the change, and verdict on speed of each cell that equals the oracle.

    Returns:
        One sentence without a full stop; empty without cells.
    """
    known = list(speeds)
    if not known:
        return ""
    number = counts(speed for _, _, speed in known)
    clauses = [] if any(number[verdict] for verdict in JUDGED) else [f"no verdict on {_cells(len(known))}"]
    for verdict in ("slower", "faster"):
        # The newest change comes first.
        chosen = [(label, build, speed) for label, build, speed in known if speed and speed.verdict == verdict]
        changed = sorted(chosen, key=lambda entry: entry[2].detected_in or "")
        for label, build, speed in changed[: -4 if len(changed) > 3 else None : -1]:
            clauses.append(f"{label} is {speed.text} since build {build}, {speed.since}")
        if len(changed) > 3:
            clauses.append(f"{len(changed) - 3} more {verdict}")
    if number["unchanged"]:
        clauses.append(f"{number['unchanged']} unchanged")
    for verdict, remedy in REMEDIES.items():
        if number[verdict]:
            clauses.append(f"{number[verdict]} {verdict.replace('_', ' ')} ({remedy})")
    return "Speed: " + "; ".join(clauses)


def heading(verdicts: Counter[str]) -> str:
    """The heading of the speed section: whether a speed changed, in how many cells none did, or that none is judged."""
    if verdicts["slower"] or verdicts["faster"]:
        return "What became slower or faster"
    if not verdicts["unchanged"]:
        return "No verdict on speed yet"
    if verdicts["unchanged"] == verdicts.total():
        return "No speed changed"
    return f"No speed changed in the {_cells(verdicts['unchanged'])} with a verdict"


def _cells(count: int) -> str:
    return f"{count} cell{'s' * (count > 1)}"
