"""Joins of two streams within a span of event time: a declaration that becomes a windowed operator.

    app.join(orders, payments, on="order", within="10m").sink()

Rows meet if they have the same key, and if their `ts` differ by at most `within`. With `band`, the values of two number
fields must also be close to each other. A pair leaves with the later row of the two, in the order in which the earlier
rows came.

A key keeps the rows of both streams that can still meet one, in columns (language/record.py: Queue), so they have
number fields only, besides the key.
"""

from __future__ import annotations

from typing import Any, Protocol

from streaming_core.errors import BadInput
from streaming_core.language import generated
from streaming_core.language.extent import in_units
from streaming_core.language.record import FieldType, Queue, Record, Scalar


class Joined(Protocol):
    """One of the streams."""

    _record: Record
    _module: str


def joined(
    app: Any, left: Joined, right: Joined, on: str, within: int | str, band: dict[str, tuple[str, float]], name: str
) -> Any:
    """The operator of `App.join`.

    Raises:
        BadInput: A field is missing, or no number, or has the name of another one.
    """
    sides = (left._record, right._record)
    for record in sides:
        if on not in record.fields:
            raise BadInput(f"app {app.name}: join on {on!r}: {record!r} has no such field")
    for one, (other, distance) in band.items():
        for record, field in zip(sides, (one, other), strict=True):
            if not isinstance(record.fields.get(field), Scalar):
                raise BadInput(f"app {app.name}: join: band: {record!r} has no number field {field!r}")
        if isinstance(distance, bool) or not isinstance(distance, int | float) or not distance >= 0:
            raise BadInput(f"app {app.name}: join: band: the distance of {one} must be a number from 0, got {distance!r}")
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
    output: dict[str, FieldType] = {"ts": sides[0].fields["ts"], on: sides[0].fields[on]}
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
        raise BadInput(f"app {app.name}: join: within must be a duration such as '10s', or a number from 0, not {within!r}")
    updates = [_update(name, number, kept, names, on, band) for number in range(2)]
    return app.window(
        left,
        right,
        key=on,
        advance=1,
        size=span + 1,
        kind="single",
        state=tuple(states),
        update=tuple(generated.function(app._module, text) for text in updates),
        output=Record(f"{name}_pair", output, None),
    )


def _update(
    name: str,
    number: int,
    kept: list[dict[str, FieldType]],
    names: list[dict[str, str]],
    on: str,
    band: dict[str, tuple[str, float]],
) -> str:
    """The source of the function that takes the rows of one stream: it meets those of the other, and is kept."""
    own, other = ("lefts", "rights") if number == 0 else ("rights", "lefts")
    values = [f"ts=row.ts, {on}=window.key.{on}"]
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
