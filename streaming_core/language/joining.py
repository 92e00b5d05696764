"""Joins of two streams within a span of event time: a declaration that becomes a windowed operator.

    app.join(orders, payments, on="order", within="10m").sink()

Rows meet if they have the same key, and if their `ts` differ by at most `within`. With `band`, the values of two number
fields must also be close to each other. A pair leaves with the later row of the two.

A key keeps the rows of both streams that can still meet one, in columns (language/record.py: Queue), so they have
number fields only, besides the key.

The first field of a band is an index. Its values fall into buckets, which are a little wider than the largest
difference. So rows that are close to each other lie in the same bucket or in neighbouring ones. The bucket is part of
the key: a left row has one, a right row has three. A row therefore meets few rows that are too far away, and replicas
share the buckets.

Of the pairs of one row, those of lower buckets leave first. Within a bucket they leave in the order in which the
earlier rows came. Without a band, this order alone counts.
"""

from __future__ import annotations

import math
import sys
from typing import Any, Protocol

from streaming_core.errors import BadInput
from streaming_core.language import generated
from streaming_core.language.extent import in_units
from streaming_core.language.record import FieldType, Queue, Record, Scalar, i64


class Joined(Protocol):
    """One of the streams."""

    _record: Record
    _module: str


def joined(
    app: Any,
    left: Joined,
    right: Joined,
    on: str | None,
    within: int | str,
    band: dict[str, tuple[str, float]],
    name: str,
) -> Any:
    """The operator of `App.join`.

    Raises:
        BadInput: A field is missing, or no number, or has the name of another one.
    """
    sides = (left._record, right._record)
    for record in sides:
        if on is not None and on not in record.fields:
            raise BadInput(f"app {app.name}: join on {on!r}: {record!r} has no such field")
    if on is None and not band:
        raise BadInput(
            f'app {app.name}: join: say which rows meet: on="field", or band={{"field": ("field", distance)}}'
        )
    for one, (other, distance) in band.items():
        for record, field in zip(sides, (one, other), strict=True):
            if not _is_number(record.fields.get(field)):
                raise BadInput(f"app {app.name}: join: band: {record!r} has no number field {field!r}")
        is_number = isinstance(distance, int | float) and not isinstance(distance, bool)
        if not is_number or not 0 <= distance < math.inf:
            raise BadInput(
                f"app {app.name}: join: band: the distance of {one} must be a number from 0, got {distance!r}"
            )
    kept = [{field: kind for field, kind in record.fields.items() if field != on} for record in sides]
    for record, fields in zip(sides, kept, strict=True):
        for field, kind in fields.items():
            if not isinstance(kind, Scalar):
                raise BadInput(
                    f"app {app.name}: join: {record!r}: {field} is no number, and a join keeps numbers only; "
                    "leave it out with flat_map"
                )
    names = [
        {field: f"{record.name.lower()}_{field}" if field in other else field for field in fields if field != "ts"}
        for record, fields, other in ((sides[0], kept[0], kept[1]), (sides[1], kept[1], kept[0]))
    ]
    output: dict[str, FieldType] = {"ts": sides[0].fields["ts"]}
    if on is not None:
        output[on] = sides[0].fields[on]
    for fields, named in zip(kept, names, strict=True):
        for field, title in named.items():
            if title in output:
                raise BadInput(f"app {app.name}: join: two fields of the result are called {title}; rename one")
            output[title] = fields[field]
    states = [
        Record(f"{name}_{side}", {"rows": Queue[Record(f"{name}_{side}_row", dict(fields), None)]}, None)
        for side, fields in zip(("left", "right"), kept, strict=True)
    ]
    span = in_units(within, app.time)
    if not isinstance(span, int) or isinstance(span, bool) or span < 0:
        raise BadInput(
            f"app {app.name}: join: within must be a duration such as '10s', or a number from 0, not {within!r}"
        )
    keyed: dict[str, Any] = {"key": on}
    if band:
        keys = {} if on is None else {on: sides[0].fields[on]}
        key = Record(f"{name}_key", {**keys, _bucket(on): i64}, None)
        texts = [_keys(name, number, sides[number], on, band, sides) for number in range(2)]
        keyed = {"key": key, "keys": tuple(generated.function(app._module, text) for text in texts)}
    updates = [_update(name, number, kept, names, on, band) for number in range(2)]
    return app.window(
        left,
        right,
        **keyed,
        advance=1,
        size=span + 1,
        kind="single",
        state=tuple(states),
        update=tuple(generated.function(app._module, text) for text in updates),
        output=Record(f"{name}_pair", output, None),
    )


def _is_number(kind: FieldType | None) -> bool:
    return isinstance(kind, Scalar) and kind.name != "boolean"


def _bucket(on: str | None) -> str:
    """The field of a key that holds the bucket. The other one may have this name already."""
    return "bucket" if on != "bucket" else "bucket_of_band"


def _keys(
    name: str,
    number: int,
    record: Record,
    on: str | None,
    band: dict[str, tuple[str, float]],
    sides: tuple[Record, Record],
) -> str:
    """The source of the function that gives a row of one stream its keys.

    Integers that differ by at most the width of a bucket are in the same bucket or in neighbouring ones. Floats too,
    although a division rounds: buckets are wider than the distance by a millionth, and the quotient is below 2^31, so
    it rounds by less. Values beyond fall into the outermost buckets. NaN is close to nothing.
    """
    left, (right, distance) = next(iter(band.items()))
    field = (left, right)[number]
    is_whole = not any(side.fields[one].is_float for side, one in zip(sides, (left, right), strict=True))  # type: ignore[union-attr]
    same = "" if on is None else f"{on}=row.{on}, "
    bucket = _bucket(on)
    add = (
        f"keys.add({same}{bucket}=at)"
        if number == 0
        else "\n".join(f"    keys.add({same}{bucket}=at{step})" for step in (" - 1", "", " + 1")).lstrip()
    )
    if is_whole:
        return f"def {name}_keys_{number}(row, keys):\n    at = row.{field} // {max(int(distance), 1)}\n    {add}\n"
    width = distance * (1 + 1e-6) if distance * 2.0**31 > 0 else 1.0
    most = min(width * 2.0**31, sys.float_info.max)
    body = f"at = int(min(max(row.{field}, {-most!r}), {most!r}) // {width!r})\n{add}"
    body = body.replace("\n    ", "\n").replace("\n", "\n        ")
    return f"def {name}_keys_{number}(row, keys):\n    if row.{field} == row.{field}:\n        {body}\n"


def _update(
    name: str,
    number: int,
    kept: list[dict[str, FieldType]],
    names: list[dict[str, str]],
    on: str | None,
    band: dict[str, tuple[str, float]],
) -> str:
    """The source of the function that takes the rows of one stream: it meets those of the other, and is kept."""
    own, other = ("lefts", "rights") if number == 0 else ("rights", "lefts")
    values = ["ts=row.ts"] if on is None else [f"ts=row.ts, {on}=window.key.{on}"]
    for side in range(2):
        source = "row" if side == number else "kept[i]"
        values += [f"{title}={source}.{field}" for field, title in names[side].items()]
    conditions = []
    for left, (right, distance) in band.items():
        one, two = (f"row.{left}", f"kept[i].{right}") if number == 0 else (f"kept[i].{left}", f"row.{right}")
        conditions.append(f"abs({one} - {two}) <= {distance!r}")
    emit = f"out.emit({', '.join(values)})"
    meet = f"        if {' and '.join(conditions)}:\n            {emit}\n" if conditions else f"        {emit}\n"
    kept_fields = ", ".join(f"{field}=row.{field}" for field in kept[number])
    return (
        f"def {name}{'' if number == 0 else '_right'}(row, window, lefts, rights, out):\n"
        f"    kept = {other}.rows\n"
        "    while len(kept) > 0 and kept[0].ts < window.start:\n"
        "        kept.popleft()\n"
        "    for i in range(len(kept)):\n"
        f"{meet}"
        f"    while len({own}.rows) > 0 and {own}.rows[0].ts < window.start:\n"
        f"        {own}.rows.popleft()\n"
        f"    {own}.rows.append({kept_fields})\n"
    )
