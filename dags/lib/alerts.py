"""Alerts: what a run broke or slowed, told where people are. Off until the environment says where to (.env.example).

    LOCKSTEP_ALERT_MAIL      addresses, with commas between them; the server is Airflow's connection `smtp_default`
    LOCKSTEP_ALERT_SLACK     address of an incoming webhook of Slack, or of what takes the same: {"text": ...}
    LOCKSTEP_ALERT_WEBHOOK   address that gets the whole alert as JSON
    LOCKSTEP_ALERT_ON        of what: mismatch, failure, slowdown, late; all of them unless it is set

An address of a webhook is a secret: it is read when it is needed, and no log, page or XCom has it. What is told is text
to whoever gets it: no template, no markup.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import UTC, datetime
from html import escape
from typing import Any
from urllib.parse import quote

import requests
from airflow.providers.smtp.hooks.smtp import SmtpHook
from airflow.sdk import BaseNotifier, conf

from infra.checkout import home
from reports.history import History, Run
from reports.pages import file_name
from streaming_core.errors import BadInput, RunFailed
from streaming_core.regression.verdict import WRONG

KINDS = ("mismatch", "failure", "slowdown", "late")
SECONDS = 10.0


class Alert(BaseNotifier):
    """Tells of a run, when its verdict is given, what there is to be told."""

    def __init__(self, run_id: Callable[[Any], str], **kwargs):
        """`run_id`: what Lockstep calls the run of a context."""
        super().__init__(**kwargs)
        self._run_id = run_id

    def notify(self, context) -> None:
        send(lambda: alert(self._run_id(context), context.get("exception")))


async def late(context: dict[str, Any]) -> None:
    """Tells of a night that has not ended by its deadline. Airflow calls it in the triggerer, with what a deadline's
    context has: the run as the API shows it, and when the deadline was."""
    # A run that failed has its deadline still; what it failed of is told by its verdict.
    if context["dag_run"]["state"] in ("queued", "running"):
        # Others wait for the triggerer's loop.
        await asyncio.to_thread(send, lambda: too_late(context["dag_run"], context["deadline"]["deadline_time"]))


def send(make: Callable[[], dict[str, Any]]) -> None:
    """Sends what `make` says to every place that is set; one that fails does not keep it from the others.

    Raises:
        BadInput: LOCKSTEP_ALERT_ON names nothing that is told of.
        RunFailed: where it could not be sent, and by which kind of error; no address, no answer.
    """
    places = {name: os.environ.get(f"LOCKSTEP_ALERT_{name.upper()}", "").strip() for name in SENDERS}
    if not any(places.values()):
        return
    told = make()
    if not set(told["kinds"]) & wanted():
        return
    failed = []
    for name, where in places.items():
        if where:
            try:
                SENDERS[name](where, told)
            except Exception as error:  # whatever it says may have the address in it
                failed.append(f"{name} ({type(error).__name__})")
    if failed:
        raise RunFailed(f"the alert could not be sent by {', '.join(failed)}")


def wanted() -> set[str]:
    """The kinds of alerts that are sent."""
    asked = os.environ.get("LOCKSTEP_ALERT_ON", "").replace(",", " ").split() or KINDS
    if unknown := set(asked) - set(KINDS):
        raise BadInput(f"LOCKSTEP_ALERT_ON: unknown {', '.join(sorted(unknown))}; known: {', '.join(KINDS)}")
    return set(asked)


def alert(run_id: str, exception: object = None) -> dict[str, Any]:
    """What there is to tell of a run: kinds (none: nothing), run_id, sentence, speed, slower, url.

    Args:
        exception: what its last task failed with, if it did.
    """
    try:
        run = History(home()).run(run_id)
    except BadInput:  # it did not get as far as its plan
        run = Run(run_id, {}, [])
    slower = [
        f"{cell.label} is {cell.speed.text} since {cell.speed.since}"
        for cell in run.speeds
        # A slowdown is news in the run that it was found in.
        if cell.speed and cell.speed.verdict == "slower" and cell.speed.found_run == run_id
    ]
    wrong = any(cell.verdict in WRONG for cell in run.cells)
    failure = any(cell.red and cell.verdict not in WRONG for cell in run.cells) or (exception and not wrong)
    kinds = [kind for kind, is_so in zip(KINDS, (wrong, failure, slower, False), strict=True) if is_so]
    return {
        "kinds": kinds,
        "run_id": run_id,
        "sentence": " ".join(str(exception).split()) if exception else run.sentence,
        "speed": run.speed_sentence,
        "slower": slower,
        "url": _url(f"lockstep/{run_id}/index.html"),
    }


def too_late(run: dict[str, Any], deadline: datetime | str) -> dict[str, Any]:
    """What there is to tell of a night that goes on: as `alert`, by the name that Airflow has for its run."""
    began, by = (datetime.fromisoformat(str(time)).astimezone(UTC) for time in (run["run_after"], deadline))
    return {
        "kinds": ["late"],
        "run_id": run["dag_run_id"],
        "sentence": f"the night of {began:%Y-%m-%d %H:%M} UTC has not ended by {by:%H:%M} UTC, it is {run['state']}",
        "speed": "",
        "slower": [],
        "url": _url(f"dags/{run['dag_id']}/runs/{quote(run['dag_run_id'])}"),
    }


def _url(path: str) -> str:
    return f"{conf.get('api', 'base_url').rstrip('/')}/{path}"


def _lines(told: dict[str, Any]) -> list[str]:
    return [f"Lockstep, {' and '.join(told['kinds'])}: {told['sentence']}", *told["slower"]]


def _mail(where: str, told: dict[str, Any]) -> None:
    # A night that goes on has no report.
    file = home().report(told["run_id"], file_name(told["run_id"])) if told["kinds"] != ["late"] else None
    subject, *_ = _lines(told)
    with SmtpHook() as server:
        server.send_email_smtp(
            to=[address.strip() for address in where.split(",") if address.strip()],
            subject=subject[:200],
            html_content="".join(f"<p>{escape(line)}</p>" for line in [*_lines(told), told["url"]]),
            files=[str(file)] if file and file.exists() else None,
        )


def _slack(where: str, told: dict[str, Any]) -> None:
    text = "\n".join(escape(line, quote=False) for line in _lines(told))
    _post(where, {"text": f"{text}\n<{told['url']}|report>"})


def _post(where: str, body: dict[str, Any]) -> None:
    # Not to where another server sends it: the address is a secret.
    answer = requests.post(where, json=body, timeout=SECONDS, allow_redirects=False)
    if not answer.ok or answer.is_redirect:
        raise ConnectionError


SENDERS: dict[str, Callable[[str, dict[str, Any]], None]] = {"mail": _mail, "slack": _slack, "webhook": _post}
