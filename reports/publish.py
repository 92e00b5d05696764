"""Writes the pages of one run, and the pages that every run changes.

As a command, `python -m reports.publish --run RUN_ID`, it is a stage of every run. `publish` turns the id into a `Run`;
every module below it takes the run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from jobs.command import run_stage
from reports.attachment import attachment
from reports.charts import script
from reports.history.load import History
from reports.history.profile import Profile
from reports.history.run import Run
from reports.pages import Pages
from reports.site import (
    DATA_DOCS,
    DOCS,
    FINDS,
    GLOSSARY,
    HERE,
    QUALITY,
    Place,
    beside_name,
    file_name,
    find_name,
    profile_name,
    write,
)
from reports.views.beside import before
from reports.views.cell import smallest
from streaming_core.process import ending
from streaming_core.regression.home import Home
from streaming_core.regression.lock import hold, of_warehouse
from streaming_core.search import find
from streaming_core.search.find import Find
from streaming_core.storage import below, held, json_text

STYLE = "style.css"


def publish(home: Home, run_id: str) -> Run:
    """Write the pages of a run, and the pages that every run changes, while no other process writes marts or pages.

    Returns:
        The run.

    Raises:
        BadInput: there is no such run.
    """
    with hold(of_warehouse(home), "pages", say=partial(print, file=sys.stderr), run=run_id):
        history = History(home)
        run = history.run(run_id)
        pages = Pages(history)
        _write(home, [(DATA_DOCS, pages.data_docs())])  # first: menus link only to pages that exist
        _write(home, _of_run(pages, run))
        performance(home, pages)
        finds(home, pages, [small for cell in run.cells if (small := smallest(run, cell))])
    return run


def _of_run(pages: Pages, run: Run) -> Iterator[tuple[str, str]]:
    """The files of a run, by their paths below the reports."""
    folder = f"{run.run_id}/"
    yield folder + file_name(run.run_id), attachment(pages, run)
    for cell in run.cells:
        yield f"{folder}{cell.name}.html", pages.cell(run, cell)
        yield from pages.cell_chart(cell).items()
        if (profile := Profile.read(run.attempts(cell))) is not None:
            yield folder + profile_name(cell.name), pages.profile(profile)
    if (earlier := before(pages.history, run)) is not None:
        yield folder + beside_name(earlier), pages.beside(run, pages.history.run(earlier))
    yield folder + "inputs.html", pages.inputs(run)
    if (built := pages.built(run)) is not None:
        yield folder + "warehouse.html", built
    yield folder + "index.html", pages.overview(run)
    yield folder + "summary.json", json_text(summary(run))
    if pages.speed.has_measured(run):
        page, svgs = pages.performance(run)
        yield from svgs.items()
        yield folder + "performance.html", page


def performance(home: Home, pages: Pages | None = None) -> None:
    """Write the performance and quality pages, the overview, the runs, and the list of finds if there is none."""
    pages = pages or Pages(History(home))
    page, svgs = pages.performance()
    quality, curves = pages.quality()
    latest = pages.history.latest()
    files = {STYLE: (HERE / STYLE).read_text(), **svgs, "performance.html": page, **curves, QUALITY: quality}
    if pages.speed.runs or curves:
        files[script.name()] = script.text()
    files |= dict.fromkeys((DOCS, GLOSSARY), pages.docs())  # a reader of files has no documentation site beside them
    files["inputs.html"] = pages.inputs(latest, Place(here="Inputs")) if latest else pages.empty("Inputs")
    _write(home, files.items())
    for name, text in (("index.html", pages.index), ("runs.html", pages.runs)):
        with held(home.reports / name):
            write(home.reports / name, text())
    if not (home.reports / FINDS).exists():
        finds(home, pages)


def finds(home: Home, pages: Pages | None = None, of_cells: Iterable[Find] = ()) -> list[Find]:
    """Write the list of finds, and a page for each, and for those of cells.

    Returns:
        The finds in the list, the oldest first.
    """
    pages = pages or Pages(History(home))
    there = [case for folder in sorted(home.all_finds.glob("*")) for case in find.finds(folder)]
    there.sort(key=lambda case: case.time)
    _write(home, ((find_name(case.app, case.digest), pages.find(case)) for case in (*there, *of_cells)))
    _write(home, [(FINDS, pages.finds(there)), (STYLE, (HERE / STYLE).read_text())])
    return there


def _write(home: Home, files: Iterable[tuple[str, str]]) -> None:
    """Write files, by their paths below the reports."""
    for name, text in files:
        write(below(home.reports, *name.split("/")), text)


def refresh(home: Home) -> None:
    """Write anew which runs run or wait, in the pages that exist. A run that begins changes nothing else."""
    for page in (home.reports / "index.html", home.reports / "runs.html"):
        if page.exists():
            with held(page):
                write(page, Pages(History(home)).refresh(page.read_text()))


def summary(run: Run) -> dict[str, Any]:
    """The run in a few words, for programs."""
    return {
        "run_id": run.run_id,
        "origin": run.origin,
        "matrix": run.matrix,
        "green": run.green,
        "color": run.color,
        "sentence": run.sentence,
        "counts": run.counts,
        "speed": run.speed_sentence,
        "gate": run.gate_sentence,
        "slower": [cell.name for cell in run.slower],
        "build": run.build,
        "search": run.searched.sentence,
        "red": [
            {"cell": cell.name, "verdict": cell.verdict, "reason": cell.reason}
            for cell in (*run.cells, *run.finds)
            if cell.red
        ],
    }


if __name__ == "__main__":
    ending.end("publish", lambda: run_stage(lambda home, run_id: publish(home, run_id).sentence, __doc__))
