"""Joins of two streams: a declaration that becomes a windowed operator.

    app.join(orders, payments, on="order", within="10m").sink()
    app.join(orders, payments, on=("shop", "order"), within="10m").sink()
    app.join(orders, payments, on={"id": "order"}, within="10m").sink()
    app.join(orders, payments, on="order", within="10m", how="left").sink()
    app.join(orders, customers, on="customer", ttl="1d").sink()

Rows meet if they have the same key, and if their `ts` differ by at most `within`. With `band`, the values of two number
fields must also be close to each other. A pair leaves with the row that comes last.

With `ttl` instead of `within`, the state of a key is that of a session whose gap is `ttl`, and all rows in it meet.
Left and full joins are sessions too, whose gap is just longer than `within`. Rows without a match leave at the end of
the session, or with the row of their key that comes too late to meet them.

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

import itertools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streaming_core.errors import BadInput, unknown
from streaming_core.language import generated
from streaming_core.language.agg import ROWS
from streaming_core.language.aggregation import as_text, late_rows
from streaming_core.language.extent import in_units, rolling, session
from streaming_core.language.generated import indented, source
from streaming_core.language.keys import is_key
from streaming_core.language.operator import Operator
from streaming_core.language.record import FieldType, Nullable, Queue, Record, Scalar, Set, Text, boolean, i64
from streaming_core.language.sinks import gathered
from streaming_core.language.stream import Stream
from streaming_core.language.window import MOST
from streaming_core.language.windowed import Windows

# The sides whose rows also leave without a match.
OUTER = {"inner": (), "left": (0,), "full": (0, 1)}
SIDES = ("lefts", "rights")
# The gap of a session that lasts until the end of the stream: a delay has to fit beside it.
FOREVER = MOST - (MOST >> 4)


@dataclass(frozen=True)
class Join:
    """A join of two streams.

    Attributes:
        app: The name of the application.
        name: The name of the operator.
        sides: The records of the left and the right stream.
        on: The key: by field of the left record the field of the right one. Empty: the band alone says which rows meet.
        span: The largest difference of `ts`; None: any.
        band: By field of the left record the field of the right one, and the largest difference.
        outer: The sides whose rows also leave without a match.
        gap: A key forgets its rows once it has had no row for so long; None: each row goes by its own `ts`.
        delay: The delay of the rows, as the text of a function.
    """

    app: str
    name: str
    sides: tuple[Record, Record]
    on: dict[str, str]
    span: int | None
    band: dict[str, tuple[str, float]]
    outer: tuple[int, ...] = ()
    gap: int | None = None
    delay: str = "0"

    def refusal(self, why: str) -> BadInput:
        """The error that says why the join is invalid."""
        return BadInput(f"app {self.app}: join{why}")

    def check(self) -> None:
        """Raise BadInput if a field is missing or an array, or if neither a key nor a band says which rows meet."""
        if not self.on and not self.band:
            raise self.refusal(': say which rows meet: on="field", or band={"field": ("field", distance)}')
        self._check_key()
        for left, (right, distance) in self.band.items():
            for record, field in zip(self.sides, (left, right), strict=True):
                known = record.fields.get(field)
                if not isinstance(known, Scalar) or known.name == "boolean":
                    raise self.refusal(f": band: {record!r} has no number field {field!r}")
            is_number = isinstance(distance, int | float) and not isinstance(distance, bool)
            most, text = (math.inf, "") if self.is_of_floats(left, right) else (1 << 63, " and below 2^63")
            if not is_number or not 0 <= distance < most:
                raise self.refusal(f": band: the distance of {left} must be a number from 0{text}, got {distance!r}")

    def _check_key(self) -> None:
        """Raise BadInput unless the key has fields of both sides, and the other fields are numbers and texts."""
        keys = [self.key_of(number) for number in range(2)]
        for record, key in zip(self.sides, keys, strict=True):
            for field in key:
                if field == "ts":
                    raise self.refusal(" on 'ts': the result has a field ts of its own; copy it with flat_map")
                if field not in record.fields:
                    raise self.refusal(f" on {field!r}: {record!r} has no such field")
                if not is_key(kind := record.fields[field]):
                    fit = "cannot be null; give it a value" if isinstance(kind, Nullable) else "is an integer or a text"
                    raise self.refusal(f" on {field!r}: a key {fit}; convert it with flat_map")
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
        fields: dict[str, FieldType] = {"ts": ts if ts == other and not self.outer else i64}
        fields |= {field: self.sides[0].fields[field] for field in self.on}
        for number, (kinds, titles) in enumerate(zip(self.kept, self.titles, strict=True)):
            is_missing = 1 - number in self.outer
            for field, title in titles.items():
                if title in fields:
                    raise self.refusal(f": two fields of the result are called {title}; rename one")
                fields[title] = kinds[field] | None if is_missing else kinds[field]
        return Record(self.name, fields, None)

    @property
    def number(self) -> str:
        """The field of a kept row that holds its number: `number`, with as many underscores as it takes to differ."""
        names = ("number" + "_" * n for n in itertools.count())
        return next(name for name in names if not any(name in side for side in self.kept))

    @property
    def states(self) -> tuple[Record, ...]:
        """The state of each side: the rows that it keeps, and the numbers of those that have met one."""
        states = []
        for number, side in enumerate(SIDES):
            row: dict[str, FieldType] = dict(self.kept[number])
            state: dict[str, FieldType] = {}
            if number in self.outer and self.span is not None:
                row[self.number], state = i64, {"matched": Set(i64), ROWS: i64}
            if number == 0 and self.span is None:
                state = {"has_row": boolean, "latest_row": i64}
            rows = Queue(Record(f"{self.name}_{side}_row", row, None))
            states.append(Record(f"{self.name}_{side}", {"rows": rows, **state}, None))
        return tuple(states)

    @property
    def lasting(self) -> int:
        """How long a row waits for others, in units of `ts`."""
        return self.span + 1 if self.gap is None and self.span is not None else self.gap or 0

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
            return source(f"{self.name}_keys_{number}(row, keys)", [f"keys.add({same})"])
        left, (right, distance) = next(iter(self.band.items()))
        value = f"row.{(left, right)[number]}"
        same += ", " if same else ""
        steps = ("",) if number == 0 else (" - 1", "", " + 1")
        lines = [f"keys.add({same}{self.bucket}=at{step})" for step in steps]
        if self.is_of_floats(left, right):
            width = distance * (1 + 1e-6) if distance * 2.0**31 > 0 else 1.0
            most = min(width * 2.0**31, sys.float_info.max)
            lines.insert(0, f"at = int(min(max({value}, {-most!r}), {most!r}) // {width!r})")
            lines = [f"if {value} == {value}:", *indented(lines)]
        else:
            lines.insert(0, f"at = {value} // {max(int(distance), 1)}")
        return source(f"{self.name}_keys_{number}(row, keys)", lines)

    def update(self, number: int) -> str:
        """Return the source of the update function of one stream: the row meets those of the other, and is kept."""
        lines = _forgotten(SIDES[1 - number], "window.start", []) if self.gap is None else self._end()
        own, other = SIDES[number], SIDES[1 - number]
        lines.append(f"kept = {other}.rows")
        rows = ("row", "kept[i]") if number == 0 else ("kept[i]", "row")
        conditions = []
        if self.span is not None:
            # A row may come before rows with an earlier `ts`. So the first kept row is not always the earliest.
            least = "window.start" if self.gap is None else "least"
            conditions = [f"kept[i].ts >= {least}", f"abs(row.ts - kept[i].ts) <= {self.span}"]
        for left, (right, distance) in self.band.items():
            first, two = f"{rows[0]}.{left}", f"{rows[1]}.{right}"
            if self.is_of_floats(left, right):
                conditions.append(f"abs({first} - {two}) <= {distance!r}")
            else:  # from 2^63 on, a difference wraps to a negative one
                conditions.append(f"0 <= max({first}, {two}) - min({first}, {two}) <= {int(distance)}")
        pair = [self._emit("max(row.ts, kept[i].ts)", *rows)]
        is_marked = [self.span is not None and side in self.outer for side in (number, 1 - number)]
        if is_marked[1]:
            pair.append(f"{other}.matched.add(kept[i].{self.number})")
        if is_marked[0]:
            lines.append("is_matched = False")
            pair.append("is_matched = True")
        if conditions:
            pair = [f"if {' and '.join(conditions)}:", *indented(pair)]
        lines += ["for i in range(len(kept)):", *indented(pair)]
        values = [f"{field}=row.{field}" for field in self.kept[number]]
        if is_marked[0]:
            lines += [f"{own}.{ROWS} += 1", "if is_matched:", f"    {own}.matched.add({own}.{ROWS})"]
            values.append(f"{self.number}={own}.{ROWS}")
        if self.gap is None:
            lines += _forgotten(own, "window.start", [])
        lines.append(f"{own}.rows.append({', '.join(values)})")
        return source(f"{self.name}{'' if number == 0 else '_right'}(row, window, lefts, rights, out)", lines)

    @property
    def result(self) -> str:
        """The source of the function that emits the rows without a match once their key has had no row for the gap."""
        ts = f"window.end - {self.delay}" + (f" - {self.gap}" if self.gap == FOREVER else "")
        return source(f"{self.name}_result(window, lefts, rights, out)", self._unmatched(ts))

    def _unmatched(self, ts: str) -> list[str]:
        """The statements that emit all rows without a match."""
        lines: list[str] = []
        for side in self.outer:
            own, other = SIDES[side], SIDES[1 - side]
            each = [f"for i in range(len({own}.rows)):"]
            emit = self._alone(side, ts, f"{own}.rows[i]")
            if self.span is None:
                lines += [f"if len({other}.rows) == 0:", *indented([*each, f"    {emit}"])]
            else:
                lines += [*each, f"    if not ({own}.rows[i].{self.number} in {own}.matched):", f"        {emit}"]
        return lines

    def _alone(self, side: int, ts: str, row: str) -> str:
        return self._emit(ts, *((row, None) if side == 0 else (None, row)))

    def _emit(self, ts: str, *rows: str | None) -> str:
        """The statement that emits a pair; the fields of a side without a row are null."""
        values = [f"ts={ts}", *(f"{field}=window.key.{field}" for field in self.on)]
        for titles, row in zip(self.titles, rows, strict=True):
            values += [f"{title}={row}.{field}" if row else f"{title}=None" for field, title in titles.items()]
        return f"out.emit({', '.join(values)})"

    def _end(self) -> list[str]:
        """The statements that let go, at a row, the rows that meet no more."""
        if self.span is not None:
            lines = [f"least = window.end - {2 * self.span + 1} - 2 * {self.delay}"]
            for side, own in enumerate(SIDES):
                alone = []
                if side in self.outer:
                    emit = self._alone(side, "row.ts", f"{own}.rows[0]")
                    alone = [f"if not {own}.matched.remove({own}.rows[0].{self.number}):", f"    {emit}"]
                lines += _forgotten(own, "least", alone)
            return lines
        if self.delay == "0" or self.gap == FOREVER:
            return []
        # With a delay, a row can come before the session of its key has expired, although it begins the next one.
        clear = [f"{own}.rows.clear()" for own in SIDES]
        return [
            f"if lefts.has_row and row.ts - lefts.latest_row >= {self.gap}:",
            *indented([*self._unmatched("row.ts"), *clear]),
            "if not lefts.has_row or row.ts > lefts.latest_row:",
            "    lefts.has_row = True",
            "    lefts.latest_row = row.ts",
        ]


def _forgotten(side: str, horizon: str, before: list[str]) -> list[str]:
    """The statements that remove the oldest rows of a side, with what happens before each goes."""
    lines = [f"while len({side}.rows) > 0 and {side}.rows[0].ts < {horizon}:"]
    return [*lines, *indented([*before, f"{side}.rows.popleft()"])]


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
        return late_rows(first.union(second), name, f"row.ts + {self._join.lasting}", as_text(app._delay(None)))


def _time(
    app: Any, within: int | str | None, ttl: int | str | None, how: str, has_band: bool
) -> tuple[int | None, int | None]:
    """The span and the gap of a join (Join)."""

    def refusal(why: str) -> BadInput:
        return BadInput(f"app {app.name}: join: {why}")

    def units(option: str, duration: int | str, least: int, most: int) -> int:
        value = in_units(duration, app)
        if type(value) is not int or not least <= value < most:
            reason = f"must be a duration such as '10s', or a number from {least} to below 2^61, not {duration!r}"
            raise refusal(f"{option} {reason}")
        return value

    if how not in OUTER:
        raise refusal(unknown("how", how, OUTER))
    if (within is None) == (ttl == 0):
        raise refusal('say how long rows wait for others: within="10m", or ttl="1h", or ttl=None for ever')
    if has_band and (within is None or how != "inner"):
        raise refusal("band goes with within and how='inner'; filter the pairs instead")
    if within is None:
        return None, FOREVER if ttl is None else units("ttl", ttl, 1, FOREVER)
    span = units("within", within, 0, MOST)
    return span, None if how == "inner" else span + 1


def joined(
    app: Any,
    left: Stream,
    right: Stream,
    on: str | tuple[str, ...] | dict[str, str] | None,
    time: tuple[int | str | None, int | str | None],
    how: str,
    band: dict[str, tuple[str, float]],
) -> Pairs:
    """Declare the operator of `App.join`; `time` has `within` and `ttl`."""
    span, gap = _time(app, *time, how, bool(band))
    if not isinstance(on, dict):
        fields = () if on is None else (on,) if isinstance(on, str) else on
        if len({*fields}) < len(fields):
            raise BadInput(f"app {app.name}: join on {fields}: a field is there twice; name each field once")
        on = {field: field for field in fields}
    name, sides, delay = app._free("join"), (left._record, right._record), as_text(app._delay(None))
    join = Join(app.name, name, sides, on, span, band, OUTER[how], gap, delay)
    join.check()
    output = join.output

    def written(text: Callable[[int], str]) -> tuple[Callable, ...]:
        return tuple(generated.function(app._module, text(number), {"app": app}) for number in range(2))

    streams = app.connect(left, right)
    is_same = not band and all(field == other for field, other in on.items())
    keyed = streams.key_by(*on) if is_same else streams.key_by(join.key, keys=written(join.keys))
    updates = written(join.update)
    if gap is None:
        assert span is not None
        pairs = keyed.window(rolling(span + 1)).apply(updates, join.states, output)
        return Pairs(join, (left, right), pairs._operators)
    windows = Windows(app, keyed._streams, keyed._keys, session(gap), None, None)
    windows.check_time(name)
    functions = {f"{role}_{number}": function for role, both in (("update", updates), ("keys", keyed._keys.functions))
                 for number, function in enumerate(both)}  # fmt: skip
    if join.outer:
        functions["result"] = generated.function(app._module, join.result, {"app": app})
    return Pairs(join, (left, right), windows.added(name, functions, join.states, output)._operators)
