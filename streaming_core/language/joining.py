"""Joins of two streams within a span of event time: a declaration that becomes a windowed operator.

    app.join(orders, payments, on="order", within="10m").sink()
    app.join(orders, payments, on=("shop", "order"), within="10m").sink()
    app.join(orders, payments, on={"id": "order"}, within="10m").sink()

Rows meet if they have the same key, and if their `ts` differ by at most `within`. With `band`, the values of two number
fields must also be close to each other. A pair leaves with the row that comes last.

A key keeps the rows of both streams that can still meet one, in columns (language/record.py: Queue). So the fields
besides the key are numbers and texts.

The first field of a band is an index. Its values fall into buckets, which are a little wider than the largest
difference. So rows that are close to each other lie in the same bucket or in neighbouring ones. The bucket is part of
the key: a left row has one, a right row has three. A row therefore meets few rows that are too far away, and replicas
share the buckets.

Pairs of one row leave in ascending order of their buckets. Within a bucket they leave in the order in which the earlier
rows came. Without a band, this order alone counts.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streaming_core.errors import BadInput
from streaming_core.language import generated
from streaming_core.language.aggregation import as_text, late_rows
from streaming_core.language.extent import in_units, rolling
from streaming_core.language.keys import is_key
from streaming_core.language.operator import Operator
from streaming_core.language.record import FieldType, Nullable, Queue, Record, Scalar, Text, i64
from streaming_core.language.sinks import gathered
from streaming_core.language.stream import Stream
from streaming_core.language.window import MOST


@dataclass(frozen=True)
class Join:
    """A join of two streams.

    Attributes:
        app: The name of the application.
        name: The name of the operator.
        sides: The records of the left and the right stream.
        on: The key: by field of the left record the field of the right one. Empty: the band alone says which rows meet.
        span: The largest difference of `ts`.
        band: By field of the left record the field of the right one, and the largest difference.
    """

    app: str
    name: str
    sides: tuple[Record, Record]
    on: dict[str, str]
    span: int
    band: dict[str, tuple[str, float]]

    def refusal(self, why: str) -> BadInput:
        """The error that says why the join is invalid."""
        return BadInput(f"app {self.app}: join{why}")

    def check(self) -> None:
        """Raise BadInput if a field is missing or an array, or if neither a key nor a band says which rows meet."""
        if not self.on and not self.band:
            raise self.refusal(': say which rows meet: on="field", or band={"field": ("field", distance)}')
        self._check_key()
        for one, (other, distance) in self.band.items():
            for record, field in zip(self.sides, (one, other), strict=True):
                known = record.fields.get(field)
                if not isinstance(known, Scalar) or known.name == "boolean":
                    raise self.refusal(f": band: {record!r} has no number field {field!r}")
            is_number = isinstance(distance, int | float) and not isinstance(distance, bool)
            most, text = (math.inf, "") if self.is_of_floats(one, other) else (1 << 63, " and below 2^63")
            if not is_number or not 0 <= distance < most:
                raise self.refusal(f": band: the distance of {one} must be a number from 0{text}, got {distance!r}")

    def _check_key(self) -> None:
        """Raise BadInput unless the key has fields of both sides, and the other fields are numbers and texts."""
        keys = [self.key_of(number) for number in range(2)]
        for record, key in zip(self.sides, keys, strict=True):
            for field in key:
                if field == "ts":
                    raise self.refusal(" on 'ts': the result has a field ts of its own; copy it with flat_map")
                if field not in record.fields:
                    raise self.refusal(f" on {field!r}: {record!r} has no such field")
                if not is_key(record.fields[field]):
                    raise self.refusal(f" on {field!r}: a key is an integer or a text; convert it with flat_map")
            if len({*key}) < len(key):
                raise self.refusal(f" on {key}: a field is there twice; name each field once")
        for left, right in self.on.items():
            if self.sides[0].fields[left] != self.sides[1].fields[right]:
                both = repr(left) if left == right else f"{left!r} and {right!r}"
                raise self.refusal(f" on {both}: both streams need a field of the same type")
        for record, key in zip(self.sides, keys, strict=True):
            for field, kind in record.fields.items():
                if field not in key and not isinstance(kind, Scalar | Text | Nullable):
                    advice = "but a join keeps numbers and texts only; leave it out with flat_map"
                    raise self.refusal(f": {record!r}: {field} is a {type(kind).__name__}, {advice}")

    def key_of(self, number: int) -> tuple[str, ...]:
        """The fields of one side that are its key."""
        return tuple(self.on if number == 0 else self.on.values())

    @property
    def kept(self) -> tuple[dict[str, FieldType], ...]:
        """The fields that the kept rows of each side have: all but the key."""
        return tuple(
            {field: kind for field, kind in side.fields.items() if field not in self.key_of(number)}
            for number, side in enumerate(self.sides)
        )

    @property
    def titles(self) -> tuple[dict[str, str], ...]:
        """The names that the fields of each side have in a pair; a name of both sides gets the name of its record."""
        left, right = self.kept
        return tuple(
            {field: f"{side.name.lower()}_{field}" if field in other else field for field in own if field != "ts"}
            for side, own, other in zip(self.sides, (left, right), (right, left), strict=True)
        )

    @property
    def output(self) -> Record:
        """The record of a pair."""
        ts, other = (side.fields.get("ts", i64) for side in self.sides)
        fields: dict[str, FieldType] = {"ts": ts if ts == other else i64}
        fields |= {field: self.sides[0].fields[field] for field in self.on}
        for kinds, titles in zip(self.kept, self.titles, strict=True):
            for field, title in titles.items():
                if title in fields:
                    raise self.refusal(f": two fields of the result are called {title}; rename one")
                fields[title] = kinds[field]
        return Record(self.name, fields, None)

    @property
    def states(self) -> tuple[Record, ...]:
        """The state of each side: the rows that it keeps."""
        return tuple(
            Record(f"{self.name}_{side}", {"rows": Queue(Record(f"{self.name}_{side}_row", dict(fields), None))}, None)
            for side, fields in zip(("left", "right"), self.kept, strict=True)
        )

    @property
    def bucket(self) -> str:
        """The field of a key that holds the bucket: `bucket`, with as many underscores as it takes to differ."""
        return next(name for n in range(len(self.on) + 1) if (name := "bucket" + "_" * n) not in self.on)

    @property
    def key(self) -> Record:
        """The record of a key, with a bucket if there is a band."""
        fields: dict[str, FieldType] = {field: self.sides[0].fields[field] for field in self.on}
        return Record(f"{self.name}_key", fields | ({self.bucket: i64} if self.band else {}), None)

    def is_of_floats(self, left: str, right: str) -> bool:
        """Whether a field of the left record or one of the right record is a float."""
        kinds = (self.sides[0].fields[left], self.sides[1].fields[right])
        return any(isinstance(kind, Scalar) and kind.is_float for kind in kinds)

    def keys(self, number: int) -> str:
        """Return the source of the function that adds the keys of a row of one stream.

        Integers that differ by at most the width of a bucket are in the same bucket or in neighbouring ones. So are
        floats, although a division rounds. Their buckets are wider than the distance by a millionth, and the quotient
        is below 2^31, so it rounds by less. Values beyond fall into the outermost buckets. NaN is close to nothing.
        """
        same = ", ".join(f"{field}=row.{own}" for field, own in zip(self.on, self.key_of(number), strict=True))
        if not self.band:
            return f"def {self.name}_keys_{number}(row, keys):\n    keys.add({same})\n"
        left, (right, distance) = next(iter(self.band.items()))
        value = f"row.{(left, right)[number]}"
        same += ", " if same else ""
        steps = ("",) if number == 0 else (" - 1", "", " + 1")
        lines = [f"keys.add({same}{self.bucket}=at{step})" for step in steps]
        if self.is_of_floats(left, right):
            width = distance * (1 + 1e-6) if distance * 2.0**31 > 0 else 1.0
            most = min(width * 2.0**31, sys.float_info.max)
            lines.insert(0, f"at = int(min(max({value}, {-most!r}), {most!r}) // {width!r})")
            lines = [f"if {value} == {value}:", *(f"    {line}" for line in lines)]
        else:
            lines.insert(0, f"at = {value} // {max(int(distance), 1)}")
        return "\n    ".join([f"def {self.name}_keys_{number}(row, keys):", *lines]) + "\n"

    def update(self, number: int) -> str:
        """Return the source of the update function of one stream: the row meets those of the other, and is kept."""
        own, other = ("lefts", "rights") if number == 0 else ("rights", "lefts")
        values = ["ts=max(row.ts, kept[i].ts)"]
        values += [f"{field}=window.key.{field}" for field in self.on]
        for side, titles in enumerate(self.titles):
            row = "row" if side == number else "kept[i]"
            values += [f"{title}={row}.{field}" for field, title in titles.items()]
        # A row may come before rows with an earlier `ts`. So the first kept row is not always the earliest.
        conditions = ["kept[i].ts >= window.start", f"abs(row.ts - kept[i].ts) <= {self.span}"]
        for left, (right, distance) in self.band.items():
            one, two = (f"row.{left}", f"kept[i].{right}") if number == 0 else (f"kept[i].{left}", f"row.{right}")
            if self.is_of_floats(left, right):
                conditions.append(f"abs({one} - {two}) <= {distance!r}")
            else:  # from 2^63 on, a difference wraps to a negative one
                conditions.append(f"0 <= max({one}, {two}) - min({one}, {two}) <= {int(distance)}")
        kept = ", ".join(f"{field}=row.{field}" for field in self.kept[number])
        return (
            f"def {self.name}{'' if number == 0 else '_right'}(row, window, lefts, rights, out):\n"
            f"    kept = {other}.rows\n"
            "    while len(kept) > 0 and kept[0].ts < window.start:\n"
            "        kept.popleft()\n"
            "    for i in range(len(kept)):\n"
            f"        if {' and '.join(conditions)}:\n"
            f"            out.emit({', '.join(values)})\n"
            f"    while len({own}.rows) > 0 and {own}.rows[0].ts < window.start:\n"
            f"        {own}.rows.popleft()\n"
            f"    {own}.rows.append({kept})\n"
        )


class Pairs(Stream):
    """The pairs of a join."""

    def __init__(self, join: Join, streams: tuple[Stream, Stream], operators: list[Operator]):
        super().__init__(streams[0]._app, operators)
        self._join, self._inputs = join, streams

    def late(self, name: str = "late") -> Stream:
        """The rows of both streams that came too late for the join, with the column `stream` of app.sources.

        One state serves all keys, because the watermark does. So these rows are found on one thread.
        """
        app: Any = self._app
        record, texts = gathered(app.name, dict(zip(("left", "right"), self._join.sides, strict=True)), "stream")
        first, second = (
            stream.flat_map(generated.function(app._module, text.replace("def to", f"def {name}", 1)), record)
            for stream, text in zip(self._inputs, texts.values(), strict=True)
        )
        return late_rows(first.union(second), name, f"row.ts + {self._join.span + 1}", as_text(app._delay(None)))


def joined(
    app: Any,
    left: Stream,
    right: Stream,
    on: str | tuple[str, ...] | dict[str, str] | None,
    within: int | str,
    band: dict[str, tuple[str, float]],
    name: str,
) -> Pairs:
    """Declare the operator of `App.join`."""
    span = in_units(within, app)
    if type(span) is not int or not 0 <= span < MOST:
        reason = f"within must be a duration such as '10s', or a number from 0 to below 2^61, not {within!r}"
        raise BadInput(f"app {app.name}: join: {reason}")
    if not isinstance(on, dict):
        fields = () if on is None else (on,) if isinstance(on, str) else on
        if len({*fields}) < len(fields):
            raise BadInput(f"app {app.name}: join on {fields}: a field is there twice; name each field once")
        on = {field: field for field in fields}
    join = Join(app.name, name, (left._record, right._record), on, span, band)
    join.check()
    output = join.output

    def written(source: Callable[[int], str]) -> tuple[Callable, ...]:
        return tuple(generated.function(app._module, source(number)) for number in range(2))

    streams = app.connect(left, right)
    is_same = not band and all(field == other for field, other in on.items())
    keyed = streams.key_by(*on) if is_same else streams.key_by(join.key, keys=written(join.keys))
    pairs = keyed.window(rolling(span + 1)).apply(written(join.update), join.states, output)
    return Pairs(join, (left, right), pairs._operators)
