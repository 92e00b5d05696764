"""A served page of a run in progress updates itself in a browser, and takes no focus away."""

import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from reports import pages
from reports.history import History
from reports.pages import Pages
from streaming_core.regression.home import Home
from streaming_core.regression.stages import Stage
from streaming_core.regression.status import end, recorded
from tests.reports import past_runs
from tests.support.browser import Browser

RUN_ID = past_runs.RUN_IDS[0]
STATUS = "document.querySelector('[role=status]').innerText"


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    """A run in progress, and pages that update themselves at once."""
    home = Home(tmp_path)
    monkeypatch.setattr(pages, "LIVE", pages.LIVE.replace(f"{1000 * pages.SECONDS}", "50"))
    past_runs.make(home, nights=1, red=False)
    for stage, part in ((Stage.PLAN_MATRIX, None), (Stage.SPARK_SERVER, None), (Stage.RUN_CORE, "one")):
        with recorded(home, RUN_ID, stage, part):
            pass
    return home


@pytest.fixture
def address(home):
    """The address of the pages, made anew for each request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if not self.path.endswith(("/", "/runs", ".html")):
                self.send_error(404)
                return
            history = History(home)
            views = Pages(history)
            if self.path.endswith("/index.html"):
                run = history.run(RUN_ID)
                text = views.in_progress(run) if history.is_in_progress(RUN_ID) else views.overview(run)
            else:
                text = {"/": views.index, "/runs": views.runs}[self.path]((), datetime.now(UTC))
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_page_of_a_run_in_progress_updates_itself_and_keeps_the_focus(home, address):
    with Browser() as browser:
        for number, path in enumerate(("/", "/runs", f"/{RUN_ID}/index.html"), 1):
            before, after = (f"{n} of 14 cells have run" for n in (number, number + 1))
            browser.go(address + path)
            browser.wait(f"document.querySelector('main').innerText.includes('{before}') && {STATUS} != null")
            browser.ask("document.querySelector('#live input').focus()")
            with recorded(home, RUN_ID, Stage.RUN_CORE, f"cell {number}"):
                pass
            browser.wait(f"document.querySelector('main').innerText.includes('{after}')")
            browser.wait(f"{STATUS} === '{after}'")
            assert browser.ask("document.activeElement.matches('#live input')")
        end(home, RUN_ID, "stopped", by="ada")
        browser.wait(f"{STATUS}.startsWith('Stopped by ada')")
        assert browser.ask("document.querySelector('h1').innerText") == after, "the focus is in what would change"
        browser.ask("document.activeElement.blur()")
        browser.wait("document.querySelector('h1').innerText.startsWith('Stopped by ada')")
