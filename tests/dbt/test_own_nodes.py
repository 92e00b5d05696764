"""A user's own nodes of every kind of dbt that fail pass through the pages; `test_marts.py` has those that do not."""

import pytest

from reports.history import History
from reports.pages import Pages
from reports.views.built import Built
from streaming_core.regression.home import Home
from tests.dbt import own_nodes
from tests.dbt.conftest import BUILD_AND_UNIT_TESTS, python
from tests.dbt.raw_runs import GREEN, write_runs


@pytest.mark.slow
def test_nodes_that_fail_are_shown_with_their_reasons(tmp_path):
    home = Home(tmp_path)
    write_runs(home, (GREEN,))
    project = own_nodes.copy_project(tmp_path / "project", own_nodes.RED)
    process = python(home, "-c", BUILD_AND_UNIT_TESTS, str(tmp_path / "results.json"), GREEN, str(project))
    assert "RunFailed: dbt model own_broken: [UNRESOLVED_COLUMN" in process.stderr
    assert (home.reports / "dbt" / "docs.html").exists(), "dbt documents the tables that there are"
    built = Built.of(History(home).run(GREEN))
    assert {(failure.kind, failure.name): failure.state for failure in built.failures} == {
        ("test", "own_error"): "failed",
        ("model", "own_broken"): "failed",
        ("model", "own_after_broken"): "skipped",
        ("model", "own_python"): "failed",  # dbt runs Python models of Spark on Databricks alone
        ("snapshot", "own_snapshot"): "failed",  # Spark has snapshots of Delta, Iceberg and Hudi alone
        ("operation", "lockstep-on-run-end-0"): "failed",
    }
    page = Pages(History(home)).built(History(home).run(GREEN))
    assert f'<h1 class="red">6 of {len(built.nodes)} nodes of dbt failed</h1>' in page
    for reason in ("Got 1 result, configured to fail", "cluster_id is required", "Invalid file format", "`nosuch`"):
        assert reason in page, reason
    assert "stacktrace" not in page
