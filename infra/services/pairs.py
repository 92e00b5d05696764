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
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from socket import gethostname
from typing import Any, NamedTuple

from infra.services.build import Build, checkout, environment
from infra.services.lock import host_in_use, of_host
from infra.services.process import Process
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


class Side(NamedTuple):
    """The measurement of one process: median seconds of a pass, digest of the results, the host's steal and others."""

    seconds: float
    digest: str
    steal: float
    others: float


def measure(
    home: Home, run_id: str, cells: list[dict], baseline: Build, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Measure cells of a run, as `cells_of` returns them, in this checkout and in the build of a commit.

    Returns:
        Rows of the raw table `pairs`, without `baseline_ref`.
    """
    builds = {"baseline": baseline, "build": checkout()}
    about = {
        "baseline": baseline.name,
        "build": builds["build"].name,
        "host": gethostname(),
        "baseline_environment": environment(baseline.name),
        "environment": environment(),
    }
    measured = []
    for number, cell in enumerate(cells, 1):
        say(f"measuring cell {number} of {len(cells)}: {cell['cell']}")
        spec = RunSpec.parse(cell["spec"])
        lock, owner = of_host(), f"gate {cell['cell']}"
        if not lock.take(owner):
            say(host_in_use(lock))
            lock.wait(owner)
        try:
            pairs = _pairs(builds, spec, home.workload(spec.app, cell["workload"]), f"{run_id} {cell['cell']}")
        finally:
            lock.leave()
        measured += [about | {"cell": cell["cell"]} | row for row in pairs]
    return measured


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


def _pairs(builds: dict[str, Build], spec: RunSpec, workload: Path, lot: str) -> list[dict[str, Any]]:
    """The pairs of one cell. They end early if results differ, a side fails, or passes are too short to measure."""
    draw = random.Random(digest_of(lot))
    pairs: list[dict[str, Any]] = []
    passes = FEWEST
    # Pair -1 does not count. It shows how long a pass takes, and caches the machine code.
    for number in range(-1, PAIRS):
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
        RunFailed: The build fails, or it reads the spec in another way.
    """
    way = {"sink": "digest", "repetitions": passes, "seconds": 0.0, "rate": 0.0}
    requested = RunSpec.parse(spec.model_dump(mode="json") | way)
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="lockstep-gate-") as folder:
        file, out = Path(folder, "spec.json"), Path(folder, "run")
        write_json(file, requested.digest_content)
        command = build.command("run", str(file), "--input", str(workload), "--out", str(out))
        if code := Process().run(command, lines.append, build.environment, folder, is_application=True):
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
