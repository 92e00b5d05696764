"""The memory of a run: the peak of each stage's processes, with some events and with ten times as many.

    python -m tests.e2e.memory [--cases wc "wc, much state" ...] [--events 1000000] [--executor spark]

A run has one cell. Its stages come one after the other, each with a Spark server of its own. The peak is the resident
set of the largest process of a kind, as the kernel notes it (VmHWM). The kinds:

- `jvm`: the Spark server, with the executor in it;
- `worker`: a Python process of a Spark task;
- `driver`: the Python process of the stage. For the stage `run` on another executor than spark, the engine.

The exit code is 1 if a process holds more than `LIMIT`, or with ten times the events more than `GROWTH` times as much.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

import psutil
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from infra.checkout import ROOT
from infra.spark.server import SESSION_SETTINGS, Server, settings_of
from jobs import cluster
from jobs.run_folder import read_plan
from streaming_core.regression.home import Home
from streaming_core.regression.matrix import plan
from streaming_core.regression.request import RegressionSpec
from streaming_core.run import engine
from streaming_core.run.way import RunSpec
from streaming_core.storage import write_json

RUN_ID = "20260101T000000Z-00000000"
LIMIT = 2 << 20  # KiB of a process
GROWTH = 1.1
TIMES = 10
POLL_SECONDS = 0.1
STAGES = ("prepare_workloads", "run_oracle", "run", "validate_outputs")
# Application and parameters. State and buffers are full long before the first EVENTS events end, and a worker makes two
# parts of the workload.
CASES: dict[str, tuple[str, dict]] = {
    "wc": ("wc", {"words": 2}),
    "wc, much state": ("wc", {"words": 2, "vocabulary": 200_000}),
    "sd": ("sd", {}),
    "hashtag": ("hashtag", {}),
    "scalejoin": ("scalejoin", {"size": 1_001}),
}
EVENTS = 1_000_000


# --- one stage, in a process of its own ------------------------------------------------------------------------------


def run_stage(home: Home, stage: str) -> None:
    """Run a stage of the run in `home`."""
    if stage == "run":
        run_cell(home)
        return
    with server(home) as spark:
        print(import_module(f"jobs.{stage}").work(spark, home, RUN_ID))


def run_cell(home: Home) -> None:
    """Run the one cell."""
    (cell,) = read_plan(home, RUN_ID)["cells"]
    spec = RunSpec.parse(cell["spec"])
    source, attempt = home.workload(spec.app, cell["workload"]), home.attempt(RUN_ID, cell["cell"], 1)
    if spec.executor == "spark":
        attempt.mkdir(parents=True)
        with server(home) as spark:
            cluster.run_cell(spark, spec, source, attempt, print)
    else:
        engine.run(spec, source, attempt)
    write_json(attempt / "exit.json", {"exit_code": 0, "error": None, "host": "here"})


@contextmanager
def server(home: Home) -> Iterator[SparkSession]:
    """A session on a Spark server, which starts as that of a run does."""
    of_run = Server(home)
    of_run.start(RUN_ID)
    try:
        url = of_run.client_lease(RUN_ID).client_url
        spark = SparkSession.builder.remote(url).config(map=settings_of(SESSION_SETTINGS)).getOrCreate()
        yield spark
        spark.stop()
    finally:
        of_run.stop(RUN_ID)


# --- and its memory --------------------------------------------------------------------------------------------------


def peaks_of(command: list[str]) -> dict[str, int]:
    """Run a command, and look at its processes until it ends.

    Returns:
        The largest peak of the resident set in KiB, by kind of process.
    """
    peaks: dict[str, int] = {}
    with subprocess.Popen(command, cwd=ROOT) as process:
        stage = psutil.Process(process.pid)
        while process.poll() is None:
            for one in (stage, *stage.children(recursive=True)):
                with suppress(psutil.Error):  # it has ended
                    kind, peak = kind_of(one), peak_of(one.pid)
                    peaks[kind] = max(peaks.get(kind, 0), peak)
            time.sleep(POLL_SECONDS)
    if process.returncode:
        sys.exit(f"memory: {' '.join(command)} ended with {process.returncode}")
    return peaks


def kind_of(process: psutil.Process) -> str:
    """`jvm`, `worker` or `driver`."""
    command = process.cmdline()
    if "pyspark.daemon" in command:
        return "worker"
    # A process that the JVM has just forked has its memory and its command, but not its name.
    return "jvm" if command and command[0].endswith("java") else "driver"


def peak_of(pid: int) -> int:
    """The peak of a process's resident set in KiB; 0 if the process has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


def measure(home: Home, app: str, params: dict, events: int, executor: str) -> dict[tuple[str, str], int]:
    """Make a run of one cell; returns the peaks in KiB by stage and kind of process."""
    request = {"applications": [app], "params": {app: params}, "executors": [executor], "events": events}
    plan(RegressionSpec.parse(request | {"threads": [2], "repetitions": 1, "seconds": 0.0}), home, RUN_ID)
    result: dict[tuple[str, str], int] = {}
    for stage in STAGES:
        began = time.monotonic()
        command = [sys.executable, "-m", "tests.e2e.memory", "--stage", stage, "--home", str(home.root)]
        peaks = peaks_of(command)
        print(f"{app} {events} {stage}: {time.monotonic() - began:.0f} s, {peaks}", flush=True)
        result |= {(stage, kind): peak for kind, peak in peaks.items()}
    return result


def main() -> int:
    """Measure, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--events", type=int, default=EVENTS, help="events of the smaller run")
    parser.add_argument("--executor", default="spark", help="the executor of the cell")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        run_stage(Home(options.home), options.stage)
        return 0
    result = Table("case", "stage", "process", "MiB", f"MiB, {TIMES} x events", "ratio", title="peak resident memory")
    wrong = []
    for case in options.cases:
        both = []
        for times in (1, TIMES):
            folder = Path(tempfile.mkdtemp(prefix="lockstep-memory-"))
            try:
                both.append(measure(Home(folder), *CASES[case], options.events * times, options.executor))
            finally:
                shutil.rmtree(folder)
        small, large = both
        for (stage, kind), peak in large.items():
            before = small.get((stage, kind), peak)
            ratio = peak / before
            result.add_row(case, stage, kind, f"{before >> 10}", f"{peak >> 10}", f"{ratio:.2f}")
            if max(before, peak) > LIMIT:
                wrong.append(f"{case}, {stage}, {kind}: {peak >> 10} MiB are more than {LIMIT >> 10}")
            if ratio > GROWTH:
                wrong.append(f"{case}, {stage}, {kind}: {TIMES} times the events take {ratio:.2f} times the memory")
    Console(width=120).print(result)
    print("\n".join(wrong) or "every limit holds")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
