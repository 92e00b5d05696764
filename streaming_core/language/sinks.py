"""Several sinks of an application: one output, as a tagged union.

The column `sink` of the output numbers the sinks from 0, in the order of their declaration. The output also has a
column for every field of every sink. Fields with the same name and type share a column. Fields with the same name and
different types have a column each, such as `late_price`. A row has zeros, or an empty text, in the columns of other
sinks.

For each sink, a stateless operator such as `to_late` makes these rows. No other module knows that there are several
sinks: digests, comparisons and invariants read one output.
"""

from __future__ import annotations

from streaming_core.errors import BadInput
from streaming_core.language.record import FieldType, Nullable, Record, Scalar, Text, u8

TAG = "sink"
MOST = 1 << 8  # sinks: the tag is a u8


def gathered(app: str, records: dict[str, Record], tag: str = TAG) -> tuple[Record, dict[str, str]]:
    """The output of several sinks.

    Args:
        app: The name of the application, for errors.
        records: By the name of each sink, in their order, the record of its rows.
        tag: The column that numbers them.

    Returns:
        The record of the output. By name, the source of the function of the operator in front of each sink.

    Raises:
        BadInput: There are too many sinks, two fields need the same column, or a row cannot fill a column.
    """

    def refusal(why: str) -> BadInput:
        return BadInput(f"app {app}: {tag}s: {why}")

    if len(records) > MOST:
        raise refusal(f"at most {MOST} are possible, got {len(records)}")
    fields: dict[str, FieldType] = {tag: u8}
    owners: dict[str, tuple[str, FieldType]] = {tag: ("", u8)}
    columns: dict[str, dict[str, str]] = {}
    for sink, record in records.items():
        columns[sink] = {}
        for field, kind in record.fields.items():
            is_shared = all(other.fields.get(field, kind) == kind for other in records.values())
            column = field if is_shared else f"{sink}_{field}"
            if owners.setdefault(column, (field, kind)) != (field, kind):
                raise refusal(f"field {field} of {tag} {sink} needs column {column}, which is another one; rename it")
            fields[column] = kind
            columns[sink][column] = field
    functions = {}
    for number, (sink, record) in enumerate(records.items()):
        values = {tag: str(number)} | {column: f"row.{field}" for column, field in columns[sink].items()}
        texts = [f"row.{field}[0:0]" for field, kind in record.fields.items() if isinstance(kind, Text)]
        for column, kind in fields.items():
            if isinstance(kind, Nullable):
                values.setdefault(column, "None")
            if column not in values:
                if not isinstance(kind, Scalar | Text) or (isinstance(kind, Text) and not texts):
                    raise refusal(f"{tag} {sink} has nothing for column {column}; let its rows have a field {column}")
                values[column] = texts[0] if isinstance(kind, Text) else zero(kind)
        emitted = ", ".join(f"{column}={values[column]}" for column in fields)
        functions[f"to_{sink}"] = f"def to_{sink}(row, out):\n    out.emit({emitted})\n"
    return Record("_or_".join(records), fields, None), functions


def zero(kind: Scalar) -> str:
    """The zero of a type, as source."""
    return "False" if kind.name == "boolean" else "0.0" if kind.is_float else "0"
