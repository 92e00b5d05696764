"""Results as data: the answers agree with what the runs wrote, page by page, and name columns of the warehouse."""

import statistics
from datetime import UTC, datetime

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from infra.airflow import api
from infra.reference.warehouse import mart_tables
from streaming_core.regression import warehouse
from streaming_core.regression.home import Home
from streaming_core.regression.stages import Stage
from streaming_core.regression.status import recorded
from streaming_core.regression.verdict import VERDICTS
from tests.reports import past_runs

PATH = "/lockstep/api"


@pytest.fixture(scope="module")
def nights(tmp_path_factory) -> Home:
    home = Home(tmp_path_factory.mktemp("home"))
    past_runs.make(home)
    return home


@pytest.fixture
def home(nights, monkeypatch) -> Home:
    monkeypatch.setenv("LOCKSTEP_HOME", str(nights.root))
    return nights


@pytest.fixture(scope="module")
def get():
    app = FastAPI()
    app.include_router(api.router, prefix="/lockstep")
    with TestClient(app) as client:
        yield client.get


def test_runs_come_page_by_page_from_the_newest_on(home, get):
    ids, before = [], ""
    while page := get(f"{PATH}/runs?limit=2{before}").json():
        ids += [run["run_id"] for run in page]
        before = f"&before={ids[-1]}"
    assert ids == past_runs.RUN_IDS[::-1]
    first = get(f"{PATH}/runs?limit=1").json()[0]
    assert (first["state"], first["color"], first["is_green"]) == ("finished", "red", False)
    assert (first["hosts"], first["build"], first["origin"]) == (
        ["node1"],
        "abc423def0123456789",
        f"manual__{past_runs.LAST}",
    )
    assert first["run_at"] == "2026-01-05T02:00:00Z"
    assert (first["different"], first["failed"]) == (1, 1)
    assert sum(first[verdict] for verdict in VERDICTS) == first["cells"] > 5
    assert "differs" in first["sentence"]


def test_run_has_the_result_of_each_cell(home, get):
    answer = get(f"{PATH}/runs/{past_runs.LAST}").json()
    rows = {row["cell"]: row for row in warehouse.rows(home, "cells", past_runs.LAST)}
    samples = warehouse.rows(home, "samples", past_runs.LAST)
    assert [cell["cell"] for cell in answer["results"]] == sorted(rows)
    for result in answer["results"]:
        row = rows[result["cell"]]
        for name in result.keys() & row.keys():
            assert result[name] == row[name], name
        rates = [s["events_per_s"] for s in samples if s["cell"] == result["cell"] and s["kind"] == "peak"]
        assert result["peak_samples"] == len(rates)
        assert result["median_events_per_s"] == (statistics.median(rates) if rates else None)
        assert (result["min_events_per_s"], result["max_events_per_s"]) == (
            min(rates, default=None),
            max(rates, default=None),
        )
    slower = [cell for cell in answer["results"] if cell["speed"] and cell["speed"]["verdict"] == "slower"]
    (cell,) = slower
    assert (cell["app"], cell["strategy"], cell["threads"]) == ("gs", "serial", 2)
    assert (cell["speed"]["change"], cell["speed"]["change_low"]) == (-0.051, -0.064)
    assert datetime.fromisoformat(cell["speed"]["since_at"]) == datetime(2026, 1, 4, 2, tzinfo=UTC)


def test_history_of_a_cell_has_red_runs_too(home, get):
    results = get(f"{PATH}/runs/{past_runs.LAST}").json()["results"]
    name = next(cell["cell"] for cell in results if cell["verdict"] == "different")
    path = f"{PATH}/cells/{name}/history"
    history = get(path).json()
    assert [row["run_id"] for row in history] == past_runs.RUN_IDS[::-1]
    assert [row["verdict"] for row in history] == ["different"] + ["equal"] * 4
    assert history[0] in results
    assert get(f"{path}?limit=2&before={past_runs.RUN_IDS[3]}").json() == history[2:4]
    assert get(f"{path}?before={past_runs.RUN_IDS[0]}").json() == []


def test_run_in_progress_has_no_counts_yet(tmp_path, monkeypatch, get):
    home = Home(tmp_path)
    monkeypatch.setenv("LOCKSTEP_HOME", str(home.root))
    assert get(f"{PATH}/runs").json() == []
    past_runs.make(home, nights=1)
    for table in ("cells", "samples", "verdicts", "violations"):
        home.part(table, past_runs.RUN_IDS[0]).unlink()
    with recorded(home, past_runs.RUN_IDS[0], Stage.PLAN_MATRIX):
        answer = get(f"{PATH}/runs/{past_runs.RUN_IDS[0]}").json()
    assert (answer["state"], answer["equal"], answer["is_green"], answer["results"]) == ("in_progress", None, None, [])
    assert answer["cells"] > 5


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("runs/20200101T000000Z-00000000", 404, "there is no run '20200101T000000Z-00000000'"),
        ("runs/..%2f..%2fsecret", 404, ""),
        ("cells/nosuch/history", 404, "no run of the newest 200 has the cell 'nosuch'"),
        ("runs?limit=0", 422, "greater than or equal to 1"),
        ("runs?limit=201", 422, "less than or equal to 200"),
        ("runs?limit=many", 422, "valid integer"),
        ("cells/x/history?before=yesterday", 422, "should match pattern"),
    ],
)
def test_bad_request_is_refused(home, get, path, status, sentence):
    answer = get(f"{PATH}/{path}")
    assert (answer.status_code, sentence in answer.text) == (status, True), answer.text


def test_unreadable_results_are_named(tmp_path, monkeypatch, get):
    home = Home(tmp_path)
    monkeypatch.setenv("LOCKSTEP_HOME", str(home.root))
    past_runs.make(home, nights=1)
    part = home.part("cells", past_runs.RUN_IDS[0])
    part.write_bytes(b"PAR1")
    for path in ("runs", f"runs/{past_runs.RUN_IDS[0]}", "cells/x/history"):
        answer = get(f"{PATH}/{path}")
        assert answer.status_code == 500
        assert str(part) in answer.json()["detail"]


def test_fields_are_columns_of_the_marts(home, get):
    marts = {mart.name: {name for name, _, _ in mart.columns} for mart in mart_tables()}
    schemas = get(f"{PATH}/openapi.json").json()["components"]["schemas"]
    fields = {name: set(schemas[name]["properties"]) for name in ("Run", "Result", "Speed")}
    assert fields["Run"] - marts["runs"] == {"origin", "matrix", "state", "color", "sentence"}
    assert fields["Result"] - marts["cells"] == {"speed"}
    assert fields["Speed"] <= marts["speed"]
