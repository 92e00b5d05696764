"""The documentation site: it builds without a warning, loads nothing from elsewhere, and its search finds pages."""

import json
import os
import shutil
import subprocess
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from infra.checkout import ROOT
from tests.reports.content import from_elsewhere
from tests.support.browser import Browser

WORD, PAGE = "transactional", "reference/strategies.html"


def build(pages: Path, checkout: Path) -> Path:
    """Build the site from a folder of pages, in a copy of the files that it needs; returns the folder of the site."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    subprocess.run(["make", "--silent", ".lockstep-build/docs/.locked"], cwd=ROOT, env=outside, check=True, timeout=300)
    shutil.copytree(pages, checkout / "docs")
    shutil.copytree(ROOT / "infra" / "site", checkout / "infra" / "site")
    shutil.copy(ROOT / "mkdocs.yml", checkout)
    program = ROOT / ".lockstep-build" / "docs" / "bin" / "zensical"
    done = subprocess.run([program, "build", "--strict"], cwd=checkout, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return checkout / ".lockstep-build" / "site.new"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    # The path is the one that Airflow serves, because the theme looks for it.
    folder = tmp_path_factory.mktemp("served") / "lockstep" / "docs"
    folder.parent.mkdir()
    build(ROOT / "docs", tmp_path_factory.mktemp("checkout")).rename(folder)
    return folder


@pytest.fixture(scope="module")
def address(site):
    handler = partial(SimpleHTTPRequestHandler, directory=site.parents[1])
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/lockstep/docs"
        server.shutdown()


def test_every_page_of_the_documentation_is_built(site):
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").exists(), page


def test_pages_load_nothing_from_elsewhere(site):
    pages = [path for path in site.rglob("*") if path.suffix in (".html", ".css", ".svg")]
    assert {path.suffix for path in pages} == {".html", ".css", ".svg"}
    assert {str(path.relative_to(site)): links for path in pages if (links := from_elsewhere(path))} == {}


def test_search_index_has_the_words_of_the_pages(site):
    index = json.loads((site / "search.json").read_text())
    assert any(entry["location"].startswith(PAGE) and WORD in entry["text"] for entry in index["items"])


def search(browser: Browser, url: str) -> list[str]:
    """The pages that the search field finds."""
    browser.go(url)
    browser.wait(f"location.href === '{url}' && document.readyState === 'complete'")
    browser.click("document.querySelector('.md-search__button')")
    browser.wait("document.activeElement.shadowRoot?.activeElement?.tagName === 'INPUT'")
    browser.type(WORD)
    links = "Array.from(document.activeElement.shadowRoot.querySelectorAll('a[role=option]'), link => link.href)"
    browser.wait(f"{links}.some(link => link.includes('{PAGE}?h={WORD}'))")
    return browser.ask(links)


@pytest.mark.slow
def test_search_returns_a_page_over_http_and_from_files(site, address):
    for root in (address, site.as_uri()):
        with Browser() as browser:
            links = search(browser, f"{root}/tutorial.html")
            assert any(link.startswith(f"{root}/{PAGE}") for link in links), links


@pytest.mark.slow
def test_pages_follow_the_theme_of_airflow_or_else_of_the_system(site, address):
    scheme = "document.readyState === 'complete' && document.body.dataset.mdColorScheme"
    for system in ("light", "dark"):
        with Browser() as browser:
            browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": system}])
            browser.go(f"{site.as_uri()}/tutorial.html")
            assert browser.wait(scheme) == {"light": "default", "dark": "slate"}[system]
            browser.go(f"{address}/tutorial.html")
            assert browser.wait(scheme) == {"light": "default", "dark": "slate"}[system]
            for switch, expected in (("light", "default"), ("dark", "slate")):
                browser.ask(f"localStorage.setItem('theme', '{switch}')")
                browser.go(f"{address}/index.html?{switch}")
                assert browser.wait(f"location.search === '?{switch}' && {scheme}") == expected
