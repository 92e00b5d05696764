"""The verdict: when a cell is equal to its oracle, and when a run is green. The one statement of both rules.

A cell's verdict follows from rows of the raw tables (warehouse.py): what the comparison found (`verdicts`, one row per
check), what was measured (`samples`, one row per pass), and how the cell ended (`cells`). It is computed when a run is
loaded and kept in the cell's row; everybody else asks `of`, which reads it there, and judges a cell that has none: one
of a run that is not loaded yet.

- A result that differs outranks everything else: other checks that agree, a later attempt that failed. So do passes
  whose digests are not all the same.
- `invariant_broken`: what was compared agrees, but rows break an invariant of the application. So do its oracle's: it
  is the application, or what was declared of it, that is wrong.
- A cell that failed is never excused, not even a bound.
- `equal` is what is left when nothing speaks against it: every check agreed, and each compared something. A check that
  compared nothing has not passed, and a cell without checks was not run.
- A bound that ran is `not_comparable`, whatever it produced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

VERDICTS = ("equal", "different", "invariant_broken", "failed", "not_run", "not_comparable")
WRONG = frozenset({"different", "invariant_broken"})
GREEN = frozenset({"equal", "not_comparable"})
COUNTS = ("missing", "extra", "different", "out_of_order")

Row = Mapping[str, Any]


class Verdict(NamedTuple):
    """What became of a cell: one of VERDICTS, and one line on why it is not `equal` (None when it is)."""

    verdict: str
    reason: str | None


def of(cell: Row, checks: Sequence[Row], samples: Sequence[Row]) -> Verdict:
    """The verdict on a cell: the one that it was loaded with, else what `judge` says."""
    if cell.get("verdict") is not None:
        return Verdict(cell["verdict"], cell.get("reason"))
    return judge(cell, checks, samples)


def judge(cell: Row, checks: Sequence[Row], samples: Sequence[Row]) -> Verdict:
    """The verdict on a cell, from what was found.

    Args:
        cell: `is_bound`, and once the run is loaded `status` and `error`.
        checks: its rows of the raw table `verdicts`.
        samples: its rows of the raw table `samples`.
    """
    verdicts = {row["verdict"] for row in checks}
    digests = {row["digest"] for row in samples}
    if not cell["is_bound"] and ("different" in verdicts or len(digests) > 1):
        why = _finding(checks, "different") or f"the measured passes have {len(digests)} different digests"
        return Verdict("different", why)
    if not cell["is_bound"] and "invariant_broken" in verdicts:
        return Verdict("invariant_broken", _finding(checks, "invariant_broken"))
    status = cell.get("status") or "ok"
    if "failed" in verdicts or status == "failed":
        return Verdict("failed", cell.get("error") or _finding(checks, "failed") or "the run of the cell failed")
    if status != "ok" or not checks or "not_run" in verdicts:
        why = cell.get("error") or _finding(checks, "not_run") or "no result was compared"
        return Verdict("not_run", why)
    if cell["is_bound"]:
        return Verdict("not_comparable", _finding(checks, "not_comparable") or "the cell is a bound, not a result")
    if verdicts == {"equal"} and all(map(_compared, checks)):
        return Verdict("equal", None)
    return Verdict("not_run", _finding(checks, "equal") or "not all checks found the results equal")


def of_run(
    planned: Iterable[str] | None, cells: Iterable[Row], checks: Iterable[Row], samples: Iterable[Row]
) -> dict[str, Verdict]:
    """The verdict on every cell of a run, by name.

    Args:
        planned: names of the cells that were planned, also of those that nothing is known of; None: those of `cells`.
        cells, checks, samples: the run's rows of the raw tables.
    """
    known, compared, measured = {row["cell"]: row for row in cells}, _by_cell(checks), _by_cell(samples)
    missing = {"is_bound": False, "status": "not_run"}
    return {
        name: of(known.get(name, missing), compared.get(name, []), measured.get(name, []))
        for name in dict.fromkeys([*(planned or ()), *known])
    }


def is_green(verdicts: Iterable[str]) -> bool:
    """Whether a run whose planned cells have these verdicts is right: each is equal, or a bound that ran.

    A run of nothing is not green.
    """
    found = set(verdicts)
    return bool(found) and found <= GREEN


def _compared(check: Row) -> bool:
    """Whether there was a row to compare on either side."""
    return max(check.get("expected_rows") or 0, check.get("actual_rows") or 0) > 0


def _finding(checks: Sequence[Row], verdict: str) -> str | None:
    """`<check>: <what it found>` of the check that tells most, if one found anything.

    One that has `verdict` tells more than another, rows tell more than digests and counts do.
    """
    told = {"outputs": 0, "digest": 2, "counts": 2}
    for row in sorted(checks, key=lambda row: (row["verdict"] != verdict, told.get(row["check"], 1))):
        counted = ", ".join(f"{row[name]} {_counted(row, name)}" for name in COUNTS if row.get(name))
        nothing = "no row was compared" if row["verdict"] == "equal" and not _compared(row) else ""
        if found := "; ".join(filter(None, (row.get("detail"), counted, nothing))):
            return f"{row['check']}: {found}"
    return None


def _counted(check: Row, name: str) -> str:
    if check["verdict"] == "invariant_broken":
        return "row breaks it" if check[name] == 1 else "rows break it"
    return name.replace("_", " ")


def _by_cell(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["cell"], []).append(row)
    return found
