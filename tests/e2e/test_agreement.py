"""Mishaps in a real browser: a run that a person cancels, and a failure of dbt until its cause is fixed.

After each, the overview, the list of runs, the run's page, its one file, the Data Docs, `lockstep report` and
`lockstep run` say the same. tests/reports/test_status.py has the other mishaps.
"""

import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from reports.site import file_name
from streaming_core.regression.home import new_run_id
from streaming_core.regression.stages import DAG_ID
from tests.e2e.scheduled import BUTTON, RUNS, Airflow, erring, of_this_checkout
from tests.support.browser import Browser
from tests.support.screenshots import SETTLED
from tests.support.waiting import wait_for

PATIENCE = 600
# Two cells, which run in seconds. The engine below hangs in the last one.
CLEAN, HANGING = [1, 2], [1, 5]
GREEN = "All 2 cells equal the oracle"
USER = "admin"

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


@pytest.fixture(scope="module")
def airflow(tmp_path_factory, with_compiled) -> Iterator[Airflow]:
    root = tmp_path_factory.mktemp("agreement")
    with_compiled(root / "lockstep")
    with Airflow(of_this_checkout(root, **erring(root, **{"wc.pooled.affinity.t5": "hang"}))) as running:
        yield running


@pytest.fixture(scope="module")
def browser(airflow) -> Iterator[Browser]:
    with Browser() as browser:
        airflow.log_in(browser)
        yield browser


class Texts(NamedTuple):
    """The texts about one run that a person can read, and the exit code of `lockstep report`."""

    overview: str
    row: str  # in the list of runs
    heading: str
    page: str
    file: str  # the heading of the one file
    docs: str  # its line in the Data Docs, if it has one
    report: str
    code: int

    def agree(self, sentence: str, green: bool, comparable: bool = True) -> None:
        """Check that every text has the sentence, and that every colour and exit code fits it."""
        assert (sentence in self.overview) == comparable
        assert self.heading == sentence
        assert self.file == sentence
        assert sentence in self.row
        assert ("✓" in self.row) == green
        assert sentence in self.report
        assert self.code == (0 if green else 1)


def lockstep(airflow: Airflow, *arguments: str) -> subprocess.CompletedProcess:
    """One command, as a person types it."""
    command = [str(Path(sys.executable).parent / "lockstep"), *arguments]
    return subprocess.run(command, env=airflow.environment, capture_output=True, text=True, timeout=PATIENCE)


def read(airflow: Airflow, browser: Browser, run_id: str) -> Texts:
    """Open every page of a run, as a person does."""

    def text(path: str, script: str = "document.body.innerText") -> str:
        browser.go(f"{airflow.url}/lockstep/{path}")
        browser.wait(SETTLED)
        return browser.ask(script) or ""

    heading = "document.querySelector('h1').innerText"
    row = f"[...document.querySelectorAll('tr')].filter(e => e.innerHTML.includes('{run_id}')).at(-1)?.innerText"
    overview, line, first = text("index.html"), text("runs.html", row), text(f"{run_id}/index.html", heading)
    page = browser.ask("document.body.innerText")
    file, docs = text(f"{run_id}/{file_name(run_id)}", heading), text("data_docs/index.html", row)
    done = lockstep(airflow, "report", run_id)
    return Texts(overview, line, first, page, file, docs, done.stdout, done.returncode)


def arguments(threads: list[int]) -> list[str]:
    """`lockstep run` of small cells."""
    chosen = ["--applications", "wc", "--executors", "pooled", "--threads", ",".join(map(str, threads))]
    return ["run", *chosen, "--events", "2000", "--repetitions", "1"]


def newest(airflow: Airflow) -> str:
    """Airflow's id of the run that was requested last."""
    runs = airflow.call(f"{RUNS}?order_by=-run_after&limit=1")["dag_runs"]
    return runs[0]["dag_run_id"] if runs else ""


def lockstep_id(airflow: Airflow, run: str) -> str:
    """Lockstep's id of an Airflow run."""
    return new_run_id(run, datetime.fromisoformat(airflow.call(f"{RUNS}/{run}")["run_after"]).timestamp())


def ended(airflow: Airflow, run: str) -> str:
    """Wait for the end of a run; returns its final state."""

    def state() -> str | None:
        now = airflow.call(f"{RUNS}/{run}")["state"]
        return now if now in ("success", "failed") else None

    return wait_for(state, PATIENCE)


def test_clean_run_is_green_everywhere(airflow, browser):
    done = lockstep(airflow, *arguments(CLEAN))
    assert done.returncode == 0, done.stdout + done.stderr
    texts = read(airflow, browser, lockstep_id(airflow, newest(airflow)))
    texts.agree(GREEN, True)
    assert GREEN in done.stdout.splitlines()
    assert "6 of 6" in texts.docs


def test_cancelled_run_shows_time_and_finished_cells(airflow, browser):
    pids = Path(airflow.environment["LOCKSTEP_APP_PIDS"])
    conf = {"applications": ["wc"], "executors": ["pooled"], "threads": HANGING, "events": 2000, "repetitions": 1}
    run = airflow.call(RUNS, "POST", {"conf": conf, "logical_date": None})["dag_run_id"]
    wait_for(lambda: pids.exists() and pids.read_text().strip(), PATIENCE)
    running = lockstep(airflow, "report", lockstep_id(airflow, run))
    assert "In progress: 1 of 2 cells have run" in running.stdout
    assert running.returncode == 1
    browser.go(f"{airflow.url}/dags/{DAG_ID}/runs/{run}")
    browser.click("[...document.querySelectorAll('button')].find(e => e.ariaLabel?.startsWith('Mark Dag Run as'))")
    browser.click("[...document.querySelectorAll('[role=menuitem]')].find(e => e.innerText.includes('Failed'))")
    browser.wait("[...document.querySelectorAll('[role=dialog]')].some(e => e.innerText.includes('as failed'))")
    browser.click(BUTTON.format("Confirm"))
    assert ended(airflow, run) == "failed"
    texts = read(airflow, browser, lockstep_id(airflow, run))
    texts.agree(texts.heading, False, comparable=False)
    assert texts.heading.startswith(f"Stopped by {USER} at ")
    assert texts.heading.endswith("after 1 of 2 cells")
    assert "was not compared" in texts.page
    assert "was stopped" in texts.page
    assert "not judged: the run was stopped" in texts.docs


def test_dbt_failure_is_red_everywhere_until_its_cause_is_fixed(airflow, browser):
    marts = airflow.home.root / "warehouse" / "marts"
    aside = marts.with_name("aside")
    assert GREEN in lockstep(airflow, *arguments(CLEAN)).stdout
    marts.rename(aside)
    marts.write_text("a file where a folder must be")
    try:
        done = lockstep(airflow, *arguments(CLEAN))
    finally:
        marts.unlink()
        aside.rename(marts)
    assert done.returncode == 1
    sentence = f"{GREEN}; but dbt build failed"
    texts = read(airflow, browser, lockstep_id(airflow, newest(airflow)))
    texts.agree(sentence, False)
    assert sentence in done.stdout.splitlines()
    assert "not judged: dbt build failed" in texts.docs
    test_clean_run_is_green_everywhere(airflow, browser)
