"""Times on pages: always with date and zone, as `<time>` that a browser can read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from markupsafe import Markup

MINUTE, HOUR, DAY = 60, 3600, 86400  # in seconds
STALE = 7  # days after which a result is stale


def of_run(run_id: str) -> datetime:
    """The time of a run's request: the first part of its id."""
    return datetime.strptime(run_id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)


def text(moment: datetime) -> str:
    """`2026-01-31 02:00 UTC`."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def started(run_id: str) -> str:
    """`2026-01-31 02:00 UTC`: the time of a run's request."""
    return text(of_run(run_id))


def html(moment: datetime | str | None, only_day: bool = False) -> Markup:
    """`text` as a `<time>`; empty without a time.

    Args:
        moment: the time, or the id of a run, which stands for its request.
        only_day: show the day alone; the tooltip has the rest.
    """
    if not moment:
        return Markup("")
    at = (of_run(moment) if isinstance(moment, str) else moment).astimezone(UTC)
    shown, tooltip = text(at), ""
    if only_day:
        shown, tooltip = f"{at:%Y-%m-%d}", f' title="{shown}"'
    return Markup(f'<time datetime="{at:%Y-%m-%dT%H:%M:%SZ}"{tooltip}>{shown}</time>')


def age(moment: datetime | str, now: datetime | None) -> str:
    """`3 hours ago`; empty if `now` is unknown, because a page in a file does not know when it is read.

    Args:
        moment: the time, or the id of a run, which stands for its request.
        now: the time of the request for the page.
    """
    if now is None:
        return ""
    seconds = (now - (of_run(moment) if isinstance(moment, str) else moment)).total_seconds()
    if seconds < MINUTE:
        return "just now"
    units = ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"))
    size, unit = next((size, unit) for size, unit in units if seconds >= size)
    count = int(seconds // size)
    return f"{count} {unit}{'s' * (count != 1)} ago"


@dataclass(frozen=True)
class RunAge:
    """A run and its distance in days to the newest run."""

    run_id: str
    days: int

    @classmethod
    def before(cls, run_id: str, newest: str) -> Self:
        """The run and its distance to the newest run."""
        return cls(run_id, (of_run(newest).date() - of_run(run_id).date()).days)

    @property
    def text(self) -> str:
        """`2026-01-02, 3 days before`."""
        ago = {0: "", 1: ", a day before"}.get(self.days, f", {self.days} days before")
        return f"{started(self.run_id)[:10]}{ago}"

    @property
    def stale(self) -> bool:
        """Whether it is more than a week older than the newest run."""
        return self.days > STALE
