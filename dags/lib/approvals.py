"""Asks Airflow's users for a decision, and records their response with their name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.hitl import HITLUser

from dags.lib.alerts import Question
from infra.checkout import home
from infra.gate import evaluation
from infra.history import ledger
from infra.profile import cell as profile
from reports.history import History
from reports.publish import publish
from streaming_core.errors import BadInput, RunFailed

RESPONSE_TIMEOUT = timedelta(days=7)  # without a response, the task fails and nothing changes
NO = "Do nothing"


def fail_in_one_line(work: Callable[..., Any]) -> Callable[..., Any]:
    """Make bad input and a failed run fail the task without a retry, with one line."""

    @wraps(work)
    def wrapper(*arguments: Any) -> Any:
        try:
            return work(*arguments)
        except (BadInput, RunFailed) as error:
            raise AirflowFailException(str(error)) from None

    return wrapper


def approvers() -> list[HITLUser] | None:
    """The users of `LOCKSTEP_APPROVERS`, the only ones that may respond; None if each user with edit access may."""
    ids = [user.strip() for user in os.environ.get("LOCKSTEP_APPROVERS", "").split(",") if user.strip()]
    return [HITLUser(id=user, name=user) for user in ids] or None


def question(task_id: str, yes: str) -> HITLOperator:
    """The task that asks the approvers whether to carry out a proposal, and why. The alert channels tell them.

    Args:
        task_id: The task that makes the proposal. Its result has `subject` and `body`.
        yes: The option that accepts the proposal.
    """
    templates = {name: f"{{{{ ti.xcom_pull(task_ids='{task_id}')['{name}'] }}}}" for name in ("subject", "body")}
    # Airflow starts no task whose params have no valid default, so the form cannot require the reason itself.
    reason = Param(
        "",
        type="string",
        maxLength=ledger.LONGEST,
        title="Reason",
        description=f"Required to acknowledge: at most {ledger.LONGEST} characters. The run's pages show it with "
        "your name. Without it, the task acknowledge fails and records nothing.",
    )
    return HITLOperator(
        task_id="question",
        options=[yes, NO],
        params={"why": reason},
        notifiers=Question(),
        assigned_users=approvers(),
        response_timeout=RESPONSE_TIMEOUT,
        doc_md=f"Waits for your response, for {RESPONSE_TIMEOUT.days} days at most. Open the tab **Required Actions**.",
        **templates,
    )


def accepted(response: dict[str, Any]) -> tuple[str, str]:
    """The name of the user that accepted the proposal, and the user's reason.

    Raises:
        AirflowSkipException: The user declined the proposal.
        BadInput: Airflow names no user.
    """
    user, reason = response["responded_by_user"] or {}, response["params_input"].get("why") or ""
    name = user.get("name") or user.get("id")
    if not name:
        raise BadInput(
            "Airflow does not name the user of this response, so nothing was recorded: log in, and respond again"
        )
    if response["chosen_options"] == [NO]:
        raise AirflowSkipException(f"{name} chose {NO!r}, so nothing was recorded; reason: {reason or 'none'}")
    return name, reason


@fail_in_one_line
def red_cells(run_id: str, names: str) -> dict[str, Any]:
    """Propose to acknowledge red cells of a run.

    Args:
        run_id: The run; empty means the newest run with red cells.
        names: Names of cells, separated by commas; empty means every red cell.

    Returns:
        `run`, `cells`, `subject` and `body`.
    """
    red = (
        run_id
        for run_id in reversed(History(home()).run_ids())
        if ledger.red_cells(ledger.verdicts(home(), run_id) or {})
    )
    run_id = run_id or next(red, "")
    if not run_id:
        raise BadInput("no run has red cells: there is nothing to acknowledge")
    cells = ledger.choose_red(home(), run_id, _names(names))
    run = History(home()).run(run_id)
    lines = [f"{cell.label} {cell.outcome.word}: {cell.reason}" for cell in run.cells if cell.name in cells]
    return {
        "run": run_id,
        "cells": cells,
        "subject": f"Acknowledge {len(cells)} red cell{'s' * (len(cells) > 1)} of the run of {run.started}?",
        "body": _plain(lines),
    }


@fail_in_one_line
def acknowledge(proposal: dict[str, Any], response: dict[str, Any]) -> str:
    """Acknowledge the cells of a proposal if the response accepts it; returns a line about what was recorded."""
    line = ledger.acknowledge(home(), proposal["run"], proposal["cells"], *accepted(response))
    publish(home(), proposal["run"])
    return line


@fail_in_one_line
def to_measure(ref: str, run_id: str, names: str) -> dict[str, str]:
    """The run and the cells to compare with another commit.

    Args:
        ref: The other commit.
        run_id: The run; empty means the newest one.
        names: Names of cells, separated by commas; empty means every cell that is equal.
    """
    request = evaluation.request(home(), ref, run_id or None, _names(names))
    return {"run": request.run_id, "cells": ",".join(cell["cell"] for cell in request.cells)}


@fail_in_one_line
def to_profile(cell: str, run_id: str) -> dict[str, str]:
    """The run and the cell to profile; an empty `run_id` means the newest run."""
    request = profile.request(home(), cell, run_id or None)
    return {"run": request.run_id, "cell": request.cell}


def _names(text: str) -> list[str] | None:
    return [name.strip() for name in text.split(",") if name.strip()] or None


def _plain(lines: list[str]) -> str:
    """The lines as a Markdown list that shows them literally."""
    return "\n".join(map(_item, lines))


def _item(line: str) -> str:
    text = " ".join(line.split())
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"- {fence} {text} {fence}"
