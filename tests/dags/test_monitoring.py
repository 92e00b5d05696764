"""The call after each night and the metrics at the end of a run, received by real servers on loopback."""

import gzip
import json
import os
import subprocess
import sys
import textwrap
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from dags.lib.monitoring import DeadMan, send_metrics
from infra.checkout import ROOT
from reports.history import History, Run
from reports.metrics import of_run
from streaming_core.regression.project import PREFIX, named
from tests.reports import past_runs
from tests.reports.past_runs import LAST

SECRET = "the-secret-of-this-address"
CONNECTION = f"AIRFLOW_CONN_{PREFIX.upper()}LOCKSTEP_DEAD_MAN"


@pytest.fixture
def web():
    """A web server: its address, the received requests, and the status codes of its next answers, else 200."""
    received, answers = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            received.append((self.path, self.rfile.read(int(self.headers.get("Content-Length", 0))), self.headers))
            self.send_response(answers.pop(0) if answers else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}", received, answers
        server.shutdown()


def connect(monkeypatch, **extra: object) -> None:
    monkeypatch.setenv(CONNECTION, json.dumps({"conn_type": "generic", "extra": extra}))


def errors(caplog) -> list[str]:
    assert SECRET not in caplog.text
    return [record.getMessage() for record in caplog.records if record.name == "dags.lib.monitoring"]


@pytest.mark.parametrize(
    ("outcome", "path", "called"),
    [
        ("green", f"/{SECRET}", f"/{SECRET}"),
        ("red", f"/{SECRET}", f"/{SECRET}/fail"),
        ("red", f"/ping/{SECRET}/?team=a", f"/ping/{SECRET}/fail?team=a"),
    ],
)
def test_night_calls_the_url(web, monkeypatch, caplog, outcome, path, called):
    url, received, _ = web
    connect(monkeypatch, url=url + path)
    DeadMan(outcome)({})
    assert [path for path, *_ in received] == [called]
    assert errors(caplog) == []


def test_night_without_the_connection_calls_nothing(web, monkeypatch, caplog):
    monkeypatch.delenv(CONNECTION, raising=False)
    DeadMan("green")({})
    assert (web[1], errors(caplog)) == ([], [])


def test_lost_call_is_tried_again(web, monkeypatch, caplog):
    url, received, answers = web
    answers += [503, 500]
    connect(monkeypatch, url=f"{url}/{SECRET}")
    DeadMan("green")({})
    assert len(received) == 3
    assert errors(caplog) == []


@pytest.mark.parametrize(
    ("extra", "line"),
    [
        ({}, "the extra of the connection lacks 'url': add it in Airflow under Admin, Connections"),
        ({"url": ["x"]}, "the 'url' in the extra of the connection must begin with http:// or https://"),
        ({"url": f"file:///{SECRET}"}, "the 'url' in the extra of the connection must begin with http:// or https://"),
        ({"url": f"http://[{SECRET}"}, "ValueError"),
        ({"url": f"http:///{SECRET}"}, "InvalidURL"),
        ({"url": f"http://127.0.0.1:1/{SECRET}"}, "ConnectionError"),
        ({"url": f"WEB/{SECRET}"}, "its server answered 404"),
    ],
)
def test_failed_call_is_a_line_without_secrets(web, monkeypatch, caplog, extra, line):
    url, _, answers = web
    answers.append(404)
    connect(monkeypatch, **{k: v.replace("WEB", url) if isinstance(v, str) else v for k, v in extra.items()})
    DeadMan("red")({})
    assert errors(caplog) == [f"{named('lockstep_dead_man')} not called: {line}"]


def test_nightly_calls_the_url_whether_green_or_red(dags):
    (task,) = dags[named("streaming_regression_nightly")].tasks
    assert task.has_on_success_callback
    assert task.has_on_failure_callback


def test_collector_receives_the_figures_of_a_run(lockstep_home, web):
    url, received, _ = web
    past_runs.make(lockstep_home, matrix="nightly")
    # As in the process of a task: Airflow's own setup of metrics, which sends what is left when the process ends.
    program = f"""
        from airflow.sdk.observability import stats
        from airflow.sdk.observability.metrics import stats_utils
        from dags.lib.monitoring import send_metrics
        from infra.checkout import home
        from reports.history import History, Run
        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)
        send_metrics(History(home()).run("{LAST}"))
    """
    settings = {"AIRFLOW__METRICS__OTEL_ON": "True", "OTEL_EXPORTER_OTLP_ENDPOINT": url, "PYTHONPATH": str(ROOT)}
    settings |= {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "LOCKSTEP_HOME": str(lockstep_home.root)}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    subprocess.run(command, env=os.environ | settings, check=True, timeout=60, capture_output=True)
    points = {}
    for path, body, headers in received:
        assert path == "/v1/metrics"
        request = ExportMetricsServiceRequest()
        request.ParseFromString(gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body)
        for metric in (m for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics):
            for point in metric.gauge.data_points:
                labels = {label.key: label.value.string_value for label in point.attributes}
                points[(metric.name, *sorted(labels.items()))] = point.as_double or point.as_int
    expected = {
        (f"airflow.{event.metric}", *sorted(event.labels.items())): event.value
        for event in of_run(History(lockstep_home).run(LAST))
    }
    assert len(expected) > 10
    assert points == expected


def test_metrics_that_cannot_be_read_are_a_line(lockstep_home, caplog):
    send_metrics(Run(home=lockstep_home, run_id=LAST, plan={"matrix": "damaged"}, cells=[]))
    assert errors(caplog) == ["metrics not sent: 'str' object has no attribute 'get'"]
