"""A night through a real scheduler, and what a collector, a scraper and a dead man's switch receive of it."""

import gzip
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from reports.history import History
from streaming_core.regression.project import PREFIX
from streaming_core.regression.stages import DAG_ID, Stage
from tests.e2e.scheduled import Airflow
from tests.support.waiting import wait_for

NIGHTLY = f"{DAG_ID}_nightly"
MATRIX = "applications: [wc]\nexecutors: [pooled]\nthreads: [2]\nevents: 1000\nrepetitions: 1\nseconds: 0\n"
PATIENCE = 900

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


class Receiver:
    """A collector of OpenTelemetry, and the web server of a dead man's switch."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.spans: list = []
        self.metrics: dict[str, list[dict[str, str]]] = {}  # by name, the labels of each point

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            traces = ExportTraceServiceRequest.FromString(body)
            self.spans += [span for r in traces.resource_spans for s in r.scope_spans for span in s.spans]
        elif path == "/v1/metrics":
            request = ExportMetricsServiceRequest.FromString(body)
            for metric in (m for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics):
                labels = [
                    {attribute.key: attribute.value.string_value for attribute in p.attributes}
                    for p in metric.gauge.data_points
                ]
                self.metrics.setdefault(metric.name, []).extend(labels)
        else:
            self.calls.append(path)


@pytest.fixture(scope="module")
def receiver():
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            receiver.take(self.path, gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever).start()
        yield receiver
        server.shutdown()


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """The file of OpenLineage's events."""
    return tmp_path_factory.mktemp("lineage") / "events.jsonl"


@pytest.fixture(scope="module")
def airflow(copied, user_environment, receiver, events):
    """Airflow of a copy of the checkout after one night over a small matrix."""
    (copied / "dags" / "matrices" / "nightly.yaml").write_text(MATRIX)
    transport = {"type": "file", "log_file_path": str(events), "append": True}
    environment = {
        **user_environment,
        "AIRFLOW__METRICS__OTEL_ON": "True",
        "AIRFLOW__TRACES__OTEL_ON": "True",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_TRACES_EXPORTER": "otlp_proto_http",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        # The first request makes the server busy for half a minute, if the machine is.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        f"AIRFLOW_CONN_{PREFIX.upper()}LOCKSTEP_DEAD_MAN": json.dumps(
            {"conn_type": "generic", "extra": {"url": f"{receiver.url}/ping"}}
        ),
    }
    with Airflow(environment, copied) as running:
        running.call(f"/api/v2/dags/{NIGHTLY}", "PATCH", {"is_paused": False})
        runs = f"/api/v2/dags/{NIGHTLY}/dagRuns"
        night = running.call(runs, "POST", {"logical_date": None})["dag_run_id"]
        ended = wait_for(
            lambda: (s := running.call(f"{runs}/{night}")["state"]) in ("success", "failed") and s, PATIENCE
        )
        assert ended == "success", History(running.home).latest()
        wait_for(lambda: receiver.calls, 60)
        yield running


@pytest.fixture
def run(airflow):
    return History(airflow.home).latest()


def test_night_calls_the_dead_mans_switch(airflow, receiver):
    assert receiver.calls == ["/ping"]


def test_scraper_reads_the_night(airflow, run):
    text = airflow.call("/lockstep/metrics", raw=True)
    metrics = {family.name: family.samples for family in text_string_to_metric_families(text)}
    assert [(sample.labels, sample.value) for sample in metrics["lockstep_run_green"]] == [({"matrix": "nightly"}, 1.0)]
    stages = {sample.labels["stage"] for sample in metrics["lockstep_stage_seconds"]}
    assert {Stage.RUN_CORE, Stage.VALIDATE_OUTPUTS, Stage.DBT_BUILD} <= stages
    assert len(metrics["lockstep_events_per_second"]) == len(run.cells)


def test_collector_receives_the_figures_and_airflows_own(airflow, receiver, run):
    assert {"matrix": "nightly", "verdict": "equal"} in receiver.metrics["airflow.lockstep_cells"]
    cells = [labels["cell"] for labels in receiver.metrics["airflow.lockstep_events_per_second"]]
    assert set(cells) == {cell.name for cell in run.cells}
    assert any(not name.startswith("airflow.lockstep_") for name in receiver.metrics)


def test_trace_of_the_run_has_a_span_of_each_stage(airflow, receiver):
    traces: dict[bytes, set[str]] = {}
    for span in receiver.spans:
        traces.setdefault(span.trace_id, set()).add(span.name.partition("[")[0])
    (names,) = [names for names in traces.values() if f"worker.{Stage.VERDICT}" in names]
    assert {f"worker.{stage}" for stage in Stage if stage != Stage.RUN_ON_SPARK} <= names


def test_lineage_leads_from_the_workload_to_the_pages(airflow, events, run):
    complete = {}
    for line in events.read_text().splitlines():
        event = json.loads(line)
        if event["eventType"] == "COMPLETE":
            complete[event["job"]["name"].rpartition(".")[2]] = event
    home = airflow.home

    def names(stage: Stage, side: str) -> set[str]:
        return {data_set["name"] for data_set in complete[stage][side]}

    (workload,) = run.plan["workloads"]
    folder = str(home.workload("wc", workload["address"]))
    assert names(Stage.PREPARE_WORKLOADS, "outputs") == names(Stage.RUN_ORACLE, "inputs") == {folder}
    (oracle,) = names(Stage.RUN_ORACLE, "outputs")
    assert oracle.startswith(f"{home.root}/oracle/wc/")
    assert names(Stage.RUN_CORE, "outputs") == {str(home.root / "runs")}
    assert names(Stage.VALIDATE_OUTPUTS, "inputs") == {oracle, str(home.root / "runs")}
    assert names(Stage.PUBLISH_REPORTS, "outputs") == {str(home.reports)}
    (cells,) = [
        output for output in complete[Stage.LOAD_METRICS]["outputs"] if output["name"] == str(home.raw("cells"))
    ]
    assert cells["namespace"] == "file"
    assert cells["facets"]["version"]["datasetVersion"] == run.run_id
