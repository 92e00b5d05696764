"""Hostile requests through the form and the API: refused in one line, shown as text, and without any other effect."""

import datetime
import json
from copy import copy
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException

from dags.lib import plan
from dags.lib.form import regression_params
from dags.lib.operators import Lane
from dags.lib.spark import ServerHook
from jobs.raw import write_raw
from reports.history import History
from reports.pages import Pages
from streaming_core.errors import BadInput
from streaming_core.regression.fleet import LOCAL
from streaming_core.regression.project import named
from tests.reports.test_pages import Outline
from tests.support.draws import some

SHELL = "$(touch {0}/marker); `touch {0}/marker` && touch {0}/marker"
TEMPLATE = "{{{{ conn.local.password }}}}{{{{ 7 * 191 }}}}"
PAGE = "<script>fetch('/api/v2/variables')</script><img src=x onerror=alert(1)>"
PATH = "../../../{0}/marker"
HALF = "\ud800"
OTHERS = [SHELL, TEMPLATE, PATH, HALF, "local\n", "a" * 300, "", "-rf"]
FIELDS = {
    "matrix": lambda text: {"matrix": text or "-"},
    "field beside a matrix": lambda text: {"matrix": "smoke", text: 1},
    "hosts": lambda text: {"hosts": [text]},
    "spark": lambda text: {"spark": text},
    "applications": lambda text: {"applications": ["wc", text or "-"]},
    "executors": lambda text: {"executors": [text]},
    "schemes": lambda text: {"applications": ["gs"], "schemes": [text]},
    "threads": lambda text: {"threads": [text]},
    "events": lambda text: {"events": text},
    "name of a parameter": lambda text: {"applications": ["wc"], "params": {"wc": {text: 1}}},
    "parameter": lambda text: {"applications": ["q1"], "params": {"q1": {"wanted_categories": text + "x"}}},
    "unknown field": lambda text: {text: 1},
}


def planned(sent: dict) -> list[str]:
    """The result of plan_matrix on a request that bypasses the form."""
    params = {name: param.value for name, param in regression_params().items()} | sent
    when = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    run = SimpleNamespace(run_id="manual__" + "x", run_after=when, conf=sent)
    task = SimpleNamespace(xcom_push=lambda *_: None)
    return plan.plan_run({"params": params, "dag_run": run, "ti": task})


@pytest.mark.parametrize("version", [0, 9])
def test_run_does_not_start_on_raw_results_of_another_version(lockstep_home, version):
    row = {"cell": "wc.x", "schema_version": version}
    part = write_raw(lockstep_home, "cells", "20260101T000000Z-00000001", [row])
    before = sorted(lockstep_home.root.rglob("*"))
    with pytest.raises(AirflowFailException) as refused:
        planned({})
    assert str(refused.value).startswith(f"{part} has raw schema version {version}, ")
    assert str(refused.value).endswith("; check out the Lockstep that wrote it")
    assert sorted(lockstep_home.root.rglob("*")) == before


# Every field gets the markup, and the other values take turns: four fields in `make test`. `make test-full` sends all
# values in every field.
TURNS = [
    pytest.param(field, OTHERS[n % 4 :: 4], id=field, marks=[pytest.mark.slow] * (n >= 4))
    for n, field in enumerate(FIELDS)
]
ALL = [pytest.param(field, OTHERS, id=f"{field}-all", marks=pytest.mark.slow) for field in FIELDS]


@pytest.mark.parametrize(("field", "others"), TURNS + ALL)
def test_hostile_value_is_refused_in_one_line_and_escaped_on_the_page(lockstep_home, tmp_path, field, others):
    for number, pattern in enumerate([PAGE, *others]):
        text = pattern.format(tmp_path)
        with pytest.raises(AirflowFailException) as refused:
            planned(FIELDS[field](text))
        assert "a secret" not in str(refused.value)
        run = History(lockstep_home).latest()
        assert run.sentence == f"Refused: {refused.value}", number
        for name in ("index.html", f"{run.run_id}/index.html"):
            page = Outline((lockstep_home.reports / name).read_text())
            assert not {"script", "img", "iframe"} & set(page.tags)
        (lockstep_home.run(run.run_id) / "plan.json").unlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lockstep"]
    assert {path.name for path in lockstep_home.root.iterdir()} <= {"runs", "reports", "warehouse"}


@pytest.mark.parametrize("value", some([None, 7, ["local"], {"a": 1}, True]))
def test_connection_name_must_be_text(lockstep_home, value):
    with pytest.raises(AirflowFailException, match="is not a valid connection name"):
        planned({"spark": value})


@pytest.mark.parametrize(
    ("hosts", "group", "sentence"),
    [
        (["nosuch"], None, "hosts: Airflow has no connection 'nosuch'; add it under Admin, Connections"),
        ([LOCAL, LOCAL], None, f"hosts: {LOCAL!r} is listed twice; remove one"),
        (["all", LOCAL], LOCAL, f"hosts: {LOCAL!r} is listed twice; remove one"),
        (["all"], " , ", "hosts: the group 'all' is empty; name hosts in the setting LOCKSTEP_HOSTS"),
        (["all"], "a b", "hosts: LOCKSTEP_HOSTS has the invalid connection name 'a b'; correct the setting"),
        (["all"], f"{LOCAL},nosuch", "hosts: Airflow has no connection 'nosuch'; add it under Admin, Connections"),
        ([], None, "hosts must have at least 1 item"),
        ([7], None, "hosts.0 must be a text, got 7"),
    ],
)
def test_unusable_hosts_are_refused_in_one_line(lockstep_home, monkeypatch, hosts, group, sentence):
    if group is not None:
        monkeypatch.setenv("LOCKSTEP_HOSTS", group)
    with pytest.raises(AirflowFailException) as refused:
        planned({"applications": ["wc"], "hosts": hosts})
    assert str(refused.value).startswith(sentence)
    assert History(lockstep_home).latest().sentence == f"Refused: {refused.value}"


UNFIT = {"conn_type": "ssh", "host": "127.0.0.1", "port": 1}


@pytest.mark.usefixtures("hasty")
def test_page_gives_the_reason_for_a_host_that_failed_its_preflight(lockstep_home, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_UNFIT", json.dumps(UNFIT))
    request = {"applications": ["wc"], "executors": ["pooled"], "threads": [1], "hosts": ["unfit", LOCAL]}
    assert planned(request) == [LOCAL]
    history = History(lockstep_home)
    run = history.latest()
    page = Outline(Pages(history).in_progress(run)).text
    assert "left out: lost the SSH connection to 127.0.0.1" in page
    assert [cell.host for cell in run.cells] == [""]

    (lockstep_home.run(run.run_id) / "plan.json").unlink()
    assert planned(request | {"placement": "every"}) == [LOCAL]
    run = history.latest()
    assert {cell.host for cell in run.cells} == {"unfit", LOCAL}
    assert len({cell.spec.cell for cell in run.cells}) * 2 == len(run.cells)
    page = Outline(Pages(history).in_progress(run)).text
    assert "cannot run: host unfit was left out of the run: lost the SSH connection" in page
    (lockstep_home.run(run.run_id) / "plan.json").unlink()
    with pytest.raises(AirflowFailException, match=r"^host unfit cannot run cells: lost the SSH connection to 127"):
        planned(request | {"hosts": ["unfit"]})


@pytest.mark.parametrize("rate", [float("inf"), float("nan")])
def test_non_finite_rate_is_refused(lockstep_home, rate):
    with pytest.raises(AirflowFailException, match=r"^rate must be a finite number"):
        planned({"applications": ["wc"], "rate": rate})


def test_oversized_request_is_refused_before_its_cells_are_computed(lockstep_home):
    much = {"applications": ["wc"] * 10**5, "executors": ["pooled"] * 10**5}
    with pytest.raises(AirflowFailException, match="the request must have at most 4096 cells"):
        planned(much | {"threads": [*range(1, 1025)], "batches": [*range(1, 3000)]})


RUN = "20260101T000000Z-00000000"
CELL = "wc.pooled.affinity.t1.0"


@pytest.mark.parametrize("field", ["run", "cell", "app", "workload"])
@pytest.mark.parametrize("text", [PATH, "..", "/tmp", "-rf", "a b"])
def test_edited_xcom_or_plan_opens_no_path(lockstep_home, tmp_path, field, text):
    value = text.format(tmp_path)
    folder = lockstep_home.run(RUN)
    folder.mkdir(parents=True)
    spec = {"app": value if field == "app" else "wc", "executor": "pooled"}
    names = {"cell": CELL, "workload": "0123456789abcdef"} | {field: value}
    (folder / "plan.json").write_text(json.dumps({"cells": [{"spec": spec} | names]}))
    (folder / "oracles.json").write_text(json.dumps({names["workload"]: "0123456789abcdef"}))
    task = Lane(task_id="run_core", host=LOCAL, run=value if field == "run" else RUN, limit=1.0)
    with pytest.raises(BadInput, match=r"invalid name|app"):
        task.execute({})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lockstep"]


@pytest.mark.parametrize("host", ["h:15002/;token=abc", "h/;token=abc", "h;token=abc", "u@h", "", None, "h x", "-h"])
def test_token_in_a_spark_address_never_reaches_a_command_line(lockstep_home, monkeypatch, host):
    connection = {"conn_type": "spark_connect", "host": host, "port": 15002}
    monkeypatch.setenv("AIRFLOW_CONN_REMOTE", json.dumps(connection))
    lines: list[str] = []
    with pytest.raises(BadInput, match=r"^connection remote: the host must be a bare host name") as refused:
        ServerHook("remote", RUN).start(lines.append)
    assert "abc" not in f"{refused.value} {lines}"
    assert not lockstep_home.root.exists()


def test_values_are_not_rendered_as_templates(dags, lockstep_home):
    """Airflow renders `{{ params.spark }}` once, and never renders the value itself."""
    text = TEMPLATE.format()
    context = {"params": {"spark": text}, "ti": SimpleNamespace(xcom_pull=lambda **_: text)}
    for task in ("spark_server", "prepare_workloads", "dbt_build"):
        server = copy(dags[named("streaming_regression")].get_task(task))
        server.render_template_fields(context)
        assert (server.conn_id, server.run) == (text, text)
    lane = Lane(task_id="core", host="{{ ti.xcom_pull() }}", run="{{ ti.xcom_pull() }}", limit=1.0)
    lane.render_template_fields(context)
    assert (lane.run, lane.host) == (text, text)
