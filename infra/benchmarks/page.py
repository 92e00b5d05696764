"""The page of benchmarks and its charts."""

from __future__ import annotations

from pathlib import Path

from infra.benchmarks.views import BenchmarksPage, draw
from infra.checkout import ROOT
from reports.history import History
from reports.pages import Pages
from reports.site import Place, write
from streaming_core.regression.home import Home

COMMITTED = ROOT / "docs" / "benchmarks"
TEMPLATE = Path(__file__).parent / "benchmarks.html"


def publish(home: Home) -> Path:
    """Write the page and its charts, and return the path of the page."""
    from reports.charts import vega  # its library takes a second to load, and other commands need none

    vega.reuse(path.read_text() for path in (home.reports / "charts").glob("bench-*.svg"))
    text, svgs = render(home)
    for name, svg in svgs.items():
        write(home.reports / name, svg)
    page = home.reports / "benchmarks.html"
    write(page, text)
    return page


def render(home: Home) -> tuple[str, dict[str, str]]:
    """The page for the committed results and those in a home: HTML, and SVG by path below the reports."""
    svgs, suites = draw((COMMITTED, home.reports / "bench"))
    return Pages(History(home)).render(TEMPLATE, Place(here="Benchmarks"), BenchmarksPage.of(suites)), svgs
