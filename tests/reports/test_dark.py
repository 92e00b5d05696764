"""Pages take the theme of their frame: Airflow sets the color-scheme of the surrounding document."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from reports.history import History
from reports.pages import Pages
from reports.publish import publish
from reports.site import DATA_DOCS, DBT, write
from streaming_core.regression.home import Home
from tests.reports import past_runs
from tests.support.browser import Browser

pytestmark = pytest.mark.slow
LUMINANCE = """(() => {
  const light = colour => colour.match(/[0-9.]+/g).slice(0, 3).reduce((sum, part) => sum + part / 765, 0);
  const page = frames[0].document, style = getComputedStyle(page.body);
  const there = page.readyState === "complete" && page.location.pathname.endsWith("PAGE");
  return there && [light(style.backgroundColor), light(style.color)];
})()"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("home"))
    past_runs.make(home, nights=1)
    publish(home, past_runs.RUN_IDS[0])
    write(home.reports / DBT, Pages(History(home)).warehouse())
    write(home.reports / "dbt" / "docs.html", "<p>dbt's documentation</p>")
    handler = partial(SimpleHTTPRequestHandler, directory=home.reports)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever).start()
        yield home.reports, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_page_takes_the_theme_of_airflow(reports, theme):
    folder, url = reports
    cell = next((folder / past_runs.RUN_IDS[0]).glob("sl.*.html"))
    with Browser() as browser:
        pages = [folder / name for name in ("index.html", "performance.html", "inputs.html", DATA_DOCS, DBT)]
        for page in (*pages, cell):
            outer = page.with_name(f"around-{page.name}")  # as Airflow embeds it
            outer.write_text(f'<html style="color-scheme: {theme}"><iframe src="{page.name}"></iframe></html>')
            browser.go(f"{url}/{outer.relative_to(folder)}")
            ground, ink = browser.wait(LUMINANCE.replace("PAGE", page.name))
            assert (ground < 0.2 and ink > 0.8) if theme == "dark" else (ground > 0.9 and ink < 0.2), page.name


def test_dbt_page_follows_the_dark_theme_of_its_frame(reports):
    _, url = reports
    with Browser() as browser:
        for theme, filtered in (("dark", True), ("light", False)):
            browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
            browser.go(f"{url}/{DBT}")
            style = browser.wait(
                "document.readyState === 'complete' && getComputedStyle(document.querySelector('iframe')).filter"
            )
            assert (style != "none") == filtered
