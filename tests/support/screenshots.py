"""Takes pictures of every page for `make screenshots`: light and dark, narrow and wide.

Pages are those of a sample home (sample_home.py), within an Airflow that is started for it.
"""

import base64
import os
import sys
from pathlib import Path
from urllib.parse import quote

from rich.progress import Progress

from infra.checkout import ROOT
from reports.history import Cell, History, Run
from reports.site import beside_name, file_name
from reports.views.beside import before
from streaming_core.regression.home import Home
from streaming_core.regression.stages import DAG_ID
from tests.e2e.scheduled import Airflow
from tests.support import sample_home
from tests.support.browser import Browser

WIDTHS = (1280, 1920)
THEMES = ("light", "dark")
WINDOW, TALLEST = 1600, 6000  # heights of the window and of a picture
HOME = ROOT / ".lockstep-build" / "sample" / "lockstep"
# No element was added for a while, and all embedded content has loaded.
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
    """Addresses by the name of their picture."""
    history = History(home)
    real, night = history.run(history.run_ids()[-1]), history.run(history.run_ids()[-2])

    def cell(run: Run, verdict: str) -> Cell:
        return next(cell for cell in run.cells if cell.verdict == verdict)

    def of(run: Run, name: str) -> str:
        return f"/lockstep/{run.run_id}/{name}"

    tasks = next(cell for cell in real.cells if cell.spec.executor == "pinned" and cell.spec.needs_plan)
    result = next((home.reports / "data_docs").rglob("validations/**/*.html"))
    suite = next((home.reports / "data_docs").rglob("expectations/*.html"))

    def cells(run: Run, *verdicts: str) -> dict[str, str]:
        return {f"cell_{verdict}": of(run, f"{cell(run, verdict).name}.html") for verdict in verdicts}

    whole = {
        name: f"/lockstep/{name}.html" for name in ("runs", "inputs", "finds", "performance", "quality", "benchmarks")
    }
    find = next((home.reports / "finds").rglob("*.html"))
    return whole | {
        "find": f"/lockstep/{find.relative_to(home.reports)}",
        "dag": f"/dags/{DAG_ID}",
        "dag_run": f"/dags/{DAG_ID}/runs/{quote(real.origin)}",
        "overview_in_airflow": "/plugin/lockstep",
        "docs_in_airflow": "/plugin/lockstep_docs",
        "overview": "/lockstep/",
        "run": of(night, "index.html"),
        "run_green": of(real, "index.html"),
        "run_inputs": of(real, "inputs.html"),
        "run_performance": of(night, "performance.html"),
        **cells(real, "equal", "not_comparable"),
        **cells(night, "different", "failed", "not_run"),
        "cell_tasks": of(real, f"{tasks.name}.html"),
        "beside": of(night, beside_name(before(history, night) or "")),
        "one_file": of(night, file_name(night.run_id)),
        "data_docs": "/lockstep/data_docs/index.html",
        "data_docs_result": f"/lockstep/{result.relative_to(home.reports)}",
        "data_docs_suite": f"/lockstep/{suite.relative_to(home.reports)}",
        "warehouse": "/lockstep/dbt/index.html",
        "docs": "/lockstep/docs/index.html",
        "glossary": "/lockstep/docs/glossary.html",
    }


def shoot(browser: Browser, path: Path, width: int, whole: bool) -> None:
    """Save a picture of the window, or of the whole page."""
    if not whole:
        browser.shot(path)
        return
    height = min(TALLEST, browser.ask("document.documentElement.scrollHeight"))
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    picture = browser.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
    path.write_bytes(base64.b64decode(picture["data"]))


def main(out: Path) -> None:
    home = Home(HOME)
    if not History(home).run_ids():
        sample_home.make(home)
    wanted = pages(home)
    out.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"LOCKSTEP_HOME": str(home.root), "AIRFLOW_HOME": str(home.root.parent / "airflow")}
    airflow = Airflow(environment)
    try:
        shots = [(width, theme) for width in WIDTHS for theme in THEMES]
        with Progress() as bar:
            task = bar.add_task("pages", total=len(shots) * (len(wanted) + 1))
            for width, theme in shots:
                with Browser((width, WINDOW)) as browser:
                    airflow.log_in(browser)
                    scheme = {"name": "prefers-color-scheme", "value": theme}
                    browser.call("Emulation.setEmulatedMedia", features=[scheme])
                    browser.ask(f"localStorage.setItem('theme', '{theme}')")
                    for name, page in wanted.items():
                        browser.go(airflow.url + page)
                        browser.wait(SETTLED)
                        shoot(browser, out / f"{name}-{theme}-{width}.png", width, page.startswith("/lockstep/"))
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
    main(Path(sys.argv[1]))
