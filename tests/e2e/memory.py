"""The memory of a run: the peak of each stage's processes, with some events and with ten times as many.

    python -m tests.e2e.memory [--cases wc "wc, much state" ...] [--events 1000000] [--executor spark]

A run has one cell. Its stages come one after the other, each with a Spark server of its own. The peak is the resident
set of the largest process of a kind, as the kernel notes it (VmHWM). A `jvm` is the Spark server with its
executor, and a `worker` a Python process of a Spark task. The `driver` is the process of the stage, or the engine.

The exit code is 1 if a process holds more than `LIMIT`, or with ten times the events more than `GROWTH` times as much.
"""

import argparse
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
GROWTH, TIMES = 1.1, 10
STAGES = ("prepare_workloads", "run_oracle", "run", "validate_outputs")
# Application and parameters. State and buffers are full long before the first events end, and a worker makes two parts
# of the workload.
CASES: dict[str, tuple[str, dict]] = {
    "wc": ("wc", {"words": 2}),
    "wc, much state": ("wc", {"words": 2, "vocabulary": 200_000}),
    "sd": ("sd", {}),
    "hashtag": ("hashtag", {}),
    "scalejoin": ("scalejoin", {"size": 1_001}),
}


def run_stage(home: Home, stage: str) -> None:
    """Run a stage of the run in `home`, in this process."""
    if stage != "run":
        with server(home) as spark:
            print(import_module(f"jobs.{stage}").work(spark, home, RUN_ID))
        return
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


def peaks_of(command: list[str]) -> dict[str, int]:
    """Run a command, and look at its processes until it ends; returns the peak in KiB by kind of process."""
    peaks: dict[str, int] = {}
    with subprocess.Popen(command, cwd=ROOT) as process:
        stage = psutil.Process(process.pid)
        while process.poll() is None:
            for member in (stage, *stage.children(recursive=True)):
                with suppress(psutil.Error, OSError):  # it has ended
                    status = Path(f"/proc/{member.pid}/status").read_text().splitlines()
                    peak = next((int(line.split()[1]) for line in status if line.startswith("VmHWM:")), 0)
                    peaks[kind_of(member)] = max(peaks.get(kind_of(member), 0), peak)
            time.sleep(0.1)
    if process.returncode:
        sys.exit(f"memory: {' '.join(command)} ended with {process.returncode}")
    return peaks


def kind_of(process: psutil.Process) -> str:
    command = process.cmdline()
    if "pyspark.daemon" in command:
        return "worker"
    # A process that the JVM has just forked has its memory and its command, but not its name.
    return "jvm" if command and command[0].endswith("java") else "driver"


def measure(app: str, params: dict, events: int, executor: str) -> dict[tuple[str, str], int]:
    """Make a run of one cell; returns the peaks in KiB by stage and kind of process."""
    request = {"applications": [app], "params": {app: params}, "executors": [executor], "events": events}
    result: dict[tuple[str, str], int] = {}
    with tempfile.TemporaryDirectory(prefix="lockstep-memory-") as folder:
        plan(RegressionSpec.parse(request | {"threads": [2], "repetitions": 1, "seconds": 0.0}), Home(folder), RUN_ID)
        for stage in STAGES:
            peaks = peaks_of([sys.executable, "-m", "tests.e2e.memory", "--stage", stage, "--home", folder])
            result |= {(stage, kind): peak for kind, peak in peaks.items()}
    return result


def main() -> int:
    """Measure, print a line per stage and kind of process, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--events", type=int, default=1_000_000, help="events of the smaller run")
    parser.add_argument("--executor", default="spark", help="the executor of the cell")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        run_stage(Home(options.home), options.stage)
        return 0
    wrong = 0
    for case in options.cases:
        small, large = (measure(*CASES[case], options.events * times, options.executor) for times in (1, TIMES))
        for (stage, kind), peak in large.items():
            before = small.get((stage, kind), peak)
            is_wrong = max(before, peak) > LIMIT or peak > GROWTH * before
            wrong += is_wrong
            mark = "TOO MUCH" if is_wrong else "ok"
            print(f"{mark:8}  {case}, {stage}, {kind}: {before >> 10} MiB, {peak >> 10} MiB with {TIMES} x events")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
