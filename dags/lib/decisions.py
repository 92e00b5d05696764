"""Ask Airflow's users before a decision, and record their response with their name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from infra.checkout import home
from infra.services import decisions, gate
from reports.history import History
from reports.publish import publish
from streaming_core.errors import BadInput, RunFailed

RESPONSE_TIMEOUT = timedelta(days=7)  # without a response in this time, nothing is decided
NO = "Leave it"


def fail_in_one_line(work: Callable[..., Any]) -> Callable[..., Any]:
    """Make bad input and a failed run fail the task for good, with one line."""

    @wraps(work)
    def wrapper(*arguments: Any) -> Any:
        try:
            return work(*arguments)
        except (BadInput, RunFailed) as error:
            raise AirflowFailException(str(error)) from None

    return wrapper


def question(task_id: str, yes: str) -> HITLOperator:
    """Ask whether to do what a task proposes, and why. Every user that may edit the DAG's runs may respond.

    Args:
        task_id: the task that proposes it; its result has `subject` and `body`.
        yes: the option that accepts it.
    """
    templates = {name: f"{{{{ ti.xcom_pull(task_ids='{task_id}')['{name}'] }}}}" for name in ("subject", "body")}
    why = Param(
        "",
        type="string",
        maxLength=decisions.LONGEST,
        title="Why",
        description="Your reason. The run's pages show it with your name.",
    )
    return HITLOperator(
        task_id="question", options=[yes, NO], params={"why": why}, response_timeout=RESPONSE_TIMEOUT, **templates
    )


def accepted(response: dict[str, Any]) -> tuple[str, str]:
    """Airflow's user that accepted the proposal, and the reason.

    Raises:
        AirflowSkipException: the user did not accept it.
        BadInput: Airflow names no user.
    """
    user, why = response["responded_by_user"] or {}, response["params_input"].get("why") or ""
    name = user.get("name") or user.get("id")
    if not name:
        raise BadInput("Airflow names no user for this response, so nothing is decided")
    if response["chosen_options"] == [NO]:
        raise AirflowSkipException(f"left as it is, by {name}: {why}")
    return name, why


@fail_in_one_line
def red_cells(run_id: str, names: str) -> dict[str, Any]:
    """The red cells of a run, as a proposal to acknowledge them.

    Args:
        run_id: the run; empty means the newest run with red cells.
        names: names of cells, separated by commas; empty means all red cells.

    Returns:
        `run`, `cells`, `subject` and `body`.
    """
    red = (
        one for one in reversed(History(home()).run_ids()) if decisions.red_cells(decisions.verdicts(home(), one) or {})
    )
    run_id = run_id or next(red, "")
    if not run_id:
        raise BadInput("no run has red cells")
    cells = decisions.seen(home(), run_id, _names(names))
    run = History(home()).run(run_id)
    lines = [f"{cell.label} {cell.outcome.word}: {cell.reason}" for cell in run.cells if cell.name in cells]
    return {
        "run": run_id,
        "cells": cells,
        "subject": f"Red in the run of {run.started}: {len(cells)} cell{'s' * (len(cells) > 1)}. Have you seen this?",
        "body": _plain(lines),
    }


@fail_in_one_line
def acknowledge(proposal: dict[str, Any], response: dict[str, Any]) -> str:
    """Acknowledge the cells of a proposal, if the response accepts it; returns the line that says so."""
    line = decisions.acknowledge(home(), proposal["run"], proposal["cells"], *accepted(response))
    publish(home(), proposal["run"])
    return line


@fail_in_one_line
def to_measure(ref: str, run_id: str, names: str) -> dict[str, str]:
    """The run to measure beside another commit, and its cells.

    Args:
        ref: the other commit.
        run_id: the run; empty means the newest one.
        names: names of cells, separated by commas; empty means all cells that equal the oracle.
    """
    request = gate.request(home(), ref, run_id or None, _names(names))
    return {"run": request.run_id, "cells": ",".join(cell["cell"] for cell in request.cells)}


def _names(text: str) -> list[str] | None:
    return [name.strip() for name in text.split(",") if name.strip()] or None


def _plain(lines: list[str]) -> str:
    """The lines as Markdown that shows them literally."""
    return "\n".join(f"    {' '.join(line.split())}" for line in lines)
