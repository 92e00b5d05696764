"""Claims of papers as data, and the one renderer that puts our figures and a verdict beside each.

A claim names two ways by the columns of their rows: the algorithm as published, and ours. It names the rows that both
are compared with, the column that counts, and the columns that split the rows into cases. Every case becomes a line.

A ratio compares rows of one heat, with the same threads, batch and punctuation interval. `over` may name one of these.
If it names the application or a parameter, the rows are of two heats. Our way has the
threads and the batch of the way as published. Beside both stands the fastest way of the heat on as many threads, of any
executor, and each way's throughput relative to the compiled loop.

The verdict follows from the paper's value and the measured 95 % interval. It is about the way as published.

| expects | reproduced | reversed | else |
|---|---|---|---|
| `>` | the interval is above 1 and reaches the paper's ratio | the interval is below 1 | weaker |
| `<` | the interval is below 1 and reaches the paper's ratio | the interval is above 1 | weaker |
| `=` | the interval meets the paper's value, within 10 % | | weaker |
| `>=`, `<=` | the median reaches the paper's value; without a value, the interval reaches 1 | | weaker |

A case is not testable here for one of five reasons. A row is missing or wrong. A ratio comes from a single round, or
from none in which both ways had cores at the same distance. The paper has no value for a column. Or the claim needs
what this machine lacks. An interval shows no equality if its ends differ by more than a factor of two. A goal of this
project is met or missed, by our way.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streaming_core.bench.race.ratios import (
    NOUNS,
    Row,
    best,
    compare,
    equal_rows,
    most,
    quantity,
    rounds_of,
    threads_of,
    three_digits,
    unit_of,
    value,
)
from streaming_core.bench.race.statistics import interval

Ways = Mapping[str, Any]  # the values of columns; a tuple allows several, and the best row counts

GOAL = "a goal of this project"
NODES = "several memory nodes"
NEAR = 1.1  # values that differ by less than this factor are as large as each other
WIDE = 2.0  # an interval whose ends differ by this factor shows no equality
ANY = ()  # as the value of a column: all values are allowed
UNTESTABLE = "not testable here"
# The fields of a line as a table shows it, and their titles.
TITLES = {
    "says": "claim",
    "measure": "measure",
    "case": "case",
    "conditions": "batch, threads",
    "paper": "paper",
    "published": "as published",
    "ours": "ours, same batch and threads",
    "best": "best of all executors",
    "loop": "times the loop",
    "verdict": "verdict",
}
SAME = ("threads", "batch", "punctuation", "heat")  # columns in which compared rows agree
WORDS = {">": "more", "<": "less", "=": "as much", ">=": "at least as much", "<=": "at most as much"}


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, or a goal of this project.

    Attributes:
        says: The claim, in our words.
        source: The section or figure of the paper, or GOAL.
        published: Selects the row of the algorithm as published, by its columns and parameters.
        ours: Selects the row of our algorithm.
        over: What is different in the row that both are compared with. Empty: the column itself counts, not a ratio.
        column: A column, or the parts of an event's time whose share counts.
        by: The columns with a line for each combination of their values.
        expects: How the row relates to the other one, or to the paper's value: a key of WORDS.
        paper: The paper's value: for all cases, or by a value of a column in `by`.
        needs: What the claim needs: NODES, a number of cores, or something that Lockstep does not have.
    """

    says: str
    source: str
    published: Ways | None = None
    ours: Ways | None = None
    over: Ways = field(default_factory=dict)
    column: str | tuple[str, ...] = "events_per_s"
    by: tuple[str, ...] = ("app",)
    expects: str = ">"
    paper: float | Mapping[str, float] | None = None
    needs: str | int = ""


@dataclass(frozen=True)
class Measured:
    """A figure of a case: its row, text, median, and interval. Without an interval it cannot be judged; `why` says why.

    Shares are between 0 and 1, columns in their own units, and ratios without a unit.
    """

    row: Row
    text: str
    median: float | None = None
    ends: tuple[float, float] | None = None
    why: str = ""

    @property
    def short(self) -> str:
        """The median with its unit, without the interval; "" without a figure."""
        if self.text.startswith("no ") and self.median is not None:  # no difference was seen
            return f"{three_digits(self.median)} times"
        return re.sub(r" \(.*\)", "", self.text)


@dataclass(frozen=True)
class Line:
    """A case of a claim, with texts for a table.

    Attributes:
        claim: The claim.
        case: The values of its columns `by`.
        paper: The paper's value.
        published: The figure of the way as published, or None.
        ours: The figure of our way, or None.
        best: The row of the fastest way of the heat on as many threads, or None.
        verdict: The verdict.
    """

    claim: Claim
    case: str
    paper: str
    published: Measured | None
    ours: Measured | None
    best: Row | None
    verdict: str

    @property
    def cells(self) -> dict[str, str]:
        """The fields of TITLES."""
        claim, judged = self.claim, self.published or self.ours
        return {
            "says": f"{claim.says} ({claim.source})",
            "measure": "" if claim.published is None and claim.ours is None else _measure_name(claim.column),
            "case": self.case,
            "conditions": conditions(judged.row) if judged else "",
            "paper": self.paper,
            "published": self.published.text if self.published else "",
            "ours": self.ours.text if self.ours else "",
            "best": self.best["way"] if self.best else "",
            "loop": ", ".join(map(three_digits, self.times_loop)),
            "verdict": self.verdict,
        }

    @property
    def times_loop(self) -> list[float]:
        """The throughput relative to the loop: as published, ours, and the best."""
        rows = [*(side.row for side in (self.published, self.ours) if side), *([self.best] if self.best else [])]
        return [row["to_loop"] for row in rows if row.get("to_loop") is not None]


def conditions(row: Row) -> str:
    """Return the batch and the threads of a row: `500 events, 2 threads`."""
    batch = batch_of(row)
    return f"{batch:,} event{'s' * (batch != 1)}, {threads_of(row)}" if batch else threads_of(row)


def batch_of(row: Row) -> int | None:
    """Return the events that a row's way takes at a time: its punctuation interval, or its batch."""
    return row.get("punctuation" if row.get("executor") == "transactional" else "batch")


def lines(claims: Iterable[Claim], rows: list[Row], cores: int, nodes: int) -> list[Line]:
    """Return the lines of claims.

    Args:
        claims: The claims.
        rows: The rows of the experiment.
        cores: The cores of the machine.
        nodes: The memory nodes of the machine.
    """
    right = [row for row in rows if row["result"] != "different" and "at_s" not in row]
    return [line for claim in claims for line in _lines(claim, right, _lacking(claim.needs, cores, nodes))]


def _lines(claim: Claim, rows: list[Row], lacking: str) -> Iterator[Line]:
    none = UNTESTABLE + f": needs {lacking}" * bool(lacking)
    has_case = False
    for key in dict.fromkeys(tuple(value(row, name) for name in claim.by) for row in rows):
        if None in key:
            continue
        where = dict(zip(claim.by, key, strict=True))
        published = _measure(claim, claim.published, where, rows)
        of_ours = rows if published is None else _alike(rows, published.row, {})
        ours = _measure(claim, claim.ours, where, of_ours)
        judged = ours if claim.published is None else published
        if published is None and ours is None:
            continue
        has_case = True
        paper = _value(claim.paper, key)
        if judged is None:
            verdict = none
        elif lacking or (paper is None and not claim.over) or judged.ends is None:
            verdict = none if lacking or not judged.why else f"{UNTESTABLE}: {judged.why}"
        else:
            verdict = _verdict(claim, paper, judged)
        case = ", ".join(text if isinstance(text, str) else f"{name} {text:,}" for name, text in where.items())
        known = published or ours
        best = _best(rows, known.row) if known and claim.column == "events_per_s" else None
        yield Line(claim, case, _papers(claim, paper), published, ours, best, verdict)
    if not has_case:
        yield Line(claim, "", _papers(claim, _value(claim.paper, ())), None, None, None, none)


def _alike(rows: list[Row], own: Row, over: Ways) -> list[Row]:
    """Return the rows that may be compared with a row: they agree with it in SAME, but for what `over` varies."""
    same = [name for name in SAME if name not in over and own.get(name) is not None]
    if "app" in over or set(over) & set(own["params"]):
        same = [name for name in same if name != "heat"]
    return [row for row in rows if all(row.get(name) in (None, own[name]) for name in same)]


def _best(rows: list[Row], own: Row) -> Row | None:
    """Return the fastest correct row of the heat of a row that has its number of threads."""
    heat = [row for row in rows if row.get("heat") == own.get("heat") and row["threads"] == own["threads"]]
    return best(row for row in equal_rows(heat) if "executor" in row)


def _measure(claim: Claim, ways: Ways | None, where: dict[str, Any], rows: list[Row]) -> Measured | None:
    """Return the figure of a way in a case, or None if it has no row."""
    column = claim.column
    own = None if ways is None else _select(_matching(_matching(rows, where), ways), column, ways)
    if own is None or ways is None:
        return None
    absolute = _absolute(own, column)
    if not claim.over:
        return absolute
    elsewhere = {name: known for name, known in where.items() if name not in claim.over}
    others = _matching(_matching(_alike(rows, own, claim.over), elsewhere), {**ways, **claim.over})
    other = _select(others, column, claim.over)
    if other is own:
        return None
    if other is None:
        return Measured(own, absolute.text)
    if isinstance(column, str) and rounds_of(own, column) and rounds_of(other, column):
        ratio = compare(own, other, column, over_threads=True)
        if ratio.rounds < 2:
            return Measured(own, ratio.text, ratio.median, why="the cores moved" * (len(own["rates"]) > 1))
        return Measured(own, ratio.text, ratio.median, (ratio.low, ratio.high))
    if not (base := _figure(other, column)):
        return Measured(own, absolute.text)
    times = (absolute.median or 0.0) / base
    return Measured(own, f"{three_digits(times)} times", times, (times, times))


def _matching(rows: Iterable[Row], ways: Ways) -> list[Row]:
    def allows(wanted: Any, known: Any) -> bool:
        return wanted == ANY or known in wanted if isinstance(wanted, tuple) else known == wanted

    return [row for row in rows if all(allows(wanted, value(row, name)) for name, wanted in ways.items())]


def _select(rows: list[Row], column: str | tuple[str, ...], ways: Ways) -> Row | None:
    """Return the best row with the most threads, or of the numbers of threads that the ways name.

    The rows of several passes of one way are one row.
    """
    known = [row for row in rows if _figure(row, column) is not None]
    if "threads" not in ways:
        known = [row for row in known if row["threads"] == most(known)]
    if known and "pass" in known[0] and isinstance(column, str):
        figures = [row[column] for row in known]
        ends = {f"{column}_range": interval(figures), "rounds": {column: figures}}
        return known[0] | {column: statistics.median(figures)} | ends
    is_cost = isinstance(column, str) and column.endswith(("_us", "_ns", "_nj"))
    return (min if is_cost else max)(known, key=lambda row: _figure(row, column) or 0.0, default=None)


def _figure(row: Row, column: str | tuple[str, ...]) -> float | None:
    """Return a column, or the share of parts in an event's time."""
    if isinstance(column, str):
        return row.get(column)
    spent: dict[str, float | None] = row.get("breakdown") or {}
    if not {*column} <= spent.keys():
        return None
    total = sum(ns for ns in spent.values() if ns)
    return sum(spent[part] or 0 for part in column) / total if total else None


def _absolute(row: Row, column: str | tuple[str, ...]) -> Measured:
    figure = _figure(row, column) or 0.0
    if isinstance(column, str):
        low, high = row.get(f"{column}_range") or (figure, figure)
        return Measured(row, quantity(row, column), figure, (low, high))
    return Measured(row, _percent(figure), figure, (figure, figure))


def _verdict(claim: Claim, paper: float | None, measured: Measured) -> str:
    """Return the verdict of the table above."""
    low, high = measured.ends or (0.0, 0.0)
    known = 1.0 if paper is None else paper
    is_reversed = False
    if claim.expects == ">":
        is_reversed, is_reached = high < 1, low > 1 and high >= known
    elif claim.expects == "<":
        is_reversed, is_reached = low > 1, high < 1 and low <= known
    elif claim.expects == "=" or paper is None:
        is_high_enough = high >= (known / NEAR if claim.expects == "=" else known) or claim.expects == "<="
        is_low_enough = low <= (known * NEAR if claim.expects == "=" else known) or claim.expects == ">="
        is_reached = is_high_enough and is_low_enough
        if is_reached and low <= known <= high and high > WIDE * low:
            return f"{UNTESTABLE}: the interval is wide"
    else:
        median = measured.median or 0.0
        is_reached = median >= known if claim.expects == ">=" else median <= known
    if claim.source == GOAL:
        return "met" if is_reached else "missed"
    return "reversed" if is_reversed else "reproduced" if is_reached else "weaker"


def _value(paper: float | Mapping[str, float] | None, key: tuple[Any, ...]) -> float | None:
    """Return the paper's value for a case."""
    if isinstance(paper, Mapping):
        return next((paper[name] for name in key if name in paper), None)
    return paper


def _papers(claim: Claim, paper: float | None) -> str:
    """Return the paper's value as text."""
    if paper is None:
        return WORDS[claim.expects] if claim.over else ""
    bound = {">=": "at least ", "<=": "at most "}.get(claim.expects, "")
    if claim.over:
        return f"{bound}{three_digits(paper)} times"
    if not isinstance(claim.column, str):
        return bound + _percent(paper)
    divisor, unit = unit_of(claim.column)
    return f"{bound}{three_digits(paper / divisor)}{unit}"


def _lacking(needs: str | int, cores: int, nodes: int) -> str:
    """Return what a claim needs and this machine lacks, or ""."""
    if isinstance(needs, int):
        return f"{needs} cores" if cores < needs else ""
    return "" if needs == NODES and nodes > 1 else needs


def _measure_name(column: str | tuple[str, ...]) -> str:
    if isinstance(column, str):
        return NOUNS.get(column, column)
    return f"share of {', '.join(part.replace('_', '-') for part in column)} in the time of an event"


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")
