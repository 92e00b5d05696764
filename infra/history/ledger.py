"""Appends decisions to the raw table `decisions`: which red cells people acknowledged, with name and reason.

One process appends at a time; another one waits. An append checks the whole chain first. It changes no earlier entry.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs.raw import write_raw
from jobs.run_folder import names_in
from streaming_core.errors import BadInput
from streaming_core.regression.decisions import (
    ACKNOWLEDGED,
    TABLE,
    WITHDRAWN,
    acknowledgements,
    chain,
    last_file,
    last_of,
    linked,
)
from streaming_core.regression.home import RUN_ID, Home, new_run_id
from streaming_core.regression.verdict import Verdict, is_green, of_run
from streaming_core.regression.warehouse import SCHEMA_VERSION, rows
from streaming_core.storage import held, sync, write_json

LONGEST = 500  # characters of a reason


def acknowledge(home: Home, run_id: str, names: list[str] | None, by: str, why: str) -> str:
    """Record that a person has seen red cells of a run. The cells stay red.

    Args:
        home: LOCKSTEP_HOME.
        run_id: The run.
        names: The cells; None means every red cell.
        by: The name of the person.
        why: The person's reason.

    Returns:
        A line that says what was recorded.

    Raises:
        BadInput: The reason is empty or too long, the run does not exist, a cell is not red, or the decisions so far
            were changed.
    """
    reason, chosen = _reason(why), choose_red(home, run_id, names)
    append(home, [_about(ACKNOWLEDGED, by, reason) | {"of_run": run_id, "cell": name} for name in chosen])
    return f"run {run_id}: {by} acknowledged {len(chosen)} red cell{'s' * (len(chosen) > 1)}: {reason}"


def withdraw(home: Home, run_id: str, names: list[str] | None, by: str, why: str) -> str:
    """Record that acknowledgements of red cells no longer hold. The entries of both decisions stay.

    Args:
        home: LOCKSTEP_HOME.
        run_id: The run.
        names: The cells; None means every acknowledged cell.
        by: The name of the person.
        why: The person's reason.

    Returns:
        A line that says what was recorded.

    Raises:
        BadInput: The reason is empty or too long, a cell is not acknowledged, or the decisions so far were changed.
    """
    reason = _reason(why)
    acknowledged = [cell for of_run, cell in acknowledgements(home) if of_run == run_id]
    chosen = _choose(run_id, names, acknowledged, "acknowledged", "withdraw")
    append(home, [_about(WITHDRAWN, by, reason) | {"of_run": run_id, "cell": name} for name in chosen])
    return f"run {run_id}: {by} withdrew {len(chosen)} acknowledgement{'s' * (len(chosen) > 1)}: {reason}"


def choose_red(home: Home, run_id: str, names: list[str] | None) -> list[str]:
    """The named red cells of a run.

    Args:
        home: LOCKSTEP_HOME.
        run_id: The run.
        names: The cells; None means every red cell.

    Raises:
        BadInput: The run does not exist or has no verdicts, or a cell is not red.
    """
    if not RUN_ID.fullmatch(run_id) or not home.run(run_id).is_dir():
        raise BadInput(f"{home.root / 'runs'} has no run {run_id!r}: `lockstep report` prints the id of the newest run")
    by_cell = verdicts(home, run_id)
    if by_cell is None:
        raise BadInput(f"run {run_id} has no verdicts yet: acknowledge its red cells after the run ends")
    return _choose(run_id, names, red_cells(by_cell), "red", "acknowledge")


def _choose(run_id: str, names: list[str] | None, cells: list[str], kind: str, decision: str) -> list[str]:
    """The named ones of `cells`, or all. `kind` and `decision` are words of the errors."""
    if not cells:
        raise BadInput(f"run {run_id} has no {kind} cells: there is nothing to {decision}")
    if unknown := set(names or ()) - set(cells):
        raise BadInput(
            f"run {run_id} has no {kind} cell {', '.join(sorted(unknown))}; its {kind} cells: {', '.join(cells)}"
        )
    return [name for name in cells if names is None or name in names]


def verdicts(home: Home, run_id: str) -> dict[str, Verdict] | None:
    """The verdict on each cell and find of a run; None until the tasks validate_outputs and load_metrics have run.

    Raises:
        BadInput: The run's plan is damaged.
    """
    cells, checks, samples, finds = (rows(home, table, run_id) for table in ("cells", "verdicts", "samples", "finds"))
    if cells is None or checks is None:
        return None
    return of_run(_planned_cells(home.run(run_id)), cells, checks, samples or [], finds or [])


def red_cells(by_cell: dict[str, Verdict]) -> list[str]:
    """The cells that make a run red."""
    return [name for name, (verdict, _) in by_cell.items() if not is_green([verdict])]


def _planned_cells(run: Path) -> list[str]:
    return names_in(run / "plan.json", lambda plan: [cell["cell"] for cell in plan["cells"]])


def _reason(why: str) -> str:
    """A reason in one line; raises BadInput if it is empty or too long."""
    reason = " ".join(why.split())
    if not reason:
        raise BadInput("the reason is empty: say why you decide so")
    if len(reason) > LONGEST:
        raise BadInput(f"the reason must have at most {LONGEST} characters, got {len(reason)}")
    return reason


def _about(decision: str, by: str, reason: str) -> dict[str, Any]:
    return {"decision": decision, "decided_by": by, "why": reason, "decided_at": datetime.now(UTC)}


def append(home: Home, decisions: list[dict[str, Any]]) -> None:
    """Append entries to the chain, as one new file.

    Args:
        home: LOCKSTEP_HOME.
        decisions: The columns of each entry, apart from ids and digests.

    Raises:
        BadInput: An entry was changed, removed or moved, or a file cannot be read.
    """
    with held(home.raw(TABLE)):
        before = last_of(chain(home))
        if not before.entry:
            # Readers take entries without this file for a chain whose end was removed.
            write_json(last_file(home), before._asdict())
        run_id = new_run_id()
        key = {"schema_version": SCHEMA_VERSION, "run_id": run_id}
        entries = list(linked(before, [key | row for row in decisions]))
        part = write_raw(home, TABLE, run_id, entries)
        # The entries must be on the disk before the file that names them.
        for folder in (part.parent, part.parent.parent):
            sync(folder)
        write_json(last_file(home), last_of(entries)._asdict())
