"""Several sources of an application: logical streams with a record each, in one sequence of physical events.

A physical event is a tagged union: a column for every field of any of the records, and `stream`, which says whose row
it is: 0 for the first record, 1 for the second. Fields of one name and type share a column; of one name and different
types each has its own, under the record's name: `Left_price`. In the columns of others a row has zeros, or no text.

Rows of all streams lie in the order of (`ts`, stream, place in its stream), which numbers them: `seq`. So nobody waits
for a stream that is silent: that nothing comes of it is said by whatever comes of another.

A stateless operator, made here and named as the record, puts a stream together. Nothing else knows that there are
several.
"""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Callable
from dataclasses import dataclass

from streaming_core.errors import BadInput
from streaming_core.language.record import CONTAINERS, FieldType, Record, Scalar, u8

TAG = "stream"
MOST = 1 << 8  # streams: the tag is a u8


@dataclass(frozen=True)
class Sources:
    """Streams by number.

    Attributes:
        records: of each its record, by whose name it goes.
        columns: of each where its fields lie, by field.
        event: the physical record.
    """

    records: tuple[Record, ...]
    columns: tuple[dict[str, str], ...]
    event: Record

    @property
    def names(self) -> tuple[str, ...]:
        """What the streams are called."""
        return tuple(record.name for record in self.records)

    def stream(self, number: int, module: str) -> Callable:
        """The function of the operator that puts a stream together; written like one of the application's `module`."""
        record, columns = self.records[number], self.columns[number]
        given = ", ".join(f"{field}=row.{column}" for field, column in columns.items())
        lines = [f"def {record.name}(row, out):\n", f"    if row.{TAG} == {number}:\n", f"        out.emit({given})\n"]
        text = "".join(lines)
        # Where `inspect` finds source that lies in no file: under a name that stands for this very text.
        file = f"<stream {record.name} {hashlib.sha256(text.encode()).hexdigest()[:8]}>"
        linecache.cache[file] = len(text), None, lines, file
        namespace = {"__name__": module}
        exec(compile(text, file, "exec"), namespace)
        made = namespace[record.name]
        assert callable(made)
        return made


def united(app: str, records: tuple[Record, ...]) -> Sources:
    """The physical record of these.

    Raises:
        BadInput: fewer than two, one of them twice, one without an order, or fields that get into each other's way.
    """

    def refusal(why: str) -> BadInput:
        return BadInput(f"app {app}: sources: {why}")

    for record in records:
        if not isinstance(record, Record):
            raise refusal(f"{record!r} is no record")
    names = [record.name for record in records]
    if not 2 <= len(records) <= MOST:
        raise refusal(f"2 to {MOST} records, not {len(records)}: of one stream it is app.source")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise refusal(f"two streams are named {twice}, as their records are")
    for record in records:
        ts = record.fields.get("ts")
        if not isinstance(ts, Scalar) or ts.is_float or ts.name == "boolean":
            raise refusal(f"{record!r} has no integer field ts, in whose order streams become one")
        if ts != records[0].fields["ts"]:
            raise refusal(f"ts is of one type: {records[0].name} and {record.name} differ")
        for field, kind in record.fields.items():
            if isinstance(kind, CONTAINERS):
                raise refusal(f"{record!r}: {field} is a {type(kind).__name__}, no event has any")
        if TAG in record.fields:
            raise refusal(f"{record!r}: the column {TAG} says which stream an event is of; name the field otherwise")
    columns: list[dict[str, str]] = []
    meant: dict[str, tuple[str, FieldType]] = {}  # by column, of which fields it holds the values
    for record in records:
        columns.append({})
        for field, kind in record.fields.items():
            is_shared = all(other.fields.get(field, kind) == kind for other in records)
            column = field if is_shared else f"{record.name}_{field}"
            if meant.setdefault(column, (field, kind)) != (field, kind):
                raise refusal(f"{record!r}: {field} and {meant[column][0]} would both be the column {column}")
            columns[-1][field] = column
    fields = {column: kind for column, (_, kind) in meant.items()}
    return Sources(records, tuple(columns), Record("_or_".join(names), {**fields, TAG: u8}, None))
