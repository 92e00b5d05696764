"""The page of a find: the smallest case, its events, expected beside actual, and the test to copy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from markupsafe import Markup

from reports import times
from reports.history.text import lines, words
from reports.views.rows import marked
from reports.views.timeline import Timeline
from streaming_core.data.comparison import shown
from streaming_core.search.case import EVENTS
from streaming_core.search.find import Find, way_text

MOST_EVENTS = 60  # of the table
_TIME = "ts"


@dataclass(frozen=True)
class EventRow:
    """An event: its number, the text of each field, its time after the event before, and whether its outputs differ."""

    seq: int
    fields: list[str]
    after: str
    is_wrong: bool


@dataclass(frozen=True)
class WrongRow:
    """A row that differs: its table, its kind, its place, and both sides with the differing values marked."""

    table: str
    kind: str
    place: str
    expected: Markup | str
    actual: Markup | str


@dataclass(frozen=True)
class FindView:
    """What the page of a find shows.

    Attributes:
        find: The find.
        way: The way of executing, in words; empty if the oracle alone shows it.
        names: The fields of an event, and whether they are numbers.
        events: The first events.
        more: The number of the others.
        timeline: Their picture; None if it would show no more than the table.
        rows: The first rows that differ.
        more_rows: The number of the others.
        test: The lines of the test.
        facts: Name and value of all that is known beside.
    """

    find: Find
    way: str
    names: dict[str, bool]
    events: list[EventRow]
    more: int
    timeline: Timeline | None
    rows: list[WrongRow]
    more_rows: int
    test: list[str]
    facts: list[tuple[str, object]]

    @classmethod
    def of(cls, find: Find) -> FindView:
        """The view of a find. A file that is gone leaves its part empty."""
        events = _events(find.folder / EVENTS)
        wrong = {difference["row"].get("seq") for difference in find.differences}
        table = list(_rows(events.slice(0, MOST_EVENTS), wrong))
        return cls(
            find=find,
            way=way_text(find.way) if find.symptom.needs_run else "",
            names={field.name: _is_number(field.type) for field in events.schema if field.name != "seq"},
            events=table,
            more=events.num_rows - len(table),
            timeline=Timeline.of(find.app, events.slice(0, MOST_EVENTS).to_pylist(), wrong),
            rows=[_wrong(difference) for difference in find.differences],
            more_rows=sum(find.counts.values()) - len(find.differences),
            test=lines(find.test, 10_000),
            facts=[(name, value) for name, value in _facts(find) if value not in (None, "")],
        )


def _events(file: Path) -> pa.Table:
    try:
        return pq.read_table(file)
    except (OSError, pa.ArrowException):
        return pa.table({"seq": pa.array([], pa.int64())})


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _rows(events: pa.Table, wrong: set[int | None]) -> Iterator[EventRow]:
    rows = events.to_pylist()
    gaps = [""] * len(rows)
    if rows and isinstance(rows[0].get(_TIME), int):
        gaps[1:] = [f"{later[_TIME] - earlier[_TIME]:+,}" for earlier, later in pairwise(rows)]
    for row, gap in zip(rows, gaps, strict=True):
        seq = row.pop("seq")
        yield EventRow(seq, ["" if value is None else shown(value) for value in row.values()], gap, seq in wrong)


def _wrong(difference: dict[str, Any]) -> WrongRow:
    sides = (difference[name] for name in ("expected", "actual"))
    sides = (side if isinstance(side, str | None) else json.dumps(side) for side in sides)
    return WrongRow(
        difference["table"], difference["kind"].replace("_", " "), shown(difference["row"]), *marked(*sides)
    )


def _facts(find: Find) -> Iterator[tuple[str, object]]:
    yield "parameters", words(find.params) or "all at their defaults"
    yield "shown by", find.how_often
    yield "events drawn as", find.origin
    yield "search", f"{find.seconds:,.0f} s until it showed, seed {find.seed}" if find.seconds else ""
    yield "shrinking", f"{find.shrinking:,.0f} s" if find.shrinking else ""
    yield "time", times.html(datetime.fromisoformat(find.time)) if find.time else ""
    yield "build", find.build
    yield "digest of the code", find.code
    yield "digest of the case", find.digest
    yield "folder", find.folder
