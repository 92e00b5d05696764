"""Alerts, to a real mail server and a real HTTP server on loopback: what they say, and what nobody gets to see."""

from __future__ import annotations

import asyncio
import email
import json
import socketserver
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from airflow.utils.state import DagRunState

from dags.lib.alerts import Alert, alert, late
from reports.attachment import attachment
from reports.history import History
from reports.pages import Pages, file_name, write
from streaming_core.errors import BadInput, RunFailed
from streaming_core.regression.matrix import refuse
from tests.reports import past_runs
from tests.reports.past_runs import LAST, RUN_IDS

SECRET = "the-secret-of-this-address"
PASSWORD = "the password of the mail server"


@pytest.fixture
def web():
    """Address of a server, what it was sent, and the code that it answers with."""
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
        yield f"http://127.0.0.1:{server.server_port}/{SECRET}", got, answers
        server.shutdown()


@pytest.fixture
def mail(monkeypatch):
    """What a mail server was sent: recipients and message."""
    got: list[tuple[list[str], email.message.EmailMessage]] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            say = lambda line: self.wfile.write(f"{line}\r\n".encode())  # noqa: E731
            say("220 here")
            to: list[str] = []
            while line := self.rfile.readline().decode().strip():
                word = line[:4].upper()
                if word == "EHLO":
                    say("250-here")
                    say("250 AUTH PLAIN")
                elif word == "AUTH":
                    say("235 welcome")
                elif word == "RCPT":
                    to.append(line.partition("<")[2].rstrip(">"))
                    say("250 yes")
                elif word == "DATA":
                    say("354 go on")
                    text = b""
                    while (part := self.rfile.readline()) != b".\r\n":
                        text += part
                    got.append((to, email.message_from_bytes(text, policy=default)))
                    say("250 yes")
                elif word == "QUIT":
                    say("221 bye")
                    return
                else:
                    say("250 yes")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever).start()
        extra = {"from_email": "lockstep@example.org", "disable_ssl": True, "disable_tls": True, "retry_limit": 1}
        connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": server.server_address[1], "extra": extra}
        connection |= {"login": "lockstep", "password": PASSWORD}
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
        yield got
        server.shutdown()


@pytest.fixture
def home(lockstep_home, monkeypatch):
    for name in ("MAIL", "SLACK", "WEBHOOK", "ON"):
        monkeypatch.delenv(f"LOCKSTEP_ALERT_{name}", raising=False)
    past_runs.make(lockstep_home)
    return lockstep_home


def told(run_id: str, exception: object = None) -> None:
    """As Airflow does it, when the task `verdict` has ended."""
    Alert(lambda context: run_id)({"exception": exception} if exception else {})


def test_nothing_is_sent_unless_it_is_said_where_to(home, web, mail):
    told(LAST)
    assert web[1] == mail == []


def test_a_webhook_gets_what_broke_and_what_slowed(home, web, monkeypatch):
    address, got, _ = web
    monkeypatch.setenv("LOCKSTEP_ALERT_WEBHOOK", address)
    told(LAST)
    ((path, body),) = got
    assert path == f"/{SECRET}"
    assert body["kinds"] == ["mismatch", "failure", "slowdown"]
    assert body["sentence"] == History(home).run(LAST).sentence
    assert body["slower"] == ["gs/serial/t2 is 5.1 % slower since 2026-01-04"]
    assert body["url"].endswith(f"/lockstep/{LAST}/index.html")
    told(RUN_IDS[0])
    assert len(got) == 1, "of a green night that slowed nothing there is nothing to tell"


def test_mail_has_the_run_as_one_file(home, mail, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_ALERT_MAIL", "ann@example.org, ben@example.org")
    history = History(home)
    write(home.report(LAST, file_name(LAST)), attachment(Pages(history), history.run(LAST)))
    told(LAST, "{{ 7 * 191 }} <b>broke</b>\r\nBcc: eve@example.org")
    ((to, message),) = mail
    assert to == ["ann@example.org", "ben@example.org"]
    assert message["From"] == "lockstep@example.org"
    assert message["Bcc"] is None
    assert message["Subject"].startswith("Lockstep, mismatch and failure and slowdown: {{ 7 * 191 }} <b>broke</b> Bcc")
    text, file = message.iter_parts()
    assert "{{ 7 * 191 }} &lt;b&gt;broke&lt;/b&gt;" in text.get_content()
    assert "gs/serial/t2 is 5.1 % slower" in text.get_content()
    assert file.get_filename() == file_name(LAST)
    assert PASSWORD not in message.as_string()


def test_slack_gets_text_without_markup(home, web, monkeypatch):
    address, got, _ = web
    monkeypatch.setenv("LOCKSTEP_ALERT_SLACK", address)
    told(LAST, "<!channel> & all")
    ((_, body),) = got
    assert body.keys() == {"text"}
    assert "&lt;!channel&gt; &amp; all" in body["text"]
    assert body["text"].endswith(f"/lockstep/{LAST}/index.html|report>")


def test_who_wants_slowdowns_alone_gets_nothing_else(home, web, monkeypatch):
    address, got, _ = web
    monkeypatch.setenv("LOCKSTEP_ALERT_WEBHOOK", address)
    monkeypatch.setenv("LOCKSTEP_ALERT_ON", "slowdown")
    refuse(home, "20260105T090000Z-00000009", "cli", {}, "unknown application 'nosuch'")
    told("20260105T090000Z-00000009")
    assert got == []
    told(LAST)
    assert len(got) == 1
    monkeypatch.setenv("LOCKSTEP_ALERT_ON", "slowdown,misery")
    with pytest.raises(BadInput, match="unknown misery; known: mismatch, failure, slowdown, late"):
        told(LAST)


def night(state: str) -> None:
    """As Airflow does it, when a night's deadline has come."""
    run = {"dag_id": "nights", "dag_run_id": "scheduled__2026-01-06T02:00:00+00:00", "state": state}
    deadline = {"deadline_time": "2026-01-06T08:00:30+01:00"}
    asyncio.run(late({"dag_run": {**run, "run_after": "2026-01-06T02:00:00Z"}, "deadline": deadline}))


def test_a_night_that_goes_on_is_late(home, web, mail, monkeypatch):
    address, got, _ = web
    monkeypatch.setenv("LOCKSTEP_ALERT_WEBHOOK", address)
    monkeypatch.setenv("LOCKSTEP_ALERT_MAIL", "ann@example.org")
    night("running")
    ((_, body),), ((_, message),) = got, mail
    assert body["kinds"] == ["late"]
    assert body["sentence"] == "the night of 2026-01-06 02:00 UTC has not ended by 07:00 UTC, it is running"
    assert body["url"].endswith("/dags/nights/runs/scheduled__2026-01-06T02%3A00%3A00%2B00%3A00")
    assert message["Subject"] == f"Lockstep, late: {body['sentence']}"
    night("failed")
    assert len(got) == len(mail) == 1, "its verdict has told of it"
    monkeypatch.setenv("LOCKSTEP_ALERT_ON", "slowdown")
    night("queued")
    assert len(got) == len(mail) == 1


def test_a_run_that_failed_without_a_plan_is_a_failure(home):
    found = alert("20260106T000000Z-00000000", "nothing was planned")
    assert (found["kinds"], found["sentence"]) == (["failure"], "nothing was planned")
    assert alert(RUN_IDS[0])["kinds"] == []
    assert alert(RUN_IDS[0], "All equal; but dbt_build did not succeed")["kinds"] == ["failure"]


@pytest.mark.parametrize("code", [500, 302])
def test_what_cannot_be_sent_is_said_without_the_address_and_the_others_are_sent(
    home, web, mail, monkeypatch, caplog, capfd, code
):
    address, got, answers = web
    answers[0] = code
    monkeypatch.setenv("LOCKSTEP_ALERT_SLACK", f"http://127.0.0.1:1/{SECRET}")
    monkeypatch.setenv("LOCKSTEP_ALERT_WEBHOOK", address)
    monkeypatch.setenv("LOCKSTEP_ALERT_MAIL", "ann@example.org")
    with pytest.raises(RunFailed) as failed:
        told(LAST)
    assert str(failed.value) == "the alert could not be sent by slack (ConnectionError), webhook (ConnectionError)"
    assert len(got) == len(mail) == 1
    said = "".join([*capfd.readouterr(), caplog.text, str(failed.getrepr(chain=True))])
    assert SECRET not in said
    assert PASSWORD not in said


def test_a_run_that_is_refused_is_told_of_by_airflow(dags, lockstep_home, web, monkeypatch, capfd, caplog):
    address, got, _ = web
    monkeypatch.setenv("LOCKSTEP_ALERT_WEBHOOK", address)
    given = {"host": "local", "spark": "spark_default", "applications": ["nosuch"]}
    assert dags["streaming_regression"].test(run_conf=given).state == DagRunState.FAILED
    ((_, body),) = got
    assert body["kinds"] == ["failure"]
    assert body["sentence"].startswith("Refused: unknown application 'nosuch'")
    assert SECRET not in "".join([*capfd.readouterr(), caplog.text])
    kept = [path for path in lockstep_home.root.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert kept == []
