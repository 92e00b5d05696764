"""`lockstep check` runs an application in every way of its kind, and reports a failure in one line."""

import json

import pytest

from infra.cli import check
from streaming_core.apps import registry
from streaming_core.errors import RunFailed
from streaming_core.run import engine
from tests.infra.cli.conftest import refused


@pytest.mark.slow
def test_application_runs_in_every_way_of_its_kind(session, capfd, monkeypatch):
    monkeypatch.setattr(check, "THREADS", [1, 2])
    assert check.check("wc", 300, ["vocabulary=20"]) == 0
    output, error = capfd.readouterr()
    assert error == ""
    assert "generator  300 events, the same if generated twice" in output
    assert "the interpreted and the compiled oracle agree" in output
    ways = [
        ["pooled", "affinity"],
        *(["pinned", way] for way in ("gate", "gate-planned", "pair_queue", "pair_queue-planned")),
        *(["pinned", way] for way in ("shared_ring", "shared_ring-planned")),
        ["morsel", "morsel"],
    ]
    shown = [line.split()[:2] for line in output.splitlines() if line.startswith(("pooled", "pinned", "morsel"))]
    assert [[executor, way.replace("-batch16", "").rstrip(",")] for executor, way in shown] == ways
    assert "left out   pooled: heuristic ct, lp, et, qst; queue hybrid, partitioned, shared; reorder lock;" in output
    assert output.splitlines()[-1] == "All 13 cells equal the oracle"


@pytest.mark.slow
def test_failure_is_named_with_its_way(session, capsys, monkeypatch):
    monkeypatch.setattr(check, "THREADS", [2])
    run = engine.run

    def failing(spec, *arguments, **options):
        if spec.executor == "pooled":
            raise RunFailed("operator count: event 7: out of cheese")
        return run(spec, *arguments, **options)

    monkeypatch.setattr(engine, "run", failing)
    assert check.check("wc", 300, ["vocabulary=20"], True) == 1
    findings = json.loads(capsys.readouterr().out)
    assert not findings["green"]
    wrong = [cell for cell in findings["cells"] if cell["verdict"] != "equal"]
    assert {cell["cell"].split(".")[1] for cell in wrong} == {"pooled"}
    assert {cell["reason"] for cell in wrong} == {"operator count: event 7: out of cheese"}
    assert findings["sentence"].startswith("7 of 8 cells equal the oracle; wc/affinity-batch16/t2 failed")


@pytest.mark.slow
def test_broken_invariant_is_distinct_from_a_different_result(session, capsys, monkeypatch):
    monkeypatch.setattr(check, "THREADS", [1])
    monkeypatch.setitem(registry.load("wc").invariants, "never", "SELECT seq, word FROM outputs WHERE seq < 2")
    assert check.check("wc", 300, ["vocabulary=20"]) == 1
    output = capsys.readouterr().out
    assert "breaks an invariant: invariant:never: " in output
    assert "rows break it" in output
    assert "differs" not in output


def test_bad_input_is_reported_before_anything_starts(capfd):
    for arguments, message in (
        (["nosuch"], "unknown application 'nosuch'"),
        (["wc", "--set", "vocabulary=many"], "vocabulary"),
        (["wc", "--events", "0"], "--events"),
    ):
        assert message in refused(capfd, "check", *arguments)
