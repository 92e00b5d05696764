"""Every how-to page, followed to the letter in a copy of the checkout.

Each block of commands (```sh) runs in the order of its page and succeeds. The lines of a ```text block behind it occur
in its output, in that order. The longer commands of a page are in ```console blocks. Only `make test-full` follows
those.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.checkout import ROOT
from streaming_core.regression.home import Home
from tests.reports import past_runs
from tests.support import pages
from tests.support.checkout import FOREIGN
from tests.support.sshd import Sshd

pytestmark = pytest.mark.e2e
# `make test` follows these pages, which need neither Airflow nor Spark nor a compiler. All pages take a quarter of an
# hour, so only `make test-full` follows the others.
QUICK = {"back-up-the-history", "free-disk-space", "read-results-as-data"}
# Pages whose ```console blocks are runs, or repeat what other tests show. Those of other pages need another machine, a
# login or root.
WITH_RUNS = {"choose-a-plan", "find-out-why-it-is-slow", "import-data", "run-a-regression", "run-one-application"}
WITH_RUNS |= {"write-windows"}
# These come after runs, with a LOCKSTEP_HOME of their own.
WITH_HISTORY = {"back-up-the-history", "read-results-as-data"}
WITH_DOWNLOADS = {"bring-an-engine"}
# A project made from the template has no questions that make another one of it.
ELSEWHERE = set() if (ROOT / "copier.yml").exists() else {"adopt-the-template"}
PAGES = [
    pytest.param(page, ("sh",), id=page.stem, marks=[pytest.mark.slow] * (page.stem not in QUICK))
    for page in pages.HOW_TO
    if pages.steps(page) and page.stem not in ELSEWHERE
]
PAGES += [
    pytest.param(page, ("sh", "console"), id=f"{page.stem}-with-runs", marks=pytest.mark.slow)
    for page in pages.HOW_TO
    if page.stem in WITH_RUNS
]
PREPARE = "import pathlib; from infra.airflow import airflow_home; airflow_home.prepare(pathlib.Path('prepare.log'))"


@pytest.fixture(scope="module")
def airflow_home(copied, user_environment):
    """Make AIRFLOW_HOME ready, as the first run of a user does: some pages come after that."""
    subprocess.run([copied / ".venv/bin/python", "-c", PREPARE], cwd=copied, env=user_environment, check=True)


@pytest.fixture(autouse=True)
def restored(copied, user_environment):
    """Remove what the commands of a test wrote to the copy, and its imports."""
    yield
    shutil.rmtree(Path(user_environment["LOCKSTEP_HOME"], "imported"), ignore_errors=True)
    for command in (["reset", "--hard", "--quiet"], ["clean", "--force", "-d", "--quiet"]):
        subprocess.run(["git", *command], cwd=copied, check=True)


@pytest.fixture
def needs(page, user_environment, tmp_path, monkeypatch, request):
    """What a page needs: an AIRFLOW_HOME, two green nights, or no proxy that answers nothing."""
    if page.stem not in QUICK:
        request.getfixturevalue("airflow_home")
    if page.stem in WITH_HISTORY:
        monkeypatch.setitem(user_environment, "LOCKSTEP_HOME", str(tmp_path / "lockstep"))
        past_runs.make(Home(tmp_path / "lockstep"), nights=2, red=False)
    if page.stem in WITH_DOWNLOADS:
        for name in FOREIGN:
            if name.lower().endswith("_proxy"):
                monkeypatch.setitem(user_environment, name, os.environ.get(name, ""))


@pytest.mark.parametrize(("page", "languages"), PAGES)
def test_commands_of_the_page_print_the_output_on_it(page, languages, needs, copied, shell):
    for step in pages.steps(page, languages):
        output = shell(step.command)
        lacking = pages.missing(step.expected, output)
        assert lacking is None, f"{page.name} promises the line {lacking!r} of\n{step.command}\n{output}"


@pytest.mark.slow
def test_new_host_runs_cells_after_the_commands_of_its_page(shell, tmp_path):
    """The login of the page is one on this machine, and its server knows the key already."""
    (page,) = (page for page in pages.HOW_TO if page.stem == "run-on-another-host")
    add, install, run, _ = (step.command for step in pages.steps(page, ("console",)))
    with Sshd(tmp_path / "sshd") as server:
        folder = server.folder / "lockstep"
        connection = json.dumps(server.connection(python=sys.executable, folder=str(folder)))
        shell(f"{add[: add.index('{')]}{connection}'")
        shells = [shell(command) for command in (install.partition("\n")[0], run)]
    assert f"made the environment of {folder}/environment/bin/python\nbench1: fit" in shells[0]
    assert "All 4 cells equal the oracle" in shells[1]
