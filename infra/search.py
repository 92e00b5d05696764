"""The search for faults after a run: it makes the run's red cells small, then searches the applications of the run.

It is a stage of every run (`python -m infra.search --run RUN_ID`), unless the field `find_minutes` of the request is 0.
The field limits its time. It works in this order:

1. Cells whose result differs, one of each application first, in at most half of the time. `<cell>/shrunk` gets the
   folder of the small case, as that of a find.
2. Applications, those searched longest ago first. As many as get LEAST seconds each share the rest of the time.
3. Earlier finds of the other applications, which are only tried again.

A find that shows is a row of the raw table `finds`, and counts as a red cell. Rows are written after each application,
so a search that is killed loses at most one application's. Like a cell, each step waits until the host is free.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from infra.gate.pairs import Budget, OutOfTime, alone
from jobs.command import run_stage
from jobs.invariants import beside
from jobs.raw import write_raw
from jobs.run_folder import read_plan
from reports.publish import publish
from streaming_core import interruption
from streaming_core.apps import registry
from streaming_core.data.parts import Parts
from streaming_core.errors import BadInput
from streaming_core.process import ending
from streaming_core.regression import warehouse
from streaming_core.regression.fleet import is_of_engine
from streaming_core.regression.home import Home
from streaming_core.regression.lock import hold, of_home, of_warehouse
from streaming_core.regression.plan import PlannedCell
from streaming_core.regression.verdict import find_cell
from streaming_core.run.way import RunSpec
from streaming_core.search import corpus, find, search, shrinking
from streaming_core.search.case import Case
from streaming_core.search.find import SHRUNK, Find
from streaming_core.search.laboratory import Laboratory
from streaming_core.storage import canonical_json, left_json

NAME = "search"
LEAST = 30.0  # seconds of a search
TRIALS = 50  # of a red cell, until it differs again


def work(home: Home, run_id: str, say: Callable[[str], None] = print) -> str:
    """Make red cells small, search applications, and publish the pages of the run.

    Returns:
        A sentence about what was tried.
    """
    plan = read_plan(home, run_id)
    began, seconds = time.monotonic(), 60 * plan["regression"]["find_minutes"]
    shrink_cells(home, run_id, plan["cells"], Budget(began + seconds / 2, ""), say)
    apps = dict.fromkeys(cell["spec"]["app"] for cell in plan["cells"] if is_of_engine(cell))
    search_all(home, run_id, list(apps), Budget(began + seconds, ""), say)
    return publish(home, run_id).searched.sentence or "no application was searched"


# --- red cells -------------------------------------------------------------------------------------------------------


def shrink_cells(home: Home, run_id: str, cells: list[PlannedCell], budget: Budget, say: Callable[[str], None]) -> None:
    """Make the cases of cells that differ small, until the time ends."""
    red = {row["cell"] for row in warehouse.rows(home, "cells", run_id) or [] if row["verdict"] == "different"}
    by_app: dict[str, list[PlannedCell]] = {}
    for cell in cells:
        if cell["cell"] in red and is_of_engine(cell) and not (home.cell(run_id, cell["cell"]) / SHRUNK).exists():
            by_app.setdefault(cell["spec"]["app"], []).append(cell)
    rounds = itertools.zip_longest(*by_app.values())
    todo = [cell for one_each in rounds for cell in one_each if cell is not None]
    for number, cell in enumerate(todo):
        try:
            with alone(f"{NAME} {cell['cell']}", say, budget, run_id), Laboratory() as laboratory:
                budget.check()
                say(f"making {cell['cell']} smaller")
                seconds = budget.ends - time.monotonic()
                share = max(seconds / (len(todo) - number), min(seconds, LEAST))
                shrink_cell(home, run_id, cell, laboratory, share, say)
        except OutOfTime:
            left = len(todo) - number
            say(f"no time to make {left} red cell{'s' * (left > 1)} smaller; raise find_minutes")
            return
        except BadInput as error:  # the application changed meanwhile, or runs on no events
            say(f"{cell['cell']} stays as it is: {error}")


def shrink_cell(
    home: Home, run_id: str, cell: PlannedCell, laboratory: Laboratory, seconds: float, say: Callable[[str], None]
) -> Find | None:
    """Make the case of a cell that differs small.

    Returns:
        What `<cell>/shrunk` has; None if the cell does not differ again.
    """
    began, folder = time.monotonic(), home.cell(run_id, cell["cell"])
    case = case_of(home, cell, folder)
    for _ in range(TRIALS):
        if verdicts := laboratory.examine(case, [case.spec]).verdicts:
            break
        if time.monotonic() - began > seconds / 2:
            return None
    else:
        say(f"{cell['cell']} does not differ again in {TRIALS} runs")
        return None
    case = case.changed(symptom=verdicts[0].symptom)
    left = seconds - (time.monotonic() - began)
    small = shrinking.shrink(case, shrinking.Judge(laboratory, case, None), left, say)
    return find.write(small, laboratory, folder / SHRUNK, {"shrinking": time.monotonic() - began})


def case_of(home: Home, cell: PlannedCell, folder: Path) -> Case:
    """The case of a planned cell: all of its events, and its way, once and unmeasured."""
    once: dict[str, Any] = {"sink": "parquet", "repetitions": 0, "seconds": 0.0, "rate": 0.0}
    spec = RunSpec.parse(cell["spec"] | once)
    if spec.needs_plan:  # that of the run: a search may find another plan
        reports = (left_json(path) for path in sorted(folder.glob("attempt-*/report.json")))
        planned = [report["planned"]["plan"] for report in reports if report.get("planned")]
        spec = RunSpec.parse(spec.model_dump(mode="json") | {"plan": planned[-1] if planned else {}})
    events = Parts.of(home.workload(spec.app, cell["workload"]) / "events").read()
    return Case(spec, events, origin=f"cell {cell['cell']}")


# --- applications ----------------------------------------------------------------------------------------------------


def search_all(home: Home, run_id: str, apps: list[str], budget: Budget, say: Callable[[str], None]) -> None:
    """Search applications until the time ends, and try earlier finds of the others again."""
    for app, seconds in shares(home, apps, budget.ends):
        try:
            with alone(f"{NAME} {app}", say, budget, run_id), beside(registry.load(app)) as invariants:
                say(f"searching {app} for {seconds:.0f} s" if seconds else f"trying the finds of {app} again")
                report = search.search(app, home.corpus(app), home.finds(app), seconds, invariants=invariants, say=say)
        except OutOfTime:
            say("the time ended before every application had its turn")
            return
        except BadInput as error:
            say(f"{app} was not searched: {error}")
            continue
        say(f"{app}: {report.sentence}")
        keep(home, run_id, report, say)


def shares(home: Home, apps: list[str], ends: float) -> Iterator[tuple[str, float]]:
    """The applications to search, each with its seconds: 0 if only its earlier finds are tried again."""
    last = {app: corpus.figures(home.corpus(app)).last for app in apps}
    order = sorted(apps, key=lambda app: (last[app], app))
    count = max(1, int((ends - time.monotonic()) / LEAST))
    for number, app in enumerate(order[:count]):
        left = ends - time.monotonic()
        if left > 0:
            yield app, left / (min(count, len(order)) - number)
    for app in order[count:]:
        if find.finds(home.finds(app)):
            yield app, 0.0


def keep(home: Home, run_id: str, report: search.Report, say: Callable[[str], None]) -> None:
    """Write the rows of an application that was searched; the rows of the others stay."""
    tried = {
        "app": report.app,
        "inputs": report.inputs,
        "ways": report.runs,
        "reached": report.reached,
        "branches": report.branches,
        "seconds": report.seconds,
    }
    with hold(of_home(home), NAME, True, say), hold(of_warehouse(home), NAME, say=say, run=run_id):
        for table, own in (("searches", [tried] if report.inputs else []), ("finds", list(map(_row, report.finds)))):
            others = [row for row in warehouse.rows(home, table, run_id) or [] if row["app"] != report.app]
            write_raw(home, table, run_id, [*others, *own])


def _row(find: Find) -> dict[str, Any]:
    """The row of a find in the raw table `finds`."""
    at = f", at {find.at}" if find.at else ""
    return {
        "cell": find_cell(find.app, find.digest),
        "app": find.app,
        "kind": find.symptom.kind,
        "name": find.symptom.name,
        "reason": f"{find.size}: {find.symptom.sentence}{at}",
        "spec": canonical_json(Case.load(find.folder).spec.model_dump(mode="json")),
        "events": find.events,
        "rate": find.rate,
        "folder": f"finds/{find.app}/{find.folder.name}",
        "build": find.build,
    }


def main() -> int:
    """Search for faults after a run, and print what was tried."""
    with interruption.heeded():
        return run_stage(work, __doc__)


if __name__ == "__main__":
    ending.end(NAME, main)
