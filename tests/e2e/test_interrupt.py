"""Ctrl-C on `make run`: everything ends, nothing is left running, and the pages say that the run was stopped."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.e2e.scheduled import erring, of_this_checkout
from tests.support.waiting import wait_for

PATIENCE = 600

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def environment_of(process: psutil.Process) -> dict:
    try:
        return process.environ()
    except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
        return {}


def test_interrupted_run_leaves_nothing_behind(tmp_path, with_compiled):
    with_compiled(tmp_path / "lockstep")
    world = of_this_checkout(tmp_path, **erring(tmp_path, wc="hang"))
    command = [str(Path(sys.executable).parent / "lockstep"), "run"]
    command += ["--applications", "wc", "--threads", "1", "--events", "1000", "--repetitions", "1"]
    # As from a terminal: what a script starts in the background would ignore Ctrl-C, and so would all it starts.
    heeds = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    run = subprocess.Popen(
        command, env=world, stdout=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=heeds
    )
    try:
        wait_for(lambda: (tmp_path / "pids").exists() or run.poll() is not None, PATIENCE)
        assert run.poll() is None, run.stdout.read()
        run.send_signal(signal.SIGINT)
        output, _ = run.communicate(timeout=PATIENCE)
    finally:
        run.kill()
    assert run.returncode == 1
    assert output.strip().endswith("stopped the run and all its processes")

    def left() -> list[psutil.Process]:
        return [p for p in psutil.process_iter() if environment_of(p).get("LOCKSTEP_HOME") == world["LOCKSTEP_HOME"]]

    wait_for(lambda: not left(), PATIENCE)
    (open_run,) = (tmp_path / "airflow" / "open-runs").glob("*.json")  # which the next Airflow closes
    written = json.loads((tmp_path / "lockstep" / "runs" / open_run.stem / "status.json").read_text())
    assert written["state"] == "stopped"
