"""Three runs publish their pages at once, in processes of their own. One is killed, and the others' pages are right."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra.checkout import ROOT
from reports.publish import publish
from streaming_core.regression.home import Home
from streaming_core.regression.lock import hold, of_warehouse
from tests.reports import past_runs
from tests.support.waiting import wait_for

PATIENCE = 60
RUNS = past_runs.RUN_IDS[:3]


def pages(home: Home) -> dict[str, bytes]:
    """The pages of the first two runs, and those that all runs share."""
    files = [path for path in home.reports.rglob("*") if path.is_file() and not path.name.startswith(".")]
    names = {path.relative_to(home.reports).as_posix(): path.read_bytes() for path in files}
    return {name: content for name, content in names.items() if not name.startswith(RUNS[2])}


def program(home: Home, run_id: str) -> subprocess.Popen:
    environment = {**os.environ, "LOCKSTEP_HOME": str(home.root), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "reports.publish", "--run", run_id]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow  # test_lock.py shows that the lock keeps runs apart
def test_pages_of_runs_at_once_are_those_of_runs_one_after_the_other(tmp_path: Path):
    homes = [Home(tmp_path / name / "lockstep") for name in ("alone", "beside")]
    for home in homes:
        past_runs.make(home, nights=3, red=False)
    for run_id in RUNS[:2]:
        publish(homes[0], run_id)
    home, expected = homes[1], pages(homes[0])
    with hold(of_warehouse(home), "build", run=RUNS[2]):
        programs = [program(home, run_id) for run_id in RUNS]
        lines = [process.stderr.readline() for process in programs]
        assert all(f"waiting: the warehouse is in use by build of run {RUNS[2]} on " in line for line in lines)
        assert pages(home) == {}
    killed = programs.pop()
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=PATIENCE)
    for process in programs:
        output, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors
        assert output.startswith("All 10 cells equal the oracle")
    there = pages(home)
    assert there.keys() == expected.keys()
    # A performance page lists those of the runs that published before it.
    menus = {f"{run_id}/performance.html" for run_id in RUNS}
    assert {name for name in there if there[name] != expected[name]} <= menus
    wait_for(lambda: of_warehouse(home).holders() == [], PATIENCE)
