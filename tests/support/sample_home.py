"""A LOCKSTEP_HOME with content for every kind of page: one small real run after simulated nights."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from infra.benchmarks import page
from reports.history import History
from reports.publish import publish
from streaming_core.apps import registry
from streaming_core.regression.home import Home
from tests.infra.benchmarks.test_benchmarks import experiment, measured, plot, row
from tests.reports import past_finds, past_quality, past_runs

NIGHTS = 12
# Every executor, with a cell whose plan the planner finds.
RUN = ["--applications", "sl,wc,wordcount", "--schemes", "owners,no_lock", "--events", "3000", "--repetitions", "1"]
NIGHTLY = {
    "executors": ["transactional", "pooled", "pinned"],
    "schemes": ["owners", "tstream", "serial", "lock", "mvlk", "pat", "auto", "no_lock"],
    "plans": ["replicated", "auto"],
}


def make(home: Home) -> None:
    """Fill an empty home."""
    environment = os.environ | {"LOCKSTEP_HOME": str(home.root), "AIRFLOW_HOME": str(home.root.parent / "airflow")}
    lockstep = str(Path(sys.executable).parent / "lockstep")
    subprocess.run([lockstep, "run", *RUN], env=environment, check=True, timeout=1200)
    (real,) = History(home).run_ids()
    nights = _nights()
    kinds = registry.kinds()
    for number, run_id in enumerate(nights):
        past_runs.add(home, run_id, number % 10, run_id == nights[-1], "nightly", kinds=kinds, **NIGHTLY)
    past_runs.gate(home, "v1.2")
    past_quality.make(home, nights[-10:])
    past_finds.of_home(home)
    past_finds.of_cell(home, nights[-1])
    _benchmark(home)
    for run_id in (*nights[-2:], real):
        publish(home, run_id)


def _benchmark(home: Home) -> None:
    """One made-up suite, with lines and with bars of parts."""
    ways = {"owners": 5e6, "tstream": 3e6, "lock": 1e6, "no_lock": 9e6}
    rows = [
        row(way, speed * threads**0.7, threads, "bound" if way == "no_lock" else "equal", app)
        for app in ("gs", "sl")
        for way, speed in ways.items()
        for threads in (1, 2, 4)
    ]
    plots = [plot(), plot(y="p99_us", title="latency"), plot("way", "breakdown", kind="parts", title="breakdown")]
    (home.reports / "bench").mkdir(parents=True, exist_ok=True)
    measured(home, "2026-01-01T00:00:00Z", [experiment("schemes", rows, plots)])
    page.publish(home)


def _nights() -> list[str]:
    """The ids of the nights before today; the made-up change of speed is three nights old."""
    today = datetime.now(UTC).replace(hour=2, minute=0, second=0)
    days = [today - timedelta(days=NIGHTS - number) for number in range(NIGHTS)]
    nights = [f"{day:%Y%m%dT%H%M%SZ}-{number:08x}" for number, day in enumerate(days)]
    past_runs.RUN_IDS = nights[-5:]
    past_runs.LAST = nights[-1]
    return nights
