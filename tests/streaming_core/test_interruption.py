"""A signal ends any command with one line and exit code 128 + its number, and leaves no partial files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from streaming_core import interruption, machine_code
from streaming_core.data import workload
from tests.support.draws import some

# Runs the command. A hook prints a line at the test's position and continues after the signal.
SCRIPT = """
import os, sys
from streaming_core.cli import main
def here():
    print("here", flush=True)
    os.read(0, 1)  # until the signal was sent
{hook}
main()
"""

# Inside a callback of numba, which prints and loses exceptions.
COMPILING = """
from streaming_core.machine_code import emission
truth, messages = emission.emit, []
def emit(*arguments):
    if not messages:
        messages.append(here())
    return truth(*arguments)
emission.emit = emit
"""
BLOCKS = """
import streaming_core.data.workload as workload
truth = workload.Workload.read_on
def read_on(*arguments, **more):
    for table in truth(*arguments, **more):
        here()
        yield table
workload.Workload.read_on = read_on
"""
CHUNKS = """
import streaming_core.data.workload as workload
truth = workload.generate_chunk
def generate_chunk(*arguments):
    here()
    return truth(*arguments)
workload.generate_chunk = generate_chunk
"""
PUBLISHING = """
import streaming_core.storage as storage
truth = storage.sync_tree
def sync_tree(folder):
    truth(folder)
    here()
storage.sync_tree = sync_tree
"""
# As an operator that loops: it never looks whether a signal came.
LOOP = """
import time
import streaming_core.data.workload as workload
def read_on(*arguments, **more):
    print("here", flush=True)
    while True:
        time.sleep(60)
workload.Workload.read_on = read_on
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sl") / "workload"
    workload.write("sl", {"n_items": 100, "gen_parts": 4}, 500, 1, folder)
    return folder


def start(hook, home, *arguments):
    """Starts the command with an empty home if it must compile, otherwise with the machine code of this process."""
    if hook is not COMPILING and not home.exists():
        home.mkdir()
        (home / "compiled").symlink_to(machine_code.kept().folder)
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(hook=hook), *map(str, arguments)],
        env={
            **os.environ,
            "LOCKSTEP_HOME": str(home),
            "XDG_CACHE_HOME": str(home),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def interrupted(command, number):
    """Sends a signal at the hook, and returns the exit code and stderr."""
    assert command.stdout.readline() == "here\n", command.stderr.read()
    command.send_signal(number)
    _, stderr = command.communicate("\n" * 100)
    return command.returncode, stderr


@pytest.mark.parametrize("number", some([signal.SIGTERM, signal.SIGINT]))
@pytest.mark.parametrize(
    ("hook", "arguments"),
    some(
        [
            (PUBLISHING, ("run", "sl", "--input", "SOURCE", "--out", "OUT")),
            (CHUNKS, ("generate", "sl", "--events", 500, "--out", "OUT")),
            (COMPILING, ("run", "sl", "--input", "SOURCE", "--out", "OUT")),
            (BLOCKS, ("run", "sl", "--input", "SOURCE", "--out", "OUT")),
            (PUBLISHING, ("generate", "sl", "--events", 500, "--out", "OUT")),
            (BLOCKS, ("oracle", "sl", "--input", "SOURCE", "--out", "OUT")),
            (PUBLISHING, ("oracle", "sl", "--input", "SOURCE", "--out", "OUT")),
            (PUBLISHING, ("record", "sl", "--operator", "ledger", "--input", "SOURCE", "--out", "OUT")),
            (BLOCKS, ("bench", "sl", "--events", 500, "--threads", 1, "--out", "OUT")),
        ],
        2,
    ),
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_a_signalled_command_prints_one_line_and_leaves_no_output(source, tmp_path, hook, arguments, number):
    out = tmp_path / "out"
    words = [{"SOURCE": source, "OUT": out}.get(word, word) for word in arguments]
    code, stderr = interrupted(start(hook, tmp_path / "home", *words), number)
    assert (code, stderr) == (128 + number, f"streaming-core: stopped by {number.name}\n")
    left = sorted(path.name for path in tmp_path.rglob("*") if tmp_path / "home" not in (path, *path.parents))
    # The command creates a run's folder only after the application compiles.
    assert left == (["out", "spec.json"] if arguments[0] == "run" and hook is not COMPILING else [])


@pytest.mark.slow
def test_a_signal_ends_working_threads(source, tmp_path):
    """An open-loop source needs an hour for the events, so the runtime stays within one block."""
    hook = """
import streaming_core.run.blocks as blocks
truth = blocks.row_format.encode
def encode(*arguments):
    print("here", flush=True)
    return truth(*arguments)
blocks.row_format.encode = encode
"""
    for executor, app in (("transactional", "sl"), ("pooled", "wc"), ("pinned", "wc"), ("morsel", "wc")):
        folder = tmp_path / app
        workload.write(app, {}, 500, 1, folder)
        more = ("--executor", executor, "--rate", 0.1, "--repetitions", 0, "--threads", 2)
        command = start(hook, tmp_path / "home", "run", app, "--input", folder, "--out", tmp_path / executor, *more)
        code, stderr = interrupted(command, signal.SIGTERM)
        assert (code, stderr) == (143, "streaming-core: stopped by SIGTERM\n"), executor


@pytest.mark.slow
def test_a_signal_ends_work_that_never_looks_for_it(source, tmp_path):
    out = tmp_path / "out"
    command = start(LOOP, tmp_path / "home", "oracle", "sl", "--input", source, "--out", out)
    assert interrupted(command, signal.SIGTERM) == (143, "stopped by SIGTERM before its work could end\n")
    assert not out.exists()


@pytest.mark.slow
def test_a_second_interrupt_ends_at_once(source, tmp_path):
    command = start(BLOCKS, tmp_path / "home", "run", "sl", "--input", source, "--out", tmp_path / "out")
    assert command.stdout.readline() == "here\n"
    while command.poll() is None:  # two simultaneous signals count as one
        command.send_signal(signal.SIGINT)
    assert command.returncode == 130  # it never came back from the hook
    command.communicate()


def test_heeding_restores_the_signal_handler():
    interruption.check()
    before = signal.getsignal(signal.SIGINT)
    with interruption.heeded():
        interruption.check()
    assert signal.getsignal(signal.SIGINT) is before
