"""The performance pages: charts of one run, titles that name events, application and host, the history of each cell."""

import json
import re
import shutil
from html import unescape
from pathlib import Path

import pytest

from reports.history import History
from reports.pages import Pages
from reports.publish import publish
from reports.views.performance import Measured, Performance
from streaming_core.regression.home import Home
from streaming_core.storage import write_json
from tests.reports import past_runs
from tests.reports.past_runs import LAST, RUN_IDS
from tests.reports.test_pages import Outline
from tests.support.browser import Browser

FEW = "20260106T090000Z-0000000b"
MANY = "20260107T090000Z-0000000c"
ELSEWHERE = "20260108T090000Z-0000000d"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Five nights, then requests of 3 events, of 1,000,000 events, and of the night's events on another host."""
    home = Home(tmp_path_factory.mktemp("runs"))
    past_runs.make(home, red=False, matrix="nightly", data={"wc": "nightly"})
    past_runs.add(home, FEW, 5, applications=["gs", "sl"], events=3)
    past_runs.add(home, MANY, 6, events=1_000_000)
    past_runs.add(home, ELSEWHERE, 7, host="node2")
    publish(home, LAST)
    publish(home, ELSEWHERE)
    publish(home, FEW)
    return home.root


@pytest.fixture
def home(runs) -> Home:
    return Home(runs)


def titles(page: str) -> list[str]:
    """The titles of the charts."""
    headings = re.findall(r'<div class="card"><h[34]>(.*?)</h[34]>', page)
    return [unescape(re.sub("<.*?>", "", title)) for title in headings]


def drawn(svg: str) -> str:
    """The text of a chart's marks: names and values of all points."""
    return " ".join(unescape(label) for label in re.findall(r'aria-label="([^"]*)"', svg))


def test_page_shows_the_last_nightly_after_later_measurements(home):
    page = (home.reports / "performance.html").read_text()
    assert Outline(page).first_heading == "Speed of 10 cells: 1 slower, 8 unchanged, 1 too noisy"
    assert "the last nightly with measurements" in page
    pictures = [link for link in Outline(page).links if link.endswith(".svg")]
    assert len(pictures) > 6
    assert {link.partition("/")[0] for link in pictures} == {LAST}


def test_every_chart_title_names_application_events_and_host(home):
    subjects = {
        LAST: {"gs, 100,000 events, node1", "sl, 100,000 events, node1", "wc, 3 events of the import nightly, node1"},
        ELSEWHERE: {"gs, 100,000 events, node2", "sl, 100,000 events, node2", "wc, 100,000 events, node2"},
        FEW: {"gs, 3 events, node1", "sl, 3 events, node1"},
    }
    for run_id, about in subjects.items():
        chart_titles = titles(home.report(run_id, "performance.html").read_text())
        assert chart_titles
        assert all(any(title.endswith(subject) for subject in about) for title in chart_titles), chart_titles
        assert {subject for subject in about for title in chart_titles if title.endswith(subject)} == about


def test_history_holds_runs_of_the_same_events_on_the_same_host_only(home):
    performance = Performance(History(home))
    svgs = performance.draw(History(home).run(ELSEWHERE)).svgs
    assert not [name for name in svgs if "history" in name or "speed" in name], "no other run is like it"
    svgs = performance.draw(History(home).run(LAST)).svgs
    histories = {name: drawn(svg) for name, svg in svgs.items() if "/history-" in name}
    assert {Path(name).name for name in histories} == {
        f"history-t{threads}-{app}.svg" for app in ("gs", "sl", "wc") for threads in (1, 2)
    }
    for text in histories.values():
        builds = set(re.findall(r"build(?: \(.*?\))?: (\w+)|oldest first: (\w+)", text))
        assert {name for pair in builds for name in pair if name} == {f"abc{n}23def" for n in range(5)}


def test_each_cell_has_its_history_over_builds(home):
    for cell in History(home).run(LAST).cells:
        page = Outline(home.report(LAST, f"{cell.name}.html").read_text())
        history = page.text.partition("History over builds")[2]
        if cell.is_bound:
            assert "No run has measured this cell" in history
            continue
        assert re.findall(r"abc\d23def", history) == [f"abc{n}23def" for n in reversed(range(5))]
        assert f"../{LAST}/charts/{cell.name}.svg" in page.links
        events = "3 events of the import nightly" if cell.spec.app == "wc" else "100,000 events"
        assert history.strip().startswith(f"{cell.spec.app}, {events}, node1")
        assert {f"../{run_id}/index.html" for run_id in RUN_IDS} <= set(page.links)


def test_run_host_and_application_can_be_selected(home):
    page = (home.reports / "performance.html").read_text()
    links = Outline(page).links
    assert {"#gs", "#sl", "#wc"} <= set(links)
    for place in ("gs", "sl", "wc"):
        assert f'id="{place}"' in page
    assert f"{ELSEWHERE}/performance.html" in links, "the newest run on the other host"
    assert f"{FEW}/performance.html" in links
    assert f'href="{MANY}/performance.html"' not in page, "it was not published"
    rows = Outline(page).text.partition("All measured runs The newest first.")[2]
    for phrase in ("2026-01-07 09:00 UTC", "1,000,000 events per application", "node2", "3 events per application"):
        assert phrase in rows
    other = Outline(home.report(FEW, "performance.html").read_text())
    assert "../performance.html#runs" in other.links
    assert other.first_heading == "Speed of 8 cells: 7 unchanged, 1 too noisy"
    assert "Not measured in this run: wc (last 2026-01-08)" in other.text
    assert "performance.html" in Outline(home.report(FEW, "index.html").read_text()).links


def test_import_has_its_own_event_count_on_every_page(home):
    phrase = "wc: 3 events of the import nightly; 100,000 events per other application"
    assert phrase in Outline(home.report(LAST, "index.html").read_text()).text
    assert phrase in Outline((home.reports / "performance.html").read_text()).text
    assert "wc 3 events of the import nightly" in Outline(home.report(LAST, "index.html").read_text()).text


def test_run_with_overrides_is_not_called_a_nightly():
    def label(matrix: str) -> str:
        return Measured(LAST, 1, ["node1"], ["gs"], matrix, "").label

    assert label("nightly 3f2a91c0") == "2026-01-05 02:00 UTC, nightly"
    assert label("nightly 3f2a91c0, overrides events") == "2026-01-05 02:00 UTC, nightly with overrides"
    assert label("") == "2026-01-05 02:00 UTC"


def test_without_a_nightly_the_newest_comparable_run_is_shown(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home, nights=2, red=False)
    past_runs.add(home, FEW, applications=["wc"], executors=["pooled"], threads=[2])
    run, reason = Performance(History(home)).default()
    assert run.run_id == RUN_IDS[1]
    assert reason == "the newest comparable run, because no nightly has measurements"
    shutil.rmtree(home.run(RUN_IDS[0]))
    write_json(home.run(RUN_IDS[1]) / "status.json", {"state": "stopped", "ended": 0, "failures": {}, "by": ""})
    write_json(home.run(RUN_IDS[0]) / "status.json", {"state": "stopped", "ended": 0, "failures": {}, "by": ""})
    run, reason = Performance(History(home)).default()
    assert (run.run_id, reason) == (FEW, "the newest run, because no comparable run has measurements")


def test_newer_nightly_outside_the_marts_is_named(runs, tmp_path):
    home = Home(shutil.copytree(runs, tmp_path / "lockstep"))
    source = json.loads((home.run(LAST) / "plan.json").read_text())
    newer = "20260109T020000Z-0000000e"
    write_json(home.run(newer) / "plan.json", source | {"run_id": newer})
    page = Outline(Pages(History(home)).performance()[0])
    assert page.first_heading == "Speed of 10 cells: 1 slower, 8 unchanged, 1 too noisy"
    assert "The newer run 2026-01-09 02:00 UTC has no figures" in page.text


def test_performance_page_fits_a_narrow_screen(home):
    with Browser((1280, 1000)) as browser:
        browser.call("Emulation.setDeviceMetricsOverride", width=420, height=1000, deviceScaleFactor=1, mobile=False)
        browser.go((home.reports / "performance.html").as_uri())
        browser.wait("document.readyState === 'complete' && document.images.length > 6")
        browser.ask("document.querySelectorAll('img').forEach(e => { e.loading = 'eager' })")
        browser.wait("[...document.images].every(e => e.complete && e.naturalWidth > 100)")
        assert browser.ask("document.documentElement.scrollWidth <= 420")
