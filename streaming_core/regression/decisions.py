"""Which red cells people have acknowledged, and why.

Rows of the raw table `decisions`; none is ever changed, the latest on a subject counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from streaming_core.regression.home import RUN_ID, Home
from streaming_core.regression.warehouse import rows


@dataclass(frozen=True)
class Decision:
    """A row of raw `decisions`: a red cell of a run is acknowledged."""

    decided_by: str
    why: str
    decided_at: datetime
    of_run: str
    cell: str

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
    return sorted(known, key=lambda one: (one.decided_at, one.of_run, one.cell))


def acknowledgements(home: Home) -> dict[tuple[str, str], Decision]:
    """By run and cell, the last acknowledgement."""
    return {(one.of_run, one.cell): one for one in decisions(home)}
