"""What persons have decided: which build is the baseline of speed, and which red cells they have seen.

Rows of the raw table `decisions`; none is ever changed, the latest on a subject counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from streaming_core.regression.home import RUN_ID, Home
from streaming_core.regression.warehouse import rows


@dataclass(frozen=True)
class Decision:
    """A row of raw `decisions`: what, by whom, why and when; `kind` says which of the others there are."""

    kind: str
    decided_by: str
    why: str
    decided_at: datetime
    build: str | None = None
    environment: str | None = None
    of_run: str | None = None
    cell: str | None = None

    @property
    def text(self) -> str:
        """`ada, 2026-01-31 07:12 UTC: a hash table that grows`."""
        return f"{self.decided_by}, {self.decided_at:%Y-%m-%d %H:%M} UTC: {self.why}"


def decisions(home: Home) -> list[Decision]:
    """Everything that was decided, oldest first.

    Raises:
        BadInput: a part cannot be read.
    """
    ids = (path.name.removeprefix("run_id=") for path in home.raw("decisions").glob("run_id=*"))
    found = [row for run_id in ids if RUN_ID.fullmatch(run_id) for row in rows(home, "decisions", run_id) or []]
    known = [Decision(**{name: row[name] for name in Decision.__dataclass_fields__}) for row in found]
    return sorted(known, key=lambda one: (one.decided_at, one.kind, one.build or "", one.of_run or "", one.cell or ""))


def baseline(home: Home, build: str | None = None) -> Decision | None:
    """By which `build` became the baseline, else the build that is it now; None where there is none."""
    accepted = [one for one in decisions(home) if one.kind == "baseline" and build in (None, one.build)]
    return accepted[-1] if accepted else None


def acknowledgements(home: Home) -> dict[tuple[str, str], Decision]:
    """By run and cell, who has seen that it is red, and what they said of it last."""
    found = {}
    for one in decisions(home):
        if one.kind == "acknowledgement":
            found[one.of_run or "", one.cell or ""] = one
    return found
