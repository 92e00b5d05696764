"""Every page passes axe-core's rules for WCAG 2 A and AA, in the light and in the dark theme."""

from pathlib import Path

import pytest

from reports.history import History
from reports.pages import Pages
from reports.publish import publish
from reports.site import DBT, write
from reports.views.data_docs import write_results
from streaming_core.regression.home import Home
from streaming_core.regression.matrix import refuse
from streaming_core.regression.provenance import Check, Provenance, provenance_of, record
from streaming_core.regression.stages import Stage
from streaming_core.regression.status import end, recorded
from tests.reports import past_finds, past_quality, past_runs
from tests.reports.past_runs import LAST, RUN_IDS
from tests.reports.test_inputs import IMPORTED
from tests.reports.test_profile import BEFORE, profile
from tests.support.accessibility import THEMES, violations, violations_of_all
from tests.support.browser import Browser
from tests.support.draws import some

RUNNING, REFUSED = "20260106T090000Z-0000000b", "20260106T100000Z-0000000c"


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> Path:
    """Pages of every kind."""
    home = Home(tmp_path_factory.mktemp("home"))
    past_runs.make(home, matrix="nightly")
    past_runs.gate(home)
    past_quality.make(home)
    past_finds.of_home(home)
    past_finds.of_cell(home, LAST)
    profiled = History(home).run(LAST).cells[0]
    profile(BEFORE, cell=profiled.name).save(home.cell(LAST, profiled.name))
    _import(home)
    held = {"held": 7, "count": 7, "page": "index.html"}
    write_results(
        home,
        LAST,
        {"cells": held, "verdicts": held | {"held": 6, "critical": 1}, "samples": held | {"held": 6, "warning": 1}},
    )
    for run_id in RUN_IDS[-2:]:
        with recorded(home, run_id, Stage.RUN_CORE):
            pass
        end(home, run_id, "finished", {Stage.DBT_BUILD: "no space left on device"} if run_id == LAST else {})
    refuse(home, REFUSED, "cli", {"applications": ["nosuch"]}, "unknown application 'nosuch'")
    past_runs.add(home, RUNNING)
    with recorded(home, RUNNING, Stage.PLAN_MATRIX):
        for run_id in (*RUN_IDS[-2:], REFUSED):
            publish(home, run_id)
        pages = Pages(History(home))
        write(home.report(RUNNING, "index.html"), pages.in_progress(History(home).run(RUNNING)))
    write(home.reports / "index.html", pages.index(("manual__x",)))
    write(home.reports / "empty.html", pages.empty())
    write(home.reports / DBT, pages.warehouse())
    write(home.reports / "dbt" / "docs.html", "<!doctype html><html lang='en'><title>dbt</title><h1>dbt</h1></html>")
    return home.reports


def _import(home: Home) -> None:
    """Make the events of gs an import that set rows aside."""
    inputs = provenance_of(home, LAST)
    address = next(provenance.address for provenance in inputs.values() if provenance.app == "gs")
    own = Provenance("gs", address, "import", 100_000, None, [Check("a", "passed")], "orders", IMPORTED)
    record(home, LAST, [own, *(provenance for address, provenance in inputs.items() if address != own.address)])


@pytest.mark.parametrize("theme", some(THEMES))
@pytest.mark.slow
def test_pages_violate_no_accessibility_rule(reports, theme):
    # The cells of the run before look like those of the last one.
    before = [path for path in (reports / RUN_IDS[-2]).glob("*.html") if path.name.count(".") > 1]
    pages = sorted(path for path in reports.rglob("*.html") if path.name != "docs.html" and path not in before)
    assert before
    kinds = {path.name.split(".")[0].split("-")[0] for path in pages}
    expected = "index runs performance quality inputs beside lockstep empty gs glossary finds profile"
    assert {*expected.split()} <= kinds
    assert violations_of_all(pages, theme) == {}


def test_accessibility_check_detects_violations(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<!doctype html><html><title>x</title><img src='x.png'><p style='color: #aaa'>grey</p></html>")
    with Browser() as browser:
        plain, of_colours = (" ".join(violations(browser, page, theme)) for theme in THEMES)
    for rule in ("html-has-lang", "image-alt", "color-contrast"):
        assert rule in plain
    assert "color-contrast" in of_colours


@pytest.mark.slow
def test_keyboard_reaches_the_content_first(reports):
    with Browser() as browser:
        browser.go((reports / "index.html").as_uri())
        browser.wait("document.readyState === 'complete' && !!document.querySelector('.skip')")
        browser.press("Tab")
        assert browser.ask("document.activeElement.className") == "skip"
        assert browser.ask("getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus is visible"
        assert browser.ask("document.activeElement.getBoundingClientRect().left") >= 0
        browser.press("Enter")
        assert browser.wait("document.activeElement.id") == "main"
