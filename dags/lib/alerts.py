"""Alerts: tell people what a run broke or slowed, through Airflow's notifiers.

Each channel is an Airflow connection. A channel without its connection is off:

    lockstep_alert_smtp      mail; extra: from_email, to
    lockstep_alert_apprise   chat services and webhooks; extra: config (an Apprise URL holds its secret)

docs/how-to/send-alerts.md shows how to create them. A message is plain text: Lockstep renders no template in it, and
mail escapes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from airflow.sdk import BaseHook, BaseNotifier, Connection, conf
from airflow.sdk.exceptions import AirflowNotFoundException

from infra.checkout import home
from reports.history import History, Run
from reports.pages import file_name
from streaming_core.errors import BadInput, RunFailed
from streaming_core.regression.verdict import WRONG

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Message:
    """What an alert says.

    Attributes:
        kinds: of mismatch, failure, slowdown, late, those that apply.
        sentence: what happened, in one line.
        slower: a line per cell that became slower in this run.
        url: the page with the details.
        attachment: the run's report as one file, if it has been written.
    """

    kinds: list[str]
    sentence: str
    url: str
    slower: list[str]
    attachment: Path | None = None

    @property
    def title(self) -> str:
        """`Lockstep: mismatch, slowdown`. Holds no text of an application: some services render a title as markup."""
        return f"Lockstep: {', '.join(self.kinds)}"

    @property
    def lines(self) -> list[str]:
        """The text, line by line."""
        return [self.sentence, *self.slower, self.url]


class Alert(BaseNotifier):
    """Sends the alert of a run when the task `verdict` has ended."""

    def __init__(self, run_id: Callable[[Any], str], **kwargs):
        """`run_id`: returns Lockstep's id of the run of a context."""
        super().__init__(**kwargs)
        self._run_id = run_id

    def notify(self, context) -> None:
        send(lambda: verdict_message(self._run_id(context), context.get("exception")))


async def late(context: dict[str, Any]) -> None:
    """Sends the alert of a nightly run that is still queued or running at its deadline.

    Airflow calls it in the triggerer.

    Args:
        context: `dag_run` as the API shows it, and the `deadline`.
    """
    # A failed run keeps its deadline; its verdict has sent the alert.
    if context["dag_run"]["state"] in ("queued", "running"):
        # In a thread: sending would block the triggerer's event loop.
        await asyncio.to_thread(send, lambda: late_message(context["dag_run"], context["deadline"]["deadline_time"]))


def send(compose: Callable[[], Message | None]) -> None:
    """Sends a message through every channel that has a connection.

    A channel that fails is one line in the log, without secrets; the other channels still send.

    Args:
        compose: returns the message, or None if there is nothing to tell. Not called without a channel.
    """
    connections = {conn_id: connection for conn_id in CHANNELS if (connection := _connection(conn_id))}
    if not connections or (message := compose()) is None:
        return
    for conn_id, connection in connections.items():
        try:
            CHANNELS[conn_id](connection, message)
        except (BadInput, RunFailed) as error:
            log.error("alert not sent through %s: %s", conn_id, error)
        except Exception as error:  # its text may contain a secret of the connection
            log.error("alert not sent through %s: %s", conn_id, type(error).__name__)


def verdict_message(run_id: str, exception: object = None) -> Message | None:
    """The message on a run that has its verdict; None if nothing is wrong and nothing became slower.

    Args:
        run_id: Lockstep's id of the run.
        exception: what the task `verdict` failed with, if it failed.
    """
    try:
        run = History(home()).run(run_id)
    except BadInput:  # the run has no plan
        run = Run(run_id=run_id, plan={}, cells=[])
    slower = [
        f"{cell.label} is {cell.speed.text} since {cell.speed.since}"
        for cell in run.speeds
        # A slowdown is news only in the run that found it.
        if cell.speed and cell.speed.verdict == "slower" and cell.speed.found_run == run_id
    ]
    mismatch = any(cell.verdict in WRONG for cell in run.cells)
    failure = any(cell.red and cell.verdict not in WRONG for cell in run.cells) or (exception and not mismatch)
    conditions = {"mismatch": mismatch, "failure": failure, "slowdown": slower}
    kinds = [kind for kind, applies in conditions.items() if applies]
    if not kinds:
        return None
    sentence = " ".join(str(exception).split()) if exception else run.sentence
    report = home().report(run_id, file_name(run_id))
    return Message(kinds, sentence, _url(f"lockstep/{run_id}/index.html"), slower, report if report.exists() else None)


def late_message(run: dict[str, Any], deadline: datetime | str) -> Message:
    """The message on a nightly run that has missed its deadline.

    Args:
        run: the DAG run as Airflow's API shows it.
        deadline: when the run had to have ended.
    """
    began, due = (datetime.fromisoformat(str(time)).astimezone(UTC) for time in (run["run_after"], deadline))
    sentence = f"the run of {began:%Y-%m-%d %H:%M} UTC was due by {due:%H:%M} UTC and is still {run['state']}"
    return Message(["late"], sentence, _url(f"dags/{run['dag_id']}/runs/{quote(run['dag_run_id'])}"), [])


def _url(path: str) -> str:
    return f"{conf.get('api', 'base_url').rstrip('/')}/{path}"


def _connection(conn_id: str) -> Connection | None:
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        return None


def _extra(connection: Connection, field: str) -> Any:
    """A field of the connection's extra.

    Raises:
        BadInput: the extra lacks it.
    """
    if not (value := connection.extra_dejson.get(field)):
        raise BadInput(f"the connection's extra lacks {field!r}")
    return value


def _send_mail(connection: Connection, message: Message) -> None:
    from airflow.providers.smtp.notifications.smtp import SmtpNotifier

    # notify() is called directly: calling the notifier itself would render the text as a Jinja template.
    SmtpNotifier(
        smtp_conn_id=connection.conn_id,
        from_email=_extra(connection, "from_email"),
        to=_extra(connection, "to"),
        subject=f"{message.title}: {message.sentence}"[:200],
        html_content="".join(f"<p>{escape(line)}</p>" for line in message.lines),
        files=[str(message.attachment)] if message.attachment else None,
    ).notify({})


def _send_apprise(connection: Connection, message: Message) -> None:
    import apprise
    from airflow.providers.apprise.hooks.apprise import AppriseHook

    _extra(connection, "config")
    # Apprise's own log lines quote URLs and tokens.
    logging.getLogger("apprise").setLevel(logging.CRITICAL)
    hook, services = AppriseHook(connection.conn_id), apprise.Apprise()
    hook.set_config_from_conn(connection, services)
    entries = hook.get_config_from_conn(connection)
    invalid = (len(entries) if isinstance(entries, list) else 1) - len(services)
    serious = {"mismatch", "failure"}.intersection(message.kinds)
    # Not through AppriseNotifier: it drops the result, and with it every failure.
    with services.notify(
        title=message.title,
        body="\n".join(message.lines),
        notify_type=apprise.NotifyType.FAILURE if serious else apprise.NotifyType.WARNING,
        body_format=apprise.NotifyFormat.TEXT,
    ) as result:
        failures = [f"{service.name} did not accept it" for service in result if not service]
    if invalid > 0:
        failures.append(f"{invalid} of the URLs in its extra 'config' are no Apprise URLs")
    if failures:
        raise RunFailed("; ".join(failures))


CHANNELS: dict[str, Callable[[Connection, Message], None]] = {
    "lockstep_alert_smtp": _send_mail,
    "lockstep_alert_apprise": _send_apprise,
}
