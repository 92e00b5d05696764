"""`lockstep run` beside another run: it shows the other run and its progress."""

import os
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

from infra.airflow import airflow_home
from infra.cli.progress import Progress
from streaming_core.regression.fleet import Queue
from streaming_core.regression.home import Home
from streaming_core.regression.lock import hold, of_home, of_host, of_warehouse, signature
from streaming_core.regression.stages import Stage
from streaming_core.regression.status import recorded
from streaming_core.storage import write_json
from tests.reports import past_runs

OTHER, OWN = past_runs.RUN_IDS[0], past_runs.RUN_IDS[1]
ESTIMATE = "14 cells, about 3 minutes"


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    """A run in progress that has run one cell."""
    home = Home(tmp_path / "lockstep")
    monkeypatch.setenv("LOCKSTEP_HOME", str(home.root))
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    past_runs.make(home, nights=1, red=False)
    write_json(home.run(OTHER) / "estimate.json", {"sentence": ESTIMATE})
    for stage, part in ((Stage.PLAN_MATRIX, None), (Stage.SPARK_SERVER, None), (Stage.RUN_CORE, "one")):
        with recorded(home, OTHER, stage, part):
            pass
    return home


def test_run_names_the_run_that_it_waits_for_and_its_progress(home):
    occupancy = airflow_home.occupancy()
    assert occupancy.take(signature("run"))
    command = [sys.executable, "-m", "infra.cli", "run", "--applications", "wc"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stdout.readline().strip() == f"waiting until another run (process {os.getpid()}) ends"
        occupancy.tell(signature("run", run=OTHER))
        line = f"waiting for run {OTHER}: {{}} of 14 cells have run; estimate: {ESTIMATE}"
        assert process.stdout.readline().strip() == line.format(1)
        with recorded(home, OTHER, Stage.RUN_CORE, "two"):
            pass
        assert process.stdout.readline().strip() == line.format(2)
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().strip() == "stopped before the run began"
    assert process.returncode == 1
    occupancy.leave()


def test_run_shows_cells_that_are_over_and_left_and_the_time_of_these(home, capsys):
    progress = Progress(Console(width=200), "", is_live=False)
    past_runs.add(home, OWN)
    progress.plan(OWN)
    lane = {"map_index": 0, "label": "local", "state": "running", "start": time.time() - 26, "end": None}
    progress.take(lane | {"task": Stage.RUN_CORE})
    queue = Queue(home, OWN, "local")
    for error, line in (
        (None, "1 of 14 cells have run, 13 left: about 6 minutes"),
        ("hung", ", 1 failed, 12 left: about"),
    ):
        queue.finish(queue.take()["cell"], error)
        progress._looked = progress._line_at = 0.0
        progress.look()
        assert line in capsys.readouterr().out
    assert f"  {queue.take()['cell']} on local" in progress._cell_text(Stage.RUN_CORE).plain


@pytest.mark.parametrize(
    ("stage", "lock", "own", "shown"),
    [
        (Stage.SPARK_SERVER, "home", True, "waiting until prune ends"),
        (Stage.RUN_ORACLE, "host", True, f"waiting for run {OTHER}: 1 of 14 cells have run"),
        (Stage.DBT_BUILD, "warehouse", True, f"waiting for run {OTHER}: 1 of 14 cells have run"),
        (Stage.RUN_CORE, "host", False, ""),
    ],
)
def test_run_shows_the_other_one_that_has_its_lock(home, capsys, monkeypatch, tmp_path, stage, lock, own, shown):
    """Cells on another host do not wait for this one."""
    monkeypatch.setenv("LOCKSTEP_HOST_LOCK", str(tmp_path / "host.lock"))
    progress = Progress(Console(width=200), "", is_live=False)
    past_runs.add(home, OWN)
    progress.plan(OWN)
    progress.take({"task": stage, "map_index": -1, "label": "", "state": "running", "start": time.time(), "end": None})
    Queue(home, OWN, "elsewhere").take()
    capsys.readouterr()
    locks = {"home": of_home(home), "host": of_host(), "warehouse": of_warehouse(home)}
    user = {"home": ("prune", "")}.get(lock, ("a part", OTHER))
    with hold(locks[lock], user[0], run=user[1]):
        progress.look()
    assert shown in capsys.readouterr().out
    assert bool(progress._waits) == own
    progress._looked = 0.0
    progress.look()
    assert progress._waits == ""
