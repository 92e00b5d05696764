"""Alerts, sent to a real mail server and a real HTTP server on loopback: texts, failures, no secrets in logs."""

import asyncio
import email
import json
import logging
import os
import re
import socketserver
from datetime import UTC, datetime
from email.policy import default
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace

import pytest
from airflow.utils.state import DagRunState

from dags.lib.alerts import RUNBOOK, Alert, late, send, verdict_message
from dags.lib.approvals import question
from dags.lib.digest import digest
from infra.airflow import connections
from infra.checkout import ROOT
from infra.lint import links
from reports.attachment import attachment
from reports.history import History, short
from reports.pages import Pages
from reports.site import file_name, write
from streaming_core.regression.project import PREFIX, TITLE, named
from tests.reports import past_runs
from tests.reports.past_runs import LAST, RUN_IDS

SECRET = "the-secret-of-this-address"
PASSWORD = "the password of the mail server"
SMTP = {"EHLO": "250-here\r\n250 AUTH PLAIN", "AUTH": "235 welcome", "DATA": "354 go on", "QUIT": "221 bye"}


def connect_apprise(monkeypatch, *urls: str) -> None:
    connection = {"conn_type": "apprise", "extra": {"config": [{"path": url} for url in urls]}}
    monkeypatch.setenv(f"AIRFLOW_CONN_{PREFIX.upper()}LOCKSTEP_ALERT_APPRISE", json.dumps(connection))


@pytest.fixture
def web(monkeypatch):
    """A web server behind the connection for Apprise, with the received requests and the status code of its answers."""
    got, answers = [], [200]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(answers[0])
            self.send_header("Location", "http://127.0.0.1:1/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever).start()
        connect_apprise(monkeypatch, f"json://127.0.0.1:{server.server_port}/{SECRET}")
        yield got, answers
        server.shutdown()


@pytest.fixture
def mail(monkeypatch):
    """A mail server behind the connection for mail: the recipients and messages that it received."""
    got: list[tuple[list[str], email.message.EmailMessage]] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            say = lambda line: self.wfile.write(f"{line}\r\n".encode())  # noqa: E731
            say("220 here")
            to: list[str] = []
            while line := self.rfile.readline().decode().strip():
                word = line[:4].upper()
                say(SMTP.get(word, "250 yes"))
                if word == "RCPT":
                    to.append(line.partition("<")[2].rstrip(">"))
                elif word == "DATA":
                    text = b"".join(iter(self.rfile.readline, b".\r\n"))
                    got.append((to, email.message_from_bytes(text, policy=default)))
                    say("250 yes")
                elif word == "QUIT":
                    return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever).start()
        extra = {"from_email": "lockstep@example.org", "to": "ann@example.org, ben@example.org"}
        extra |= {"disable_ssl": True, "disable_tls": True, "retry_limit": 1}
        connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": server.server_address[1], "extra": extra}
        connection |= {"login": "lockstep", "password": PASSWORD}
        monkeypatch.setenv(f"AIRFLOW_CONN_{PREFIX.upper()}LOCKSTEP_ALERT_SMTP", json.dumps(connection))
        yield got
        server.shutdown()


@pytest.fixture
def home(lockstep_home):
    past_runs.make(lockstep_home)
    return lockstep_home


def end(run_id: str, exception: object = None) -> None:
    """Send the alert as Airflow does after the task `verdict` of the run."""
    Alert(lambda context: run_id)({"exception": exception} if exception else {})


def reach_deadline(state: str) -> None:
    """Send the alert as Airflow does at the deadline of a nightly run in this state."""
    run = {"dag_id": "nights", "dag_run_id": "scheduled__2026-01-06T02:00:00+00:00", "state": state}
    deadline = {"deadline_time": "2026-01-06T08:00:30+01:00"}
    asyncio.run(late({"dag_run": {**run, "run_after": "2026-01-06T02:00:00Z"}, "deadline": deadline}))


def test_channel_without_its_connection_is_off(home, web, mail, monkeypatch, caplog):
    monkeypatch.delenv(f"AIRFLOW_CONN_{PREFIX.upper()}LOCKSTEP_ALERT_SMTP")
    end(LAST)
    assert (len(web[0]), len(mail)) == (1, 0)
    monkeypatch.delenv(f"AIRFLOW_CONN_{PREFIX.upper()}LOCKSTEP_ALERT_APPRISE")
    end(LAST)
    assert (len(web[0]), len(mail)) == (1, 0)
    assert errors(caplog) == []


def test_slowdown_alert_of_the_gate_names_application_way_and_both_builds(home, web):
    received, _ = web
    past_runs.make(home, red=False)
    past_runs.gate(home, "v1")
    end(LAST)
    ((_, body),) = received
    assert body["title"] == f"{TITLE}: slowdown"
    assert body["message"].splitlines()[2] == (
        "gs/serial/t2 is 4.2 % slower (3.1 to 5.5 %) in build abc423def than in v1 (abc323def)"
    ), "the trend found it too, and it is told once"
    assert sum("% slower" in line for line in body["message"].splitlines()) == 1


def test_apprise_sends_broken_and_slower_cells(home, web):
    received, _ = web
    end(LAST)
    ((path, body),) = received
    assert (path, body["title"]) == (f"/{SECRET}", f"{TITLE}: mismatch, failure, slowdown")
    run = History(home).run(LAST)
    sentence, about, *red, slower, url, first_step, runbook = body["message"].splitlines()
    assert sentence == run.sentence
    assert about == f"Run {LAST}, started 2026-01-05 02:00 UTC, build {short(run.build)}, host node1"
    assert [line.partition(" ")[0] for line in red] == [cell.label for cell in run.cells if cell.red]
    assert all("red since the run of 2026-01-05 02:00 UTC: " in line for line in red)
    assert slower == "gs/serial/t2 is 5.1 % slower since 2026-01-04, build abc323def"
    assert url.endswith(f"/lockstep/{LAST}/index.html")
    assert first_step.startswith("A result is wrong")
    assert runbook.endswith("/lockstep/docs/runbook.html#the-night-is-red")
    assert body["type"] == "failure"
    end(RUN_IDS[0])
    assert len(received) == 1, "a green run that slowed nothing sends no alert"


def test_apprise_text_is_neither_template_nor_escape_sequence(home, web):
    received, _ = web
    end(LAST, "{{ 7 * 191 }} <!channel> & \\n all")
    ((_, body),) = received
    assert body["message"].splitlines()[0] == "{{ 7 * 191 }} <!channel> & \\n all"
    assert "channel" not in body["title"], "some services render a title as markup"


def test_mail_attaches_the_run_as_one_file(home, mail):
    history = History(home)
    write(home.report(LAST, file_name(LAST)), attachment(Pages(history), history.run(LAST)))
    end(LAST, "{{ 7 * 191 }} <b>broke</b>\r\nBcc: eve@example.org")
    ((to, message),) = mail
    assert (to, message["From"]) == (["ann@example.org", "ben@example.org"], "lockstep@example.org")
    assert message["Bcc"] is None
    assert message["Subject"].startswith(f"{TITLE}: mismatch, failure, slowdown: {{{{ 7 * 191 }}}} <b>broke</b> Bcc")
    text, file = message.iter_parts()
    assert "{{ 7 * 191 }} &lt;b&gt;broke&lt;/b&gt;" in text.get_content()
    assert "gs/serial/t2 is 5.1 % slower" in text.get_content()
    assert file.get_filename() == file_name(LAST)
    assert PASSWORD not in message.as_string()


def test_nightly_run_past_its_deadline_is_reported_late(home, web, mail):
    received, _ = web
    reach_deadline("running")
    ((_, body),), ((_, message),) = received, mail
    sentence, about, url, first_step, runbook = body["message"].splitlines()
    assert sentence == "The nightly run of 2026-01-06 02:00 UTC was due by 07:00 UTC, and is still running."
    assert "scheduled__2026-01-06T02:00:00+00:00" in about
    assert first_step.startswith("Open the link")
    assert runbook.endswith("#the-night-is-late")
    assert url.endswith("/dags/nights/runs/scheduled__2026-01-06T02%3A00%3A00%2B00%3A00")
    assert (body["title"], body["type"]) == (f"{TITLE}: late", "warning")
    assert message["Subject"] == f"{TITLE}: late: {sentence}"
    reach_deadline("failed")
    assert len(received) == len(mail) == 1, "its verdict has sent an alert"


def test_decision_alert_names_the_question_its_approvers_and_its_form(web, mail):
    received, _ = web
    operator = question("red_cells", "Acknowledge")
    operator.subject = "Acknowledge 3 red cells?"
    task = SimpleNamespace(task=operator, dag_id="acknowledge_run", run_id="manual__2026-01-06T02:00:00+00:00")
    task.task_id = operator.task_id
    (notifier,) = operator.notifiers
    notifier({"ti": task})
    ((_, body),), ((_, message),) = received, mail
    sentence, run, approvers, url, *_ = body["message"].splitlines()
    assert (sentence, approvers) == ("Acknowledge 3 red cells?", "Approvers: every user with edit access")
    assert task.run_id in run
    path = "/dags/acknowledge_run/runs/manual__2026-01-06T02%3A00%3A00%2B00%3A00/tasks/question/required_actions"
    assert url.endswith(path)
    assert (body["title"], body["type"]) == (f"{TITLE}: decision", "warning")
    assert message["Subject"] == f"{TITLE}: decision: Acknowledge 3 red cells?"


def test_run_without_a_plan_is_reported_as_a_failure(home):
    message = verdict_message("20260106T000000Z-00000000", "nothing was planned")
    assert (message.kinds, message.sentence) == (["failure"], "nothing was planned")
    assert verdict_message(RUN_IDS[0]) is None
    assert verdict_message(RUN_IDS[0], "All equal; but dbt_build did not succeed").kinds == ["failure"]


@pytest.mark.parametrize("code", [500, 302])
def test_failed_channel_logs_one_line_without_secrets_and_the_other_sends(home, web, mail, caplog, capfd, code):
    received, answers = web
    answers[0] = code
    end(LAST)
    assert len(received) == len(mail) == 1
    assert errors(caplog) == [f"alert not sent through {PREFIX}lockstep_alert_apprise: JSON did not accept the message"]
    logged = "".join([*capfd.readouterr(), caplog.text])
    assert SECRET not in logged
    assert PASSWORD not in logged


def test_apprise_sends_while_the_mail_server_is_down(home, web, monkeypatch, caplog, capfd):
    extra = {"from_email": "lockstep@example.org", "to": "ann@example.org", "disable_ssl": True}
    connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": 1, "login": "l", "password": PASSWORD}
    monkeypatch.setenv(f"AIRFLOW_CONN_{PREFIX.upper()}LOCKSTEP_ALERT_SMTP", json.dumps(connection | {"extra": extra}))
    end(LAST)
    assert len(web[0]) == 1
    assert errors(caplog) == [f"alert not sent through {PREFIX}lockstep_alert_smtp: ConnectionRefusedError"]
    assert PASSWORD not in "".join([*capfd.readouterr(), caplog.text])


@pytest.mark.parametrize("url", [f"nosuch://{SECRET}", f"slack://{SECRET}", SECRET, f"json:// /{SECRET}"])
def test_invalid_apprise_url_is_not_logged_and_valid_ones_get_the_alert(home, monkeypatch, web, caplog, capfd, url):
    (valid,) = json.loads(os.environ[f"AIRFLOW_CONN_{PREFIX.upper()}LOCKSTEP_ALERT_APPRISE"])["extra"]["config"]
    connect_apprise(monkeypatch, url, valid["path"])
    end(LAST)
    assert len(web[0]) == 1
    reason = "1 of the URLs in 'config', in the extra of the connection, are not Apprise URLs"
    assert errors(caplog) == [f"alert not sent through {PREFIX}lockstep_alert_apprise: {reason}"]
    assert SECRET not in "".join([*capfd.readouterr(), caplog.text])


@pytest.mark.parametrize(
    ("channel", "extra", "reason"),
    [
        ("smtp", {"to": "ann@example.org"}, "the extra of the connection lacks 'from_email': add it in "),
        ("smtp", {"from_email": "lockstep@example.org"}, "the extra of the connection lacks 'to': add it in "),
        ("apprise", {}, "the extra of the connection lacks 'config': add it in "),
    ],
)
def test_incomplete_connection_is_reported_in_one_line(home, monkeypatch, caplog, channel, extra, reason):
    connection = json.dumps({"conn_type": channel, "extra": extra})
    monkeypatch.setenv(f"AIRFLOW_CONN_{PREFIX.upper()}LOCKSTEP_ALERT_{channel.upper()}", connection)
    end(LAST)
    (line,) = errors(caplog)
    assert line.startswith(f"alert not sent through {PREFIX}lockstep_alert_{channel}: {reason}")


@pytest.mark.slow
def test_refused_run_sends_an_alert_through_airflow(dags, lockstep_home, web, capfd, caplog):
    received, _ = web
    conf = connections.DEFAULTS | {"applications": ["nosuch"]}
    assert dags[named("streaming_regression")].test(run_conf=conf).state == DagRunState.FAILED
    ((_, body),) = received
    assert body["title"] == f"{TITLE}: failure"
    assert body["message"].startswith("Refused: unknown application 'nosuch'")
    assert SECRET not in "".join([*capfd.readouterr(), caplog.text])
    kept = [path for path in lockstep_home.root.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert kept == []


def errors(caplog) -> list[str]:
    """The lines that a person sees in the log."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_digest_goes_to_every_channel_as_text_and_html(home, web, mail):
    received, _ = web
    past_runs.make(home, matrix="nightly")
    send(lambda: digest(home, datetime(2026, 1, 6, 8, tzinfo=UTC)))
    ((_, body),) = received
    sentence, *lines = body["message"].splitlines()
    assert (body["title"], body["type"]) == (f"{TITLE}: digest", "info")
    assert sentence == "4 of 5 nights were green; 3 cells are red"
    assert lines[0] == "Nights:"
    assert [line.split()[1:5:3] for line in lines[1:6]] == [
        [f"2026-01-0{day}", "red:" if day == 5 else "green:"] for day in range(1, 6)
    ]
    assert lines[6] == "Red since this week:"
    assert lines[7].startswith("- gs/owners/t2 failed, red since the run of 2026-01-05 02:00 UTC: ")
    assert "- gs/serial/t2 is 5.1 % slower since 2026-01-04, build abc323def" in lines
    assert any(re.fullmatch(r"Disk: 0.0 GB in LOCKSTEP_HOME; [\d.]+ GB are free", line) for line in lines)
    ((to, message),) = mail
    assert to == ["ann@example.org", "ben@example.org"]
    assert message["subject"] == f"{TITLE}: digest: {sentence}"
    html = message.get_body(("html",)).get_content()
    assert all(f"<p>{escape(line)}</p>" in html for line in lines[:8])


def test_digest_counts_the_bytes_of_each_folder(home):
    (home.root / "runs" / "large").write_bytes(b"x" * 60_000_000)
    (line,) = [line for line in digest(home, datetime.now(UTC)).lines if line.startswith("Disk: ")]
    assert line.startswith("Disk: 0.1 GB in LOCKSTEP_HOME (runs 0.1); ")


@pytest.mark.slow  # test_stale_results_send_an_alert runs such a DAG
def test_weekly_digest_is_off_by_default_and_prints_its_text(dags, home, web, capfd):
    dag = dags[named("digest")]
    assert dag.is_paused_upon_creation
    assert dag.timetable.expression == "0 8 * * 1"
    assert dag.test().state == DagRunState.SUCCESS
    ((_, body),) = web[0]
    assert body["title"] == f"{TITLE}: digest"
    assert body["message"].splitlines()[0] in capfd.readouterr().out


def test_stale_results_send_an_alert(dags, lockstep_home, web):
    """An empty home has no results: dbt need not be asked."""
    dag = dags[named("freshness")]
    assert dag.is_paused_upon_creation
    assert dag.timetable.expression == "0 8 * * *"
    assert dag.test().state == DagRunState.FAILED
    ((_, body),) = web[0]
    assert body["title"] == f"{TITLE}: stale"
    sentence, about, url, *_ = body["message"].splitlines()
    assert sentence.endswith("has no results yet: start a run with `lockstep run`")
    assert f"of the DAG {dag.dag_id}" in about
    assert f"/dags/{dag.dag_id}/runs/" in url


def test_every_alert_leads_to_a_section_of_the_runbook():
    assert set(RUNBOOK.values()) <= links.anchors(ROOT / "docs" / "runbook.md")
