"""Rows as slotted objects: created from events or empty, copied, exported as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pyarrow as pa

from streaming_core.data.arrow import of_units, unit_type
from streaming_core.errors import BadInput
from streaming_core.language.record import VALID, Array, Resolved, Ring, Scalar, Text
from streaming_core.oracle import events
from streaming_core.oracle.interpreter import containers


def row_class(resolved: Resolved, header: bool) -> type:
    """Return a class with one slot per field (and `seq`); its constructor takes the values in order."""
    return _class((*(["seq"] if header else []), *(resolved.event if header else resolved.state)[0]))


@cache
def _class(names: tuple[str, ...]) -> type:
    body = [f"    {'__slots__'} = {names!r}", f"    def __init__(self, {', '.join(names)}):"]
    body += [f"        self.{name} = {name}" for name in names]
    values = "".join(f"self.{name}, " for name in names)
    body += ["    def __reduce__(self):", f"        return row_of, (names, {values})"]
    namespace: dict[str, Any] = {"names": names, "row_of": row_of}
    exec(f"class Row:\n{chr(10).join(body)}\n", namespace)
    return namespace["Row"]


def row_of(names: tuple[str, ...], *values: Any) -> Any:
    """Return a row of a snapshot."""
    if not all(map(str.isidentifier, names)):
        raise BadInput(f"a row has no such fields: {names}")
    return _class(names)(*values)


def zero(resolved: Resolved) -> Callable[[], Any]:
    """Return a function that creates rows with zero or empty fields."""
    cls, values, makers = row_class(resolved, header=False), [], {}
    for name, slot in resolved.state[0].items():
        match slot.type:
            case Scalar():
                values.append("0.0" if slot.type.is_float else "False" if slot.type.name == "boolean" else "0")
            case Text():
                values.append("b''")
            case Array(item):
                zero = "0.0" if item.is_float else "False" if item.name == "boolean" else "0"
                values.append(f"[{zero}] * {slot.count}")
            case _:
                makers[f"_new_{name}"] = lambda slot=slot: containers.empty(
                    slot.type, slot.count, f"{resolved.name}.{slot.name}"
                )
                values.append(f"_new_{name}()")
    return eval(f"lambda: _Row({', '.join(values)})", {"_Row": cls, **makers})


def copier(resolved: Resolved, used: set[str] | None = None) -> Callable:
    """Return a function that copies the `used` fields of a row (None: all) if they are scalars, arrays or rings."""
    cls, parts = row_class(resolved, header=False), []
    for name, slot in resolved.state[0].items():
        copied = {Scalar: f"row.{name}", Array: f"row.{name}[:]", Ring: f"row.{name}.copy()"}.get(type(slot.type))
        parts.append(copied if copied and (used is None or name in used) else "None")
    return eval(f"lambda row: _Row({', '.join(parts)})", {"_Row": cls})


def decode(resolved: Resolved, table: pa.Table, make: Callable) -> Any:
    """Return the events as row objects, lazily."""
    columns: list[Any] = [events.seqs(table).tolist()]
    for slot, column in events.columns(table, resolved):
        if isinstance(slot.type, Array):
            columns.append(column.flatten().to_numpy(zero_copy_only=False).reshape(-1, slot.count).tolist())
        elif isinstance(slot.type, Text):
            columns.append(column.to_pylist())
        else:
            columns.append(column.to_numpy(zero_copy_only=False).tolist())
    return map(make, *columns)


def with_nones(values: Iterable, validities: Iterable) -> list:
    """Return the values of a column, with None where they are not valid."""
    return [value if is_valid else None for value, is_valid in zip(values, validities, strict=True)]


class Keyed(dict):
    """The rows of an indexed table by key, without inserts."""

    def __init__(self, name: str, rows: dict):
        """Take the name of the table, for errors, and its rows."""
        super().__init__(rows)
        self.name = name

    def __missing__(self, key: Any) -> Any:
        raise KeyError(f"table {self.name} has no row with the key {key!r}")


class Inserting(dict):
    """The rows of an indexed table by key: a new key gets a row, up to a largest number of rows."""

    def __init__(self, name: str, most: int, new: Callable[[], Any]):
        """Take the name of the table, for errors, the largest number of rows, and what makes one."""
        super().__init__()
        self.name, self.most, self.new = name, most, new

    def __missing__(self, key: Any) -> Any:
        if len(self) == self.most:
            raise OverflowError(f"table {self.name} is full: it has at most {self.most} rows")
        row = self[key] = self.new()
        return row


def export(resolved: Resolved, rows: list, keys: dict[str, pa.Array]) -> pa.Table:
    """Export table rows or states as a table: the columns of the key, then the fields."""
    fields = [pa.field(name, column.type, nullable=False) for name, column in keys.items()]
    arrays = list(keys.values())
    for field in resolved.arrow():
        values = [getattr(row, field.name) for row in rows]
        if field.nullable:
            values = with_nones(values, [getattr(row, VALID + field.name) for row in rows])
        if not isinstance(resolved.state[0][field.name].type, Scalar | Text | Array):
            values = [v.export() for v in values]
        fields.append(field)
        arrays.append(of_units(pa.array(values, unit_type(field.type)), field.type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))
