"""The overview in the morning: broken and slower cells with their start, stale ways, and the list of all runs."""

import json

import pytest

from reports.history import History
from reports.history.state import state
from reports.pages import Pages
from reports.publish import summary
from reports.site import HERE, write
from reports.times import STALE, RunAge
from reports.views import overview
from streaming_core.apps import registry
from streaming_core.regression.home import Home
from streaming_core.regression.matrix import refuse
from streaming_core.storage import write_json
from tests.reports import past_runs
from tests.reports.past_runs import LAST, RUN_IDS
from tests.reports.test_pages import Outline
from tests.support.browser import Browser

REFUSED = "20260105T090000Z-00000009"
LATER = "20260120T020000Z-0000000a"


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path)
    past_runs.make(home)
    return home


def published(home: Home, *run_ids: str) -> None:
    """Has the runs as they are when they have ended, but for charts, which take their time."""
    history = History(home)
    for run_id in run_ids:
        run = history.run(run_id)
        write(home.report(run_id, "index.html"), Pages(history).overview(run))
        write_json(home.report(run_id, "summary.json"), summary(run))


def index(home: Home) -> str:
    return Pages(History(home)).index()


def nightly(home: Home, run_id: str) -> None:
    """Has the run go by the matrix `nightly`."""
    path = home.run(run_id) / "plan.json"
    about = {"name": "nightly", "digest": "3f2a91c0" * 8, "overrides": []}
    write_json(path, json.loads(path.read_text()) | {"matrix": about})


def test_broken_and_slower_cells_come_first_with_their_start(home):
    text = Outline(index(home)).text
    broke, rest = text.split("What broke")[1].split("What became slower or faster")
    slowed, rest = rest.split("What is stale or unknown")
    reason = "operator debit, event 17: division by zero"
    for phrase in ("gs/owners/t2", "2026-01-05", reason, "abc423def", "1 missing"):
        assert phrase in broke
    for phrase in ("gs/serial/t2", "5.1 % slower", "3.8 to 6.4 %", "2026-01-04", "abc323def"):
        assert phrase in slowed
    assert "No cell is stale" in rest
    assert "3 of 24 applications have a result" in rest.replace(str(len(registry.names())), "24")
    assert rest.index("Unknown, because ") < rest.index("thread"), "and then comes the grid"


def test_green_run_reports_that_nothing_broke(home):
    history = History(home)
    text = Outline(Pages(history).overview(history.run(RUN_IDS[0]))).text
    assert "Nothing broke" in text
    assert "No speed changed" in text
    assert "What is stale or unknown" not in text, "that is no matter of one run"


def test_list_includes_refused_and_unpublished_runs(home):
    refuse(home, REFUSED, "cli", {"applications": ["nosuch"]}, "unknown application 'nosuch'")
    nightly(home, LAST)
    published(home, *RUN_IDS[1:], REFUSED)
    page = Outline(Pages(History(home)).runs())
    assert page.first_heading == "6 runs, 2 of them red"
    assert [link for link in page.links if link.startswith("2026")] == [
        f"{run_id}/index.html" for run_id in (REFUSED, *reversed(RUN_IDS))
    ]
    for phrase in ("Refused: unknown application 'nosuch'", "nightly 3f2a91c0", "All 10 cells equal the oracle"):
        assert phrase in page.text


def test_ways_without_a_recent_run_are_named(home):
    past_runs.add(home, LATER, applications=["wc"])
    coverage = overview.coverage(History(home))
    seen = {
        f"{app}/{strategy}": group
        for app, executors in coverage.ways.items()
        for strategies in executors.values()
        for strategy, group in strategies.items()
    }
    stale = {way: view.text for way, view in seen.items() if view.stale}
    assert seen.keys() - stale.keys() == {"wc/affinity"}
    # sl/owners ran with the last of the nights, and its bound counts for nothing.
    assert stale.keys() == {"gs/owners", "gs/serial", "sl/owners", "sl/serial"}
    assert set(stale.values()) == {"2026-01-05, 15 days before"}
    unknown = set(state(History(home)).unknown(coverage.ways))
    assert {"q1", "wc on pinned", "wc on morsel"} <= unknown
    assert not {"gs", "wc", "wc on pooled"} & unknown
    assert RunAge(LAST, STALE + 1).stale
    assert not RunAge(LAST, STALE).stale
    text = Outline(Pages(History(home)).runs()).text
    assert "serial 2026-01-05, 15 days before" in text


def test_unloadable_application_is_named(home, package):
    (package / "unready.py").write_text("app = 1\n")
    coverage = overview.coverage(History(home))
    assert (coverage.ways, coverage.unread) == ({}, ["unready"])


@pytest.mark.parametrize("width", [1280, 1920])
def test_nightly_fits_one_screen(home, width):
    write(home.reports / "index.html", index(home))
    write(home.reports / "style.css", (HERE / "style.css").read_text())
    with Browser((width, 1000)) as browser:
        browser.go((home.reports / "index.html").as_uri())
        browser.wait("document.readyState === 'complete' && document.querySelectorAll('.morning section').length === 3")
        below = browser.ask("document.querySelector('.morning').getBoundingClientRect().bottom")
        assert below < 800
        assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
        tops = browser.ask(
            "[...document.querySelectorAll('.morning section')].slice(0, 2).map(e => e.getBoundingClientRect().top)"
        )
        assert tops[0] == tops[1], "side by side"
        assert browser.ask(
            "[...document.querySelectorAll('.morning .wide')].every(e => e.scrollWidth <= e.clientWidth)"
        )
