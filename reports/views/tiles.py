"""The tiles at the top of a page: right, wrong and slower cells, each with a sign, a number and a word."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from reports.history.cell import Cell
from reports.history.run import Results

TREND = {
    "slower": "▼",
    "faster": "▲",
    "unchanged": "=",
    "too_noisy": "?",
    "too_short": "?",
    "too_new": "?",
    "not_judged": "?",
    "different": "✗",
    "failed": "!",
}


class Tile(NamedTuple):
    """A tile: its sign, number and word; a line of detail; where it leads; its style class."""

    mark: str
    number: str
    word: str
    detail: str
    href: str
    look: str = ""


def tiles(results: Results) -> list[Tile]:
    """The tiles of a run or of the state."""
    judged = [cell for cell in results.cells if not cell.is_bound]
    bounds = len(results.cells) - len(judged)
    equal = sum(cell.verdict == "equal" for cell in judged)
    open_cells = [cell for cell in results.cells if cell.verdict == "not_run"]
    wrong = [cell for cell in results.cells if cell.red and cell.verdict != "not_run"]
    trends = Counter(cell.speed.verdict for cell in results.cells if cell.speed)
    known = trends["slower"] + trends["faster"] + trends["unchanged"]
    beside = f", {bounds} bound{'s' * (bounds != 1)} beside them" if bounds else ""
    steady = [f"= {trends['unchanged']} unchanged"] if trends["unchanged"] else []
    if unknown := trends.total() - known:
        steady.append(f"? {unknown} without a verdict")
    return [
        Tile("✓", str(equal), "equal", f"of {len(judged)} cells{beside}", "#grid", "good" if equal else ""),
        Tile("✗", str(len(wrong)), "not equal", _words(wrong) or "none", "#wrong", "bad" if wrong else ""),
        Tile(
            "○",
            str(len(open_cells)),
            "not judged",
            _words(open_cells) or "none",
            "#wrong",
            "open" if open_cells else "",
        ),
        Tile(
            TREND["slower"],
            # Without a verdict, no number may be read as "none is slower".
            str(trends["slower"]) if known else "?",
            "slower",
            ", ".join([*([f"▲ {trends['faster']} faster"] if known else []), *steady])
            if trends
            else "no speed measured yet",
            "#speed",
            "open" if trends["slower"] else "",
        ),
    ]


def _words(cells: list[Cell]) -> str:
    """`1 differs, 2 failed`."""
    counts = Counter(cell.outcome.word for cell in cells)
    return ", ".join(f"{count} {word}" for word, count in counts.items())
