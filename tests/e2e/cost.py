"""The cost of a run besides the engine: the seconds of each task, for three sizes of a run.

    python -m tests.e2e.cost [--sizes one default nightly] [--runs 3] [--before CHECKOUT]

The sizes are a run of one cell, `lockstep run` without options, and the matrix `nightly`. Each checkout first makes a
run that does not count: it compiles operators, and writes workloads. With --before, another checkout that is set up
makes its runs in turns with this one. Leave the machine alone meanwhile.

The exit code is 1 if a limit of `LIMITS` does not hold, or if --before is not slower with every size.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from infra.checkout import ROOT
from streaming_core.regression.home import Home
from streaming_core.regression.stages import Stage
from streaming_core.regression.status import records
from tests.support import checkout

ONE_CELL = "--applications wc --executors pooled --threads 1 --events 20000 --repetitions 1 --seconds 0"
SIZES = {"one": ONE_CELL.split(), "default": [], "nightly": ["--matrix", "nightly"]}
LIMITS = {"one": 30.0, "default": 90.0}  # seconds on two quiet cores
ORCHESTRATION = 0.25  # of the seconds of a nightly, at most
# The engine, the oracle and the generator. All else is orchestration.
WORK = (Stage.PREPARE_WORKLOADS, Stage.RUN_ORACLE, Stage.RUN_CORE, Stage.SPEED_GATE, Stage.FIND)
AROUND = "before, between and after tasks"


class Run(NamedTuple):
    """One run: its seconds by task, and in all."""

    tasks: dict[str, float]
    whole: float

    @property
    def orchestration(self) -> float:
        """The share of its seconds that are not work."""
        return 1 - sum(self.tasks.get(stage, 0.0) for stage in WORK) / self.whole


class Subject:
    """A checkout, with a LOCKSTEP_HOME and an AIRFLOW_HOME of its own in a folder."""

    def __init__(self, root: Path, folder: Path):
        self.root = root
        self.home = Home(folder / "lockstep")
        self.environment = checkout.environment(root) | checkout.homes(folder)

    def run(self, size: str) -> Run:
        """Run `lockstep run`, which must end green."""
        command = [str(self.root / ".venv" / "bin" / "lockstep"), "run", *SIZES[size]]
        began = time.monotonic()
        done = subprocess.run(command, cwd=self.root, env=self.environment, capture_output=True, text=True, check=False)
        whole = time.monotonic() - began
        if done.returncode:
            sys.exit(f"cost: {' '.join(command)} ended with {done.returncode}: {done.stdout}{done.stderr}")
        run_id = max(path.name for path in (self.home.root / "runs").iterdir())
        tasks: dict[str, float] = {}
        for record in records(self.home, run_id).values():
            stage, seconds = record["stage"], record["ended"] - record["began"]
            tasks[stage] = tasks.get(stage, 0.0) + seconds
        return Run(tasks | {AROUND: whole - sum(tasks.values())}, whole)


def show(size: str, names: list[str], runs: list[list[Run]]) -> None:
    """Print the median seconds of each task, by checkout."""
    print(f"\n{size}: seconds, median of {len(runs[0])}", *names)
    for task in [*Stage, AROUND]:
        if any(task in run.tasks for of in runs for run in of):
            print(f"{task:36}", *(f"{median(run.tasks.get(task, 0.0) for run in of):7.1f}" for of in runs))
    print(f"{'all':36}", *(f"{median(run.whole for run in of):7.1f}" for of in runs))
    print(f"{'orchestration, %':36}", *(f"{100 * median(run.orchestration for run in of):7.0f}" for of in runs))


def faults(size: str, runs: list[list[Run]]) -> list[str]:
    """The broken limits of a size; the runs of this checkout come last."""
    lines, mine = [], runs[-1]
    whole = median(run.whole for run in mine)
    if whole > LIMITS.get(size, whole):
        lines.append(f"{size}: {whole:.1f} s are more than {LIMITS[size]:.0f} s")
    share = median(run.orchestration for run in mine)
    if size == "nightly" and share > ORCHESTRATION:
        lines.append(f"{size}: orchestration is {100 * share:.0f} %, more than {100 * ORCHESTRATION:.0f} %")
    if len(runs) > 1:
        ratios = sorted(before.whole / after.whole for before, after in zip(*runs, strict=True))
        print(f"{size}: before / after = {median(ratios):.2f}, from {ratios[0]:.2f} to {ratios[-1]:.2f}")
        if ratios[0] <= 1:
            lines.append(f"{size}: the other checkout is not slower in every pair")
    return lines


def main() -> int:
    """Measure, print the tables, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["one", "default"])
    parser.add_argument("--runs", type=int, default=3, help="runs of each size that count")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="another checkout, to compare with")
    options = parser.parse_args()
    roots = [*([options.before.resolve()] if options.before else []), ROOT]
    names = [*(["before"] if options.before else []), "now"]
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="lockstep-cost-") as folder:
        subjects = [Subject(root, Path(folder) / name) for root, name in zip(roots, names, strict=True)]
        for size in options.sizes:
            runs: list[list[Run]] = [[] for _ in subjects]
            for number in range(options.runs + 1):
                for subject, of in zip(subjects, runs, strict=True):
                    run = subject.run(size)
                    if number:
                        of.append(run)
            show(size, names, runs)
            wrong += faults(size, runs)
    print("\n".join(wrong) or "every limit holds", f"({os.cpu_count()} cores)")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
