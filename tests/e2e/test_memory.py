"""Ten times the events take no more memory, in every process of every stage of a run."""

import subprocess
import sys

import pytest

from infra.checkout import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_no_process_of_a_run_grows_with_the_number_of_events():
    command = [sys.executable, "-m", "tests.e2e.memory", "--cases", "sd"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3000)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
