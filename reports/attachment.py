"""A run as one file, to mail or attach: its outcome, the evidence on wrong and slower cells, its charts.

Styles and pictures are inside. Links lead to places in the file. It has no script.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

from markupsafe import Markup

from reports.history.run import Run
from reports.pages import Pages
from reports.site import HERE, SingleFile
from reports.views.cell import CellView
from reports.views.outcome import Outcome, Request
from reports.views.performance import Section
from reports.views.run import RunView

MOST = 30  # cells that the file shows in full


@dataclass(frozen=True)
class Attachment:
    """The parts that only the file has.

    Attributes:
        style: the style sheet.
        details: the evidence on wrong and slower cells.
        more: the number of such cells that the file leaves out.
        sections: the charts, by application.
        pictures: the charts as data, by their paths below the reports.
    """

    style: Markup
    details: list[CellView]
    more: int
    sections: list[Section]
    pictures: dict[str, str]


def attachment(pages: Pages, run: Run) -> str:
    """The file of a run, as HTML."""
    cells = [cell for cell in run.cells if cell.red]
    cells += [cell for cell in run.slower if not cell.red]
    drawing = pages.speed.draw(run)
    view = Attachment(
        # A style sheet of ours, which an escape would break.
        style=Markup((HERE / "style.css").read_text()),
        details=[CellView.of(run, cell) for cell in cells[:MOST]],
        more=len(cells[MOST:]),
        sections=drawing.sections,
        pictures={href: _data(svg) for href, svg in drawing.svgs.items()},
    )
    place = SingleFile(shown=frozenset(cell.name for cell in cells[:MOST]))
    parts = Outcome.of_run(run), Request.of(run), RunView.of(run, inputs_page="#inputs"), view
    return pages.render("attachment.html", place, *parts)


def _data(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
