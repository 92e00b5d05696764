"""Every how-to page, followed to the letter in a copy of the checkout.

Each block of commands (```sh) runs in the order of its page and succeeds. The lines of a ```text block behind it occur
in its output, in that order. The longer commands of a page are in ```console blocks. Only `make test-full` follows
those.
"""

from __future__ import annotations

import csv
import json
import random
import subprocess
from collections import Counter

import pyarrow.parquet as pq
import pytest

from infra.checkout import ROOT
from streaming_core.regression.home import Home
from tests import pages
from tests.reports import past_runs

pytestmark = pytest.mark.e2e
# A whole run takes half a minute of both cores. `make test` follows one page with a run, `make test-full` all of them.
SLOW = {"add-a-matrix"}
# Pages whose ```console blocks are runs. Those of other pages need another machine, a login or root.
WITH_RUNS = {"choose-a-plan", "import-data", "run-a-regression", "run-one-application"}
WITH_HISTORY = {"back-up-the-history"}  # pages that come after runs; these have a LOCKSTEP_HOME of their own
# A project made from the template has no questions that make another one of it.
ELSEWHERE = set() if (ROOT / "copier.yml").exists() else {"adopt-the-template"}
PAGES = [
    *(
        pytest.param(page, ("sh",), id=page.stem, marks=[pytest.mark.slow] * (page.stem in SLOW))
        for page in pages.HOW_TO
        if pages.steps(page) and page.stem not in ELSEWHERE
    ),
    *(
        pytest.param(page, ("sh", "console"), id=f"{page.stem}-with-runs", marks=pytest.mark.slow)
        for page in pages.HOW_TO
        if page.stem in WITH_RUNS
    ),
]
PREPARE = "import pathlib; from infra.airflow import home; home.prepare(pathlib.Path('prepare.log'))"


@pytest.fixture(scope="module", autouse=True)
def airflow_home(copied, user_environment):
    """Make AIRFLOW_HOME ready, as the first run of a user does: some pages come after that."""
    subprocess.run([copied / ".venv/bin/python", "-c", PREPARE], cwd=copied, env=user_environment, check=True)


@pytest.fixture(autouse=True)
def restored(copied):
    """Remove what the commands of a test wrote to the copy."""
    yield
    for command in (["reset", "--hard", "--quiet"], ["clean", "--force", "-d", "--quiet"]):
        subprocess.run(["git", *command], cwd=copied, check=True)


@pytest.fixture
def history(page, user_environment, tmp_path, monkeypatch):
    """Two green nights, for a page that needs them."""
    if page.stem in WITH_HISTORY:
        monkeypatch.setitem(user_environment, "LOCKSTEP_HOME", str(tmp_path / "lockstep"))
        past_runs.make(Home(tmp_path / "lockstep"), nights=2, red=False)


@pytest.mark.parametrize(("page", "languages"), PAGES)
def test_commands_of_the_page_succeed_and_print_what_it_promises(page, languages, history, copied, shell):
    for step in pages.steps(page, languages):
        output = shell(step.command)
        lacking = pages.missing(step.expected, output)
        assert lacking is None, f"{page.name} promises the line {lacking!r} of\n{step.command}\n{output}"


MINUTE, DELAY = 60_000, 5_000  # milliseconds
NIGHT = "--matrix nightly --applications clicks --parallelisms vsn,sn --repetitions 1 --seconds 0 --gate_minutes 0"


def test_night_on_a_disordered_csv_file_is_green_and_keeps_late_rows(copied, user_environment, shell):
    application = copied / "streaming_core" / "apps" / "clicks.py"
    application.write_text(pages.application(pages.WINDOWS, "clicks"))
    rows = disordered_clicks(1000)
    with (copied / "clicks.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("ts", "user"), *rows])
    counts, late = clicks_by_hand(rows)
    assert counts
    assert late

    imported = shell(".venv/bin/lockstep import clicks clicks.csv --name nightly")
    assert "imported/clicks/nightly: 1,000 events for clicks, from 1,000 rows of clicks.csv" in imported
    printed = shell(f".venv/bin/lockstep run {NIGHT}")
    assert "All 5 cells equal the oracle" in printed.splitlines()
    report = json.loads(shell(".venv/bin/lockstep report --json"))
    assert report["green"]
    assert {cell["verdict"] for cell in report["cells"]} == {"equal"}

    home, run_id = Home(user_environment["LOCKSTEP_HOME"]), report["run_id"]
    plan = json.loads((home.run(run_id) / "plan.json").read_text())
    assert plan["regression"]["data"] == {"clicks": "nightly"}
    (oracle,) = json.loads((home.run(run_id) / "oracles.json").read_text()).values()
    inputs = home.report(run_id, "inputs.html").read_text()
    assert "1 import of 1,000 rows, none set aside; all checks passed" in inputs
    for cell in report["cells"]:
        assert f'<td class="n">{len(late)}</td>' in home.report(run_id, f"{cell['cell']}.html").read_text()
    attempts = [home.attempt(run_id, cell["cell"], 1) for cell in report["cells"]]
    for folder in (home.oracle("clicks", oracle), *attempts):
        outputs = pq.read_table(folder / "outputs").to_pylist()
        counted = {(row["ts"], row["user"].decode()): row["count"] for row in outputs if row["sink"] == 0}
        assert counted == counts, folder
        assert [(row["ts"], row["user"].decode()) for row in outputs if row["sink"] == 1] == late, folder


def disordered_clicks(number: int) -> list[tuple[int, str]]:
    """Clicks of ten minutes: most in order, some within the delay of the application, some far behind it."""
    draw = random.Random(1)
    behind = draw.choices([0, 1_000, DELAY - 1, 2 * MINUTE], [6, 2, 2, 1], k=number)
    return [(max(0, 600 * n - back), draw.choice(["ann", "bob", "cy"])) for n, back in enumerate(behind)]


def clicks_by_hand(rows: list[tuple[int, str]]) -> tuple[dict[tuple[int, str], int], list[tuple[int, str]]]:
    """The clicks per end of a minute and user, and the clicks that come after their minute has expired."""
    counts: Counter[tuple[int, str]] = Counter()
    late, highest = [], 0
    for ts, user in rows:
        highest = max(highest, ts)
        end = ts // MINUTE * MINUTE + MINUTE
        if end <= highest - DELAY:
            late.append((ts, user))
        else:
            counts[end, user] += 1
    return dict(counts), late
