"""Named matrices in the forms: what a person leaves as it is, the matrix says; saving one is a DAG of its own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException

from dags.lib.form import regression_of, regression_params
from dags.lib.matrices import save_matrix, table
from reports.history import History
from reports.pages import Pages
from streaming_core.regression import matrices
from tests.dags.test_plan import planned
from tests.reports.test_pages import Outline

FORM = {name: param.value for name, param in regression_params().items()}


def edited(sent: dict) -> str:
    """What edit_matrix says of what is sent."""
    params = FORM | {"afresh": False} | sent
    return save_matrix({"params": params, "dag_run": SimpleNamespace(conf=sent, triggering_user_name="ann")})


def test_the_form_sends_all_fields_and_those_that_are_as_by_default_were_not_chosen():
    form = FORM | {"matrix": "nightly", "events": 700}
    assert regression_of(form, form) == {"events": 700}
    # Who calls the API sends what is meant, the default, too.
    assert regression_of(form, {"matrix": "nightly", "threads": FORM["threads"]}) == {"threads": FORM["threads"]}
    assert regression_of(form, {"matrix": "nightly"}) == {}
    assert regression_of(FORM, FORM)["threads"] == FORM["threads"]


def test_a_run_and_its_page_say_which_matrix_and_version(lockstep_home, monkeypatch):
    monkeypatch.setattr("dags.lib.hosts.check", lambda *_: None)
    monkeypatch.setattr("dags.lib.hosts.name", lambda *_: "here")
    matrices.save(lockstep_home, "mine", {"applications": ["wc"], "executors": ["pooled"], "threads": [4]})
    (cell,) = planned({"matrix": "mine", "events": 700})
    assert cell["cell"].startswith("wc.pooled.affinity.t4.")
    history = History(lockstep_home)
    run = history.latest()
    assert run.plan["matrix"] == {"name": "mine", "version": 1, "changed": ["events"]}
    assert run.plan["regression"]["events"] == 700
    assert "matrix mine@1, with other events" in Outline(Pages(history).overview(run)).text


def test_a_run_of_an_unknown_matrix_is_a_red_run_that_says_so(lockstep_home):
    with pytest.raises(AirflowFailException, match="unknown matrix 'gone'; known: smoke, nightly, full"):
        planned({"matrix": "gone"})
    history = History(lockstep_home)
    assert "matrix: " in Outline(Pages(history).overview(history.latest())).text


def test_a_matrix_is_edited_from_its_form(lockstep_home):
    whole = FORM | {"matrix": "nightly", "afresh": False, "threads": ["2", 4]}
    assert edited(whole) == 'matrix nightly, version 1: {"applications":["all"],"threads":[2,4]}'
    assert edited(whole | {"threads": FORM["threads"], "events": 7}).startswith("matrix nightly, version 2: ")
    newest = matrices.load(lockstep_home, "nightly")
    assert (newest.saved_by, newest.fields) == ("ann", {"applications": ["all"], "threads": [2, 4], "events": 7})
    assert edited(whole | {"afresh": True}) == 'matrix nightly, version 3: {"threads":[2,4]}'
    assert edited(FORM | {"matrix": "own", "afresh": False}) == "matrix own, version 1: {}"
    assert "| own | 1 | `{}` |" in table()


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({}, "'' is no name for a matrix"),
        ({"matrix": "../x"}, "is no name for a matrix"),
        ({"matrix": "mine", "applications": ["nosuch"]}, "unknown application 'nosuch'"),
        ({"matrix": "mine", "nosuch": 1}, "nosuch: Extra inputs are not permitted"),
    ],
)
def test_what_cannot_be_kept_is_a_red_run_and_a_line(lockstep_home, sent, said):
    with pytest.raises(AirflowFailException, match=said):
        edited(sent)
    assert not lockstep_home.matrices.exists()


def test_a_spoilt_file_takes_no_dag_along(lockstep_home):
    matrices.save(lockstep_home, "mine", {"params": {"wc": {}}, "applications": ["wc"], "threads": [3]})
    lockstep_home.matrix("mine", 2).write_text("{")
    assert "| mine | | matrix mine: " in table()
    assert "mine" in regression_params()["matrix"].schema["examples"]
