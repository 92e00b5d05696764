"""Profiles a cell of a run: this checkout and, if there is one, the build that the speed gate compares it with.

The DAG `profile_cell` runs `python -m infra.profile.cell RUN_ID CELL`.

A first process of each build stores the machine code, and shows how long a pass takes. Then as many passes as fill the
requested seconds run, once under `perf record` and once under `perf stat`. Where `perf` may not sample, the runtime's
own times of tasks take the place of samples.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from socket import gethostname
from typing import Any, NamedTuple

from infra import checkout
from infra.gate import suspects
from infra.gate.evaluation import chosen
from infra.gate.pairs import FEWEST, MOST, alone, report_of
from infra.hosts import build
from infra.hosts.build import Build, sigterm_raises
from infra.profile import perf
from jobs.run_folder import read_plan
from reports.history import revision, short
from reports.history.profile import Profile, Side
from reports.publish import publish
from streaming_core.errors import BadInput, unknown
from streaming_core.process import ending
from streaming_core.regression.fleet import is_of_engine
from streaming_core.regression.home import Home
from streaming_core.run.way import RunSpec

NAME = "profile"
SECONDS = 5.0


class Request(NamedTuple):
    """A request for a profile: the run, the cell's name, its way of executing, and the folder of its workload."""

    run_id: str
    cell: str
    spec: RunSpec
    workload: Path


def request(home: Home, cell: str, run_id: str | None) -> Request:
    """Check a request before anything is built.

    Args:
        home: LOCKSTEP_HOME.
        cell: the name of the cell.
        run_id: its run; None: the newest run.

    Raises:
        BadInput: there is no such run or cell, another engine ran the cell, or its workload is gone.
    """
    run_id = chosen(home, run_id)
    cells = {cell["cell"]: cell for cell in read_plan(home, run_id)["cells"]}
    if cell not in cells:
        raise BadInput(f"run {run_id}: {unknown('cell', cell, list(cells))}")
    if not is_of_engine(cells[cell]):
        raise BadInput(f"{cell} ran on another engine; a profile shows Lockstep's engine only: name another cell")
    spec = RunSpec.parse(cells[cell]["spec"] | {"faults": ""})  # what an injected fault costs is no cost of an operator
    workload = home.workload(spec.app, cells[cell]["workload"])
    if not workload.is_dir():
        raise BadInput(f"the workload of {cell} was removed: run its application again")
    return Request(run_id, cell, spec, workload)


def profile(
    home: Home,
    requested: Request,
    against: str | None,
    seconds: float,
    say: Callable[[str], None],
) -> Profile:
    """Measure the profile of a cell, save it, and publish the pages of its run.

    Args:
        home: LOCKSTEP_HOME.
        requested: the cell.
        against: a branch, a tag or a commit; None: the build of the last green night, if there is another one.
        seconds: the time that the passes of each measurement fill.
        say: takes lines on the progress.

    Raises:
        BadInput: there is no such commit.
        RunFailed: a build fails, or the commit does not compile.
    """
    reason, baseline = "", None
    try:
        reference = suspects.find_reference(home, requested.run_id, against or "")
        label = revision(reference.ref, reference.commit)
        baseline = build.at_commit(home, reference.commit, label, say)
    except suspects.NotJudged as error:
        if against:
            raise BadInput(str(error)) from None
        reason = str(error)
    fallback = perf.obstacle()
    if fallback:
        say(f"{fallback}; the profile shows the runtime's own times instead")
    with sigterm_raises(), alone(f"{NAME} {requested.cell}", say):
        current = measure(build.checkout(), requested.spec, requested.workload, seconds, not fallback, say)
        earlier = baseline and measure(baseline, requested.spec, requested.workload, seconds, not fallback, say)
    result = Profile(
        run_id=requested.run_id,
        cell=requested.cell,
        host=gethostname(),
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        build=current,
        baseline=earlier,
        fallback=fallback,
        alone=reason,
    )
    result.save(home.cell(requested.run_id, requested.cell))
    publish(home, requested.run_id)
    return result


def measure(
    of: Build, spec: RunSpec, workload: Path, seconds: float, has_perf: bool, say: Callable[[str], None]
) -> Side:
    """The profile of one build.

    Args:
        of: the build.
        spec: the way of executing.
        workload: the folder of the workload.
        seconds: the time that the passes fill.
        has_perf: whether `perf` can sample.
        say: takes lines on the progress.

    Raises:
        RunFailed: the build fails, or its passes have different results.
    """
    say(f"profiling build {short(of.name)}")
    took = report_of(of, spec, workload, 1)["samples"][-1]["seconds"]  # this process also stores the machine code
    passes = max(FEWEST, min(MOST, math.ceil(seconds / took) if took else FEWEST))
    if not has_perf:
        report = report_of(of, spec, workload, passes)
        return _side(of, report, tasks(report), None, {})
    report, samples = perf.sampled(of, spec, workload, passes)
    counters = perf.per_event(*(perf.counted(of, spec, workload, number) for number in (1, passes)))
    nanoseconds = 1e9 / perf.HERTZ / max(1, perf.events_of(report))
    stacks = {";".join(stack): number * nanoseconds for stack, number in sorted(samples.items())}
    return _side(of, report, stacks, sum(samples.values()), counters)


def _side(
    of: Build, report: dict[str, Any], stacks: dict[str, float], samples: int | None, counters: dict[str, float | None]
) -> Side:
    passes = report["samples"]
    seconds = statistics.median(pass_["seconds"] for pass_ in passes[1:])
    return Side(of.name, passes[0]["events"], len(passes), seconds, samples, stacks, counters)


def tasks(report: dict[str, Any]) -> dict[str, float]:
    """The runtime's own times in the median pass, as stacks: of its tasks, else of its kinds of work."""
    passes = sorted(report["samples"][1:], key=lambda pass_: pass_["seconds"])
    sample = passes[len(passes) // 2]
    events = max(1, sample["events"])
    if not sample.get("tasks"):
        return {f"runtime;{kind}": 1e9 * seconds / events for kind, seconds in sample["breakdown"].items() if seconds}
    stacks: dict[str, float] = {}
    for task in sample["tasks"]:
        for stack, value in (
            (f"operators;{task['operator']};{task['role']}", task["execute_ns"]),
            (f"runtime;hand on rows;{task['operator']}", task["others_ns"]),
        ):
            stacks[stack] = stacks.get(stack, 0.0) + value / events
    return {stack: value for stack, value in stacks.items() if value}


def main() -> int:
    """Profile the cell that the command line names, and print the path of its page."""
    parser = argparse.ArgumentParser(prog=NAME, description=__doc__)
    parser.add_argument("run_id", help="the run")
    parser.add_argument("cell", help="the name of the cell")
    parser.add_argument("--against", help="the commit to compare with")
    options = parser.parse_args()
    home = checkout.home()
    profile(home, request(home, options.cell, options.run_id), options.against or None, SECONDS, print)
    return 0


if __name__ == "__main__":
    ending.end(NAME, main)
