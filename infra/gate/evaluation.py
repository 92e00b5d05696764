"""The gate: compares the speed of a run's cells in this checkout with another commit.

The warehouse judges the measured pairs. The DAG `speed_gate` runs `python -m infra.gate.evaluation REF RUN_ID --cells
A,B`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any, NamedTuple

from infra import checkout
from infra.airflow import connections
from infra.gate import measurement
from infra.history import marts
from infra.hosts import build
from jobs.raw import write_raw
from reports.history import History, Run, revision
from reports.publish import publish
from streaming_core.errors import BadInput, RunFailed
from streaming_core.process import ending
from streaming_core.regression import warehouse as raw
from streaming_core.regression.home import Home
from streaming_core.regression.lock import hold, of_home, of_warehouse
from streaming_core.regression.plan import PlannedCell

NAME = "gate"
RED = ("slower", "different", "failed")


class Request(NamedTuple):
    """A request to the gate: the baseline by ref and commit, the run, and its cells as planned."""

    ref: str
    commit: str
    run_id: str
    cells: list[PlannedCell]


def request(home: Home, ref: str, run_id: str | None, names: list[str] | None) -> Request:
    """Check a request before anything is built.

    Args:
        home: where the runs are.
        ref: a branch, a tag or a commit of this repository.
        run_id: None: the newest run.
        names: cells of the run; None: all that equal the oracle.

    Raises:
        BadInput: there is no such commit or run, or `measurement.cells_of` refuses the cells.
    """
    commit, run_id = build.resolve(ref), chosen(home, run_id)
    return Request(ref, commit, run_id, measurement.cells_of(home, run_id, names))


def chosen(home: Home, run_id: str | None) -> str:
    """The id of a run: the newest one if `run_id` is None.

    Raises:
        BadInput: There is no such run, or none yet.
    """
    ids = History(home).run_ids()
    if not ids:
        raise BadInput(f"{home.root} has no run yet: start one with `lockstep run`")
    if run_id is not None and run_id not in ids:
        raise BadInput(f"{home.root} has no run {run_id!r}; the newest are {', '.join(ids[-3:])}")
    return run_id or ids[-1]


def gate(home: Home, ref: str, run_id: str | None, names: list[str] | None, say: Callable[[str], None]) -> Run:
    """Build the commit, measure, rebuild the marts and publish the run's pages; the run with its verdicts.

    It takes the locks on LOCKSTEP_HOME and the warehouse only while it writes.

    Raises:
        BadInput: as `request`.
        RunFailed: the commit cannot be compiled, or the marts cannot be built.
    """
    checked = request(home, ref, run_id, names)
    baseline = build.at_commit(home, checked.commit, revision(checked.ref, checked.commit), say)
    places = measurement.places(home, checked.run_id).values()
    os.environ.update(connections.stored(place.connection for place in places if place.connection))
    rows = measurement.measure(home, checked.run_id, checked.cells, baseline, say)
    keep(home, checked.run_id, checked.ref, rows, say)
    return publish(home, checked.run_id)


def keep(home: Home, run_id: str, ref: str, rows: list[dict[str, Any]], say: Callable[[str], None]) -> None:
    """Store measured pairs of a run, and rebuild the marts."""
    store(home, run_id, ref, rows, say)
    with redirect_stdout(sys.stderr):  # dbt prints its progress on stdout
        summary = marts.build(home, run_id)
    say(summary)


def store(home: Home, run_id: str, ref: str, rows: list[dict[str, Any]], say: Callable[[str], None]) -> None:
    """Write measured pairs of a run. Cells that were compared with the same commit before keep their rows."""
    with hold(of_home(home), NAME, True, say), hold(of_warehouse(home), NAME, say=say, run=run_id):
        cells, baselines = {row["cell"] for row in rows}, {row["baseline"] for row in rows}
        earlier = [
            row
            for row in raw.rows(home, "pairs", run_id) or []
            if row["cell"] not in cells and row["baseline"] in baselines
        ]
        write_raw(home, "pairs", run_id, [*earlier, *(row | {"baseline_ref": ref} for row in rows)])


def is_red(run: Run) -> bool:
    """Whether a measured cell is slower than the baseline, or could not be compared."""
    return any(cell.gate.verdict in RED for cell in run.cells if cell.gate)


def main() -> int:
    """Measure the cells that the command line names, and print the verdict in one sentence."""
    parser = argparse.ArgumentParser(prog=NAME, description=__doc__)
    parser.add_argument("ref", help="the commit to compare with")
    parser.add_argument("run_id", help="the run whose cells are measured")
    parser.add_argument("--cells", required=True, metavar="A,B,...", help="names of the cells")
    options = parser.parse_args()
    run = gate(checkout.home(), options.ref, options.run_id, options.cells.split(","), print)
    if is_red(run):
        raise RunFailed(run.gate_sentence)
    print(run.gate_sentence)
    return 0


if __name__ == "__main__":
    ending.end(NAME, main)
