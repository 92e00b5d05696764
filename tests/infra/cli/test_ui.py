"""`lockstep stop` ends only the processes that an earlier UI left running, and names them."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from infra.airflow import airflow_home
from infra.checkout import ROOT
from infra.cli import ui
from streaming_core.process import alive, identity, signal_group
from streaming_core.regression.lock import signature
from streaming_core.storage import write_json
from tests.infra.cli.conftest import lockstep
from tests.support.waiting import alive as is_there
from tests.support.waiting import wait_for

# Starts another process in its group, and heeds SIGTERM by itself alone.
FAMILY = "import signal, subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']); "


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "lockstep"))
    airflow_home.location().mkdir()
    return airflow_home.location()


@pytest.fixture
def process():
    """A process with a child in its own process group, and without an owner that ends it."""
    command = [sys.executable, "-c", FAMILY + "print('up', flush=True); signal.pause()"]
    child = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "up\n"
    yield child
    signal_group(child.pid, signal.SIGKILL)
    child.wait()


def test_leftover_process_is_stopped_with_its_children(home, process, capsys):
    known = {"scheduler": identity(process.pid), "gone": {"pid": 2**22 - 1, "started": 5}}
    write_json(home / "components.json", known)
    assert lockstep("stop") == 0
    assert capsys.readouterr().out == "stopped what an earlier UI had left running: scheduler\n"
    assert process.wait(10) < 0
    group = ["ps", "-o", "stat=", "-g", str(process.pid)]
    stopped = lambda: subprocess.run(group, capture_output=True, text=True).stdout.split()  # noqa: E731
    wait_for(lambda: all(state.startswith("Z") for state in stopped()), 10)
    assert not (home / "components.json").exists()
    assert lockstep("stop") == 0
    assert capsys.readouterr().out == "Airflow is not running\n"


def test_process_with_a_reused_id_is_not_stopped(home, process):
    other = identity(process.pid)
    write_json(home / "components.json", {"scheduler": other | {"started": other["started"] + 1}})
    assert ui.end_left() == []
    assert alive(other)


UI = """
import os, signal, sys
from pathlib import Path
from infra.cli.ui import Components
Components(Path("logs"), dict(os.environ)).start({"scheduler": [sys.executable, "-c", sys.argv[1]]})
signal.pause()
"""
# Starts a task in its group and waits for it, whatever signals come: so does a scheduler.
STUBBORN = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if task := os.fork():
    with open("pids.new", "w") as pids:
        print(os.getpid(), task, file=pids)
    os.rename("pids.new", "pids")
while True:
    signal.pause()
"""


def test_killed_ui_leaves_no_scheduler_and_no_task(tmp_path):
    pids = tmp_path / "pids"
    components = STUBBORN.replace('"pids', f'"{tmp_path}/pids')
    command = [sys.executable, "-c", UI, components]
    killed = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    wait_for(pids.exists, 30)
    family = psutil.Process(killed.pid).children(recursive=True)
    assert {int(pid) for pid in pids.read_text().split()} < {process.pid for process in family}
    killed.kill()
    killed.wait()
    try:
        wait_for(lambda: not any(is_there(process.pid) for process in family), 15)
    finally:
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def test_stop_does_not_end_a_run(home, capsys):
    lock = airflow_home.occupancy()
    assert lock.take(signature("run"))
    began = time.monotonic()
    assert lockstep("stop") == 2
    assert time.monotonic() - began < ui.STOP_SECONDS
    assert "`lockstep run` is in progress without a UI (process " in capsys.readouterr().err
    lock.leave()


def test_no_component_serves_its_logs():
    for name in ("scheduler", "triggerer"):
        assert "--skip-serve-logs" in ui.COMPONENTS[name]


def test_every_login_has_a_password_before_airflow_generates_one(home, monkeypatch):
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", "admin:admin,reader:viewer")
    passwords = ui.passwords()
    assert (set(passwords), len(set(passwords.values()))) == ({"admin", "reader"}, 2)
    assert min(map(len, passwords.values())) >= 16
    assert ui.passwords() == passwords
    monkeypatch.delenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS")
    assert ui.passwords() == {"admin": passwords["admin"]}
    assert (home / "passwords.json").stat().st_mode & 0o077 == 0
