"""The supervisor of a stack restarts ended programs, and no program outlives it."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from infra.stack.folder import Folder
from infra.stack.programs import Program
from infra.stack.supervisor import Supervisor
from tests.support.programs import require
from tests.support.waiting import alive, wait_for

PATIENCE = 60
# The program, and a process that it leaves: in a session of its own, without a parent.
LEAVES = """
sh -c 'setsid sleep 1000 & echo $! > left.new'
mv left.new left
exec sleep 1000
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def supervisor(tmp_path):
    require("supervisor")
    folder = Folder.at(tmp_path / "s")
    folder.make()
    folder.release.mkdir()
    running = Supervisor(folder)
    (folder.release / "leaves.sh").write_text(LEAVES)
    running.launch([Program("one", ["/bin/sh", "leaves.sh"])], {})
    try:
        running.start("one")
        wait_for((folder.release / "left").exists, PATIENCE)
        yield running, folder
    finally:
        running.end([["one"]])


def processes(supervisor: Supervisor, folder: Folder) -> list[int]:
    left = int((folder.release / "left").read_text())
    return [folder.state["supervisor"]["pid"], supervisor.states()["one"].pid, left]


def test_program_that_ends_is_started_again(supervisor):
    running, _ = supervisor
    wait_for(lambda: running.states()["one"].word == "RUNNING", PATIENCE)
    before = running.states()["one"].pid
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: running.states()["one"].pid not in (0, before), PATIENCE)


def test_leftover_process_of_a_program_ends_with_the_stack(supervisor):
    running, folder = supervisor
    pids = processes(running, folder)
    assert psutil.Process(pids[2]).ppid() == pids[0], "the supervisor adopts it"
    running.end([["one"]])
    assert not any(map(alive, pids))
    assert not running.up


def test_programs_of_a_killed_supervisor_end_too(supervisor):
    running, folder = supervisor
    supervisor_pid, program, left = processes(running, folder)
    os.kill(supervisor_pid, signal.SIGKILL)
    wait_for(lambda: not alive(supervisor_pid), PATIENCE)
    assert alive(program)
    running.end([["one"]])
    assert not alive(program)
    os.kill(left, signal.SIGKILL)  # only a supervisor that lives finds it
