"""`lockstep invariants` reports the invariants of a repeated run as the page of the cell does."""

import json

import pytest

from infra.cli.invariants import invariants
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.run import engine
from streaming_core.run.way import Pooled
from tests.infra.cli.conftest import refused

WRONG = "SELECT seq, word FROM outputs WHERE seq < 2 AND sub = 0"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A workload, and a run of it."""
    folder = tmp_path_factory.mktemp("made")
    workload.write("wc", {"vocabulary": 20}, 300, 1, folder / "w")
    spec = Pooled(app="wc", params={"vocabulary": 20}, threads=1, sink="parquet", repetitions=1)
    engine.run(spec, folder / "w", folder / "r")
    return folder


@pytest.mark.slow
def test_each_invariant_holds_or_shows_its_violating_rows(workspace, session, capsys, monkeypatch):
    assert invariants(workspace / "r", workspace / "w") == 0
    names = registry.load("wc").required_invariants("total", {"vocabulary": 20})
    assert capsys.readouterr().out.splitlines() == [f"holds   {name}" for name in names]
    monkeypatch.setitem(
        registry.load("wc").invariants, "short", "SELECT seq, word FROM outputs WHERE seq < 2 AND sub = 0"
    )
    monkeypatch.setitem(registry.load("wc").invariants, "typed", "SELECT FORM outputs")
    assert invariants(workspace / "r", workspace / "w") == 1
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("broken  short: 2 rows break it")
    rows = [json.loads(line) for line in lines[at + 1 : at + 3]]
    assert [row["seq"] for row in rows] == [0, 1]
    assert all(row["word"].isprintable() and row["word"] for row in rows), "text as text"
    assert lines[-1].startswith("broken  typed: cannot be evaluated: [")
    assert invariants(workspace / "r", workspace / "w", True) == 1
    assert json.loads(capsys.readouterr().out)["short"]["rows"] == rows


def test_run_of_another_workload_is_refused(workspace, tmp_path, capfd):
    workload.write("wc", {"vocabulary": 20}, 300, 2, tmp_path / "other")
    spec = Pooled(app="wc", params={"vocabulary": 20}, threads=1, sink="digest", repetitions=1)
    engine.run(spec, workspace / "w", tmp_path / "digested")
    for run, source, message in (
        (workspace / "r", tmp_path / "other", "is not the workload of"),
        (tmp_path / "digested", workspace / "w", "has no outputs: run the application again with --sink parquet"),
        (tmp_path, workspace / "w", "no finished run at"),
        (workspace / "r", tmp_path, "workload"),
    ):
        assert message in refused(capfd, "invariants", str(run), "--input", str(source))
