"""What a run holds in memory: the peak of each stage's processes, with some events and with ten times as many.

    python -m tests.e2e.memory [--cases wc sd ...] [--events 200000] [--executor pooled]

A run has one cell. Its stages come one after the other, each with a Spark server of its own. The peak is the resident
set of the largest process of a kind, as the kernel notes it (VmHWM). The kinds:

- `jvm`: the Spark server, with the executor in it;
- `worker`: a Python process of a Spark task;
- `driver`: the Python process of the stage. For the stage `run_core`, the engine.

The exit code is 1 if a process holds more than `LIMIT`, or with ten times the events more than `GROWTH` times as much.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from infra.checkout import ROOT
from infra.services.spark import SESSION_SETTINGS, Server, settings_of
from streaming_core.regression.home import Home
from streaming_core.regression.matrix import plan
from streaming_core.regression.request import RegressionSpec
from streaming_core.storage import write_json

RUN_ID = "20260101T000000Z-00000000"
LIMIT = 2 << 20  # KiB of a process
GROWTH = 1.1
TIMES = 10
STAGES = ("prepare_workloads", "run_oracle", "run_core", "validate_outputs")
# The state of each is complete long before the first 200,000 events end.
CASES = {
    "wc": ("wc", {}),
    "wc, 200,000 words": ("wc", {"vocabulary": 200_000}),
    "sd": ("sd", {}),
    "hashtag": ("hashtag", {}),
    "scalejoin": ("scalejoin", {"size": 1_001}),
}


# --- one stage, in a process of its own ------------------------------------------------------------------------------


def run_stage(home: Home, stage: str) -> None:
    """Run a stage of the run in `home`; one on Spark starts a server, as a run does."""
    if stage == "run_core":
        run_cell(home)
        return
    from importlib import import_module

    from pyspark.sql import SparkSession

    server = Server(home)
    server.start(RUN_ID)
    try:
        url = server.client_lease(RUN_ID).client_url
        spark = SparkSession.builder.remote(url).config(map=settings_of(SESSION_SETTINGS)).getOrCreate()
        print(import_module(f"jobs.{stage}").work(spark, home, RUN_ID))
        spark.stop()
    finally:
        server.stop(RUN_ID)


def run_cell(home: Home) -> None:
    """Run the engine over the workload of the one cell."""
    from jobs.run_folder import read_plan
    from streaming_core.run.engine import run
    from streaming_core.run.way import RunSpec

    (cell,) = read_plan(home, RUN_ID)["cells"]
    spec = RunSpec.parse(cell["spec"])
    attempt = home.attempt(RUN_ID, cell["cell"], 1)
    run(spec, home.workload(spec.app, cell["workload"]), attempt)
    write_json(attempt / "exit.json", {"exit_code": 0, "error": None, "host": "here"})


# --- and its memory --------------------------------------------------------------------------------------------------


def peaks_of(command: list[str]) -> dict[str, int]:
    """Run a command, and look at its processes until it ends.

    Returns:
        The largest peak of the resident set in KiB, by kind of process.
    """
    peaks: dict[str, int] = {}
    process = subprocess.Popen(command, cwd=ROOT)
    while process.poll() is None:
        for kind, peak in _peaks(process.pid):
            peaks[kind] = max(peaks.get(kind, 0), peak)
        time.sleep(0.1)
    if process.returncode:
        sys.exit(f"memory: {' '.join(command)} ended with {process.returncode}")
    return peaks


def _peaks(root: int) -> list[tuple[str, int]]:
    """Kind and peak in KiB of a process and all below it."""
    fields = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            lines = (folder / "status").read_text().splitlines()
            command = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        values = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        if "VmHWM" in values:
            fields[int(folder.name)] = (int(values["PPid"]), int(values["VmHWM"].split()[0]), command)
    found, pending = [], [root]
    while pending:
        pid = pending.pop()
        if pid in fields:
            _, peak, command = fields[pid]
            kind = "worker" if b"pyspark.daemon" in command else "jvm" if command[0].endswith(b"java") else "driver"
            found.append((kind, peak))
        pending += [child for child, (parent, _, _) in fields.items() if parent == pid]
    return found


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
    parser.add_argument("--events", type=int, default=200_000, help="events of the smaller run")
    parser.add_argument("--executor", default="pooled", help="the executor of the cell")
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
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
