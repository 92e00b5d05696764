"""Records which red cells people acknowledge: rows of the raw table `decisions`, each with a name and a reason."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from jobs.raw import write_raw
from streaming_core.errors import BadInput
from streaming_core.regression.home import RUN_ID, Home, new_run_id
from streaming_core.regression.verdict import Verdict, is_green, of_run
from streaming_core.regression.warehouse import rows

LONGEST = 500  # characters of a reason


def acknowledge(home: Home, run_id: str, names: list[str] | None, by: str, why: str) -> str:
    """Notes that a run's red cells, or those of them that are named, have been seen; the line that says so. They stay
    red.

    Raises:
        BadInput: there is no reason, no such run, or no such cell that is red.
    """
    reason, chosen = _reason(why), seen(home, run_id, names)
    _decide(home, by, reason, [{"of_run": run_id, "cell": name} for name in chosen])
    return f"run {run_id}: {len(chosen)} red cell{'s' * (len(chosen) > 1)} acknowledged, by {by}: {reason}"


def seen(home: Home, run_id: str, names: list[str] | None) -> list[str]:
    """The red cells of a run, or those of them that are named; raises as `acknowledge` does."""
    if not RUN_ID.fullmatch(run_id) or not home.run(run_id).is_dir():
        raise BadInput(f"no run {run_id!r} in {home.root / 'runs'}")
    found = verdicts(home, run_id)
    if found is None:
        raise BadInput(f"run {run_id} has no verdicts yet: there is nothing to acknowledge")
    wrong = red_cells(found)
    if not wrong:
        raise BadInput(f"run {run_id} is green: only red cells need acknowledging")
    if unknown := set(names or ()) - set(wrong):
        raise BadInput(f"run {run_id} has no red cell {', '.join(sorted(unknown))}; red: {', '.join(wrong)}")
    return [name for name in wrong if names is None or name in names]


def verdicts(home: Home, run_id: str) -> dict[str, Verdict] | None:
    """The verdict on each cell of a run, by cell; None until the run is compared and loaded.

    Raises:
        BadInput: the run's plan is damaged.
    """
    cells, checks, samples = (rows(home, table, run_id) for table in ("cells", "verdicts", "samples"))
    if cells is None or checks is None:
        return None
    return of_run(_planned_cells(home, run_id), cells, checks, samples or [])


def red_cells(outcome: dict[str, Verdict]) -> list[str]:
    """The cells that make a run red."""
    return [name for name, (verdict, _) in outcome.items() if not is_green([verdict])]


def _planned_cells(home: Home, run_id: str) -> list[str]:
    path = home.run(run_id) / "plan.json"
    try:
        return [cell["cell"] for cell in json.loads(path.read_text())["cells"]]
    except FileNotFoundError:
        return []
    except (ValueError, LookupError, TypeError):
        raise BadInput(f"{path} is damaged; repair or remove {path.parent} by hand") from None


def _reason(why: str) -> str:
    """A reason in one line."""
    reason = " ".join(why.split())
    if not reason:
        raise BadInput("a decision has a reason: say why")
    if len(reason) > LONGEST:
        raise BadInput(f"a reason has {LONGEST} characters at most, this one has {len(reason)}")
    return reason


def _decide(home: Home, by: str, reason: str, decisions: list[dict[str, Any]]) -> None:
    about = {"decided_by": by, "why": reason, "decided_at": datetime.now(UTC)}
    write_raw(home, "decisions", new_run_id(), [row | about for row in decisions])
