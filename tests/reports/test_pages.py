"""The pages as a person reads them: their text, their links, and escaped data rows."""

import json
import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from reports.charts import script
from reports.history import History
from reports.pages import Pages
from reports.publish import publish
from reports.views.tasks import Tasks
from streaming_core.regression.home import Home
from streaming_core.regression.stages import DAG_ID
from streaming_core.regression.verdict import VERDICTS
from streaming_core.run.way import Pinned, Pooled, Transactional
from streaming_core.storage import write_json
from tests.reports import past_runs
from tests.reports.content import from_elsewhere
from tests.support.browser import Browser


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    home = Home(tmp_path_factory.mktemp("home"))
    past_runs.make(home)
    for run_id in past_runs.RUN_IDS:
        publish(home, run_id)
    return home


class Outline(HTMLParser):
    """Links, sources and tags of a page, and its text; the script of charts and their specifications are no tags."""

    def __init__(self, text: str):
        super().__init__()
        self.links, self.tags, self.text, self.first_heading = [], [], "", ""
        self._in_heading = self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self._in_script = tag == "script"
        self.tags += [] if _is_own_script(tag, dict(attrs)) else [tag]
        self.links += [value for name, value in attrs if name in ("href", "src")]
        assert not [name for name, _ in attrs if name.startswith("on")], "no inline handlers: the policy forbids them"
        assert "style" not in dict(attrs), "no inline styles: the policy forbids them"
        self._in_heading = self._in_heading or (tag == "h1" and not self.first_heading)

    def handle_data(self, data):
        self.text += "" if self._in_script else data
        if self._in_heading:
            self.first_heading += data

    def handle_endtag(self, tag):
        self._in_script = False
        self._in_heading = self._in_heading and tag != "h1"


def _is_own_script(tag: str, attrs: dict[str, str | None]) -> bool:
    """Whether an element is the specification of a chart, or the script that draws charts, with its digest."""
    if tag != "script" or attrs == {"type": "application/json"}:
        return tag == "script"
    name = (attrs.get("src") or "").removeprefix("../")
    return script.NAME.fullmatch(name) is not None and attrs["integrity"] == script.integrity(name)


def pages_of(home: Home) -> list[Path]:
    """All but runs as one file, which lead nowhere (test_attachment.py)."""
    return sorted(path for path in home.reports.rglob("*.html") if not path.name.startswith("lockstep-"))


def test_every_link_has_a_target_inside_the_reports(home):
    checked = 0
    for path in pages_of(home):
        for link in Outline(path.read_text()).links:
            assert not re.match(r"[a-z]+:|//|/", link), f"{path.name} links to {link}"
            if link == f"../../dags/{DAG_ID}/runs/manual__{path.parent.name}":  # Airflow serves both
                continue
            assert (path.parent / link).resolve().is_relative_to(home.reports.resolve())
            file, _, place = link.partition("#")
            assert (path.parent / file).exists(), f"{path.name} links to {link}, which is not there"
            if not file.endswith("docs/glossary.html"):  # a stand-in without entries
                assert not place or f'id="{place}"' in (path.parent / file if file else path).read_text()
            checked += 1
    assert checked > 100


def test_data_rows_are_escaped_everywhere(home):
    seen = 0
    for path in pages_of(home):
        text = path.read_text()
        assert "script" not in Outline(text).tags
        seen += "&lt;script&gt;" in text
    assert seen == 2, "the hostile row and the hostile log are shown, as text"


def test_run_with_hostile_names_is_escaped(home, tmp_path):
    other = Home(tmp_path)
    past_runs.make(other, nights=1)
    plan_path = other.run(past_runs.RUN_IDS[0]) / "plan.json"
    history = History(other)
    run = history.run(past_runs.RUN_IDS[0])
    write_json(plan_path, run.plan | {"origin": past_runs.HOSTILE})
    page = Pages(history).overview(history.run(past_runs.RUN_IDS[0]))
    assert "script" not in Outline(page).tags
    assert "taken" in Outline(page).text


def test_evidence_shows_rows_event_digest_host_and_reproduction(home):
    run = History(home).run(past_runs.LAST)
    cell = next(cell for cell in run.cells if cell.verdict == "different")
    text = (home.reports / past_runs.LAST / f"{cell.name}.html").read_text()
    page = Outline(text)
    assert page.first_heading == "✗ sl/owners/t2 differs from the oracle"
    assert "accepted: <mark>true</mark>" in text, "what differs is marked"
    assert "accepted: <mark>false</mark>" in text
    assert "amount: 250\nsource: 812\ntarget: 17" in page.text, "the event that caused it"
    assert "the first 3 of 3 differing rows" in page.text
    for needed in ("100000:0123456789abcdef", "node1", "load before, after", "abc423def", "73 ns", "2,310 nJ"):
        assert needed in page.text
    for line in (
        'streaming-core generate sl --events 100000 --seed 1 --out "$again"/workload',
        'streaming-core oracle sl --input "$again"/workload --out "$again"/oracle',
        "--executor transactional --threads 2 --scheme owners",
        "--sink parquet --repetitions 3",
        'streaming-core diff "$again"/run "$again"/oracle',
        'lockstep invariants "$again"/run --input "$again"/workload',
    ):
        assert line in page.text


def test_cell_on_imported_events_is_reproduced_from_the_import(home):
    run = History(home).run(past_runs.LAST)
    cell = next(cell for cell in run.cells if cell.verdict == "different")
    workloads = [workload | {"data": "mine"} for workload in run.plan["workloads"]]
    changed = replace(run, plan=run.plan | {"workloads": workloads})
    page = Outline(Pages(History(home)).cell(changed, replace(cell, facts=cell.facts | {"seed": None})))
    assert "streaming-core generate" not in page.text
    assert f"oracle sl --input {home.imported('mine')} --out" in page.text
    assert "100,000, imported" in page.text


def test_every_outcome_is_described_in_words(home):
    pages, run = Pages(History(home)), History(home).run(past_runs.LAST)
    ordered, loose = run.cells[0], replace(run.cells[0], spec=Pinned(app="wc", channel="shared_ring"))
    words = {}
    for verdict in VERDICTS:
        for cell, order in ((ordered, "total"), (loose, "none")):
            judged = replace(cell, facts={"verdict": verdict, "status": "ok" if verdict != "not_run" else "not_run"})
            text = Outline(pages.cell(run, judged)).first_heading
            words[verdict, order] = text.partition(judged.label)[2].strip()
    assert {verdict: text for (verdict, order), text in words.items() if order == "total"} == {
        "equal": "equals the oracle",
        "different": "differs from the oracle",
        "invariant_broken": "equals the oracle, but both break an invariant",
        "failed": "failed",
        "not_run": "did not run",
        "not_comparable": "is a bound: it never counts as right or wrong",
    }
    asides = {verdict for (verdict, order), text in words.items() if order == "none" and "apart from the order" in text}
    assert asides == {"equal", "invariant_broken"}
    ran = replace(ordered, facts={"verdict": "not_run", "status": "ok"})
    assert Outline(pages.cell(run, ran)).first_heading.endswith("was not compared")
    broken = replace(run, cells=[_broken(ordered)])
    assert broken.sentence.startswith("0 of 1 cells equal the oracle and keep their invariants; ")
    assert "≠invariant broken t1 breaks an invariant" in Outline(pages.overview(broken)).text


def _broken(cell):
    return replace(cell, facts={"verdict": "invariant_broken", "reason": "invariant:money: 1 row breaks it"})


def test_reconfigured_cell_is_reproduced_with_its_schedule(home, tmp_path):
    run = History(home).run(past_runs.LAST)
    schedule = [{"event": 9, "owners": {"count": [0]}}, {"event": 70, "owners": {"count": [0, 1]}}]
    spec = Pinned(app="wordcount", threads=2, schedule=schedule)
    page = Outline(Pages(History(home)).cell(run, replace(run.cells[0], spec=spec)))
    assert "executor pinned, channel gate, 2 reconfigurations, 2 threads" in page.text
    assert "--channel gate" in page.text
    assert '--schedule "$again"/schedule.json' in page.text
    (line,) = [line for line in page.text.splitlines() if line.startswith("echo ")]
    subprocess.run(f"mkdir again && again=again && {line}", shell=True, check=True, cwd=tmp_path)
    assert json.loads((tmp_path / "again" / "schedule.json").read_text()) == schedule


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        (Pooled(app="wc", queue="hybrid", partitions=7, slice=9), "--partitions 7 --slice 9 "),
        (Pooled(app="wc", heuristic="ct", throughput_window=77), "--throughput-window 77 "),
        (Transactional(app="sl", checkpoint="3"), "--checkpoint 3 "),
        (Pinned(app="wordcount", controller="model", thresholds=[90, 70, 45]), "--thresholds 90,70,45 "),
    ],
)
def test_cell_is_reproduced_with_its_non_default_options(home, spec, options):
    run = History(home).run(past_runs.LAST)
    page = Outline(Pages(History(home)).cell(run, replace(run.cells[0], spec=spec)))
    assert options in page.text


def task(role: str, operator: str, thread: int, rows: int, execute: int, others: int) -> dict:
    counts = {"rows_in": rows, "rows_out": rows, "batches": 1, "execute_ns": execute, "others_ns": others}
    return {"role": role, "operator": operator, "thread": thread, **counts, "execute_quantiles": []}


def test_planned_cell_shows_its_plan_and_the_work_of_its_threads(home, tmp_path):
    run = History(home).run(past_runs.LAST)
    spec = Pinned(app="wordcount", threads=2, plan="auto")
    plan = {"source": [0], "count": [1, 0], "sink": [1]}
    tasks = [
        task("source", "source", 0, 1000, 0, 100_000_000),
        task("keys", "count", 0, 1000, 250_000_000, 0),
        task("operator", "count", 1, 0, 0, 0),
        task("sink", "sink", 1, 500, 750_000_000, 500_000_000),
    ]
    passes = [{"kind": kind, "seconds": s, "tasks": tasks} for kind, s in (("verified", 9), ("peak", 2), ("peak", 1))]
    passes[-1]["threads"] = {"worked": 2, "of": 16, "why": "2 cores"}
    better = {"plan": {"count": [1]}, "events_per_s": 3e6, "instead_of": 1e6}
    planned = {"plan": plan, "strategy": "rlas", "events_per_s": 2e6, "bottleneck": "core 1", "error": 0.125}
    planned |= {"changed": {"count": 1.75}, "better": better}
    report = {"spec": {"threads": 2}, "binding": [0, 4], "samples": passes, "planned": planned}
    assert Tasks.of({"samples": passes[:1], "spec": {"threads": 2}}).seconds == 9
    assert Tasks.of({"samples": [passes[0] | {"tasks": []}]}) is None
    cell = replace(run.cells[0], spec=spec, name="planned", facts={"attempt": 1})
    write_json(home.attempt(past_runs.LAST, "planned", 1) / "report.json", report)
    text = Pages(History(home)).cell(run, cell)
    page = Outline(text)
    for needed in (
        "channel gate, plan from the planner, 2 threads",
        "2 of 16 threads worked: 2 cores",
        "on threads: source 0; count 1, 0; sink 1 (rlas: 2 M events/s predicted, 12% off, limited by core 1)",
        "in a pass of 1 s",
        "count has 1.8 times its part of the work; better now: count 1, 3 M events/s instead of 1 M",
        "thread 1, core 4",
        "keys of count, executing: 25.0%",
        "1,500,000 ns",
        '--plan "$again"/plan.json --pin',
    ):
        assert needed in page.text, needed
    drawn = ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    bars = [(part.get("y"), float(part.get("width"))) for part in drawn.iter("rect") if part.get("fill")]
    whole = 930
    assert sum(width for y, width in bars if y == "0") == pytest.approx(0.35 * whole)
    # Parts that are longer than the pass are shown as all of it.
    assert sum(width for y, width in bars if y != "0") == pytest.approx(whole, abs=0.1)
    (line,) = [line for line in page.text.splitlines() if line.startswith("echo ")]
    subprocess.run(f"mkdir again && again=again && {line}", shell=True, check=True, cwd=tmp_path)
    assert json.loads((tmp_path / "again" / "plan.json").read_text()) == plan
    # One that failed before there was a plan is to find it again.
    (home.attempt(past_runs.LAST, "planned", 1) / "report.json").unlink()
    assert "--plan auto" in Outline(Pages(History(home)).cell(run, cell)).text


TEXTS = ["<link rel=stylesheet href=//h/x>", "<script src='https://h/x'></script>", "<img src=HTTP://h>"]
TEXTS += ["<style>a { background: url(//h/x) }</style>", "<style>@import 'http://h/x'</style>"]
TEXTS += ["<p style='background: url(http://h)'>"]


@pytest.mark.parametrize("text", TEXTS)
def test_external_resources_of_a_page_are_detected(tmp_path, text):
    (tmp_path / "page.html").write_text(f"<a href=http://allowed/></a><img src=own.png>{text}")
    assert len(from_elsewhere(tmp_path / "page.html")) == 1


def test_no_page_picture_or_style_loads_anything_from_elsewhere(home):
    kinds = {path.suffix: from_elsewhere(path) for path in home.reports.rglob("*.*")}
    assert {".html", ".svg", ".css"} <= kinds.keys()
    assert [path for path in home.reports.rglob("*.*") if path.is_file() and from_elsewhere(path)] == []


def test_browser_shows_rows_and_logs_as_text(home):
    run = History(home).run(past_runs.LAST)
    with Browser() as browser:
        for cell in run.cells:
            if cell.verdict not in ("different", "failed"):
                continue
            browser.go((home.reports / past_runs.LAST / f"{cell.name}.html").as_uri())
            browser.wait(f"document.readyState === 'complete' && document.title.startsWith({cell.label!r})")
            shown = browser.ask("document.body.innerText")
            for part in ("<script>document.title", "onerror=", "{{ 7 * 191 }}{% raw %}${7 * 191}</td></pre>"):
                assert part in shown, part
            assert "1337" not in shown
            assert browser.ask("document.title").startswith(cell.label)
            foreign = 'main script:not([type="application/json"]), main img:not(.card > img), [onerror]'
            assert browser.ask(f"document.querySelectorAll('{foreign}').length") == 0


def test_failed_cell_shows_the_end_of_its_log(home):
    cell = next(cell for cell in History(home).run(past_runs.LAST).cells if cell.verdict == "failed")
    page = Outline((home.reports / past_runs.LAST / f"{cell.name}.html").read_text())
    assert page.first_heading == "! gs/owners/t2 failed"
    assert f"error: {past_runs.HOSTILE}" in page.text


def test_charts_are_static(home):
    charts = {chart.name: chart.read_text() for chart in (home.reports / past_runs.LAST / "charts").glob("*.svg")}
    assert {"throughput-gs.svg", "throughput-sl.svg", "history-t1-gs.svg", "latency-processing-gs.svg"} <= charts.keys()
    for text in charts.values():
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
        assert not tags & {"script", "image", "foreignObject", "use"}
        assert "path" in tags


def test_counts_and_percentiles_are_readable(home):
    pages = "".join(path.read_text() for path in (home.reports / past_runs.LAST).glob("*.t*.html"))
    assert [text in pages for text in (", 1 thread<", ", 2 threads<", "1 threads")] == [True, True, False]
    drawn = (home.reports / past_runs.LAST / "charts" / "latency-processing-gs.svg").read_text()
    assert (">p99.9<" in drawn, "p999" in drawn) == (True, False)


def test_performance_page_counts_equal_cells_only(home):
    text = Outline((home.reports / "performance.html").read_text()).text
    assert "no_lock" not in text
    assert "2026-01-05 02:00 UTC" in text
    rows = [row for row in History(home).mart("throughput") if row["run_id"] == past_runs.LAST]
    assert text.count("transactional") + text.count("pooled") == len(rows) == 7
    assert text.count("73 ns") == len(rows)
    assert "energy an event" not in text, "these marts are older than their energy"


def test_unordered_cell_is_marked_in_every_speed_comparison(tmp_path):
    home, run_id = Home(tmp_path), past_runs.RUN_IDS[0]
    past_runs.make(
        home, nights=1, red=False, applications=["wc"], executors=["pinned"], channels=["gate", "shared_ring"]
    )
    publish(home, run_id)
    overview = (home.reports / "index.html").read_text()
    assert ">gate<" in overview
    assert ">shared_ring, no order<" in overview
    text = (home.reports / "performance.html").read_text()
    assert "events/s: wc/gate/t2" in Outline(text).text, "shared_ring is faster, but keeps no order"
    assert ">gate</a></th>" in text
    assert ">shared_ring, no order</a></th>" in text
    assert ">shared_ring</a></th>" not in text
    cells = [c for c in History(home).run(run_id).cells if not c.spec.option("plan")]
    loose = {(c.spec.option("channel"), c.spec.threads): c for c in cells}["shared_ring", 2]
    page = Outline((home.reports / run_id / f"{loose.name}.html").read_text())
    assert page.first_heading == "✓ wc/shared_ring/t2 equals the oracle, apart from the order"
    assert "--executor pinned --threads 2 --channel shared_ring" in page.text


def test_omissions_from_the_matrix_are_named(home):
    history = History(home)
    run = history.run(past_runs.LAST)
    assert "leaves out" not in Pages(history).overview(run)
    run.plan["left_out"] = [
        {"reason": f"q1 cannot {past_runs.HOSTILE}", "cells": ["q1.pinned.shared_ring.t1", "q1.pinned.shared_ring.t2"]}
    ]
    page = Outline(Pages(history).overview(run))
    assert f"q1 cannot {past_runs.HOSTILE} (2 cells)" in page.text
    assert "script" not in page.tags


def test_pages_exist_before_the_first_run(tmp_path):
    pages = Pages(History(Home(tmp_path)))
    first = Outline(pages.index())
    assert first.first_heading == "No runs yet"
    assert "wcWord count: running counts of the words in a stream of sentences." in first.text
    assert "button" not in first.tags, "a page in a file can start no run"
    assert Outline(pages.performance()[0]).first_heading == "No run has been measured yet"


def test_pages_exist_for_a_run_with_only_a_plan(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home, nights=1)
    for table in ("cells", "samples", "verdicts", "violations"):
        for path in home.raw(table).rglob("*.parquet"):
            path.unlink()
    for path in (tmp_path / "warehouse" / "marts").rglob("*.parquet"):
        path.unlink()
    sentence = publish(home, past_runs.RUN_IDS[0]).sentence
    assert sentence.startswith("0 of 10 cells equal the oracle; gs/owners/t1 did not run; ")
    assert sentence.endswith("; and 11 more")
    assert "The warehouse has no measurements yet" in (home.reports / "performance.html").read_text()
