"""Several sources of an application: logical streams with a record each, in one sequence of physical events.

A physical event is a tagged union. It has a column for every field of every record, and the column `stream`: 0 for the
first record, 1 for the second. Fields with the same name and type share a column. Fields with the same name and
different types have a column each, such as `Left_price`. A row has zeros, or an empty text, in the columns of others.

The rows of all streams are in the order of (`ts`, stream, position in the stream). `seq` numbers them in this order. So
no operator waits for a silent stream: a row of another stream shows that the silent stream has no earlier row. If the
sources declare a `delay`, `ts` of a stream may go back. The mark of a row is the highest `ts` of its stream up to the
row. The order is then that of (mark, stream, position).

For each stream, this module makes a stateless operator with the name of the record. It emits the rows of that stream.
No other module knows that there are several streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from streaming_core.errors import BadInput
from streaming_core.language import generated
from streaming_core.language.record import CONTAINERS, FieldType, Record, Scalar, u8

TAG = "stream"
MOST = 1 << 8  # streams: the tag is a u8


@dataclass(frozen=True)
class Sources:
    """The streams of an application, by number.

    Attributes:
        records: The record of each stream, which also names it.
        columns: For each stream, the column of each field.
        event: The physical record.
    """

    records: tuple[Record, ...]
    columns: tuple[dict[str, str], ...]
    event: Record

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the streams."""
        return tuple(record.name for record in self.records)

    def stream(self, number: int, module: str) -> Callable:
        """Return the function of the operator that emits the rows of a stream, as if it stood in `module`."""
        record, columns = self.records[number], self.columns[number]
        values = ", ".join(f"{field}=row.{column}" for field, column in columns.items())
        text = f"def {record.name}(row, out):\n    if row.{TAG} == {number}:\n        out.emit({values})\n"
        return generated.function(module, text)

    def in_order(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return rows of all streams in the order of (mark, stream, position)."""
        marks: dict[int, int] = {}
        order = []
        for number, row in enumerate(rows):
            mark = marks[row[TAG]] = max(row["ts"], marks.get(row[TAG], row["ts"]))
            order.append((mark, row[TAG], number))
        return [rows[number] for _, _, number in sorted(order)]


def united(app: str, records: tuple[Record, ...]) -> Sources:
    """Unite the records of several streams into one physical record.

    Raises:
        BadInput: There are fewer than two records, or one of them twice. Or a record has no integer field `ts`, or two
            fields need the same column.
    """
    _check_records(app, records)
    columns: list[dict[str, str]] = []
    owners: dict[str, tuple[str, FieldType]] = {}  # for each column, the field whose values it holds
    for record in records:
        columns.append({})
        for field, kind in record.fields.items():
            is_shared = all(other.fields.get(field, kind) == kind for other in records)
            column = field if is_shared else f"{record.name}_{field}"
            if owners.setdefault(column, (field, kind)) != (field, kind):
                reason = f"fields {field} and {owners[column][0]} both need column {column}; rename one"
                raise _refusal(app, f"record {record.name}: {reason}")
            columns[-1][field] = column
    fields = {column: kind for column, (_, kind) in owners.items()}
    name = "_or_".join(record.name for record in records)
    return Sources(records, tuple(columns), Record(name, {**fields, TAG: u8}, None))


def _refusal(app: str, why: str) -> BadInput:
    return BadInput(f"app {app}: sources: {why}")


def _check_records(app: str, records: tuple[Record, ...]) -> None:
    """Raise BadInput unless each record can be a stream beside the others."""
    names = [record.name for record in records]
    if not 2 <= len(records) <= MOST:
        raise _refusal(app, f"needs 2 to {MOST} records, got {len(records)}; use app.source for one stream")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise _refusal(app, f"two streams have record {twice}, but each stream needs its own record")
    for record in records:
        _check_fields(app, record, records[0])


def _check_fields(app: str, record: Record, first: Record) -> None:
    """Raise BadInput unless the fields of a record can be columns of the physical record."""
    ts = record.fields.get("ts")
    if not isinstance(ts, Scalar) or ts.is_float or ts.name == "boolean":
        raise _refusal(
            app, f"record {record.name} needs an integer field ts, because Lockstep orders the streams by it"
        )
    if ts != first.fields["ts"]:
        raise _refusal(app, f"field ts must have the same type in {first.name} and {record.name}")
    for field, kind in record.fields.items():
        if isinstance(kind, CONTAINERS):
            raise _refusal(app, f"record {record.name}: {field} is a {type(kind).__name__}, which no event can hold")
    if TAG in record.fields:
        raise _refusal(
            app, f"record {record.name}: the field name {TAG} is reserved for the stream's number; choose another one"
        )
