"""Measures passes of this checkout and of the build of another commit, the baseline, in pairs, on this host.

Both sides of a pair are processes of their own, one right after the other: what differs from process to process, as
where its memory lies, is noise of the pair and no difference between the builds. Lots say which of them is first. So,
if the builds are the same, each pair is as likely to speak for the one as for the other, whatever the machine does, and
the chance to accuse one of them can be counted (docs/explanation/speed-verdicts.md).
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
from infra.services.lock import of_host
from infra.services.process import Process
from jobs.run_folder import read_plan
from streaming_core.errors import BadInput, RunFailed
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import rows
from streaming_core.run.way import RunSpec
from streaming_core.run.yardstick import SHORTEST
from streaming_core.storage import digest_of, write_json

PAIRS = 32  # of a cell; the ranks in dbt/macros/gate.sql are of so many
SECONDS = 1.0  # of passes, on both sides of a pair together
MOST = 100  # passes of a run (RunSpec.repetitions)
FEWEST = 3


class Side(NamedTuple):
    """What one build's process of a pair has shown: median seconds of a pass, digest of its results, steal, others."""

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
    found = []
    for number, cell in enumerate(cells, 1):
        say(f"{number} of {len(cells)}: {cell['cell']}")
        spec = RunSpec.parse(cell["spec"])
        lock, owner = of_host(), f"gate {cell['cell']}"
        if not lock.take(owner):
            say(f"waiting for the host: {(lock.holder() or '').strip() or 'another core run'} is running")
            lock.wait(owner)
        try:
            made = _pairs(builds, spec, home.workload(spec.app, cell["workload"]), f"{run_id} {cell['cell']}")
        finally:
            lock.leave()
        found += [about | {"cell": cell["cell"]} | row for row in made]
    return found


def cells_of(home: Home, run_id: str, names: list[str] | None) -> list[dict]:
    """The cells of a run to measure, as planned: all that equal the oracle, or the named ones.

    Raises:
        BadInput: the run is another build's or another host's, or a cell is missing or does not equal the oracle.
    """
    build = checkout().name
    facts = {row["cell"]: row for row in rows(home, "cells", run_id) or []}
    planned = {cell["cell"]: cell for cell in read_plan(home, run_id)["cells"]}
    if unknown := set(names or ()) - planned.keys():
        raise BadInput(f"run {run_id} has no cell {', '.join(sorted(unknown))}")
    equal = [name for name in planned if facts.get(name, {}).get("verdict") == "equal"]
    if wrong := set(names or ()) - set(equal):
        raise BadInput(f"{', '.join(sorted(wrong))}: speed is compared of cells that equal the oracle")
    chosen = [name for name in equal if names is None or name in names]
    if not chosen:
        raise BadInput(f"no cell of run {run_id} equals the oracle")
    for name in chosen:
        if facts[name]["build"] != build:
            raise BadInput(f"run {run_id} is of build {facts[name]['build']}, this checkout is {build}: run it first")
        if facts[name]["host"] not in (None, gethostname()):
            raise BadInput(f"{name} ran on {facts[name]['host']}: pairs are measured on this host")
    return [planned[name] for name in chosen]


def _pairs(builds: dict[str, Build], spec: RunSpec, workload: Path, lot: str) -> list[dict[str, Any]]:
    """One cell's pairs. What cannot be compared ends them early: results that differ, a side that fails, passes that
    are too short."""
    draw = random.Random(digest_of(lot))
    made: list[dict[str, Any]] = []
    passes = FEWEST
    # The one before the first does not count: it says how long a pass is, and leaves machine code to be loaded.
    for number in range(-1, PAIRS):
        order = ["baseline", "build"]
        if draw.random() < 0.5:
            order.reverse()
        row = {"pair": max(number, 0), "first": order[0], "passes": passes, "measured_at": datetime.now(UTC)}
        try:
            sides = {name: one_side(builds[name], spec, workload, passes) for name in order}
        except RunFailed as error:
            return [*made, row | {"error": str(error)}]
        seconds = [side.seconds for side in sides.values()]
        row |= {f"{name}_{what}": getattr(side, what) for name, side in sides.items() for what in ("seconds", "digest")}
        row |= {what: max(getattr(side, what) for side in sides.values()) for what in ("steal", "others")}
        if sides["baseline"].digest != sides["build"].digest or (number < 0 and min(seconds) < SHORTEST):
            return [*made, row]
        if number >= 0:
            made.append(row)
        else:
            passes = min(MOST, max(FEWEST, math.ceil(SECONDS / sum(seconds))))
    return made


def one_side(build: Build, spec: RunSpec, workload: Path, passes: int) -> Side:
    """Some passes of a build over a workload, in a process of its own.

    Raises:
        RunFailed: the build does not do that, or takes the spec for something else.
    """
    way = {"sink": "digest", "repetitions": passes, "seconds": 0.0, "rate": 0.0}
    asked = RunSpec.parse(spec.model_dump(mode="json") | way)
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="lockstep-gate-") as folder:
        file, out = Path(folder, "spec.json"), Path(folder, "run")
        write_json(file, asked.digest_content)
        command = build.command("run", str(file), "--input", str(workload), "--out", str(out))
        if code := Process().run(command, lines.append, build.environment, folder):
            raise RunFailed(f"build {build.name}: {lines[-1] if lines else f'exit code {code} without a word'}")
        report = json.loads((out / "report.json").read_text())
    if report["spec_digest"] != asked.spec_digest:
        raise RunFailed(f"build {build.name}: the same words mean another way of executing to it")
    first, *others = report["samples"]
    if {sample["digest"] for sample in others} != {first["digest"]}:
        raise RunFailed(f"build {build.name}: its passes differ from each other")
    return Side(
        statistics.median(sample["seconds"] for sample in others),
        f"{first['digest']} {report['state_digest']}",
        *(report["host"].get(name) or 0.0 for name in ("steal", "others")),
    )
