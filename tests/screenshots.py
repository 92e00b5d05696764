"""Pictures of every page, as `make screenshots` takes them: light and dark, on a narrow and on a wide screen.

The pages are those of LOCKSTEP_HOME's newest run, within an Airflow that is started for it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rich.progress import Progress

from reports.history import History
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from tests.browser import Browser
from tests.e2e.scheduled import Airflow, free_port

WIDTHS = (1280, 1920)
THEMES = ("light", "dark")
# Nothing has been added for a while, and whatever is embedded has been read.
SETTLED = """new Promise(done => {
  const read = inner => { try { return inner.document.readyState === "complete" } catch { return true } };
  const whole = () => document.readyState === "complete" && document.body.innerText.trim()
    && Array.from(frames, (_, i) => frames[i]).every(read);
  let last = "", since = 0;
  const look = () => {
    const now = document.body.innerHTML.length + "/" + frames.length;
    since = whole() && now === last ? since + 1 : 0, last = now;
    since >= 10 ? done(true) : setTimeout(look, 100);
  };
  look();
})"""


def pages(home: Home) -> dict[str, str]:
    """Addresses by the name of their picture.

    Raises:
        BadInput: there is no run yet.
    """
    run = History(home).latest()
    if run is None:
        raise BadInput("there is no run yet: make run")
    found = {
        "dag": "/dags/streaming_regression",
        "overview": "/plugin/lockstep",
        "runs": "/lockstep/runs.html",
        "performance": "/lockstep/performance.html",
        "docs": "/lockstep/docs/index.html",
        "run": f"/lockstep/{run.run_id}/index.html",
    }
    if run.cells:
        cell = next((cell for cell in run.cells if cell.red), run.cells[0])
        found["cell"] = f"/lockstep/{run.run_id}/{cell.name}.html"
    if home.report(run.run_id, "performance.html").exists():
        found["run_performance"] = f"/lockstep/{run.run_id}/performance.html"
    if (home.reports / "data_docs" / "index.html").exists():
        found["data_docs"] = "/lockstep/data_docs/index.html"
    return found


def main(out: Path) -> None:
    home = Home(os.environ["LOCKSTEP_HOME"])
    wanted = pages(home)
    out.mkdir(parents=True, exist_ok=True)
    airflow = Airflow(dict(os.environ), free_port())
    try:
        shots = [(width, theme) for width in WIDTHS for theme in THEMES]
        with Progress() as bar:
            task = bar.add_task("pages", total=len(shots) * (len(wanted) + 1))
            for width, theme in shots:
                with Browser((width, 1600)) as browser:
                    airflow.log_in(browser)
                    scheme = {"name": "prefers-color-scheme", "value": theme}
                    browser.call("Emulation.setEmulatedMedia", features=[scheme])
                    browser.ask(f"localStorage.setItem('theme', '{theme}')")
                    for name, page in wanted.items():
                        browser.go(airflow.url + page)
                        browser.wait(SETTLED)
                        browser.shot(out / f"{name}-{theme}-{width}.png")
                        bar.advance(task)
                    airflow.open_form(browser)
                    browser.wait("document.querySelectorAll('[role=dialog] label').length > 10")
                    browser.wait(SETTLED)
                    browser.shot(out / f"form-{theme}-{width}.png")
                    bar.advance(task)
    finally:
        airflow.stop()
    print(f"{len(shots) * (len(wanted) + 1)} pictures in {out}")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except BadInput as error:
        sys.exit(f"screenshots: {error}")
