"""Input of the oracle: checks that events have columns of the declared types, without nulls, seq ascending."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from streaming_core.data.arrow import to_arrow, to_numpy, units, without_nulls
from streaming_core.errors import BadInput
from streaming_core.language.record import Array, Resolved, Scalar, Slot, Text, one_nan


def seqs(events: pa.Table) -> np.ndarray:
    """Return the events' seq, which repeats where an earlier operator has emitted several rows for an event.

    Raises:
        BadInput: The column is missing, or it does not ascend.
    """
    seq = _checked(events, "seq", pa.int64()).to_numpy()
    if len(seq) and (seq[0] < 0 or (np.diff(seq) < 0).any()):
        raise BadInput("events: seq must not be negative and must not decrease")
    return seq


def columns(events: pa.Table, resolved: Resolved) -> Iterator[tuple[Slot, pa.Array]]:
    """Yield each field of the event record with its column; decimals as units.

    Raises:
        BadInput: A column is missing, has another type or nulls.
    """
    for slot in resolved.event[0].values():
        assert isinstance(slot.type, Scalar | Text | Array)  # an event holds no container
        wanted = slot.type.arrow(slot.count) if isinstance(slot.type, Array) else slot.type.arrow()
        if slot.nullable:
            yield slot, _checked(events, slot.nullable, None, True).is_valid()
            continue
        column = units(without_nulls(_checked(events, slot.name, wanted, slot.is_nullable)))
        yield slot, _one_nan(column) if pa.types.is_floating(_items(wanted)) else column


def _items(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_fixed_size_list(kind) else kind


def _one_nan(column: pa.Array) -> pa.Array:
    """Replace every NaN in a column of doubles, or of arrays of them, by record.NAN."""
    if pa.types.is_fixed_size_list(column.type):
        return pa.FixedSizeListArray.from_arrays(_one_nan(column.flatten()), column.type.list_size)
    return to_arrow(one_nan(to_numpy(column)))


def _checked(events: pa.Table, name: str, wanted: pa.DataType | None, is_nullable: bool = False) -> pa.Array:
    """Return a column as a single array of the wanted type.

    Raises:
        BadInput: It is missing, has another type or nulls.
    """
    if name not in events.column_names:
        raise BadInput(f"events: column {name!r} is missing; the columns are {', '.join(events.column_names)}")
    column = events.column(name)
    if wanted is not None and column.type != wanted:
        if pa.types.is_binary(wanted) and (pa.types.is_string(column.type) or pa.types.is_large_binary(column.type)):
            column = column.cast(pa.binary())
        elif not (pa.types.is_fixed_size_list(wanted) and _same_list(column.type, wanted)):
            raise BadInput(f"events: column {name} must have type {wanted}, got {column.type}")
    if column.null_count and not is_nullable:
        raise BadInput(f"events: column {name} must not contain nulls, got {column.null_count}")
    column = column.combine_chunks()
    return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)


def _same_list(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two fixed-size lists differ in nothing but the name of their item."""
    return (
        pa.types.is_fixed_size_list(kind)
        and kind.list_size == wanted.list_size
        and kind.value_type == wanted.value_type
    )
