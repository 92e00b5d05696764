"""Ends the processes of `lockstep ui` after that process has ended, even by SIGKILL.

The UI writes one JSON line per process to the watchdog's standard input: {"pid", "started"}. The kernel closes that
input when the UI ends. The kernel also sends SIGTERM to each of Airflow's processes, but a scheduler waits for its
tasks.
"""

from __future__ import annotations

import json
import sys

from infra.airflow import airflow_home, open_runs
from streaming_core.process import end_groups
from streaming_core.regression.lock import signature

GRACE_SECONDS = 2  # Without the UI, an orderly end gains nothing.


def main() -> int:
    """Wait for the end of the UI, then end its processes and publish its runs."""
    end_groups([json.loads(line) for line in sys.stdin], GRACE_SECONDS)
    occupancy = airflow_home.occupancy()
    # Another process that has taken AIRFLOW_HOME since then ends the runs itself.
    if occupancy.take(signature("stop")):
        open_runs.end()
        occupancy.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
