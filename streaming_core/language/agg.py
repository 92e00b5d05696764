"""Aggregates: what `aggregate` of a windowed stream computes of the rows of a key and window.

    bids.key_by("auction").window(tumbling("1m")).aggregate(n=agg.count(), top=agg.max("price"), mean=agg.avg("price"))

An aggregate becomes a field of the state, the statements that take a row into it, and the expression of its result.

Rows in which the field is null do not count. So an aggregate of a field that may be null counts its rows itself. The
result is null if there are none, unless it is a number of values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from streaming_core.errors import BadInput, NoSuchName, did_you_mean, unknown
from streaming_core.language.declaration import declares
from streaming_core.language.record import Array, FieldType, Nullable, Record, Scalar, Set, Text, f64, i64, unfit

# The field of a state that counts its rows. Statements see the number of the rows before theirs.
ROWS = "rows_so_far"
# And the beginning of the name of the field that counts the rows of one aggregate.
_OWN = "_rows_"


@dataclass(frozen=True)
class Part:
    """An aggregate of one operator, for the fields of its rows.

    Attributes:
        kind: The type of the result.
        result: The expression of the result.
        state: The type of the field of the state, if it needs one.
        update: The statements that take a row.
        counts: Whether the aggregate reads the number of rows.
        own: The field of the state that counts the rows of this aggregate, if it needs one.
        merge: How the fields of two parts of the rows become one: `add`, `min` or `max` of i64; None: they do not.
    """

    kind: FieldType
    result: str
    state: FieldType | None = None
    update: tuple[str, ...] = ()
    counts: bool = False
    own: str | None = None
    merge: str | None = None


@dataclass(frozen=True)
class Aggregate:
    """An aggregate, before it knows the rows.

    `part(state, row, kind, rows)` takes the field's type, and expressions of its state, of the field and of the number
    of rows.

    With `where`, it takes the rows for which that function is true.
    """

    WORDS: ClassVar[str] = 'an aggregate such as agg.count() or agg.max("price")'

    name: str
    field: str | None
    part: Callable[[str, str, FieldType, str], Part]
    where: Callable | None = None

    def of(self, record: Record, column: str) -> Part:
        """This aggregate of rows of a record; its field of the state has the name of the column.

        Raises:
            BadInput: The record has no such field, or the field has another type.
        """
        field = self.field
        if field is None:
            return self.part(f"state.{column}", "", i64, f"state.{ROWS}")
        call = f"aggregate: {column}=agg.{self.name}({field!r})"
        if field not in record.fields:
            raise BadInput(f"{call}: {unknown('field', field, record.fields)}")
        declared = record.fields[field]
        kind = declared.item if isinstance(declared, Nullable) else declared
        if self.name == "count_distinct" and (reason := unfit(_values(kind))):
            raise BadInput(f"{call}: {reason}")
        if self.name in _OF_NUMBERS and not isinstance(kind, Scalar):
            numbers = ", ".join(name for name, kind in record.fields.items() if isinstance(kind, Scalar))
            raise BadInput(f"{call}: {field} is no number; {record.name} has the number fields {numbers}")
        if not isinstance(declared, Nullable):
            return self.part(f"state.{column}", f"row.{field}", kind, f"state.{ROWS}")
        rows = f"state.{_OWN}{column}"
        part = self.part(f"state.{column}", f"row.{field}", kind, rows)
        update = (f"if row.{field} is not None:", *(f"    {line}" for line in (*part.update, f"{rows} += 1")))
        part = replace(part, update=update, counts=False, own=_OWN + column)
        if self.name in ("count", "count_distinct"):
            return part
        assert isinstance(part.kind, Scalar | Text), call
        return replace(part, kind=Nullable(part.kind), result=f"{part.result} if {rows} > 0 else None")


_OF_NUMBERS = {"sum", "avg", "min", "max"}


def __getattr__(name: str) -> Any:
    """Raise NoSuchName, with the known aggregates."""
    known = ("count", "sum", "avg", "min", "max", "count_distinct", "first", "last")
    raise NoSuchName(f"agg has no {name!r}{did_you_mean(name, known)}; it has {', '.join(known)}")


def _values(kind: FieldType) -> Set:
    return Set(kind)  # type: ignore[arg-type]  # unfit refuses what no set holds


def _of_integers(merge: str, kind: FieldType) -> str | None:
    """How parts merge, if the field is an integer: floats depend on the order of the rows."""
    return None if _total(kind).is_float else merge


def _total(kind: FieldType) -> Scalar:
    """The type of a sum or an extreme: f64, i64 or that of a decimal."""
    if isinstance(kind, Scalar) and (kind.is_float or kind.scale is not None):
        return kind
    return i64


@declares
def count(field: str | None = None, *, where: Callable | None = None) -> Aggregate:
    """The number of rows, or of those for which `where(row)` is true: i64. With a field, those where it is not null."""

    def part(state: str, row: str, kind: FieldType, rows: str) -> Part:
        return Part(i64, rows, counts=True) if where is None else Part(i64, state, i64, (f"{state} += 1",))

    return Aggregate("count", field, part, where)


@declares
def sum(field: str, *, where: Callable | None = None) -> Aggregate:
    """The sum of a number field: i64 or Decimal, which wrap around, or f64. Floats are added in the order of rows."""
    return Aggregate(
        "sum",
        field,
        lambda state, row, kind, rows: Part(
            _total(kind), state, _total(kind), (f"{state} += {row}",), merge=_of_integers("add", kind)
        ),
        where,
    )


@declares
def avg(field: str) -> Aggregate:
    """The mean of a number field: f64, the sum divided by the number of rows. The sum of integers is exact.

    The units of a Decimal[2] are divided by 100 times the number of rows.
    """
    return Aggregate(
        "avg",
        field,
        lambda state, row, kind, rows: Part(
            f64,
            f"float({state}) / {_divisor(rows, kind)}",
            _total(kind),
            (f"{state} += {row}",),
            True,
            merge=_of_integers("add", kind),
        ),
    )


def _divisor(rows: str, kind: FieldType) -> str:
    """The expression of what turns a sum into the mean."""
    scale = kind.scale if isinstance(kind, Scalar) else None
    return f"(float({rows}) * 1e{scale})" if scale else f"float({rows})"


@declares
def min(field: str) -> Aggregate:
    """The least value of a number field: i64, Decimal or f64. NaN is greater than all numbers; -0.0 counts as 0.0."""
    return Aggregate("min", field, lambda state, row, kind, rows: _extreme("<", state, row, kind, rows))


@declares
def max(field: str) -> Aggregate:
    """The greatest value of a number field, with the order of `min`."""
    return Aggregate("max", field, lambda state, row, kind, rows: _extreme(">", state, row, kind, rows))


def _extreme(sign: str, state: str, row: str, kind: FieldType, rows: str) -> Part:
    value, taken, is_better = _total(kind), row, f"{row} {sign} {state}"
    if value is f64:
        greatest = state if sign == "<" else row  # NaN, which alone differs from itself
        is_better, taken = f"{is_better} or {greatest} != {greatest}", f"{row} + 0.0"  # 0.0 of -0.0
    update = (f"if {rows} == 0 or {is_better}:", f"    {state} = {taken}")
    return Part(value, state, value, update, True, merge=_of_integers("min" if sign == "<" else "max", kind))


@declares
def count_distinct(field: str, *, where: Callable | None = None) -> Aggregate:
    """The number of different values of an integer field: i64. The state keeps each value once."""
    return Aggregate(
        "count_distinct",
        field,
        lambda state, row, kind, rows: Part(i64, f"len({state})", _values(kind), (f"{state}.add({row})",)),
        where,
    )


@declares
def first(field: str) -> Aggregate:
    """The value that a field has in the first row, with the type of the field. Rows count in the order they come in."""
    return Aggregate("first", field, _first)


@declares
def last(field: str) -> Aggregate:
    """The value that a field has in the last row, with the type of the field. Rows count in the order they come in."""
    return Aggregate("last", field, lambda state, row, kind, rows: Part(kind, state, kind, _copied(state, row, kind)))


def _first(state: str, row: str, kind: FieldType, rows: str) -> Part:
    copied = (f"    {line}" for line in _copied(state, row, kind))
    return Part(kind, state, kind, (f"if {rows} == 0:", *copied), True)


def _copied(state: str, row: str, kind: FieldType) -> tuple[str, ...]:
    """The statements that copy a value into a field of a state."""
    if isinstance(kind, Array):
        return f"for i in range(len({row})):", f"    {state}[i] = {row}[i]"
    return (f"{state} = {row}",)
