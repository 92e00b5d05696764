"""A hanging test fails and shows its position."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = """
import threading

def test_hangs():
    waits_for_nobody()

def waits_for_nobody():
    threading.Event().wait()
"""
COMPILED = """
from numba import njit

@njit("int64(int64)", nogil=False)  # compiled at import, outside the time limit
def turns_for_ever(n):
    while n:
        n ^= 2  # LLVM assumes that sums do not overflow, and would conclude that this loop ends
    return n

def test_hangs():
    turns_for_ever(1)
"""


@pytest.mark.parametrize(("source", "place"), [(PYTHON, "in waits_for_nobody"), (COMPILED, "in test_hangs")])
@pytest.mark.slow
def test_a_hanging_test_fails_and_shows_its_position(tmp_path, source, place):
    (tmp_path / "test_it.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider"]
    # A second instead of minutes: this test has nothing else to wait for.
    command += ["-o", "faulthandler_timeout=1", "--rootdir", str(tmp_path), str(tmp_path / "test_it.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "Timeout (0:00:01)!" in done.stderr
    assert place in done.stderr
