"""Measurements on larger hosts: the files that `--evidence` writes and `--import` accepts."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest

from streaming_core.bench import evidence, suite
from streaming_core.bench.papers.stretch import elasticity, stretch
from streaming_core.bench.race import results
from streaming_core.bench.suite import SUITES
from streaming_core.errors import BadInput


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    # Two experiments need a large host and compile quickly.
    cheap = {"q2": "cores", "q6": "nodes"}
    experiments = stretch.SUITE.experiments
    chosen = tuple(
        replace(experiment, needs=cheap.get(experiment.name))
        for experiment in experiments
        if experiment.name in ("q2", "q3", "q6")
    )
    monkeypatch.setattr(stretch, "SUITE", replace(stretch.SUITE, experiments=chosen))
    monkeypatch.setattr(elasticity, "HEDGE", {"keys": 8})
    monkeypatch.setattr(suite, "SUITES", {"stretch": "stretch.stretch"})
    return tmp_path / "home"


@pytest.fixture
def command(command):
    """Runs `streaming-core bench ...`."""
    return partial(command, "bench")


@pytest.mark.slow
def test_evidence_is_one_file_that_another_host_imports(command, home, tmp_path):
    file = tmp_path / "evidence.json"
    code, shown, error = command("--evidence", file, "--quick", "--threads", "1,2", "--repetitions", 2)
    assert (code, error) == (0, "")
    assert shown.splitlines()[-1] == f"written to {file}"
    assert not list(home.glob("reports/**/*.json")), "it is to be sent back, so it is in one place"
    [part] = json.loads(file.read_text())["suites"]
    assert [(experiment["name"], experiment["needs"]) for experiment in part["experiments"]] == [
        ("q2", "cores"),
        ("q6", "nodes"),
    ]
    assert (part["version"], part["quick"], part["threads"]) == (2, True, [1, 2])
    assert part["command"] == "streaming-core bench --evidence FILE --quick --threads 1,2 --repetitions 2"
    assert part["order"] == ["q2", "q3", "q6"]

    code, shown, error = command("--import", file)
    assert (code, error) == (0, "")
    [kept] = (home / "reports" / "bench").glob("*.json")
    assert json.loads(kept.read_text()) == part
    assert f"written to {kept}; `lockstep publish` draws it" in shown
    assert "q2: " in shown
    assert "An operator that only forwards" in shown
    # A second time it is the same file.
    assert command("--import", file)[0] == 0
    assert list((home / "reports" / "bench").glob("*.json")) == [kept]


@pytest.mark.slow
def test_a_suite_of_one_host_can_be_imported_too(command, home, tmp_path):
    file = tmp_path / "stretch.json"
    options = ("--suite", "stretch", "--only", "q2", "--quick", "--threads", "1", "--repetitions", 1)
    assert command(*options, "--out", file)[0] == 0
    assert command("--import", file, "--json")[0] == 0
    assert len(list((home / "reports" / "bench").glob("*.json"))) == 1


@pytest.fixture
def part():
    """The results of a suite, as a file holds them."""
    row = {"app": "wc", "params": {}, "way": "loop", "threads": 1, "result": "yardstick"}
    row |= {"events_per_s": 1.0, "to_loop": 1.0, "rates": [1.0]}
    experiment = {"name": "q2", "figure": "", "title": "", "plots": [], "varies": [], "notes": []}
    facts = {"build": "0123abc", "made_at": "2026-01-02T03:04:05Z", "host": {"cpu": "x", "cores": 64}, "topology": {}}
    return facts | {
        "version": 2, "suite": "stretch", "title": "", "quick": False, "command": "", "seconds": 1.0, "cells": 1,
        "order": ["q2"], "threads": [64], "repetitions": 5, "conditions": {},
        "experiments": [experiment | {"conclusions": [], "rows": [row]}],
    }  # fmt: skip


def test_written_results_are_accepted(part):
    results.check(part, "f.json", SUITES)


def test_file_has_a_line_for_each_row(part, tmp_path):
    file = {"version": 2, "evidence": True, "suites": [part, part]}
    results.save(tmp_path / "f.json", file)
    lines = (tmp_path / "f.json").read_text().splitlines()
    assert json.loads("".join(lines)) == file
    rows = [json.loads(line.strip().removesuffix(",")) for line in lines if '"way"' in line]
    assert rows == results.rows(file)


def change(part, path, value):
    *parents, last = path
    for step in parents:
        part = part[step]
    part[last] = value


ROW = ("experiments", 0, "rows", 0)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("version",), 1, "not a results file of version 2, but of version 1"),
        (("suite",), "nope", "unknown suite 'nope'"),
        (("suite",), ["stretch"], "unknown suite ['stretch']"),
        (("made_at",), "../../x", "made_at"),
        (("host",), {"cpu": "x"}, "host.cores is missing"),
        (("experiments",), None, "f.json: "),
        (("experiments",), [1], "f.json: "),
        ((*ROW, "result"), "different", "1 results differ from the loop's; the first is wc loop"),
        ((*ROW, "result"), "fine", "result"),
        ((*ROW, "events_per_s"), "fast", "events_per_s"),
        ((*ROW, "rates"), [1.0, None], "rates"),
        (("experiments", 0, "title"), 7, "title"),
    ],
)
def test_bad_results_are_refused_in_one_line(part, path, value, words):
    change(part, path, value)
    with pytest.raises(BadInput) as refused:
        results.check(part, "f.json", SUITES)
    assert words in str(refused.value)
    assert str(refused.value).startswith("f.json: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"evidence": true}', '{"evidence": true, "suites": []}', "\xff"])
def test_files_without_results_are_refused_and_nothing_is_kept(command, home, tmp_path, text):
    file = tmp_path / "evidence.json"
    file.write_text(text, encoding="latin-1")
    code, shown, error = command("--import", file)
    assert (code, shown, error.count("\n")) == (2, "", 1)
    assert str(file) in error
    assert not (home / "reports").exists()


def test_one_wrong_part_refuses_the_whole_file(home, tmp_path, part):
    wrong = json.loads(json.dumps(part))
    change(wrong, (*ROW, "result"), "different")
    file = tmp_path / "evidence.json"
    file.write_text(json.dumps({"version": 2, "evidence": True, "suites": [part, wrong]}))
    with pytest.raises(BadInput, match="differ"):
        evidence.take(file)
    assert not (home / "reports").exists()


def test_every_suite_has_experiments_for_large_hosts(monkeypatch):
    monkeypatch.undo()  # all of them
    for name in SUITES:
        assert any(experiment.needs for experiment in suite.load(name).experiments), name
