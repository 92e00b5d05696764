"""A browser draws charts in the place of their pictures, under a policy that allows their script alone."""

import json
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from reports.charts import script
from reports.history import History, human_rate
from reports.publish import publish
from streaming_core.regression.home import Home
from tests.reports import past_runs
from tests.support.accessibility import THEMES, violations_here
from tests.support.browser import Browser

OWN = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src 'self' data:; style-src 'self'"
POINTS = "[...document.querySelectorAll('.chart .points_marks path')]"
TOOLTIP = "[...document.querySelectorAll('#vg-tooltip-element.visible tr')].map(e => e.innerText.split('\\t'))"
FACTS = ["run", "build", "strategy", "threads", "events/s", "slowest to fastest", "\u00d7 loop", "speed", "change"]
# What the policy refuses, which a page reports to itself.
REFUSED = "window.refused = []; addEventListener('securitypolicyviolation', e => refused.push(e.violatedDirective))"


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Home:
    home = Home(tmp_path_factory.mktemp("home"))
    past_runs.make(home)
    publish(home, past_runs.LAST)
    return home


class Handler(SimpleHTTPRequestHandler):
    """Serves the pages under the policy of Airflow's server."""

    def end_headers(self):
        self.send_header("Content-Security-Policy", f"{OWN}; script-src {script.sources(self.reports)}")
        super().end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def url(home):
    Handler.reports = home.reports
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=home.reports)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def browser():
    with Browser() as browser:
        browser.call("Page.enable")
        browser.call("Page.addScriptToEvaluateOnNewDocument", source=REFUSED)
        yield browser


def slower(home: Home):
    """The cell that became slower."""
    run = History(home).run(past_runs.LAST)
    return next(cell for cell in run.cells if cell.speed and cell.speed.verdict == "slower")


def test_trend_has_a_tooltip_and_a_link_for_each_night(home, url, browser):
    cell = slower(home)
    browser.go(f"{url}/{past_runs.LAST}/{cell.name}.html")
    assert browser.wait(f"{POINTS}.length") == 5
    assert browser.ask("document.querySelector('.chart img')") is None
    assert browser.ask("window.refused") == []
    browser.ask(f"{POINTS}.find(e => e.tabIndex === 0).focus()")
    facts = dict(browser.wait(f"(t => t.length && t)({TOOLTIP})"))
    assert list(facts) == FACTS
    assert (facts["run"], facts["build"]) == ("2026-01-05 02:00 UTC", "abc423def")
    assert (facts["speed"], facts["change"]) == ("5.1 % slower", "3.8 to 6.4 %")
    row = next(
        row for row in History(home).mart("throughput") if (row["run_id"], row["cell"]) == (cell.run_id, cell.name)
    )
    assert facts["events/s"] == human_rate(row["median_events_per_s"])
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft", code="ArrowLeft")
    browser.wait(f"{TOOLTIP}.some(row => row[1] === '2026-01-04 02:00 UTC')")
    assert browser.ask(f"{POINTS}.filter(e => e.tabIndex === 0).length") == 1
    browser.press("Enter")
    assert browser.wait(f"location.pathname === '/{past_runs.RUN_IDS[3]}/index.html'")


@pytest.mark.slow
@pytest.mark.parametrize("theme", THEMES)
def test_drawn_charts_violate_no_accessibility_rule(home, url, browser, theme):
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
    for page in (f"{past_runs.LAST}/{slower(home).name}.html", "performance.html"):
        browser.go(f"{url}/{page}")
        browser.wait(f"location.pathname.endsWith('{page}') && {POINTS}.length")
        browser.ask(f"{POINTS}.find(e => e.tabIndex === 0).focus()")
        browser.wait(f"{TOOLTIP}.length")
        assert violations_here(browser, theme) == [], page


@pytest.mark.slow
def test_scaling_curve_leads_to_the_cells(home, url, browser):
    browser.go(f"{url}/performance.html")
    browser.wait(f"{POINTS}.length > 2")
    assert browser.ask("window.refused") == []
    drawn = browser.ask("[...document.querySelectorAll('.chart h3')].map(e => e.innerText)")
    assert drawn
    assert all(title.startswith("Ratio to the compiled loop by threads") for title in drawn)
    browser.click(f"{POINTS}[0]")
    assert browser.wait(
        f"location.pathname.startsWith('/{past_runs.LAST}/') && location.pathname.split('.').length > 3"
    )


def test_picture_stays_without_the_script(home, url, browser):
    cell = slower(home)
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.go(f"{url}/{past_runs.LAST}/{cell.name}.html")
    assert browser.wait("document.readyState === 'complete' && document.querySelector('.chart img').naturalWidth > 100")
    assert browser.ask(f"{POINTS}.length") == 0


def test_policy_refuses_every_other_script(home, url, browser):
    page = home.report(past_runs.LAST, "x.y.html")
    (home.reports / "other.js").write_text("window.other = true")
    page.write_text("<!doctype html><script src='../other.js'></script><script>window.other = true</script>")
    browser.go(f"{url}/{past_runs.LAST}/{page.name}")
    assert browser.wait("document.readyState === 'complete' && refused.length") == 2
    assert browser.ask("window.other === undefined")
    page.unlink()


def test_specification_is_data_whatever_a_row_says(home):
    page = home.report(past_runs.LAST, f"{slower(home).name}.html").read_text()
    _, _, rest = page.partition('<script type="application/json">')
    specification = json.loads(rest.partition("</script>")[0])
    values = specification["data"]["values"]
    assert [value["facts"]["run"][:10] for value in values] == [f"2026-01-0{day}" for day in range(1, 6)]
    assert [value["href"] for value in values] == [f"{run_id}/index.html" for run_id in past_runs.RUN_IDS]


def test_script_has_its_digest_in_its_name(home, tmp_path):
    (file,) = home.reports.glob("charts-*.js")
    assert file.name == script.name()
    assert script.NAME.fullmatch(file.name)
    assert script.sources(home.reports) == f"'{script.integrity(file.name)}'"
    assert script.sources(tmp_path) == ""
    assert f'integrity="{script.integrity(file.name)}"' in (home.reports / "performance.html").read_text()
