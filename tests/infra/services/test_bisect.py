"""Bisection: the search over any history, and real commits of this engine. One commit swaps two rows."""

from __future__ import annotations

import io
import math
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.checkout import ROOT
from infra.services import bisect, build, pairs
from infra.services.bisect import Fault, halve
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.errors import BadInput, RunFailed
from streaming_core.regression import matrix
from streaming_core.regression.home import Home, new_run_id
from streaming_core.regression.request import RegressionSpec
from tests.e2e.nights import DELIVERY, SWAPPED
from tests.infra.services.small_repository import git
from tests.infra.services.test_pairs import SPEC, answering
from tests.support import checkout

FAULTY = "broken"  # the tag of the commit with the fault


def histories(count: int) -> st.SearchStrategy:
    """The number of commits, the place of the first bad one, and the places of those that cannot be judged."""
    places = st.integers(0, count - 1)
    return st.tuples(st.just(count), places, st.sets(places))


@given(st.integers(1, 60).flatmap(histories))
def test_first_bad_commit_is_unique_if_every_commit_can_be_judged(history):
    count, first_bad, unclear = history
    commits = [f"c{place}" for place in range(count)]
    judged: list[int] = []

    def is_bad(commit: str) -> bool | None:
        place = int(commit[1:])
        judged.append(place)
        return None if place in unclear else place >= first_bad

    suspects = halve(commits, is_bad)
    assert commits[first_bad] in suspects.commits
    assert len(judged) == len(set(judged))
    assert suspects.judged == len([place for place in judged if place not in unclear])
    # All but the last answer, which is bad, could not be judged.
    assert {int(commit[1:]) for commit in suspects.commits[:-1]} <= unclear
    if not unclear:
        assert suspects.judged <= math.ceil(math.log2(count)) if count > 1 else suspects.judged == 0


@pytest.fixture(scope="module")
def history(tmp_path_factory) -> Path:
    """A repository of this checkout with eight commits more; the one with the tag `broken` swaps two rows."""
    folder = checkout.track(tmp_path_factory.mktemp("history"))
    git(folder, "tag", "start")
    module = folder / "streaming_core" / "run" / "one_pass.py"
    for number in range(8):
        if number == 5:
            text = module.read_text()
            assert text.count(DELIVERY) == 1
            module.write_text(text.replace(DELIVERY, SWAPPED + DELIVERY))
        else:
            (folder / ("README.md" if number == 2 else "streaming_core/errors.py")).open("a").write(f"\n# {number}\n")
        checkout.commit(folder)
        git(folder, "tag", FAULTY if number == 5 else f"c{number}")
    return folder


@pytest.fixture
def home(history, monkeypatch, tmp_path) -> Home:
    """A home with a planned run of wc, and a build of every commit, with the runtime of this checkout."""
    monkeypatch.setattr(build, "ROOT", history)
    home = Home(tmp_path / "home")
    planned = matrix.plan(
        RegressionSpec(applications=["wc"], executors=["pooled"], threads=[2], events=500), home, new_run_id("b", 1e9)
    )
    (source,) = planned["workloads"]
    app = registry.load("wc")
    workload.write(app, app.bind(), 500, 1, home.workload("wc", source["address"]))
    (runtime,) = (ROOT / "streaming_core").glob("_runtime*.so")
    for commit in git(history, "rev-list", "HEAD").split():
        packed = subprocess.run(
            ["git", "archive", commit, "streaming_core"], cwd=history, check=True, capture_output=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(home.build(commit), filter="data")
        os.link(runtime, home.build(commit) / "streaming_core" / runtime.name)
    return home


def run_and_cell(home: Home) -> tuple[str, str]:
    (plan,) = home.root.glob("runs/*/plan.json")
    (cell,) = matrix.cells(RegressionSpec(applications=["wc"], executors=["pooled"], threads=[2], events=500))[0]
    return plan.parent.name, cell.cell


@pytest.mark.slow
def test_bisection_names_the_commit_that_swaps_two_rows(home, history):
    run_id, cell = run_and_cell(home)
    lines: list[str] = []
    suspects = bisect.bisect(home, run_id, cell, "start", "HEAD", Fault.MISMATCH, lines.append)
    assert suspects.commits == [git(history, "rev-parse", FAULTY).strip()]
    assert lines[0].startswith("7 commits after "), "the commit of README.md does not count"
    assert any(line.endswith(": bad") for line in lines)
    assert any(line.endswith(": good") for line in lines)


@pytest.mark.parametrize(
    ("good", "bad", "fault", "message"),
    [
        ("nosuch", "HEAD", BadInput, "'nosuch' is not a commit"),
        ("HEAD", "start", BadInput, "is no ancestor of"),
        ("c1", "c2", BadInput, "no commit after"),
        pytest.param("start", "c1", RunFailed, "equals the oracle at", marks=pytest.mark.slow),
        pytest.param(FAULTY, "HEAD", RunFailed, "differs from the oracle at", marks=pytest.mark.slow),
    ],
)
def test_range_without_the_fault_is_refused_in_one_line(home, good, bad, fault, message):
    run_id, cell = run_and_cell(home)
    with pytest.raises(fault, match=message) as refused:
        bisect.bisect(home, run_id, cell, good, bad, Fault.MISMATCH, print)
    assert "\n" not in str(refused.value)


def test_unknown_cell_is_refused(home):
    with pytest.raises(BadInput, match="unknown cell 'nosuch'"):
        bisect.bisect(home, run_and_cell(home)[0], "nosuch", "start", "HEAD", Fault.MISMATCH, print)


@pytest.mark.slow
def test_build_nearer_to_the_bad_one_is_slow(tmp_path, monkeypatch):
    monkeypatch.setattr(pairs, "PAIRS", 5)
    monkeypatch.setenv("LOCKSTEP_HOST_LOCK", str(tmp_path / "host.lock"))
    good, bad, fast, slow = (
        answering(tmp_path / name, seconds=seconds)
        for name, seconds in (("good", 0.25), ("bad", 0.28), ("fast", 0.26), ("slow", 0.27))
    )
    judge = bisect.Slowdown(SPEC, tmp_path, good, bad, print)
    assert (judge(fast), judge(slow)) == (False, True)
    with pytest.raises(RunFailed, match="is not slower than"):
        bisect.Slowdown(SPEC, tmp_path, good, answering(tmp_path / "same", seconds=0.251), print)
    with pytest.raises(RunFailed, match="build broken: it broke"):
        judge(answering(tmp_path / "broken", error="it broke"))
