"""A run as one file, to mail or attach: its outcome, the evidence on wrong and slower cells, its charts.

Styles and pictures are inside. Links lead to places in the file. It has no script.
"""

from __future__ import annotations

import base64

from markupsafe import Markup

from reports.history.run import Run
from reports.pages import Pages
from reports.site import HERE, SingleFile
from reports.views.cell import CellView
from reports.views.outcome import Outcome, Request
from reports.views.run import RunView

MOST = 30  # cells that the file shows in full


def attachment(pages: Pages, run: Run) -> str:
    """The file of a run, as HTML."""
    cells = [cell for cell in run.cells if cell.red]
    cells += [cell for cell in run.slower if not cell.red]
    drawing = pages.speed.draw(run)
    return pages.render(
        "attachment.html",
        SingleFile(shown=frozenset(cell.name for cell in cells[:MOST])),
        Outcome.of_run(run),
        Request.of(run),
        RunView.of(run, inputs_page="#inputs"),
        # A style sheet of ours, which an escape would break.
        style=Markup((HERE / "style.css").read_text()),
        details=[CellView.of(run, cell) for cell in cells[:MOST]],
        more=len(cells[MOST:]),
        sections=drawing.sections,
        pictures={href: _data(svg) for href, svg in drawing.svgs.items()},
    )


def _data(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
