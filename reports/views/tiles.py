"""The tiles at the top of a page: right, wrong and slower cells, each with a sign, a number and a word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from reports.history.cell import Cell
from reports.history.run import Results
from reports.history.speed import JUDGED

TREND = {
    "slower": "▼",
    "faster": "▲",
    "unchanged": "=",
    "too_noisy": "?",
    "too_short": "?",
    "too_new": "?",
    "not_judged": "?",
    "not_measured": "?",
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
    tally, trends, slower = results.tally, results.speed_counts, len(results.slower)
    bounds, is_known = len(tally.bounds), slower or any(trends[verdict] for verdict in JUDGED)
    beside = f", {bounds} bound{'s' * (bounds != 1)} beside them" if bounds else ""
    steady = [f"▲ {trends['faster']} faster"] if is_known else []
    steady += [f"= {trends['unchanged']} unchanged"] if trends["unchanged"] else []
    if unknown := sum(count for verdict, count in trends.items() if verdict not in JUDGED):
        steady.append(f"? {unknown} without a verdict")
    return [
        Tile(
            "✓",
            str(len(tally.equal)),
            "equal",
            f"of {len(tally.judged)} cells{beside}",
            "#grid",
            "good" if tally.equal else "",
        ),
        Tile("✗", str(len(tally.wrong)), "not equal", _words(tally.wrong), "#wrong", "bad" if tally.wrong else ""),
        Tile("○", str(len(tally.open)), "not judged", _words(tally.open), "#wrong", "open" if tally.open else ""),
        Tile(
            TREND["slower"],
            # Without a verdict, no number may be read as "none is slower".
            str(slower) if is_known else "?",
            "slower",
            ", ".join(steady) or "no speed measured yet",
            "#speed",
            "open" if slower else "",
        ),
        *_searched(results),
    ]


def _searched(results: Results) -> Iterator[Tile]:
    """The tile of the search for faults, if there was one."""
    searched, finds = results.searched, len(results.finds)
    if searched.rows or finds:
        share = f", {searched.share} of branches reached" if searched.share else ""
        tried = f"{searched.total('inputs'):,} inputs in {searched.total('ways'):,} ways{share}"
        yield Tile(
            "✗" if finds else "✓", str(finds), "found", f"by the search: {tried}", "#search", "bad" if finds else "good"
        )


def _words(cells: list[Cell]) -> str:
    """`1 differs, 2 failed`; `none`."""
    counts = Counter(cell.outcome for cell in cells)
    return ", ".join(outcome.of(count) for outcome, count in counts.items()) or "none"
