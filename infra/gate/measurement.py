"""Measures cells of a run in pairs (pairs.py), each on the machine that ran it.

This process measures the cells of this machine. For a cell of another one, the program infra/gate/remote_pairs.py finds
the connection, brings both builds there, and measures there.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from socket import gethostname
from typing import Any, NamedTuple

from infra.checkout import ROOT
from infra.gate.pairs import FOREVER, Budget, OutOfTime, Request, alone, paired
from infra.hosts.build import Build, checkout, environment
from jobs.run_folder import read_plan
from streaming_core.errors import BadInput
from streaming_core.process import Process
from streaming_core.regression.fleet import claims, is_of_engine
from streaming_core.regression.home import Home
from streaming_core.regression.plan import PlannedCell
from streaming_core.regression.preflight import preflights_of
from streaming_core.regression.warehouse import rows
from streaming_core.run.way import RunSpec

UNMEASURED = -1  # the number of the pair in the row of a cell that was not measured
PROGRAM = "infra.gate.remote_pairs"


class Unreachable(Exception):
    """The host of a cell cannot measure it; the text says why, and what to do."""


class Place(NamedTuple):
    """The machine that ran a cell, as it names itself; and its connection, if it is another machine."""

    machine: str
    connection: str | None


def places(home: Home, run_id: str) -> dict[str, Place]:
    """The place of each cell of a run; {} before the results are loaded."""
    elsewhere = {preflight.host for preflight in preflights_of(home, run_id) if preflight.is_remote}
    ran = {cell: claim.host for cell, claim in claims(home, run_id).items() if claim.host in elsewhere}
    facts = rows(home, "cells", run_id) or []
    return {row["cell"]: Place(row["host"] or gethostname(), ran.get(row["cell"])) for row in facts}


def is_within_reach(place: Place) -> bool:
    """Whether this machine can measure a cell that ran there."""
    return place.connection is not None or place.machine == gethostname()


def measure(
    home: Home,
    run_id: str,
    cells: list[PlannedCell],
    baseline: Build,
    say: Callable[[str], None],
    budget: Budget = FOREVER,
) -> list[dict[str, Any]]:
    """Measure cells of a run, as `cells_of` returns them, in this checkout and in the build of a commit.

    It measures a cell whole or not at all. Once the time that is left is less than the longest cell took, it begins no
    other. A host that cannot measure one cell gets no other one.

    Returns:
        Rows of the raw table `pairs`, without `baseline_ref`. A cell that was not measured has one row, `unmeasured`.
    """
    builds = {"baseline": baseline, "build": checkout()}
    shared, ran, unreachable = identity(baseline), places(home, run_id), dict[str, str]()
    measured, longest = [], 0.0
    for number, cell in enumerate(cells, 1):
        name, began = cell["cell"], time.monotonic()
        place = ran[name]
        about = shared | {"host": place.machine}
        host = place.connection or ""
        try:
            if began + longest > budget.ends:
                raise OutOfTime
            if host in unreachable:
                raise Unreachable(unreachable[host])
            say(f"measuring cell {number} of {len(cells)}: {name}{f', on host {host}' if host else ''}")
            if host:
                pairs = _elsewhere(home, run_id, cell, place, builds, say, budget)
            else:
                spec = RunSpec.parse(cell["spec"])
                workload = home.workload(spec.app, cell["workload"])
                with alone(f"gate {name}", say, budget, run_id):
                    pairs = paired(builds, spec, workload, f"{run_id} {name}", budget)
        except OutOfTime:
            measured.append(unmeasured(about, name, budget.reason))
            continue
        except Unreachable as error:
            unreachable[host] = str(error)
            say(str(error))
            measured.append(unmeasured(about, name, str(error)))
            continue
        if "error" in pairs[-1] and (reason := _gone(home, cell, baseline)):
            measured.append(unmeasured(about, name, reason))
            continue
        longest = max(longest, time.monotonic() - began)
        measured += [about | {"cell": name} | row for row in pairs]
    return measured


def _elsewhere(
    home: Home,
    run_id: str,
    cell: PlannedCell,
    place: Place,
    builds: dict[str, Build],
    say: Callable[[str], None],
    budget: Budget,
) -> list[dict[str, Any]]:
    """The pairs of a cell of another machine.

    Raises:
        OutOfTime: The time of `budget` ended first.
        Unreachable: The host cannot measure the cell.
    """
    name, left = cell["cell"], budget.ends - time.monotonic()
    workload = str(home.workload(cell["spec"]["app"], cell["workload"]))
    sides = {side: (build.name, str(build.tree)) for side, build in builds.items()}
    seconds = None if math.isinf(left) else left
    request = Request(name, cell["spec"], workload, f"{run_id} {name}", seconds, [], sides)
    answers: list[list[dict[str, Any]] | None] = []
    last = [""]

    def hear(line: str) -> None:
        last[0] = line or last[0]
        try:
            message = json.loads(line)
        except ValueError:  # Airflow and its libraries print other lines
            return
        if isinstance(message, dict) and "say" in message:
            say(f"host {place.connection}: {message['say']}")
        elif isinstance(message, dict) and "pairs" in message:
            answers.append(message["pairs"])

    arguments = [str(place.connection), place.machine, json.dumps(request._asdict())]
    code = Process().run([sys.executable, "-m", PROGRAM, *arguments], hear, {"LOCKSTEP_HOME": str(home.root)}, ROOT)
    if code or not answers:
        reason = last[0].removeprefix("pairs: ") or f"exit code {code} without a message"
        raise Unreachable(f"host {place.connection} cannot measure it: {reason}")
    if answers[0] is None:
        raise OutOfTime
    return [row | {"measured_at": datetime.fromisoformat(row["measured_at"])} for row in answers[0]]


def _gone(home: Home, cell: PlannedCell, baseline: Build) -> str:
    """The files that another command removed meanwhile; empty if none. This process holds no lock on LOCKSTEP_HOME."""
    workload = home.workload(cell["spec"]["app"], cell["workload"])
    lost = [str(path) for path in (workload, baseline.tree) if not path.is_dir()]
    return f"{lost[0]} was removed during the measurement; run the cells again" if lost else ""


def identity(baseline: Build) -> dict[str, Any]:
    """The columns of the raw table `pairs` that all rows of a measurement share."""
    return {
        "baseline": baseline.name,
        "build": checkout().name,
        "baseline_environment": environment(baseline.name),
        "environment": environment(),
    }


def unmeasured(about: dict[str, Any], cell: str, reason: str) -> dict[str, Any]:
    """The row of a cell that was to be measured, and was not; `about` is `identity` with the host."""
    return about | {"cell": cell, "pair": UNMEASURED, "error": reason, "measured_at": datetime.now(UTC)}


def cells_of(home: Home, run_id: str, names: list[str] | None) -> list[PlannedCell]:
    """The cells of a run to measure, as planned: all that equal the oracle, or the named ones. None ran on Spark.

    Raises:
        BadInput: The run is from another build, or a cell is missing, not equal to the oracle, or ran on another
            engine. Or no connection leads to the machine that ran it.
    """
    build = checkout().name
    facts = {row["cell"]: row for row in rows(home, "cells", run_id) or []}
    planned = {cell["cell"]: cell for cell in read_plan(home, run_id)["cells"]}
    if unknown := set(names or ()) - planned.keys():
        raise BadInput(f"run {run_id} has no cell {', '.join(sorted(unknown))}: its page lists the names")
    if others := [name for name in names or () if not is_of_engine(planned[name])]:
        raise BadInput(
            f"the gate measures Lockstep's engine, but {', '.join(sorted(others))} ran on another one; name other cells"
        )
    planned = {name: cell for name, cell in planned.items() if is_of_engine(cell)}
    equal = [name for name in planned if facts.get(name, {}).get("verdict") == "equal"]
    if wrong := set(names or ()) - set(equal):
        raise BadInput(
            f"not equal to the oracle: {', '.join(sorted(wrong))}; the gate measures only cells that are equal"
        )
    chosen = [name for name in equal if names is None or name in names]
    if not chosen:
        raise BadInput(f"run {run_id} has no cell that is equal to the oracle: there is nothing to measure")
    ran = places(home, run_id)
    for name in chosen:
        if facts[name]["build"] != build:
            raise BadInput(
                f"run {run_id} is from build {facts[name]['build']}, but this checkout is build {build}: "
                "start a run of this checkout first"
            )
        if not is_within_reach(ran[name]):
            raise BadInput(
                f"{name} ran on host {ran[name].machine}: use the gate on that host, or start a run here first"
            )
    return [planned[name] for name in chosen]
