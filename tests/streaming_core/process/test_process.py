"""streaming_core/process: supervisors under hundreds of signals at once, and their children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import alive, wait_for

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 60

# A supervisor like all of ours: it starts a child that starts another one, waits, and ends them.
SUPERVISOR = """
import signal, sys, time
from streaming_core.process import Noted, end_group, start
noted = Noted(signal.SIGTERM, signal.SIGINT)
child = start([sys.executable, "-c", sys.argv[1]])
while not noted.number and child.poll() is None:
    time.sleep(0.01)
end_group(child, 10)
noted.ignore()
print(noted.number, child.returncode)
"""
CHILD = """
import os, signal, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(os.getppid(), os.getpid(), file=open("pids.new", "w"), flush=True)
    os.rename("pids.new", "pids")
time.sleep(600)
"""


@pytest.fixture
def supervisor(tmp_path):
    command = [sys.executable, "-c", SUPERVISOR, CHILD]
    world = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=tmp_path, env=world, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("numbers", [[signal.SIGTERM], [signal.SIGINT], [signal.SIGINT, signal.SIGTERM]])
def test_bursts_of_signals_end_a_supervisor_and_its_children(supervisor, tmp_path, numbers):
    wait_for((tmp_path / "pids").exists, PATIENCE)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    sent = 0
    while supervisor.poll() is None and sent < 1000:
        supervisor.send_signal(numbers[sent % len(numbers)])
        sent += 1
    out, _ = supervisor.communicate(timeout=PATIENCE)
    assert sent > 100
    assert (supervisor.returncode, out) == (0, f"{int(numbers[0])} {-signal.SIGTERM}\n")
    wait_for(lambda: all(not alive(pid) for pid in pids), PATIENCE)


def test_a_process_group_ends_when_its_supervisor_is_killed(supervisor, tmp_path):
    wait_for((tmp_path / "pids").exists, PATIENCE)
    leader, child = (int(pid) for pid in (tmp_path / "pids").read_text().split())
    supervisor.kill()
    supervisor.wait()  # not for its output: the child that lives on has that open, too
    wait_for(lambda: not alive(leader), PATIENCE)
    os.kill(child, signal.SIGKILL)  # an orphan now


def test_a_process_that_ignores_signals_is_killed_after_a_grace_period(tmp_path, monkeypatch):
    """`kill` as a signal handler calls it: it takes no lock and starts no thread, and `run` does the rest."""
    from streaming_core import process

    monkeypatch.setattr(process, "GRACE_SECONDS", 0)
    lines, task = [], process.Process()

    def say(line):
        lines.append(line)
        task.kill()

    ignores = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(600)"
    )
    assert task.run([sys.executable, "-c", ignores], say) == -signal.SIGKILL
    assert lines == ["on"]
