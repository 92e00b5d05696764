"""A run as one file, to mail or attach: its outcome, the evidence on wrong and slower cells, its charts.

Styles and pictures are inside. Links lead to places in the file. It has no script.
"""

from __future__ import annotations

import base64

from markupsafe import Markup

from reports.history.run import Run
from reports.pages import Pages
from reports.site import HERE
from reports.views.engines import Comparison
from reports.views.hosts import HostRow
from reports.views.inputs import Inputs
from reports.views.outcome import outcome

MOST = 30  # cells that the file shows in full


def attachment(pages: Pages, run: Run) -> str:
    """The file of a run, as HTML."""
    shown = [cell for cell in run.cells if cell.red]
    shown += [cell for cell in run.slower if not cell.red]
    names = {cell.name for cell in shown[:MOST]}
    svgs, sections = pages.speed.draw(run.run_id)
    pictures = {href: _data(svg) for href, svg in svgs.items()}
    return pages.render(
        "attachment.html",
        root="",
        here="",
        glossary="",  # no documentation is beside a mailed file
        # A style sheet of ours, which an escape would break.
        style=Markup((HERE / "style.css").read_text()),
        inputs=Inputs.of(pages.history.home, run),
        inputs_page="#inputs",
        coverage=None,
        file=None,
        of_cell=lambda cell: f"#{cell.name}" if cell.name in names else None,
        of_run=lambda run_id: None,
        details=[pages.evidence(run, cell) for cell in shown[:MOST]],
        more=len(shown) - len(names),
        sections=sections,
        pictures=pictures,
        hosts=HostRow.of_run(pages.history.home, run.run_id),
        engines=Comparison.of(pages.history.home, run),
        charts=[],
        **outcome(run),
    )


def _data(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
