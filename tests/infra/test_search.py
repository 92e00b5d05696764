"""The search after a run: red cells get small cases, applications their turn, and finds are red cells of the run."""

import json
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from infra import search as stage
from infra.cli.summary import as_dict
from infra.gate.pairs import Budget
from infra.history import ledger
from infra.history.disk_space import removable
from jobs.raw import write_raw
from reports.history import History
from reports.history.state import state
from streaming_core.apps import registry
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import rows
from streaming_core.run.way import RunSpec
from streaming_core.search import find, search, shrinking
from streaming_core.search.case import Case, Kind, Symptom
from streaming_core.search.find import Find
from streaming_core.search.replay import numbered
from streaming_core.storage import write_json
from tests.reports import past_finds, past_runs
from tests.reports.past_runs import LAST, RUN_IDS

CELL = "wc.find.0123456789abcdef"


@pytest.fixture
def home(tmp_path) -> Home:
    """Two green nights."""
    home = Home(tmp_path)
    past_runs.make(home, nights=2, red=False)
    return home


def make_find(home: Home, kind: Kind = "result") -> Find:
    """A find of wc."""
    return past_finds.add(home.finds("wc"), digest="0123456789abcdef", build="abc", symptom=Symptom(kind, "outputs"))


def searched(home: Home, run_id: str, app: str = "wc", finds: tuple[Find, ...] = ()) -> None:
    """Let a run search an application with this outcome."""
    report = search.Report(app, 0, inputs=100, runs=500, reached=9, branches=10, seconds=30.0, finds=list(finds))
    stage.keep(home, run_id, report, pytest.fail)


def test_applications_searched_longest_ago_share_the_time(home):
    for app, last in (("gs", 2.0), ("sl", 3.0), ("wc", 1.0)):
        home.corpus(app).mkdir(parents=True)
        write_json(home.corpus(app) / "ledger.json", {"last": last})
    make_find(home)
    apps, now = ["gs", "sl", "wc", "fd"], time.monotonic()
    assert [app for app, seconds in stage.shares(home, apps, now + 2.5 * stage.LEAST) if seconds] == ["fd", "wc"]
    shares = dict(stage.shares(home, apps, now + 1000))
    assert list(shares) == ["fd", "wc", "gs", "sl"]
    assert 240 < shares["fd"] <= 250


def test_application_without_time_only_tries_its_finds_again(home):
    make_find(home)
    shares = dict(stage.shares(home, ["gs", "fd", "wc"], time.monotonic() + stage.LEAST))
    assert {app: bool(seconds) for app, seconds in shares.items()} == {"fd": True, "wc": False}


@pytest.mark.parametrize(
    ("kind", "verdict", "word"),
    [
        ("result", "different", "differs in build abc"),
        ("crash", "failed", "failed"),
        ("property", "invariant_broken", "breaks a property in build abc"),
    ],
)
def test_find_is_a_red_cell_of_its_run(home, kind, verdict, word):
    first, last = RUN_IDS[:2]
    assert History(home).run(last).green
    searched(home, last, finds=(make_find(home, kind),))
    run = History(home).run(last)
    cells = len(run.cells)
    assert not run.green
    assert [(cell.name, cell.label, cell.verdict) for cell in run.finds] == [(CELL, "find wc/01234567", verdict)]
    assert f"cells equal the oracle; find wc/01234567 {word}" in run.sentence
    assert run.faulty_cells == run.finds
    assert len(run.cells) == cells
    assert run.red_since == {CELL: last}
    assert ledger.red_cells(ledger.verdicts(home, last)) == [CELL]
    assert as_dict(home, run, {})["finds"][0]["cell"] == CELL
    assert History(home).run(first).green


def test_state_keeps_a_find_until_a_search_no_longer_shows_it(home):
    first, last = RUN_IDS[:2]
    example = make_find(home)
    searched(home, first, finds=(example,))
    searched(home, last, app="gs")
    latest = state(History(home))
    assert [(cell.name, cell.run_id) for cell in latest.finds] == [(CELL, first)]
    assert not latest.green
    assert {row["app"] for row in latest.searched.rows} == {"gs", "wc"}
    assert latest.searched.sentence.endswith(
        "200 inputs of 2 applications in 1,000 ways, 18 of 20 branches reached (90 %)"
    )
    searched(home, last)
    assert state(History(home)).green
    assert {row["app"] for row in rows(home, "searches", last)} == {"gs", "wc"}


def test_prune_removes_a_find_once_it_is_acknowledged_and_no_longer_shows(home):
    first, last = RUN_IDS[:2]
    example = make_find(home)

    def is_removable() -> bool:
        return example.folder in [item.path for item in removable(home, 10**12)]

    searched(home, first, finds=(example,))
    ledger.acknowledge(home, first, None, "ann", "known")
    assert not is_removable(), "no later search"
    searched(home, last, finds=(example,))
    assert not is_removable(), "it still shows"
    searched(home, last)
    assert is_removable()
    ledger.withdraw(home, first, None, "ann", "not so sure")
    assert not is_removable()


def test_red_cell_gets_its_small_case(tmp_path, monkeypatch):
    monkeypatch.setitem(registry._ELSEWHERE, "tally", "tests.streaming_core.search.tally")
    monkeypatch.setenv("TALLY_FAULT", "1")
    monkeypatch.setattr(shrinking, "shrink", lambda case, *options: case.with_events(case.events.slice(0, 9)))
    home, run_id = Home(tmp_path), RUN_IDS[0]
    spec = RunSpec.parse({"app": "tally", "executor": "pooled", "threads": 2, "batch": 7, "repetitions": 3})
    names = [b"ann", b"", b"ann", b"bob"] * 20
    case = Case(spec, numbered(spec, [{"ts": ts, "name": name} for ts, name in enumerate(names)]))
    home.workload("tally", "w").parent.mkdir(parents=True)
    case.write_workload(home.workload("tally", "w"))
    cells = [{"cell": name, "spec": spec.model_dump(mode="json"), "workload": "w"} for name in ("red", "right")]
    facts = [{"cell": "red", "verdict": "different"}, {"cell": "right", "verdict": "equal"}]
    write_raw(home, "cells", run_id, facts)
    lines = []
    stage.shrink_cells(home, run_id, cells, Budget(time.monotonic() + 20, ""), lines.append)
    [small] = find.finds(home.cell(run_id, "red") / find.SHRUNK)
    assert (small.symptom, small.threads) == (Symptom("result", "outputs"), 2)
    assert small.events == 9
    assert not (home.cell(run_id, "right") / find.SHRUNK).exists()
    lines.clear()
    stage.shrink_cells(home, run_id, cells, Budget(time.monotonic() + 20, ""), lines.append)
    assert lines == [], "a second try leaves it as it is"


def test_search_without_time_says_so_and_shrinks_nothing(home):
    cell = json.loads((home.run(RUN_IDS[1]) / "plan.json").read_text())["cells"][0]
    write_raw(home, "cells", RUN_IDS[1], [{"cell": cell["cell"], "verdict": "different"}])
    lines = []
    stage.shrink_cells(home, RUN_IDS[1], [cell], Budget(time.monotonic() - 1, ""), lines.append)
    assert lines == ["no time to make 1 red cell smaller; raise find_minutes"]


def test_run_searches_its_applications_and_publishes_what_was_tried(tmp_path, monkeypatch):
    run = search.search

    def short(app: str, corpus: Path, finds: Path, seconds: float, **options: Any) -> search.Report:
        return run(app, corpus, finds, 8, **options)

    monkeypatch.setattr(search, "search", short)
    monkeypatch.setattr(stage, "beside", lambda app: nullcontext())
    home = Home(tmp_path)
    past_runs.add(home, LAST, kinds={"wc": "dataflow"}, find_minutes=1.0)
    sentence = stage.work(home, LAST, lambda line: None)
    [row] = rows(home, "searches", LAST)
    assert (row["app"], row["inputs"] > 0, row["ways"] > row["inputs"]) == ("wc", True, True)
    assert 0 < row["reached"] <= row["branches"]
    assert f"{row['inputs']:,} inputs of 1 application in {row['ways']:,} ways" in sentence
    assert sentence in home.report(LAST, "index.html").read_text()
    assert rows(home, "finds", LAST) == []
    assert History(home).run(LAST).green
