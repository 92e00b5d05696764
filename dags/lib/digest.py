"""The digest of a week, sent through the channels of alerts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime

from dags.lib.alerts import Message, page_url, red_lines, slower_line
from infra.history.disk_space import size
from reports import times
from reports.history import Cell, History
from reports.views.week import Week
from streaming_core.regression.home import Home


def digest(home: Home, end: datetime) -> Message:
    """The message about the week until a moment.

    Raises:
        BadInput: A raw table of a run has another schema version.
    """
    week = Week.of(History(home), end)
    details = [*_nights(week), *_red("Red since this week", week, week.new), *_red("Red for longer", week, week.still)]
    if week.slower:
        details += ["Slower:", *(f"- {slower_line(cell)}" for cell in week.slower)]
    return Message(["digest"], week.sentence, page_url("lockstep/index.html"), [*details, _disk(home)])


def _nights(week: Week) -> Iterator[str]:
    if week.nights:
        yield "Nights:"
    for night in week.nights:
        yield f"- {times.started(night.run_id)} {'red' if night.color == 'red' else 'green'}: {night.sentence}"


def _red(heading: str, week: Week, cells: Sequence[Cell]) -> Iterator[str]:
    if week.state and cells:
        yield f"{heading}:"
        yield from (f"- {line}" for line in red_lines(week.state, cells))


def _disk(home: Home) -> str:
    """`Disk: 12.3 GB in LOCKSTEP_HOME (runs 8.1, workloads 4.2); 210.0 GB are free`."""
    folders = [entry for entry in home.root.iterdir() if entry.is_dir()] if home.root.is_dir() else []
    sizes = sorted(((size(folder) / 1e9, folder.name) for folder in folders), reverse=True)
    total = sum(gigabytes for gigabytes, _ in sizes)
    parts = ", ".join(f"{name} {gigabytes:.1f}" for gigabytes, name in sizes if gigabytes >= 0.05)
    where = f"LOCKSTEP_HOME ({parts})" if parts else "LOCKSTEP_HOME"
    free = shutil.disk_usage(home.root if folders else "/").free / 1e9
    return f"Disk: {total:.1f} GB in {where}; {free:.1f} GB are free"
