"""Writes the pages of one run, and the pages that every run changes.

As a command, `python -m reports.publish --run RUN_ID`, it is a stage of every run. `publish` turns the id into a `Run`;
every module below it takes the run.
"""

from __future__ import annotations

from typing import Any

from jobs.command import run_stage
from reports.attachment import attachment
from reports.history.load import History
from reports.history.run import Run
from reports.pages import Pages
from reports.site import DATA_DOCS, DOCS, GLOSSARY, HERE, Place, beside_name, file_name, write
from reports.views.beside import before
from streaming_core.process import ending
from streaming_core.regression.home import Home
from streaming_core.storage import held, write_json


def publish(home: Home, run_id: str) -> str:
    """Write the pages of a run, and the pages that every run changes.

    Returns:
        The sentence of the run.

    Raises:
        BadInput: there is no such run.
    """
    history = History(home)
    run = history.run(run_id)
    pages = Pages(history)
    write(home.reports / DATA_DOCS, pages.data_docs())  # first: menus link only to pages that exist
    _publish_run(pages, run)
    performance(home, pages)
    return run.sentence


def _publish_run(pages: Pages, run: Run) -> None:
    """Write the pages of a run."""
    write(run.report(file_name(run.run_id)), attachment(pages, run))
    for cell in run.cells:
        write(run.report(f"{cell.name}.html"), pages.cell(run, cell))
        _write_all(run.home, pages.cell_chart(cell))
    if (earlier := before(pages.history, run)) is not None:
        write(run.report(beside_name(earlier)), pages.beside(run, pages.history.run(earlier)))
    write(run.report("inputs.html"), pages.inputs(run))
    if (built := pages.built(run)) is not None:
        write(run.report("warehouse.html"), built)
    write(run.report("index.html"), pages.overview(run))
    write_json(run.report("summary.json"), summary(run))
    if pages.speed.has_measured(run):
        page, svgs = pages.performance(run)
        _write_all(run.home, svgs)
        write(run.report("performance.html"), page)


def performance(home: Home, pages: Pages | None = None) -> None:
    """Write the performance page, the overview and the list of runs."""
    reports, pages = home.reports, pages or Pages(History(home))
    write(reports / "style.css", (HERE / "style.css").read_text())
    page, svgs = pages.performance()
    _write_all(home, svgs)
    write(reports / "performance.html", page)
    for page_of_site in (DOCS, GLOSSARY):  # a reader of files has no documentation site beside them
        write(reports / page_of_site, pages.docs())
    latest = pages.history.latest()
    write(reports / "inputs.html", pages.inputs(latest, Place(here="Inputs")) if latest else pages.empty("Inputs"))
    with held(reports / "index.html"):
        write(reports / "index.html", pages.index())
    with held(reports / "runs.html"):
        write(reports / "runs.html", pages.runs())


def _write_all(home: Home, files: dict[str, str]) -> None:
    for name, text in files.items():
        write(home.reports / name, text)


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
        "red": [{"cell": cell.name, "verdict": cell.verdict, "reason": cell.reason} for cell in run.cells if cell.red],
    }


if __name__ == "__main__":
    ending.end("publish", lambda: run_stage(publish, __doc__))
