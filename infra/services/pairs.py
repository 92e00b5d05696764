"""Measures this checkout and the build of another commit, the baseline, in pairs of processes on this host.

The two processes of a pair run one right after the other, in random order. Differences between processes, such as their
memory layout, then count as noise of a pair, not as a difference between the builds. If the builds are equally fast,
each pair favours either side with the same probability, whatever else the machine does. This makes the probability of a
false alarm computable (docs/explanation/speed-verdicts.md).
"""

from __future__ import annotations

import json
import math
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from socket import gethostname
from typing import Any, NamedTuple

from infra.services.build import Build, checkout, environment
from infra.services.lock import host_in_use, of_host
from infra.services.process import POLL_SECONDS, Process
from jobs.run_folder import read_plan
from streaming_core.errors import BadInput, RunFailed
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import rows
from streaming_core.run.way import RunSpec
from streaming_core.run.yardstick import SHORTEST
from streaming_core.storage import digest_of, write_json

PAIRS = 32  # of a cell; dbt/macros/gate.sql has the ranks for this number
SECONDS = 1.0  # that all passes of a pair take together
MOST = 100  # passes of a process (RunSpec.repetitions)
FEWEST = 3
LONGEST = 600.0  # seconds of a process
UNMEASURED = -1  # the number of the pair in the row of a cell that was not measured


class OutOfTime(Exception):
    """The time for the measurement ended."""


class Budget(NamedTuple):
    """The time for a measurement.

    Attributes:
        ends: The end, on the monotonic clock.
        reason: Why a cell is not judged that was not measured by then, in one line.
    """

    ends: float
    reason: str

    def check(self) -> None:
        """Raise OutOfTime after the end."""
        if time.monotonic() > self.ends:
            raise OutOfTime


FOREVER = Budget(math.inf, "")


class Side(NamedTuple):
    """The measurement of one process: median seconds of a pass, digest of the results, the host's steal and others."""

    seconds: float
    digest: str
    steal: float
    others: float


def measure(
    home: Home, run_id: str, cells: list[dict], baseline: Build, say: Callable[[str], None], budget: Budget = FOREVER
) -> list[dict[str, Any]]:
    """Measure cells of a run, as `cells_of` returns them, in this checkout and in the build of a commit.

    A cell is measured whole or not at all. Once the time that is left is less than the longest cell took, the others
    are not begun.

    Returns:
        Rows of the raw table `pairs`, without `baseline_ref`. A cell that was not measured has one row, `unmeasured`.
    """
    builds = {"baseline": baseline, "build": checkout()}
    about = identity(baseline)
    measured, longest = [], 0.0
    for number, cell in enumerate(cells, 1):
        began = time.monotonic()
        try:
            if began + longest > budget.ends:
                raise OutOfTime
            say(f"measuring cell {number} of {len(cells)}: {cell['cell']}")
            spec = RunSpec.parse(cell["spec"])
            workload = home.workload(spec.app, cell["workload"])
            with alone(f"gate {cell['cell']}", say, budget):
                pairs = paired(builds, spec, workload, f"{run_id} {cell['cell']}", budget)
        except OutOfTime:
            measured.append(unmeasured(about, cell["cell"], budget.reason))
            continue
        if "error" in pairs[-1] and (reason := _gone(home, cell, baseline)):
            measured.append(unmeasured(about, cell["cell"], reason))
            continue
        longest = max(longest, time.monotonic() - began)
        measured += [about | {"cell": cell["cell"]} | row for row in pairs]
    return measured


def _gone(home: Home, cell: dict, baseline: Build) -> str:
    """What another command removed, as this process holds no lock on LOCKSTEP_HOME; empty if nothing is gone."""
    workload = home.workload(cell["spec"]["app"], cell["workload"])
    lost = [str(path) for path in (workload, baseline.tree) if not path.is_dir()]
    return f"{lost[0]} was removed during the measurement; run the cells again" if lost else ""


def identity(baseline: Build) -> dict[str, Any]:
    """The columns of the raw table `pairs` that all rows of a measurement share."""
    return {
        "baseline": baseline.name,
        "build": checkout().name,
        "host": gethostname(),
        "baseline_environment": environment(baseline.name),
        "environment": environment(),
    }


def unmeasured(about: dict[str, Any], cell: str, reason: str) -> dict[str, Any]:
    """The row of a cell that was to be measured, and was not; `about` as `identity` returns it."""
    return about | {"cell": cell, "pair": UNMEASURED, "error": reason, "measured_at": datetime.now(UTC)}


@contextmanager
def alone(owner: str, say: Callable[[str], None], budget: Budget = FOREVER) -> Iterator[None]:
    """Hold the lock on this host during the block; wait until it is free.

    Raises:
        OutOfTime: The time of `budget` ended first.
    """
    lock, waiting = of_host(), False
    try:
        while not lock.take(owner):
            budget.check()
            if not waiting:
                say(host_in_use(lock))
                waiting = True
            time.sleep(POLL_SECONDS)
        yield
    finally:
        lock.leave()


def cells_of(home: Home, run_id: str, names: list[str] | None) -> list[dict]:
    """The cells of a run to measure, as planned: all that equal the oracle, or the named ones.

    Raises:
        BadInput: The run is from another build or host, or a cell is missing or not equal to the oracle.
    """
    build = checkout().name
    facts = {row["cell"]: row for row in rows(home, "cells", run_id) or []}
    planned = {cell["cell"]: cell for cell in read_plan(home, run_id)["cells"]}
    if unknown := set(names or ()) - planned.keys():
        raise BadInput(f"run {run_id} has no cell {', '.join(sorted(unknown))}: its page lists the names")
    equal = [name for name in planned if facts.get(name, {}).get("verdict") == "equal"]
    if wrong := set(names or ()) - set(equal):
        raise BadInput(
            f"not equal to the oracle: {', '.join(sorted(wrong))}; the gate measures only cells that are equal"
        )
    chosen = [name for name in equal if names is None or name in names]
    if not chosen:
        raise BadInput(f"run {run_id} has no cell that is equal to the oracle: there is nothing to measure")
    for name in chosen:
        if facts[name]["build"] != build:
            raise BadInput(
                f"run {run_id} is from build {facts[name]['build']}, but this checkout is build {build}: "
                "start a run of this checkout first"
            )
        if facts[name]["host"] not in (None, gethostname()):
            raise BadInput(
                f"{name} ran on host {facts[name]['host']}: use the gate on that host, or start a run here first"
            )
    return [planned[name] for name in chosen]


def paired(
    builds: dict[str, Build], spec: RunSpec, workload: Path, lot: str, budget: Budget = FOREVER
) -> list[dict[str, Any]]:
    """The pairs of one cell. They end early if results differ, a side fails, or passes are too short to measure.

    Raises:
        OutOfTime: The time of `budget` ended first.
    """
    draw = random.Random(digest_of(lot))
    pairs: list[dict[str, Any]] = []
    passes = FEWEST
    # Pair -1 does not count. It shows how long a pass takes, and caches the machine code.
    for number in range(-1, PAIRS):
        budget.check()
        order = ["baseline", "build"]
        if draw.random() < 0.5:
            order.reverse()
        row = {"pair": max(number, 0), "first": order[0], "passes": passes, "measured_at": datetime.now(UTC)}
        try:
            sides = {name: one_side(builds[name], spec, workload, passes) for name in order}
        except RunFailed as error:
            return [*pairs, row | {"error": str(error)}]
        seconds = [side.seconds for side in sides.values()]
        row |= {f"{name}_{what}": getattr(side, what) for name, side in sides.items() for what in ("seconds", "digest")}
        row |= {what: max(getattr(side, what) for side in sides.values()) for what in ("steal", "others")}
        if sides["baseline"].digest != sides["build"].digest or (number < 0 and min(seconds) < SHORTEST):
            return [*pairs, row]
        if number >= 0:
            pairs.append(row)
        else:
            passes = min(MOST, max(FEWEST, math.ceil(SECONDS / sum(seconds))))
    return pairs


def one_side(build: Build, spec: RunSpec, workload: Path, passes: int) -> Side:
    """Run some passes of a build over a workload, in a new process.

    Raises:
        RunFailed: The build fails, takes longer than `LONGEST`, or reads the spec in another way.
    """
    way = {"sink": "digest", "repetitions": passes, "seconds": 0.0, "rate": 0.0}
    requested = RunSpec.parse(spec.model_dump(mode="json") | way)
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="lockstep-gate-") as folder:
        file, out = Path(folder, "spec.json"), Path(folder, "run")
        write_json(file, requested.digest_content)
        command = build.command("run", str(file), "--input", str(workload), "--out", str(out))
        if code := _limited(command, lines.append, build.environment, folder):
            raise RunFailed(f"build {build.name}: {lines[-1] if lines else f'exit code {code} without a message'}")
        report = json.loads((out / "report.json").read_text())
    if report["spec_digest"] != requested.spec_digest:
        raise RunFailed(
            f"build {build.name} reads the specification of the cell in another way, so they cannot be compared"
        )
    first, *others = report["samples"]
    if {sample["digest"] for sample in others} != {first["digest"]}:
        raise RunFailed(f"build {build.name}: its passes have different results")
    return Side(
        statistics.median(sample["seconds"] for sample in others),
        f"{first['digest']} {report['state_digest']}",
        *(report["host"].get(name) or 0.0 for name in ("steal", "others")),
    )


def _limited(command: list[str], say: Callable[[str], None], environment: dict[str, str], folder: str) -> int:
    """Run a command, and end it after `LONGEST`; returns its exit code."""
    process, late = Process(), threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(LONGEST, end)
    timer.daemon = True
    timer.start()
    try:
        code = process.run(command, say, environment, folder, is_application=True)
    finally:
        timer.cancel()
    if late.is_set():
        say(f"it did not end within {LONGEST:.0f} s, so it was ended")
    return code
