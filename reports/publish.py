"""Writes the pages of one run, and those of the latest: `python -m reports.publish --run RUN_ID`; without a run
the performance page alone.

Exit codes: 0 done, 2 there is no such run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reports.history import History
from reports.pages import HERE, Pages, write
from streaming_core import ending
from streaming_core.regression.home import Home
from streaming_core.storage import write_json


def publish(home: Home, run_id: str) -> str:
    """Writes everything; returns the run's sentence.

    Raises:
        LookupError: there is no such run.
    """
    history = History(home)
    run = history.run(run_id)
    pages, reports = Pages(history), home.reports
    for cell in run.cells:
        write(reports / run_id / f"{cell.name}.html", pages.cell(run, cell))
    write(reports / run_id / "index.html", pages.overview(run))
    write_json(reports / run_id / "summary.json", summary(run))
    performance(home)
    return run.sentence


def performance(home: Home) -> Path:
    """Writes the performance page, which needs no run, as benchmarks have figures of their own; and the overview, which
    it leads to. Returns where it is."""
    reports, pages = home.reports, Pages(History(home))
    page, svgs = pages.performance()
    for name, svg in svgs.items():
        write(reports / name, svg)
    write(reports / "style.css", (HERE / "style.css").read_text())
    write(reports / "performance.html", page)
    write(reports / "index.html", pages.index())
    return reports / "performance.html"


def summary(run) -> dict:
    """The run in a few words, for machines."""
    return {
        "run_id": run.run_id,
        "origin": run.origin,
        "green": run.green,
        "sentence": run.sentence,
        "counts": run.counts,
        "build": run.build,
        "red": [{"cell": cell.name, "verdict": cell.verdict, "reason": cell.reason} for cell in run.cells if cell.red],
    }


def main(argv: list[str] | None = None) -> int:
    """The command line; see the module's text."""
    parser = argparse.ArgumentParser(prog="publish", description=__doc__.splitlines()[0])
    parser.add_argument("--run", help="run id; without one only the performance page is written")
    options = parser.parse_args(argv)
    if options.run is None:
        print(f"performance page: {performance(Home())}")
        return 0
    try:
        print(f"publish: {publish(Home(), options.run)}")
    except LookupError as error:
        print(f"publish: {error.args[0]}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    ending.end("publish", main)
