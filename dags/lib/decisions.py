"""What Airflow's users are asked before a decision, and what becomes of their answer."""

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

PATIENCE = timedelta(days=7)  # in which somebody answers, else nothing is decided
NO = "Leave it"


def said(work: Callable[..., Any]) -> Callable[..., Any]:
    """What is wrong with what was asked fails a task for good, in one line."""

    @wraps(work)
    def told(*arguments: Any) -> Any:
        try:
            return work(*arguments)
        except (BadInput, RunFailed) as error:
            raise AirflowFailException(str(error)) from None

    return told


def question(about: str, yes: str) -> HITLOperator:
    """Asks whether to do as the task `about` says, and why. Whoever has access to the DAG may answer."""
    told = {name: f"{{{{ ti.xcom_pull(task_ids='{about}')['{name}'] }}}}" for name in ("subject", "body")}
    why = Param(
        "", type="string", maxLength=decisions.LONGEST, title="Why", description="A decision has a reason; it is kept."
    )
    return HITLOperator(task_id="question", options=[yes, NO], params={"why": why}, response_timeout=PATIENCE, **told)


def answer(given: dict[str, Any]) -> tuple[str, str]:
    """Who has said yes, and why.

    Raises:
        AirflowSkipException: it was a no.
    """
    user = given["responded_by_user"] or {}
    by, why = user.get("name") or user.get("id") or "unknown", given["params_input"].get("why") or ""
    if given["chosen_options"] == [NO]:
        raise AirflowSkipException(f"left as it is, by {by}: {why}")
    return by, why


@said
def red_cells(run_id: str, names: str) -> dict[str, Any]:
    """The red cells of a run (empty: the newest that has such), or those of them that are named: run, cells, subject,
    body."""
    newest = (
        one for one in reversed(History(home()).run_ids()) if decisions.red_cells(decisions.verdicts(home(), one) or {})
    )
    about = run_id or next(newest, None)
    if about is None:
        raise BadInput("no run has red cells")
    chosen = decisions.seen(home(), about, _names(names))
    run = History(home()).run(about)
    shown = [cell for cell in run.cells if cell.name in chosen]
    return {
        "run": about,
        "cells": chosen,
        "subject": f"Red in the run of {run.started}: {len(chosen)} cell{'s' * (len(chosen) > 1)}. Have you seen this?",
        "body": _plain([f"{cell.label} {cell.outcome.word}: {cell.reason}" for cell in shown]),
    }


@said
def acknowledge(asked: dict[str, Any], given: dict[str, Any]) -> str:
    """Notes that the cells that were asked about have been seen, if the answer is yes; the line that says so."""
    line = decisions.acknowledge(home(), asked["run"], asked["cells"], *answer(given))
    publish(home(), asked["run"])
    return line


@said
def to_measure(ref: str, run_id: str, names: str) -> dict[str, str]:
    """The run to measure beside the commit `ref` (empty: the newest), and its cells, all or those that are named."""
    asked = gate.request(home(), ref, run_id or None, _names(names))
    return {"run": asked.run_id, "cells": ",".join(cell["cell"] for cell in asked.cells)}


def _names(text: str) -> list[str] | None:
    return [name.strip() for name in text.split(",") if name.strip()] or None


def _plain(lines: list[str]) -> str:
    """Lines as Markdown that says nothing but them, whatever they hold."""
    return "\n".join(f"    {' '.join(line.split())}" for line in lines)
