"""Named matrices in the form: a field that is left as it is takes the value of the matrix."""

import shutil

import pytest
from airflow.sdk.exceptions import AirflowFailException

from dags.lib.form import regression_params
from infra import checkout
from infra.fields import defaults, regression_of
from reports.history import History
from reports.pages import Pages
from streaming_core.apps import registry
from streaming_core.regression import matrices
from streaming_core.regression.fleet import LOCAL
from tests.dags.test_plan import planned
from tests.reports.test_pages import Outline

FORM = {name: param.value for name, param in regression_params().items()}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A copy of dags/matrices, which stands for it."""
    shutil.copytree(checkout.MATRICES, tmp_path / "matrices")
    monkeypatch.setattr(checkout, "MATRICES", tmp_path / "matrices")
    return tmp_path / "matrices"


def test_entered_fields_override_the_matrix_even_with_a_default(lockstep_home):
    entered = {"events": str(defaults()["events"]), "threads": ["1", "2", ""]}
    fields = regression_of(FORM | {"matrix": "nightly"} | entered)
    assert fields == {"events": "100000", "threads": ["1", "2"]}
    request = matrices.request(checkout.MATRICES, lockstep_home, fields, "nightly")
    assert (request.regression.events, request.regression.threads) == (100_000, [1, 2])
    assert set(registry.names()) == set(request.regression.applications)


def test_empty_form_leaves_all_to_the_matrix():
    lineage = {"openlineage": {"parentRunId": "x"}}  # of Airflow's provider, in a run that the nightly triggers
    assert regression_of(FORM | {"matrix": "nightly"} | lineage) == {}


def test_run_and_page_name_matrix_digest_and_overrides(lockstep_home, folder):
    (folder / "mine.yaml").write_text("applications: [wc]\nexecutors: [pooled]\nthreads: [4]\noversubscribe: true\n")
    assert planned({"matrix": "mine", "events": 700}) == [LOCAL]
    history = History(lockstep_home)
    run = history.latest()
    (cell,) = run.cells
    assert cell.name.startswith("wc.pooled.affinity.t4.")
    digest = matrices.load(folder, "mine").digest
    assert run.plan["matrix"] == {"name": "mine", "digest": digest, "overrides": ["events"]}
    assert run.plan["regression"]["events"] == 700
    assert f"matrix mine {digest[:8]}, overrides events" in Outline(Pages(history).overview(run)).text


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("gone", "unknown matrix 'gone'; known: full, mine, nightly, numa, review, smoke"),
        ("mine", "matrices/mine.yaml: line 1: expected ',' or ']', but got '<stream end>'"),
    ],
)
@pytest.mark.slow
def test_unknown_or_invalid_matrix_refuses_the_run_and_the_form_still_loads(lockstep_home, folder, name, refusal):
    (folder / "mine.yaml").write_text("threads: [1")
    assert "mine" in regression_params()["matrix"].schema["enum"]
    with pytest.raises(AirflowFailException) as refused:
        planned({"matrix": name})
    assert str(refused.value) == refusal
    history = History(lockstep_home)
    assert history.latest().sentence == f"Refused: {refusal}"
    assert "matrix: " in Outline(Pages(history).overview(history.latest())).text
