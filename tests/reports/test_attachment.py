"""A run as one file, with all of its content and without external links."""

import base64
import re
from dataclasses import replace

import pytest

from reports import attachment as module
from reports.attachment import attachment
from reports.history import History
from reports.pages import Pages
from reports.publish import publish
from reports.site import file_name
from streaming_core.regression.home import Home
from streaming_core.regression.matrix import refuse
from tests.infra.cli.conftest import lockstep
from tests.reports import past_runs
from tests.reports.content import from_elsewhere
from tests.reports.past_runs import LAST
from tests.reports.test_pages import Outline
from tests.support.browser import Browser


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("home"))
    past_runs.make(home)
    publish(home, LAST)
    return home


@pytest.fixture(scope="module")
def file(home):
    return home.report(LAST, file_name(LAST))


def test_attachment_has_the_report_and_evidence_of_wrong_and_slower_cells(home, file):
    page = Outline(file.read_text())
    for phrase in (
        History(home).run(LAST).sentence,
        "5.1 % slower",
        "gs/owners/t2 failed",
        "sl/owners/t2 differs from the oracle",
        "wc/affinity/t2 did not run",
        "gs/serial/t2 equals the oracle",  # it is slower
        "amount: 250\nsource: 812\ntarget: 17",
        "streaming-core generate sl",
        "Throughput by threads",
    ):
        assert phrase in page.text, phrase
    assert page.text.count("Reproduce this cell") == 4, "what is right and as fast as ever has no section"


def test_attachment_links_stay_inside_and_pictures_are_embedded(file):
    text = file.read_text()
    page = Outline(text)
    inside = [link for link in page.links if link.startswith("#")]
    pictures = [link for link in page.links if link.startswith("data:image/svg+xml;base64,")]
    assert len(inside) > 4
    assert len(pictures) > 4
    assert sorted(inside + pictures) == sorted(page.links)
    for link in inside:
        assert f'id="{link[1:]}"' in text
    for picture in pictures:
        assert b"<svg" in base64.b64decode(picture.partition(",")[2])
    assert not {"script", "link", "iframe", "form"} & set(page.tags)
    assert from_elsewhere(file) == []
    assert re.search(r"<style>:root \{", text), "its style, as it is"


def test_run_page_links_to_the_attachment_for_download(home, file):
    page = (home.reports / LAST / "index.html").read_text()
    assert f'<a href="../{LAST}/{file.name}" download>' in page
    assert f'<a href="{LAST}/{file.name}" download>' in (home.reports / "index.html").read_text()


def test_attachment_shows_the_first_wrong_cells_and_counts_the_rest(home, monkeypatch):
    monkeypatch.setattr(module, "MOST", 2)
    page = Outline(attachment(Pages(History(home)), History(home).run(LAST)))
    assert page.text.count("Reproduce this cell") == 2
    assert "2 more cells are wrong or slower" in page.text


def test_attachment_escapes_rows_and_names(home, file):
    assert "&lt;script&gt;" in file.read_text()
    history = History(home)
    run = history.run(LAST)
    hostile = replace(run, plan=run.plan | {"origin": past_runs.HOSTILE})
    page = Outline(attachment(Pages(history), hostile))
    assert "script" not in page.tags
    assert past_runs.HOSTILE in page.text


def test_refused_run_has_an_attachment(tmp_path):
    home = Home(tmp_path)
    refuse(home, LAST, "cli", {"applications": ["nosuch"]}, "unknown application 'nosuch'")
    page = Outline(attachment(Pages(History(home)), History(home).run(LAST)))
    assert page.first_heading == "Refused: unknown application 'nosuch'"


def test_command_writes_the_attachment_to_the_requested_file(home, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("LOCKSTEP_HOME", str(home.root))
    out = tmp_path / "new" / "mail.html"
    assert lockstep("report", LAST, "--file", str(out)) == 1, "as without: the run is red"
    assert "sl/owners/t2 differs from the oracle" in Outline(out.read_text()).text
    capfd.readouterr()
    assert lockstep("report", LAST, "--file", str(tmp_path)) == 2
    output, error = capfd.readouterr()
    assert (output, error.count("\n")) == ("", 1)
    assert f"{tmp_path} cannot be written" in error
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_browser_shows_the_attachment_without_other_files(file, tmp_path):
    alone = tmp_path / "alone.html"
    alone.write_text(file.read_text())
    with Browser() as browser:
        browser.go(alone.as_uri())
        browser.wait("document.readyState === 'complete' && document.images.length > 4")
        assert browser.ask("[...document.images].every(e => e.naturalWidth > 100)")
        assert browser.ask("getComputedStyle(document.querySelector('h1.red')).borderLeftWidth") == "4px"
