"""The verdict on a cell and on a run. This module alone defines both.

A cell's verdict follows from rows of the raw tables (warehouse.py):

- `verdicts` has the findings of the comparison, one row per check;
- `samples` has the measurements, one row per pass;
- `cells` has the way in which the cell ended.

The loader judges each cell of a run and stores the verdict in the cell's row. All other code calls `of`, which reads it
there. `of` judges a cell without a stored verdict, because its run is not loaded yet.

These rules apply, the first one first:

- `different`: a result differs, or the digests of the passes do. This outranks checks that agree, and a later attempt
  that failed.
- `invariant_broken`: the results agree, but rows break an invariant of the application. The oracle's rows break it too,
  so the application or its declaration is wrong.
- `failed`: the cell failed. This holds for a bound too.
- `not_run`: no check compared a row, or the cell has no checks.
- `not_comparable`: the cell is a bound that ran. Its results do not matter.
- `equal`: every check agreed, and each compared rows.

A find of the search for faults, a row of the raw table `finds`, counts as a red cell of the run (`of_find`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

VERDICTS = ("equal", "different", "invariant_broken", "failed", "not_run", "not_comparable")
WRONG = frozenset({"different", "invariant_broken"})
GREEN = frozenset({"equal", "not_comparable"})
OF_SYMPTOMS = {
    "result": "different",
    "oracle": "different",
    "invariant": "invariant_broken",
    "property": "invariant_broken",
}
COUNTS = ("missing", "extra", "different", "out_of_order")

Row = Mapping[str, Any]


class Verdict(NamedTuple):
    """The verdict on a cell: one of VERDICTS, and the reason in one line (None if the verdict is `equal`)."""

    verdict: str
    reason: str | None


def of(cell: Row, checks: Sequence[Row], samples: Sequence[Row]) -> Verdict:
    """The verdict on a cell: the stored one, else that of `judge`."""
    if cell.get("verdict") is not None:
        return Verdict(cell["verdict"], cell.get("reason"))
    return judge(cell, checks, samples)


def judge(cell: Row, checks: Sequence[Row], samples: Sequence[Row]) -> Verdict:
    """Judge a cell by its rows.

    Args:
        cell: `is_bound`, and if the run is loaded, `status` and `error`.
        checks: Its rows of the raw table `verdicts`.
        samples: Its rows of the raw table `samples`.
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


def find_cell(app: str, digest: str) -> str:
    """The name of a find as a red cell; `digest` is that of its case."""
    return f"{app}.find.{digest}"


def of_find(find: Row) -> Verdict:
    """The verdict on a find, from its row of the raw table `finds`."""
    return Verdict(OF_SYMPTOMS.get(find["kind"], "failed"), find["reason"])


def of_run(
    planned: Iterable[str] | None,
    cells: Iterable[Row],
    checks: Iterable[Row],
    samples: Iterable[Row],
    finds: Iterable[Row] = (),
) -> dict[str, Verdict]:
    """The verdict on every cell of a run, by name.

    Args:
        planned: Names of the planned cells, also of those without rows; None: the cells in `cells`.
        cells: The run's rows of the raw table `cells`.
        checks: Its rows of the raw table `verdicts`.
        samples: Its rows of the raw table `samples`.
        finds: Its rows of the raw table `finds`.
    """
    known, compared, measured = {row["cell"]: row for row in cells}, _by_cell(checks), _by_cell(samples)
    missing = {"is_bound": False, "status": "not_run"}
    return {
        name: of(known.get(name, missing), compared.get(name, []), measured.get(name, []))
        for name in dict.fromkeys([*(planned or ()), *known])
    } | {find["cell"]: of_find(find) for find in finds}


def is_green(verdicts: Iterable[str]) -> bool:
    """Whether a run is green: each of its planned cells is equal, or a bound that ran. A run without cells is not."""
    distinct = set(verdicts)
    return bool(distinct) and distinct <= GREEN


def _compared(check: Row) -> bool:
    """Whether a check compared a row of either side."""
    return max(check.get("expected_rows") or 0, check.get("actual_rows") or 0) > 0


def _finding(checks: Sequence[Row], verdict: str) -> str | None:
    """`<check>: <its finding>` of the most specific check that has a finding.

    Checks with this verdict come first; checks of rows come before those of digests and counts. `digest` says more of a
    pass that was made again than `rerun`.
    """
    ranks = {"outputs": 0, "digest": 2, "counts": 2, "rerun": 3}
    for row in sorted(checks, key=lambda row: (row["verdict"] != verdict, ranks.get(row["check"], 1))):
        counted = ", ".join(f"{row[name]} {_counted(row, name)}" for name in COUNTS if row.get(name))
        nothing = "no row was compared" if row["verdict"] == "equal" and not _compared(row) else ""
        if finding := "; ".join(filter(None, (row.get("detail"), counted, nothing))):
            return f"{row['check']}: {finding}"
    return None


def _counted(check: Row, name: str) -> str:
    if check["verdict"] == "invariant_broken":
        return "row breaks it" if check[name] == 1 else "rows break it"
    return name.replace("_", " ")


def _by_cell(rows: Iterable[Row]) -> dict[str, list[Row]]:
    by_cell: dict[str, list[Row]] = {}
    for row in rows:
        by_cell.setdefault(row["cell"], []).append(row)
    return by_cell
