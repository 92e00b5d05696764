"""`lockstep check` runs an application in every way of its kind, and reports a failure in one line."""

import json

import pytest

from infra.cli import check
from streaming_core.apps import registry
from streaming_core.cli.new import new, templates
from streaming_core.errors import RunFailed
from streaming_core.run import engine
from streaming_core.search import search
from tests.infra.cli.conftest import lockstep, refused
from tests.reports import past_finds
from tests.streaming_core.cli.test_own_data import OWN


@pytest.mark.slow
def test_application_runs_in_every_way_of_its_kind(session, capfd, monkeypatch):
    monkeypatch.setattr(check, "THREADS", [1, 2])
    assert check.check("wc", 300, settings=["vocabulary=20"], seconds=0.0) == 0
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
    assert check.check("wc", 300, settings=["vocabulary=20"], seconds=0.0, as_json=True) == 1
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
    assert check.check("wc", 300, settings=["vocabulary=20"], seconds=0.0) == 1
    output = capsys.readouterr().out
    assert "breaks an invariant: invariant:never: " in output
    assert "rows break it" in output
    assert "differs" not in output


@pytest.mark.slow
def test_find_of_the_search_is_printed_as_a_small_case(session, capfd, monkeypatch):
    def fake(app, corpus, finds, seconds, **options):
        return search.Report(app, 0, inputs=8, runs=40, reached=6, branches=7, finds=[past_finds.add(finds)])

    monkeypatch.setattr(check, "THREADS", [1])
    monkeypatch.setattr(search, "search", fake)
    assert check.check("wc", 300, settings=["vocabulary=20"]) == 1
    output = capfd.readouterr().out
    assert "search     8 inputs in 40 ways, 6 of 7 branches reached, 1 find\n" in output
    assert "cells equal the oracle\n" in output
    assert "wrong: the result differs from the oracle's: outputs\n" in output
    assert output.splitlines()[-1] == "to keep it as a page and a test, type `lockstep find wc`"


@pytest.mark.slow
def test_application_without_generator_runs_on_files_and_on_an_import(session, home, package, tmp_path, capfd):
    (package / "own.py").write_text(OWN.replace("NAME", "own").replace("TIME", "ms"))
    (tmp_path / "a.csv").write_text("ts,cents,name\n2,5,b\n1,3,a\n1970-01-01,4,b\n")
    files = [str(tmp_path / "a.csv"), "--map", "account=name"]
    assert lockstep("check", "own", "--data", *files, "--search", "0") == 0
    output = capfd.readouterr().out
    assert f"data       3 events of {files[0]}; sorted by ts: 2 rows had a lower ts than the row before\n" in output
    assert "3 outputs; the interpreted and the compiled oracle agree" in output
    assert output.splitlines()[-1].endswith("cells equal the oracle")
    assert lockstep("import", "own", *files, "--name", "mine") == 0
    assert lockstep("check", "own", "--data", "mine", "--search", "0") == 0
    assert "data       3 events of mine" in capfd.readouterr().out
    assert [path.name for path in home.root.iterdir()] == ["imported"]


def test_bad_input_is_reported_before_anything_starts(home, package, tmp_path, capfd):
    (package / "own.py").write_text(OWN.replace("NAME", "own").replace("TIME", "ms"))
    (package / "wc.py").write_text(OWN.replace("NAME", "wc").replace("TIME", "ms"))
    (tmp_path / "a.csv").write_text("ts,cents,account\n1,2,a\n2,soon,a\n")
    for arguments, message in (
        (["nosuch"], "unknown application 'nosuch'"),
        (["wc", "--set", "vocabulary=many"], "vocabulary"),
        (["wc", "--events", "0"], "--events"),
        (["own"], "app own has no generator: give it events of your own with --data"),
        (["own", "--data", str(tmp_path / "a.csv")], "a.csv:3: cents is neither an integer nor a time: '2,soon,a'"),
        (["own", "--data", "nosuch"], "nosuch"),
    ):
        assert message in refused(capfd, "check", *arguments)


@pytest.mark.slow
def test_every_template_of_an_application_passes(session, home, package, tmp_path, capfd):
    for template in templates():
        files = new(f"from_{template}", package, tmp_path / "nowhere", template)
        streams = [(path.name.split(".")[1:-1], path) for path in files if path.suffix == ".csv"]
        data = [word for stream, path in streams for word in ("--data", "=".join([*stream, str(path)]))]
        assert lockstep("check", f"from_{template}", *data, "--search", "0") == 0
        assert "cells equal the oracle" in capfd.readouterr().out
