"""Lookup joins: each row of a stream with the values that a read-only table has for its key.

    sellers = app.lookup_table(Seller, key="id", rows=sellers)
    auctions.lookup(sellers, on="seller").sink()

A lookup join is a stateless operator that searches columns. Each column of the table is a constant, in ascending order
of the keys (language/tables.py). A column of texts is one text, and the positions at which the values begin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streaming_core.errors import BadInput, unknown
from streaming_core.language import generated
from streaming_core.language.generated import indented, source
from streaming_core.language.keys import is_key
from streaming_core.language.operator import Operator
from streaming_core.language.record import FieldType, Nullable, Record, Scalar, Text, boolean

HOWS = ("inner", "left")


@dataclass(frozen=True, eq=False)
class Constant:
    """A read-only side table. `build(params)` returns a 1-D int64 or float64 array; operators read `table[i]`."""

    name: str
    build: Callable[[dict], Any]


@dataclass(frozen=True, eq=False)
class Column(Constant):
    """A column of a lookup table. With `is_starts`, the positions at which its texts begin, and where the last ends."""

    field: str
    is_starts: bool


@dataclass(frozen=True, eq=False)
class LookupTable:
    """A read-only table with a key (App.lookup_table)."""

    app: str
    record: Record
    key: str
    rows: Callable[[dict], Any]
    columns: tuple[Column, ...]

    @staticmethod
    def of(app: str, record: Record, key: str, rows: Callable[[dict], Any]) -> LookupTable:
        """Return the table, or raise BadInput if its record or its key does not fit."""

        def refusal(why: str) -> BadInput:
            return BadInput(f"app {app}: lookup_table {record.name}: {why}")

        if key not in record.fields:
            raise refusal(f"key: {unknown('field', key, record.fields)}")
        for field, kind in record.fields.items():
            if not isinstance(kind, Scalar | Text):
                what = "can be null" if isinstance(kind, Nullable) else f"is a {type(kind).__name__}"
                raise refusal(f"{field} {what}, but its columns have numbers and texts only")
        if not is_key(record.fields[key]) or record.fields[key] == boolean:
            raise refusal(f"key {key} must be an integer or a text; declare it as i64 or text")
        if len(record.fields) == 1:
            raise refusal("it needs a field beside its key")
        columns = [
            Column(f"{record.name}.{field}", rows, field, is_starts)
            for field, kind in record.fields.items()
            for is_starts in ((False, True) if isinstance(kind, Text) else (False,))
        ]
        return LookupTable(app, record, key, rows, tuple(columns))


def operator(app: Any, inputs: list[Operator], table: LookupTable, on: str, how: str) -> Operator:
    """Return the operator of `Stream.lookup`."""
    row, kinds = inputs[0].emitted, table.record.fields

    def refusal(why: str) -> BadInput:
        return BadInput(f"app {app.name}: lookup: {why}")

    if table.app != app.name:
        raise refusal(f"{table.record.name} is a table of app {table.app}")
    if how not in HOWS:
        raise refusal(unknown("how", how, HOWS))
    if on not in row.fields:
        raise refusal(f"on: {unknown('field', on, row.fields)}")
    own, key = row.fields[on], kinds[table.key]
    if isinstance(own, Nullable):
        raise refusal(f"on {on!r}: a key cannot be null; give it a value; convert it with flat_map")
    if not is_key(own) or own == boolean or isinstance(own, Text) != isinstance(key, Text):
        fit = "a text" if isinstance(key, Text) else "an integer"
        raise refusal(f"on {on!r}: the key of {table.record.name} is {fit}; convert the field with select")
    names = {f"_{'starts_' * column.is_starts}{column.field}": column for column in table.columns}
    fields: dict[str, FieldType] = dict(row.fields)
    values, nulls = [], []
    for field, column in kinds.items():
        if field == table.key:
            continue
        title = f"{table.record.name.lower()}_{field}" if field in row.fields else field
        if title in fields:
            raise refusal(f"two fields of the result are called {title}; rename one")
        fields[title] = column | None if how == "left" else column
        values.append(f"{title}={_item(field, column, 'low')}")
        nulls.append(f"{title}=None")
    name = app._free("lookup")
    search = [
        "low = 0",
        "high = size",
        "while low < high:",
        "    middle = (low + high) // 2",
        f"    if {_item(table.key, key, 'middle')} < row.{on}:",
        "        low = middle + 1",
        "    else:",
        "        high = middle",
    ]
    if isinstance(key, Text):
        lines = [f"size = len(_starts_{table.key}) - 1", *search]
    else:  # without gaps, a key is at its distance from the first one
        lines = [
            f"size = len(_{table.key})",
            f"low = row.{on} - _{table.key}[0] if size > 0 else 0",
            f"if low < 0 or low >= size or _{table.key}[low] != row.{on}:",
            *indented(search),
        ]
    lines += [
        f"if low < size and {_item(table.key, key, 'low')} == row.{on}:",
        f"    out.emit(row, {', '.join(values)})",
    ]
    if how == "left":
        lines += ["else:", f"    out.emit(row, {', '.join(nulls)})"]
    functions = {"map": generated.function(app._module, source(f"{name}(row, out)", lines), names)}
    return Operator("stateless", name, inputs, Record(name, fields, None), functions)


def _item(field: str, kind: FieldType, at: str) -> str:
    """The expression for a value of a column."""
    if isinstance(kind, Text):
        return f"_{field}[_starts_{field}[{at}]:_starts_{field}[{at} + 1]]"
    return f"_{field}[{at}] != 0" if kind == boolean else f"_{field}[{at}]"
