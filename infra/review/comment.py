"""The comment of a review, in Markdown.

Reasons hold data of users, so a comment shows them as code. Then no text can link, mention a person, or become HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from infra.gate.evaluation import RED
from infra.review.review import Review
from reports.history import Cell, Run, short

MARKER = "<!-- lockstep review -->"  # by which the next review finds the comment
MOST = 30  # rows of a table; a comment has at most 65,536 characters
LONGEST = 300  # characters of a reason
_BAR = re.compile(r"(\\?)\|")


def comment(review: Review, pages: str | None = None) -> str:
    """Write the comment.

    Args:
        review: The review.
        pages: The address of the published pages of LOCKSTEP_HOME; None if they are not published.
    """
    mark = "\N{CROSS MARK} Lockstep: red" if review.is_red else "\N{WHITE HEAVY CHECK MARK} Lockstep: green"
    changes = review.changes
    concerned = ", ".join(code(name) for name in changes.applications) or "none"
    scope = (
        "The engine changed, so every application ran" if changes.is_of_engine else "Applications whose code changed"
    )
    lines = [
        MARKER,
        f"## {mark}",
        "",
        f"{scope}: {concerned}. Compared with {code(changes.ref)} at {code(short(changes.base))}.",
    ]
    if changes.faults:
        rows = [[code(name), code(reason)] for name, reason in changes.faults.items()]
        lines += ["", "### Cannot be loaded", "", *table(["application", "reason"], rows)]
    if review.run is not None:
        lines += _of_run(review.run)
        if pages:
            lines += ["", f"[Pages of the run]({pages.rstrip('/')}/{review.run.run_id}/index.html)"]
    return "\n".join(lines) + "\n"


def _of_run(run: Run) -> Iterator[str]:
    """The lines about a run: its outcome, what differs, the speeds, the search, the machine."""
    yield from ("", f"**{code(run.sentence)}**")
    red = [[code(cell.label), cell.outcome.sentence, code(cell.reason)] for cell in run.faulty_cells]
    red += [[code(stage.label), "failed", code(error)] for stage, error in run.failures.items()]
    if red:
        yield from ("", "### Differences", "", *table(["cell", "outcome", "reason"], red))
    judged = [cell for cell in run.cells if cell.gate]
    judged.sort(key=lambda cell: (cell.gate is None or cell.gate.verdict not in RED, cell.name))
    if judged:
        titles = ["cell", "speed", "95 % interval", "detection limit", "reason"]
        yield from ("", f"### Speed against {code(run.against)}", "", *table(titles, [_speed(cell) for cell in judged]))
    elif run.gate_sentence:
        yield from ("", code(run.gate_sentence))
    if run.searched.sentence:
        yield from ("", code(run.searched.sentence))
    for host in run.preflights:
        about = f"{host.cpu or 'unknown processor'}, {host.cores or 'unknown number of'} cores"
        causes = "; ".join(cause.what for cause in host.warnings)
        yield from (
            "",
            f"Measured on {code(host.machine or host.host)}: {code(about + (f'; {causes}' if causes else ''))}",
        )


def _speed(cell: Cell) -> list[str]:
    gate = cell.gate
    assert gate is not None
    style = "**" if gate.verdict in RED else ""
    return [code(cell.label), f"{style}{gate.text}{style}", gate.interval, gate.visible, code(gate.reason or "")]


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table of Markdown; its cells are Markdown already."""
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    for row in rows[:MOST]:
        # A bar ends a cell, even in code, and a backslash before it would escape the one that escapes the bar.
        yield f"| {' | '.join(_BAR.sub(_escape, cell) for cell in row)} |"
    if len(rows) > MOST:
        yield f"| and {len(rows) - MOST} more |{' |' * (len(titles) - 1)}"


def _escape(bar: re.Match) -> str:
    return f"{bar[1]} \\|" if bar[1] else "\\|"


def code(text: str) -> str:
    """Any text as code in one line, whatever it holds."""
    line = " ".join(text.split())
    line = line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    pad = " " if line[:1] == "`" or line[-1:] == "`" else ""
    return f"{fence}{pad}{line}{pad}{fence}" if line else ""
