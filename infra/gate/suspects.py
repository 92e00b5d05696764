"""The speed gate after a night: chooses the cells to compare with an earlier build, and measures them.

It is a stage of every run (`python -m infra.gate.suspects --run RUN_ID`), unless the field `gate_minutes` of the
request is 0; the field limits its time. The reference is the build of the last green night, or the commit in
`gate_against`. The cells are measured in this order, until the time ends:

1. Cells of applications whose source, loop or workload changed since the reference.
2. Cells whose ratio to the loop moved beyond the noise of their series.
3. The other cells; those that the gate judged longest ago come first, so every cell is reached.

A cell of the first two kinds that is not measured is kept as *not judged*, with the reason. If there is nothing to
compare with, runs/<run id>/gate.json has the reason.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from socket import gethostname
from typing import Any, NamedTuple

from infra import checkout
from infra.gate import evaluation, measurement
from infra.gate.measurement import Place
from infra.gate.pairs import Budget
from infra.hosts import build
from infra.hosts.build import Build
from jobs.run_folder import read_plan
from reports.history import History, revision, short, started
from reports.history.gate import note_path
from reports.history.speed import JUDGED
from reports.publish import publish
from streaming_core.errors import BadInput, RunFailed
from streaming_core.process import ending
from streaming_core.regression import warehouse
from streaming_core.regression.comparable import is_nightly
from streaming_core.regression.fleet import is_of_engine
from streaming_core.regression.home import Home
from streaming_core.regression.plan import PlannedCell
from streaming_core.storage import digest_of, left_json, write_json

NAME = "suspects"
MOVED = 3.0  # times the noise of a series that a ratio lies from its level


class NotJudged(Exception):
    """There is nothing to compare with; the text says why, and what to do."""


class Suspect(NamedTuple):
    """A cell to measure, as planned, and why: `source`, `moved` or `sample`."""

    cell: PlannedCell
    why: str


class Reference(NamedTuple):
    """The build that cells are compared with: ref and hash of a commit, and the last green night, if one exists."""

    ref: str
    commit: str
    night: str | None


def work(home: Home, run_id: str, say: Callable[[str], None] = print) -> str:
    """Measure the suspects of a run, rebuild the marts and publish its pages.

    Returns:
        The sentence about the speed of the run's cells beside the reference.
    """
    plan = read_plan(home, run_id)
    minutes, against = plan["regression"]["gate_minutes"], plan["regression"]["gate_against"]
    note_path(home, run_id).unlink(missing_ok=True)
    note = ""
    try:
        reference = find_reference(home, run_id, against)
        baseline = _built(home, reference, say)
        label = against or short(reference.commit)
        remedy = f"raise gate_minutes, or type `lockstep gate --against {label} {run_id}`"
        reason = f"the {minutes:g} minutes of the speed gate ended before its turn; {remedy}"
        budget = Budget(time.monotonic() + 60 * minutes, reason)
        suspects = choose(home, run_id, plan["cells"], reference, baseline)
        rows = measure(home, run_id, suspects, baseline, budget, say)
        if not rows:
            return "no cell was measured: none equals the oracle, or the time was too short"
        evaluation.keep(home, run_id, reference.ref, rows, say)
    except NotJudged as error:
        note = f"not judged: {error}"
        write_json(note_path(home, run_id), {"note": str(error)})
    run = publish(home, run_id)
    return note or run.gate_sentence


def find_reference(home: Home, run_id: str, against: str) -> Reference:
    """The build to compare with.

    Args:
        home: LOCKSTEP_HOME.
        run_id: the run to judge.
        against: a branch, a tag or a commit; empty means the build of the last green night.

    Raises:
        NotJudged: no commit holds that build, or the engine has not changed since.
    """
    night = last_green_night(home, run_id)
    try:
        if against:
            return Reference(against, build.resolve(against), night)
        if night is None:
            raise NotJudged("no earlier night is green; name a commit in gate_against")
        name = _build_of(home, night)
        if name.endswith("-dirty"):
            raise NotJudged(
                f"the last green night, {started(night)}, ran build {short(name)}, which no commit holds; "
                "commit before the night"
            )
        commit = build.resolve(name)
    except BadInput as error:
        raise NotJudged(str(error)) from None
    if build.is_engine_of(commit):
        raise NotJudged(
            f"the engine is the same as in the last green night, build {short(name)}; to compare with an older build, "
            f"type `lockstep gate --against REF {run_id}`"
        )
    return Reference(commit, commit, night)


def last_green_night(home: Home, run_id: str) -> str | None:
    """The newest green nightly before a run."""
    history = History(home)
    for earlier in reversed(history.run_ids()):
        if earlier < run_id and is_nightly(history.plan(earlier)):
            summary = left_json(home.report(earlier, "summary.json"))
            if summary["green"] if summary else history.run(earlier).green:
                return earlier
    return None


def choose(home: Home, run_id: str, cells: list[PlannedCell], reference: Reference, baseline: Build) -> list[Suspect]:
    """Those of a run's planned cells that equal the oracle, in the order in which the gate measures them."""
    facts = _facts(home, run_id)
    before = _facts(home, reference.night) if reference.night else {}
    history = History(home)
    speeds = {row["cell"]: row for row in history.mart("speed") if row["run_id"] == run_id}
    judged: dict[str, str] = {}
    for row in history.mart("gate"):
        if row["verdict"] in JUDGED:
            judged[row["cell"]] = max(row["run_id"], judged.get(row["cell"], ""))
    suspects, current = [], build.checkout().tree
    for cell in cells:
        name = cell["cell"]
        # The gate measures builds of the engine, which does not run cells of executor spark.
        if facts.get(name, {}).get("verdict") != "equal" or not is_of_engine(cell):
            continue
        is_edited = _source(baseline.tree, cell) != _source(current, cell)
        changed = is_edited or _is_changed(facts[name], before.get(name))
        reason = "source" if changed else "moved" if _is_moved(speeds.get(name)) else "sample"
        suspects.append(Suspect(cell, reason))
    order = ("source", "moved", "sample")

    def rank(suspect: Suspect) -> tuple[int, str, str]:
        name = suspect.cell["cell"]
        return order.index(suspect.why), judged.get(name, ""), digest_of([run_id, name])

    return sorted(suspects, key=rank)


def measure(
    home: Home, run_id: str, suspects: list[Suspect], baseline: Build, budget: Budget, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Rows of the raw table `pairs` for all suspects but samples whose turn did not come."""
    facts, ran = _facts(home, run_id), measurement.places(home, run_id)
    why = {suspect.cell["cell"]: suspect.why for suspect in suspects}
    shared = measurement.identity(baseline)
    reasons = {name: _obstacle(facts[name], ran[name], shared["build"]) for name in why}
    for suspect in suspects:
        if _source(baseline.tree, suspect.cell) is None:
            reasons[suspect.cell["cell"]] = (
                f"build {short(baseline.name)} has no application {suspect.cell['spec']['app']}"
            )
    rows = [
        measurement.unmeasured(shared | {"host": ran[name].machine}, name, reason)
        for name, reason in reasons.items()
        if reason
    ]
    cells = [suspect.cell for suspect in suspects if not reasons[suspect.cell["cell"]]]
    rows += measurement.measure(home, run_id, cells, baseline, say, budget)
    return [row for row in rows if why[row["cell"]] != "sample" or row.get("error") != budget.reason]


def _obstacle(row: dict, place: Place, current: str) -> str:
    """The reason why a cell cannot be measured; empty if it can."""
    if not measurement.is_within_reach(place):
        here = gethostname()
        return f"it ran on host {place.machine}, and this is {here}; run `lockstep gate` on that host"
    if row["build"] != current:
        return f"it ran build {short(row['build'])}, but this checkout is build {short(current)}; run it again"
    return ""


def _built(home: Home, reference: Reference, say: Callable[[str], None]) -> Build:
    try:
        return build.at_commit(home, reference.commit, revision(reference.ref, reference.commit), say)
    except RunFailed as error:
        raise NotJudged(str(error)) from None


def _facts(home: Home, run_id: str) -> dict[str, dict]:
    return {row["cell"]: row for row in warehouse.rows(home, "cells", run_id) or []}


def _build_of(home: Home, run_id: str) -> str:
    return next((row["build"] for row in _facts(home, run_id).values() if row["build"]), "unknown")


def _is_changed(row: dict, before: dict | None) -> bool:
    """Whether the loop or the workload of a cell changed, which begins another epoch of its series."""
    if before is None or before["host"] != row["host"]:
        return False
    return any(row[name] != before[name] for name in ("yardstick", "workload_address") if before[name])


def _source(tree: Path, cell: PlannedCell) -> bytes | None:
    """The source of a cell's application; None if there is none."""
    files = (tree / build.PACKAGE / "apps").rglob(f"{cell['spec']['app']}.py")  # a suite is a folder
    return next((file.read_bytes() for file in files), None)


def _is_moved(row: dict | None) -> bool:
    """Whether the ratio of a cell lies beyond the noise of its series. `row`: its row of the mart `speed`."""
    if row is None or not row["to_loop"] or not row["level"] or not row["noise"]:
        return False
    return abs(math.log(row["to_loop"] / row["level"])) > MOVED * row["noise"]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the suspects of a run, and print the verdict in one sentence."""
    parser = argparse.ArgumentParser(prog=NAME, description=main.__doc__)
    parser.add_argument("--run", required=True, metavar="RUN_ID", help="the run whose cells are measured")
    print(work(checkout.home(), parser.parse_args(argv).run))
    return 0


if __name__ == "__main__":
    ending.end(NAME, main)
