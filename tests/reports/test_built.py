"""The page of dbt's build in a run: failures first, and a link from the run."""

from reports.publish import publish
from streaming_core.regression.home import Home
from streaming_core.storage import write_json
from tests.reports.past_runs import LAST
from tests.reports.test_pages import Outline

MODEL = {"name": "runs", "kind": "model", "of": "marts", "how": "table", "state": "built"}
MODEL |= {"seconds": 1.23, "rows": 1200}
TEST = {"name": "every_run_has_one_row", "kind": "test", "of": "runs", "how": "", "state": "passed", "seconds": 0.5}
NODES = [MODEL | {"message": ""}, TEST | {"rows": 0, "message": ""}]


def pages(home: Home, nodes: list[dict]) -> tuple[Outline, Outline]:
    """The page of the run, and the page of its dbt build."""
    write_json(home.run(LAST) / "dbt.json", {"nodes": nodes})
    publish(home, LAST)
    run, built = (Outline(home.report(LAST, name).read_text()) for name in ("index.html", "warehouse.html"))
    assert "warehouse.html" in run.links
    assert "index.html" in {link.rpartition("/")[2] for link in built.links}
    return run, built


def test_build_is_shown_by_model_and_test(home):
    run, built = pages(home, NODES)
    assert built.first_heading == "dbt built 1 model, and 1 test passed"
    assert "dbt built 1 model, and 1 test passed" in run.text
    for phrase in ("1,200", "1.2", "1 of 1", "every run has one row"):
        assert phrase in built.text, phrase
    assert "Failed" not in built.text


def test_failures_come_first_with_their_reason(home):
    reason = "<b>Got 3 results</b>"
    wrong = [
        NODES[0] | {"state": "failed", "rows": None, "message": reason},
        NODES[1] | {"state": "skipped", "rows": None},
    ]
    _, built = pages(home, wrong)
    assert built.first_heading == "2 of 2 nodes of dbt failed"
    assert reason in built.text, "escaped"
    assert built.text.index(reason) < built.text.index("tests that passed")
    assert "0 of 1" in built.text


def test_run_without_dbt_results_has_no_warehouse_page(home):
    publish(home, LAST)
    assert not home.report(LAST, "warehouse.html").exists()
    assert "warehouse.html" not in Outline(home.report(LAST, "index.html").read_text()).links
