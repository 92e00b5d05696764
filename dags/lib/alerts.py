"""Alerts about runs that fail, slow down or are late, and the digest of a week, sent through Airflow's notifiers.

Each channel is an Airflow connection. A channel without its connection is off:

    lockstep_alert_smtp      mail; extra: from_email, to
    lockstep_alert_apprise   chat services and webhooks; extra: config (an Apprise URL contains its secret)

docs/how-to/send-alerts.md explains how to create them. A message is plain text: no template is rendered, and mail
escapes it. Each message stands alone: what happened, in which run, on which build and host, since when, and what to do
first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from socket import gethostname
from typing import Any
from urllib.parse import quote

from airflow.sdk import BaseHook, BaseNotifier, Connection, conf
from airflow.sdk.exceptions import AirflowNotFoundException

from infra.checkout import home
from reports.history import Cell, History, Results, Run, revision, short, started
from reports.site import file_name
from streaming_core.errors import BadInput, RunFailed
from streaming_core.regression.project import TITLE, named
from streaming_core.regression.verdict import WRONG

log = logging.getLogger(__name__)

SHOWN = 5  # red cells that an alert lists with their reasons
# What to do first, by the most serious kind of an alert.
FIRST_STEPS = {
    "mismatch": "A result is wrong, so do not release this build. Open the link: the page of each red cell shows the "
    "first rows that differ, and the input event of each.",
    "failure": "Open the link: the page names the cell or the stage that failed, and the reason. Repair that, then "
    "start the run again.",
    "slowdown": "No result is wrong. Open the link to see the speed of the cell in all runs. To confirm the change, "
    "compare with the build before in the DAG speed_gate.",
    "late": "Open the link and look for the task that is still running or queued. Its log names the run, the host or "
    "the process that it waits for.",
    "decision": "Open the link, type your reason, and choose. Without a response, nothing changes.",
    "stale": "Open the link. If results are too old, check that the nightly DAG is on, and look at its last run. "
    "Otherwise the log of the task says why their age is unknown.",
    "digest": "Open the link for the state of all cells.",
}
# Sections of the runbook, by kind.
RUNBOOK = {
    "mismatch": "the-night-is-red",
    "failure": "the-night-is-red",
    "slowdown": "the-night-is-slower",
    "late": "the-night-is-late",
    "decision": "4-acknowledge-it",
    "stale": "the-night-is-late",
    "digest": "runbook",
}


@dataclass(frozen=True)
class Message:
    """An alert.

    Attributes:
        kinds: The kinds that apply, most serious first: keys of FIRST_STEPS.
        sentence: What happened, in one line.
        url: The page with the details.
        details: Lines about the run: its build and host, its red cells, its slower cells.
        attachment: The run's report as one file, if it exists.
    """

    kinds: list[str]
    sentence: str
    url: str
    details: list[str]
    attachment: Path | None = None

    @property
    def title(self) -> str:
        """The project and the kinds: `Lockstep: mismatch, slowdown`.

        It contains no text of an application, because some services render a title.
        """
        return f"{TITLE}: {', '.join(self.kinds)}"

    @property
    def lines(self) -> list[str]:
        """The text, line by line."""
        most_serious = self.kinds[0]
        runbook = page_url(f"lockstep/docs/runbook.html#{RUNBOOK[most_serious]}")
        return [self.sentence, *self.details, self.url, FIRST_STEPS[most_serious], f"Runbook: {runbook}"]


class Alert(BaseNotifier):
    """Sends the alert about a run when its task `verdict` ends."""

    def __init__(self, run_id: Callable[[Any], str], **kwargs: Any):
        super().__init__(**kwargs)
        self._run_id = run_id

    def notify(self, context: Any) -> None:
        """Send the alert about the run of `context`."""
        send(lambda: verdict_message(self._run_id(context), context.get("exception")))


class Question(BaseNotifier):
    """Sends the alert about a task that waits for a decision."""

    def notify(self, context: Any) -> None:
        """Send the alert about the task of `context`."""
        send(lambda: question_message(context["ti"]))


class Stale(BaseNotifier):
    """Sends the alert about a task that found the newest results too old."""

    def notify(self, context: Any) -> None:
        """Send the alert about the task of `context`."""
        send(lambda: stale_message(context["dag_run"], context.get("exception")))


async def late(context: dict[str, Any]) -> None:
    """Send the alert about a nightly run that is still queued or running at its deadline.

    Airflow calls it in the triggerer.

    Args:
        context: `dag_run` as the API shows it, and the `deadline`.
    """
    # A failed run keeps its deadline; its verdict has sent the alert.
    if context["dag_run"]["state"] in ("queued", "running"):
        # In a thread: sending would block the triggerer's event loop.
        await asyncio.to_thread(send, lambda: late_message(context["dag_run"], context["deadline"]["deadline_time"]))


def send(compose: Callable[[], Message | None]) -> None:
    """Send a message through every channel that has a connection.

    If a channel fails, the log gets one line without secrets, and the other channels still send.

    Args:
        compose: Returns the message, or None if there is no news. Not called without a channel.
    """
    connections = {conn_id: known for conn_id in CHANNELS if (known := connection(conn_id))}
    if not connections or (message := compose()) is None:
        return
    for conn_id, known in connections.items():
        try:
            CHANNELS[conn_id](known, message)
        except (BadInput, RunFailed) as error:
            log.error("alert not sent through %s: %s", conn_id, error)
        except Exception as error:  # its text may contain a secret of the connection
            log.error("alert not sent through %s: %s", conn_id, type(error).__name__)


def verdict_message(run_id: str, exception: object = None) -> Message | None:
    """The message about a run with a verdict; None if nothing is wrong and nothing became slower.

    Args:
        run_id: Lockstep's id of the run.
        exception: what the task `verdict` failed with, if it failed.
    """
    try:
        run = History(home()).run(run_id)
    except BadInput:  # the run has no plan
        run = Run(home=home(), run_id=run_id, plan={}, cells=[])
    # A slowdown is news only in the run that found it.
    gated = [cell for cell in run.gated if cell.gate and cell.gate.verdict == "slower"]
    slower = gated + [
        cell
        for cell in run.speeds
        if cell.speed and cell.speed.verdict == "slower" and cell.speed.detected_in == run_id and cell not in gated
    ]
    red = [cell for cell in (*run.cells, *run.finds) if cell.red]
    mismatch = any(cell.verdict in WRONG for cell in red)
    failure = any(cell.verdict not in WRONG for cell in red) or (exception and not mismatch)
    conditions = {"mismatch": mismatch, "failure": failure, "slowdown": slower}
    kinds = [kind for kind, applies in conditions.items() if applies]
    if not kinds:
        return None
    sentence = " ".join(str(exception).split()) if exception else run.sentence
    details = [*_about(run), *red_lines(run, red), *map(slower_line, slower)]
    report = home().report(run_id, file_name(run_id))
    return Message(
        kinds, sentence, page_url(f"lockstep/{run_id}/index.html"), details, report if report.exists() else None
    )


def _about(run: Run) -> list[str]:
    """The run, its build and its host, in one line."""
    parts = [f"Run {run.run_id}, started {run.started}"]
    if run.matrix:
        parts.append(f"matrix {run.matrix}")
    if run.build:
        parts.append(f"build {short(run.build)}")
    if run.hosts:
        parts.append(f"host {', '.join(run.hosts)}")
    return [", ".join(parts)]


def red_lines(results: Results, red: Sequence[Cell]) -> list[str]:
    """A line per red cell, with its reason and the first run in which it is red."""
    lines = [
        f"{cell.label} {cell.outcome.word}, red since the run of "
        f"{started(results.red_since.get(cell.name, cell.run_id))}: {' '.join(cell.reason.split())}"
        for cell in red[:SHOWN]
    ]
    if len(red) > SHOWN:
        count = len(red) - SHOWN
        lines.append(f"and {count} more red cell{'s' * (count > 1)}")
    return lines


def slower_line(cell: Cell) -> str:
    """A line on a cell that became slower."""
    if cell.gate and cell.gate.verdict == "slower":
        gate, against = cell.gate, revision(cell.gate.baseline_ref, cell.gate.baseline)
        return f"{cell.label} is {gate.text} ({gate.interval}) in build {short(gate.build)} than in {against}"
    assert cell.speed is not None
    return f"{cell.label} is {cell.speed.text} since {cell.speed.since}, build {short(cell.speed.since_build)}"


def late_message(run: dict[str, Any], deadline: datetime | str) -> Message:
    """The message about a nightly run that missed its deadline.

    Args:
        run: The DAG run as Airflow's API shows it.
        deadline: The time by which the run should have ended.
    """
    began, due = (datetime.fromisoformat(str(time)).astimezone(UTC) for time in (run["run_after"], deadline))
    sentence = f"The nightly run of {began:%Y-%m-%d %H:%M} UTC was due by {due:%H:%M} UTC, and is still {run['state']}."
    details = [f"Host {gethostname()}, Airflow run {run['dag_run_id']} of the DAG {run['dag_id']}"]
    return Message(["late"], sentence, page_url(f"dags/{run['dag_id']}/runs/{quote(run['dag_run_id'])}"), details)


def question_message(task: Any) -> Message:
    """The message about a task that waits for a decision. `task` is the running task instance."""
    operator = task.task
    # Not HITLOperator.generate_link_to_ui: it drops the path of the base URL, and quotes nothing.
    url = page_url(f"dags/{task.dag_id}/runs/{quote(task.run_id)}/tasks/{task.task_id}/required_actions")
    users = ", ".join(user["name"] for user in operator.assigned_users or [])
    details = [
        f"Airflow run {task.run_id} of the DAG {task.dag_id}",
        f"Approvers: {users or 'every user with edit access'}",
    ]
    return Message(["decision"], " ".join(operator.subject.split()), url, details)


def stale_message(run: Any, exception: object) -> Message:
    """The message about results that are too old, or whose age is unknown.

    Args:
        run: The DAG run of the check.
        exception: What its task failed with.
    """
    details = [f"Host {gethostname()}, Airflow run {run.run_id} of the DAG {run.dag_id}"]
    return Message(
        ["stale"], " ".join(str(exception).split()), page_url(f"dags/{run.dag_id}/runs/{quote(run.run_id)}"), details
    )


def page_url(path: str) -> str:
    """The address of a page below Airflow's."""
    return f"{conf.get('api', 'base_url').rstrip('/')}/{path}"


def connection(conn_id: str) -> Connection | None:
    """A connection of Airflow; None if there is none of that id."""
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return None


def extra(connection: Connection, field: str) -> Any:
    """A field of the connection's extra.

    Raises:
        BadInput: The extra lacks it.
    """
    if not (value := connection.extra_dejson.get(field)):
        raise BadInput(f"the extra of the connection lacks {field!r}: add it in Airflow under Admin, Connections")
    return value


def _send_mail(connection: Connection, message: Message) -> None:
    from airflow.providers.smtp.notifications.smtp import SmtpNotifier

    # notify() is called directly: calling the notifier itself would render the text as a Jinja template.
    SmtpNotifier(
        smtp_conn_id=connection.conn_id,
        from_email=extra(connection, "from_email"),
        to=extra(connection, "to"),
        subject=f"{message.title}: {message.sentence}"[:200],
        html_content="".join(f"<p>{escape(line)}</p>" for line in message.lines),
        files=[str(message.attachment)] if message.attachment else None,
    ).notify({})


def _send_apprise(connection: Connection, message: Message) -> None:
    import apprise
    from airflow.providers.apprise.hooks.apprise import AppriseHook

    extra(connection, "config")
    # Apprise's log lines quote URLs and tokens.
    logging.getLogger("apprise").setLevel(logging.CRITICAL)
    hook, services = AppriseHook(connection.conn_id), apprise.Apprise()
    hook.set_config_from_conn(connection, services)
    entries = hook.get_config_from_conn(connection)
    invalid = (len(entries) if isinstance(entries, list) else 1) - len(services)
    kind = apprise.NotifyType.WARNING
    if {"mismatch", "failure"}.intersection(message.kinds):
        kind = apprise.NotifyType.FAILURE
    elif message.kinds == ["digest"]:
        kind = apprise.NotifyType.INFO
    # AppriseNotifier is not used, because it ignores failures.
    with services.notify(
        title=message.title,
        body="\n".join(message.lines),
        notify_type=kind,
        body_format=apprise.NotifyFormat.TEXT,
    ) as result:
        failures = [f"{service.name} did not accept the message" for service in result if not service]
    if invalid > 0:
        failures.append(f"{invalid} of the URLs in 'config', in the extra of the connection, are not Apprise URLs")
    if failures:
        raise RunFailed("; ".join(failures))


CHANNELS: dict[str, Callable[[Connection, Message], None]] = {
    named("lockstep_alert_smtp"): _send_mail,
    named("lockstep_alert_apprise"): _send_apprise,
}
