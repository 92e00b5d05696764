"""What the form and the API may send, as an attacker would: refused in a line, shown as text, and nothing else done."""

from __future__ import annotations

import datetime
import json
from copy import copy
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException

from dags.lib import plan
from dags.lib.form import regression_params
from dags.lib.operators import CoreRun
from dags.lib.spark import ServerHook
from infra.airflow import connections
from jobs.raw import write_raw
from reports.history import History
from streaming_core.errors import BadInput
from streaming_core.regression.project import named
from tests.reports.test_pages import Outline

SHELL = "$(touch {0}/marker); `touch {0}/marker` && touch {0}/marker"
TEMPLATE = "{{{{ conn.local.password }}}}{{{{ 7 * 191 }}}}"
PAGE = "<script>fetch('/api/v2/variables')</script><img src=x onerror=alert(1)>"
PATH = "../../../{0}/marker"
HALF = "\ud800"
HOSTILE = [SHELL, TEMPLATE, PAGE, PATH, HALF, "local\n", "a" * 300, "", "-rf"]
FIELDS = {
    "matrix": lambda text: {"matrix": text or "-"},
    "field beside a matrix": lambda text: {"matrix": "smoke", text: 1},
    "host": lambda text: {"host": text},
    "spark": lambda text: {"spark": text},
    "applications": lambda text: {"applications": ["wc", text]},
    "executors": lambda text: {"executors": [text]},
    "schemes": lambda text: {"applications": ["gs"], "schemes": [text]},
    "threads": lambda text: {"threads": [text]},
    "events": lambda text: {"events": text},
    "name of a parameter": lambda text: {"applications": ["wc"], "params": {"wc": {text: 1}}},
    "parameter": lambda text: {"applications": ["q1"], "params": {"q1": {"wanted_categories": text + "x"}}},
    "unknown field": lambda text: {text: 1},
}


def planned(sent: dict) -> list[dict]:
    """What plan_matrix makes of what is sent past the form."""
    params = {name: param.value for name, param in regression_params().items()} | sent
    when = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    run = SimpleNamespace(run_id="manual__" + "x", run_after=when, conf=sent)
    task = SimpleNamespace(xcom_push=lambda *_: None)
    return plan.plan_run({"params": params, "dag_run": run, "ti": task})


@pytest.mark.parametrize(("version", "advice"), [(0, "`lockstep migrate`"), (9, "the newer Lockstep that wrote it")])
def test_a_run_does_not_start_on_raw_results_of_another_version(lockstep_home, version, advice):
    row = {"cell": "wc.x", "schema_version": version}
    part = write_raw(lockstep_home, "cells", "20260101T000000Z-00000001", [row])
    before = sorted(lockstep_home.root.rglob("*"))
    with pytest.raises(AirflowFailException) as refused:
        planned({})
    assert str(refused.value).startswith(f"{part} has raw schema version {version}, ")
    assert str(refused.value).endswith(advice)
    assert sorted(lockstep_home.root.rglob("*")) == before


@pytest.mark.parametrize("field", FIELDS)
def test_a_hostile_value_is_refused_in_a_line_and_is_text_on_the_page(lockstep_home, tmp_path, field):
    for number, pattern in enumerate(HOSTILE):
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
    assert {path.name for path in lockstep_home.root.iterdir()} <= {"runs", "reports"}


@pytest.mark.parametrize("value", [None, 7, ["local"], {"a": 1}, True])
@pytest.mark.parametrize("field", ["host", "spark"])
def test_a_connection_is_named_by_text(lockstep_home, field, value):
    with pytest.raises(AirflowFailException, match="is not a valid connection name"):
        planned({field: value})


@pytest.mark.parametrize("rate", [float("inf"), float("nan")])
def test_what_could_not_be_read_back_is_not_planned(lockstep_home, rate):
    with pytest.raises(AirflowFailException, match=r"^rate must be a finite number"):
        planned({"applications": ["wc"], "rate": rate})


def test_a_request_of_too_much_is_refused_before_it_is_worked_out(lockstep_home):
    much = {"applications": ["wc"] * 10**5, "executors": ["pooled"] * 10**5}
    with pytest.raises(AirflowFailException, match="the request must have at most 4096 cells"):
        planned(much | {"threads": [*range(1, 1025)], "batches": [*range(1, 3000)]})


HERE = {
    "run": "20260101T000000Z-00000000",
    "cell": "wc.pooled.affinity.t1.0",
    "app": "wc",
    "workload": "0123456789abcdef",
}


@pytest.mark.parametrize("field", ["run", "cell", "app", "workload"])
@pytest.mark.parametrize("text", [PATH, "..", "/tmp", "-rf", "a b"])
def test_an_xcom_that_somebody_has_edited_leads_nowhere(lockstep_home, tmp_path, field, text):
    given = HERE | {field: text.format(tmp_path)}
    folder = lockstep_home.run(HERE["run"])
    folder.mkdir(parents=True)
    (folder / "oracles.json").write_text(json.dumps({given["workload"]: "0123456789abcdef"}))
    spec = {"app": "wc", "executor": "pooled"}
    task = CoreRun(task_id="run_core", host=connections.DEFAULTS["host"], spec=spec, limit=1.0, **given)
    with pytest.raises(BadInput, match="invalid name"):
        task.execute({})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lockstep"]


@pytest.mark.parametrize("host", ["h:15002/;token=abc", "h/;token=abc", "h;token=abc", "u@h", "", None, "h x", "-h"])
def test_a_token_in_the_address_of_a_spark_server_is_refused_before_it_is_on_a_command_line(
    lockstep_home, monkeypatch, host
):
    connection = {"conn_type": "spark_connect", "host": host, "port": 15002}
    monkeypatch.setenv("AIRFLOW_CONN_REMOTE", json.dumps(connection))
    said: list[str] = []
    with pytest.raises(BadInput, match=r"^connection remote: the host must be a bare host name") as refused:
        ServerHook("remote", HERE["run"]).start(said.append)
    assert "abc" not in f"{refused.value} {said}"
    assert not lockstep_home.root.exists()


def test_no_value_is_a_template(dags, lockstep_home):
    """Airflow renders `{{ params.host }}` once: what it gives is text, whatever is in it."""
    text = TEMPLATE.format()
    context = {"params": {"host": text, "spark": text}, "ti": SimpleNamespace(xcom_pull=lambda **_: text)}
    for task in ("spark_server", "prepare_workloads", "dbt_build"):
        server = copy(dags[named("streaming_regression")].get_task(task))
        server.render_template_fields(context)
        assert (server.conn_id, server.run) == (text, text)
    cell = HERE | {"cell": text, "app": text, "workload": text, "run": "{{ ti.xcom_pull() }}"}
    core = CoreRun(task_id="core", host="{{ params.host }}", spec={"params": {"a": text}}, limit=1.0, **cell)
    core.render_template_fields(context)
    assert (core.cell, core.app, core.workload, core.spec) == (text, text, text, {"params": {"a": text}})
    assert (core.run, core.host) == (text, text)
