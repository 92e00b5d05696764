"""Measures a cell in two builds, this one and the baseline, in pairs of processes on this host.

The two processes of a pair run one right after the other, in random order. Differences between processes, such as their
memory layout, then count as noise of a pair, not as a difference between the builds. If the builds are equally fast,
each pair favours either side with the same probability, whatever else the machine does. This makes the probability of a
false alarm computable (docs/explanation/speed-verdicts.md).

The module is also a program for other hosts, a part of every wheel (wheel.py):

    python -m infra.gate.pairs REQUEST

REQUEST is the JSON of `Request`. The program prints lines of JSON: {"say": a line for people}, and {} now and then.
The last line is {"pairs": the rows}, with null if the time ended first. The program stops when its input ends: the
kernel closes that with the connection.
"""

from __future__ import annotations

import json
import math
import os
import random
import select
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from infra.hosts.build import Build, sigterm_raises
from streaming_core.errors import BadInput, RunFailed
from streaming_core.process import Process, ending, time_limit
from streaming_core.regression.lock import hold, of_host
from streaming_core.run.way import RunSpec
from streaming_core.run.yardstick import SHORTEST
from streaming_core.storage import digest_of, write_json

PAIRS = 32  # of a cell; jobs/gate.py has the ranks for this number
SECONDS = 1.0  # that all passes of a pair take together
MOST = 100  # passes of a process (RunSpec.repetitions)
FEWEST = 3
LONGEST = 600.0  # seconds of a process
BEAT_SECONDS = 10.0  # between two signs of life to another host


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


class Request(NamedTuple):
    """A cell to measure on another host. Paths are those of that host.

    Attributes:
        cell: The name of the cell.
        spec: Its specification.
        workload: The folder of its workload.
        lot: The seed of the order.
        seconds: The time for the measurement; None if it has no end.
        wrapper: Words before the command of the engine.
        builds: `baseline` and `build`, each with its name and its folder.
    """

    cell: str
    spec: dict[str, Any]
    workload: str
    lot: str
    seconds: float | None
    wrapper: list[str]
    builds: dict[str, tuple[str, str]]


class Side(NamedTuple):
    """The measurement of one process: median seconds of a pass, digest of the results, the host's steal and others."""

    seconds: float
    digest: str
    steal: float
    others: float


@contextmanager
def alone(owner: str, say: Callable[[str], None], budget: Budget = FOREVER, run_id: str = "") -> Iterator[None]:
    """Hold the lock on this host during the block, for a run if there is one; wait until it is free.

    Raises:
        OutOfTime: The time of `budget` ended first.
    """
    with hold(of_host(), owner, False, say, budget.check, run_id):
        yield


def paired(
    builds: dict[str, Build],
    spec: RunSpec,
    workload: Path,
    lot: str,
    budget: Budget = FOREVER,
    wrapper: Sequence[str] = (),
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
            sides = {name: one_side(builds[name], spec, workload, passes, wrapper) for name in order}
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


def one_side(build: Build, spec: RunSpec, workload: Path, passes: int, wrapper: Sequence[str] = ()) -> Side:
    """Run some passes of a build over a workload, in a new process; raises as `report_of`."""
    report = report_of(build, spec, workload, passes, wrapper)
    first, *others = report["samples"]
    return Side(
        statistics.median(sample["seconds"] for sample in others),
        f"{first['digest']} {report['state_digest']}",
        *(report["host"].get(name) or 0.0 for name in ("steal", "others")),
    )


def report_of(build: Build, spec: RunSpec, workload: Path, passes: int, wrapper: Sequence[str] = ()) -> dict[str, Any]:
    """The report of some passes of a build over a workload, in a new process.

    Args:
        build: The build.
        spec: The way of executing; its sink, rate and repetitions do not count.
        workload: The folder of the workload.
        passes: Passes that are measured, after a first one.
        wrapper: Words before the command of the engine.

    Raises:
        RunFailed: The build fails, takes longer than `LONGEST`, or reads the spec in another way.
    """
    way = {"sink": "digest", "repetitions": passes, "seconds": 0.0, "rate": 0.0}
    requested = RunSpec.parse(spec.model_dump(mode="json") | way)
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="lockstep-gate-") as folder:
        file, out = Path(folder, "spec.json"), Path(folder, "run")
        write_json(file, requested.digest_content)
        command = [*wrapper, *build.command("run", str(file), "--input", str(workload), "--out", str(out))]
        if code := _limited(command, lines.append, build.environment, folder):
            raise RunFailed(f"build {build.name}: {lines[-1] if lines else f'exit code {code} without a message'}")
        report = json.loads((out / "report.json").read_text())
    if report["spec_digest"] != requested.spec_digest:
        raise RunFailed(
            f"build {build.name} reads the specification of the cell in another way, so they cannot be compared"
        )
    if len({sample["digest"] for sample in report["samples"]}) > 1:
        raise RunFailed(f"build {build.name}: its passes have different results")
    return report


def _limited(command: list[str], say: Callable[[str], None], environment: dict[str, str], folder: str) -> int:
    """Run a command, and end it after `LONGEST`; returns its exit code."""
    process = Process()
    with time_limit(LONGEST, process.kill) as is_late:
        code = process.run(command, say, environment, folder, is_application=True)
    if is_late.is_set():
        say(f"it did not end within {LONGEST:.0f} s, so it was ended")
    return code


class _Caller:
    """The host that waits for this program."""

    def __init__(self) -> None:
        self._printing = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def tell(self, **message: Any) -> None:
        """Print a line of JSON."""
        with self._printing:
            print(json.dumps(message, default=str), flush=True)

    def _watch(self) -> None:
        """Tell the caller that this program lives, until the connection ends; then end this program."""
        while not select.select([0], [], [], BEAT_SECONDS)[0] or os.read(0, 4096):
            self.tell()
        os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """Measure the cell of a request on this host."""
    request = Request(**json.loads(sys.argv[1]))
    if not Path(request.workload).is_dir():
        raise BadInput(f"{request.workload} is missing there: mount LOCKSTEP_HOME, or run the cell again")
    budget = FOREVER if request.seconds is None else Budget(time.monotonic() + request.seconds, "")
    builds = {side: Build(name, Path(tree)) for side, (name, tree) in request.builds.items()}
    spec, rows = RunSpec.parse(request.spec), None
    caller = _Caller()
    try:
        with sigterm_raises(), alone(f"gate {request.lot}", lambda line: caller.tell(say=line), budget):
            rows = paired(builds, spec, Path(request.workload), request.lot, budget, request.wrapper)
    except OutOfTime:
        pass
    caller.tell(pairs=rows)
    return 0


if __name__ == "__main__":
    ending.end("pairs", main)
