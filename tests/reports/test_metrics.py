"""The metrics of past runs, read back with Prometheus's own parsers."""

import time

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as of_openmetrics
from prometheus_client.parser import text_string_to_metric_families as of_text

from reports import times
from reports.history import History
from reports.metrics import METRICS, Exposition
from reports.publish import publish
from streaming_core.regression.home import Home
from streaming_core.regression.matrix import refuse
from streaming_core.regression.stages import Stage
from streaming_core.regression.status import end, record_begin, record_end
from tests.reports import past_runs
from tests.reports.past_runs import LAST, RUN_IDS

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
GREEN_NIGHT = "lockstep_newest_green_night_timestamp_seconds"


@pytest.fixture
def home(tmp_path) -> Home:
    """Five nights; the last one is red."""
    home = Home(tmp_path)
    past_runs.make(home, matrix="nightly")
    return home


def scrape(home: Home, exposition: Exposition | None = None, accept: str = "") -> dict[str, dict[tuple, float]]:
    """By metric, the value of each series, by its sorted labels."""
    text, kind = (exposition or Exposition()).text(home, accept)
    read = of_openmetrics if kind.startswith("application/openmetrics-text") else of_text
    return {
        family.name: {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples}
        for family in read(text.decode())
    }


def value(series: dict[tuple, float], **labels: str) -> float:
    return series[tuple(sorted(labels.items()))]


def at(run_id: str) -> float:
    return times.of_run(run_id).timestamp()


def test_both_text_formats_have_the_same_figures(home):
    assert scrape(home) == scrape(home, accept=OPENMETRICS)
    assert Exposition().text(home, OPENMETRICS)[1].startswith("application/openmetrics-text; version=1.0.0")


def test_figures_of_the_newest_night(home):
    record_begin(home, LAST, Stage.RUN_ORACLE, Stage.RUN_ORACLE)
    record_end(home, LAST, Stage.RUN_ORACLE)
    for part in ("a", "b"):
        record_begin(home, LAST, Stage.RUN_CORE, part)
        time.sleep(0.01)
        record_end(home, LAST, part)
    end(home, LAST, "finished")
    run, metrics = History(home).run(LAST), scrape(home)
    assert metrics.keys() == METRICS.keys()
    assert value(metrics["lockstep_run_green"], matrix="nightly") == 0
    assert value(metrics["lockstep_run_timestamp_seconds"], matrix="nightly") == at(LAST)
    by_verdict = {name: value(metrics["lockstep_cells"], matrix="nightly", verdict=name) for name in run.counts}
    assert by_verdict == run.counts
    assert by_verdict["different"] == by_verdict["failed"] == 1
    assert sum(by_verdict.values()) == len(run.cells)
    speeds = metrics["lockstep_events_per_second"]
    measured = {cell.name: cell.events_per_s for cell in run.cells if cell.events_per_s is not None}
    assert {dict(labels)["cell"]: speed for labels, speed in speeds.items()} == measured
    assert 0 < len(measured) < len(run.cells)
    assert value(metrics["lockstep_stage_seconds"], matrix="nightly", stage="run_core") >= 0.02
    assert metrics[GREEN_NIGHT] == {(): at(RUN_IDS[-2])}


def test_each_matrix_has_its_newest_run(home):
    past_runs.add(home, "20260106T010000Z-000000aa", 1, matrix="smoke")
    past_runs.add(home, "20260106T020000Z-000000bb", 1)
    began = scrape(home)["lockstep_run_timestamp_seconds"]
    assert {dict(labels)["matrix"]: seconds for labels, seconds in began.items()} == {
        "nightly": at(LAST),
        "smoke": at("20260106T010000Z-000000aa"),
        "": at("20260106T020000Z-000000bb"),
    }


def test_refused_night_is_red_and_a_run_in_progress_does_not_count(home):
    refused, going_on = "20260106T020000Z-000000aa", "20260107T020000Z-000000bb"
    refuse(home, refused, "scheduled", {"matrix": "nightly"}, "no such host")
    end(home, refused, "finished")
    past_runs.add(home, going_on, 1, matrix="nightly")
    record_begin(home, going_on, Stage.RUN_CORE, "a")
    metrics = scrape(home)
    assert value(metrics["lockstep_run_timestamp_seconds"], matrix="nightly") == at(refused)
    assert value(metrics["lockstep_run_green"], matrix="nightly") == 0
    assert metrics[GREEN_NIGHT] == {(): at(RUN_IDS[-2])}


def test_scrape_after_a_run_has_ended_has_its_figures(home):
    exposition, new = Exposition(), "20260106T020000Z-000000aa"
    assert scrape(home, exposition)[GREEN_NIGHT] == {(): at(RUN_IDS[-2])}
    past_runs.add(home, new, 1, matrix="nightly")
    publish(home, new)
    assert scrape(home, exposition)[GREEN_NIGHT] == {(): at(new)}


def test_scrape_reads_no_run_while_none_changes(home, monkeypatch):
    exposition = Exposition()
    first = scrape(home, exposition)
    monkeypatch.setattr(History, "plan", None)
    assert scrape(home, exposition) == first


def test_home_without_a_run_has_no_metric(tmp_path):
    assert Exposition().text(Home(tmp_path), "")[0] == b""
