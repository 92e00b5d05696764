"""The tables and constants of an application before the first event: their sizes, their keys and their values.

This is bookkeeping, so the oracle and the kernel compiler share it. Each of them finds the meaning of the operators by
itself.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from streaming_core.errors import BadInput, range_text, unknown
from streaming_core.language.application import LOOKUPS, App, Table
from streaming_core.language.lookup import Column, Constant, LookupTable
from streaming_core.language.record import Array, Resolved, Scalar, Text, one_nan
from streaming_core.language.source import place

MOST_ROWS = (1 << 32) - 1  # an access of a plan names its row in 32 bits (runtime/ABI.md)


@dataclass(frozen=True)
class Index:
    """The index of a table whose rows have keys.

    Attributes:
        key: their type.
        inserts: whether the table starts empty, and events insert the keys that they name.
    """

    key: Scalar | Text
    inserts: bool

    @property
    def is_text(self) -> bool:
        """Whether keys are texts."""
        return isinstance(self.key, Text)


class BoundTable:
    """A table under fixed parameters.

    Attributes:
        declared: The table.
        name: Its name.
        row: The record of a row.
        size: The number of rows.
        index: The index; None: the table is dense.

    Raises:
        BadInput: The size is not an integer, is not positive, or exceeds the limit of the runtime. Or the parameter of
            `lookup` names no lookup, or one that does not go with the table's keys.
    """

    def __init__(self, app: str, declared: Table, row: Resolved, params: dict[str, Any]):
        self.declared, self.name, self.row = declared, declared.name, row
        self._params, self._what = params, f"app {app}: table {declared.name}"
        self.size = self._size()
        self.index = self._index()

    def _size(self) -> int:
        size = self.declared.size
        if isinstance(size, str) and size not in self._params:
            raise BadInput(f"{self._what}: size: {unknown('parameter', size, self._params)}")
        rows = self._params[size] if isinstance(size, str) else size
        if not isinstance(rows, int) or isinstance(rows, bool) or not 1 <= rows <= MOST_ROWS:
            raise BadInput(f"{self._what}: the size must be between 1 and {MOST_ROWS}, got {rows!r}")
        return rows

    def _index(self) -> Index | None:
        table = self.declared
        lookup = table.lookup if table.lookup in LOOKUPS else self._params[table.lookup]
        what = f"{self._what} ({place(*table.where)})"
        if lookup not in LOOKUPS:
            raise BadInput(f"{what}: parameter {table.lookup} must be one of {', '.join(LOOKUPS)}, got {lookup!r}")
        if lookup != "hash" and table.keys is not None:
            raise BadInput(f"{what}: keys goes only with lookup hash, got {lookup}")
        if isinstance(table.key, Text) and (lookup == "dense" or (lookup == "hash" and table.keys is None)):
            raise BadInput(f"{what}: texts are no numbers of rows; add keys=function, or use lookup insert")
        if lookup == "dense":
            return None
        assert table.key is not None  # App.table
        return Index(table.key, lookup == "insert")

    def keys(self) -> np.ndarray | list[bytes] | None:
        """The keys that the table starts with, in the order of its rows: int64 or bytes.

        None: it is dense, or it inserts them.

        Raises:
            BadInput: `keys` raises, or does not return `size` different keys of the table's type; cites file and line.
        """
        if self.index is None or self.index.inserts:
            return None
        declared, rows = self.declared.keys, self.size
        if declared is None:
            what, returned = f"{self._what} ({place(*self.declared.where)})", np.arange(rows, dtype=np.int64)
        else:
            returned = called(f"{self._what}: keys", declared, dict(self._params))
            what = f"{self._what}: keys ({_place(declared)})"
        key = self.index.key
        values = _texts(what, returned) if isinstance(key, Text) else _integers(what, returned, key)
        if len(values) != rows:
            raise BadInput(f"{what}: must return as many keys as the table has rows, {rows}, got {len(values)}")
        distinct = len(set(values)) if isinstance(values, list) else len(np.unique(values))
        if distinct != rows:
            raise BadInput(f"{what}: must return every key once; {rows - distinct} of {rows} occur again")
        return values

    def initial(self) -> dict[str, np.ndarray]:
        """The columns that `init` returns, in the types of their fields. Other columns start at zero.

        A table that inserts keys has one row here, which every new row starts as.

        Raises:
            BadInput: `init` raises, or returns values that the fields cannot hold; cites file and line.
        """
        init, rows = self.declared.init, self._initial_count
        key: Any = np.arange(rows, dtype=np.int64)
        if self.index is not None:
            key = self.keys()
            if isinstance(key, list):
                texts = np.empty(rows, object)
                texts[:] = key
                key = texts
        if init is None:
            return {}
        what = f"{self._what}: init"
        initial_values = called(what, init, key, dict(self._params))
        what = f"{what} ({_place(init)})"
        if not isinstance(initial_values, dict | None):
            raise BadInput(f"{what}: must return a dict of columns by name, got a {type(initial_values).__name__}")
        columns = {}
        for name, values in (initial_values or {}).items():
            slot = self.row.state[0].get(name)
            if slot is None or not isinstance(slot.type, Scalar | Array):
                raise BadInput(f"{what}: {self.row.name} has no scalar or array field {name!r} to initialise")
            item, shape = (slot.type.item, (rows, slot.count)) if isinstance(slot.type, Array) else (slot.type, (rows,))
            columns[name] = _fitting(f"{what}: {name}", values, item, shape)
        return columns

    def initial_rows(self) -> np.ndarray:
        """The initial rows, in the layout of the runtime: one if the table inserts rows. Raises as `initial` does."""
        rows = np.zeros(self._initial_count, self.row.dtype(header=False))
        for name, column in self.initial().items():
            rows[name] = column
        return rows

    @property
    def _initial_count(self) -> int:
        return 1 if self.index is not None and self.index.inserts else self.size


def _integers(what: str, returned: Any, kind: Scalar) -> np.ndarray:
    values = np.asarray(returned)
    if values.ndim != 1 or (values.size and values.dtype.kind not in "iu"):
        reason = f"must return a 1-D array of integers, got a {values.ndim}-D {values.dtype} array"
        raise BadInput(f"{what}: {reason}")
    wrong = (values < kind.low) | (values > kind.high)
    if wrong.any():
        limits = range_text(*kind.bounds)
        raise BadInput(f"{what}: must be {limits} ({kind.name}), got {int(values[wrong.argmax()])}")
    return values.astype(np.int64)


def _texts(what: str, returned: Any) -> list[bytes]:
    if not isinstance(returned, list) or not all(isinstance(value, str | bytes) for value in returned):
        raise BadInput(f"{what}: must return a list of texts, got {type(returned).__name__}")
    return [value.encode() if isinstance(value, str) else value for value in returned]


def constants(app: App, params: dict[str, Any]) -> dict[Constant, Any]:
    """The values of the side tables and of the columns of lookup tables.

    Raises:
        BadInput: A function raises, or returns values that do not fit; cites file and line.
    """
    values: dict[Constant, Any] = {
        name: constant(app, name, params) for name in app.constants if not isinstance(name, Column)
    }
    for table in app.lookup_tables:
        values |= _columns(app, table, params)
    return values


def _columns(app: App, table: LookupTable, params: dict[str, Any]) -> dict[Constant, Any]:
    """The columns of a lookup table, by ascending key."""
    what = f"app {app.name}: lookup_table {table.record.name}: rows"
    fields: dict[str, Any] = dict(table.record.fields)
    returned = called(what, table.rows, dict(params))
    what = f"{what} ({_place(table.rows)})"
    if not isinstance(returned, dict) or {*returned} != {*fields}:
        raise BadInput(f"{what}: must return a dict with the columns {', '.join(fields)}")
    columns: dict[str, np.ndarray] = {}
    for field in (table.key, *fields):
        column, named, kind = returned[field], f"{what}: {field}", fields[field]
        if isinstance(kind, Text):
            columns[field] = np.array([*_texts(named, column), None], object)[:-1]
        elif field == table.key:
            columns[field] = _integers(named, column, kind)
        else:
            columns[field] = _fitting(named, column, kind, (len(columns[table.key]),))
        if len(columns[field]) != len(columns[table.key]):
            raise BadInput(f"{named}: must have as many values as there are keys, got {len(columns[field])}")
    order = np.argsort(columns[table.key], kind="stable")
    keys = columns[table.key][order].tolist()
    if again := [key for key, next_key in itertools.pairwise(keys) if key == next_key]:
        raise BadInput(f"{what}: {table.key}: every row needs a key of its own, but {again[0]!r} occurs again")
    values: dict[Constant, Any] = {}
    for table_column in table.columns:
        column, kind = columns[table_column.field][order], fields[table_column.field]
        if table_column.is_starts:
            values[table_column] = np.cumsum([0, *map(len, column)], dtype=np.int64)
        elif isinstance(kind, Text):
            values[table_column] = b"".join(column)
        else:
            values[table_column] = column.astype(np.float64 if kind.is_float else np.int64)
    return values


def constant(app: App, declared: Constant, params: dict[str, Any]) -> np.ndarray:
    """A side table's values, read-only.

    Raises:
        BadInput: `build` raises, or does not return a 1-D int64 or float64 array; cites file and line.
    """
    what = f"app {app.name}: constant {declared.name}"
    values = np.ascontiguousarray(called(what, declared.build, dict(params)))
    if values.ndim != 1 or values.dtype not in (np.int64, np.float64):
        reason = f"must return a 1-D int64 or float64 array, got a {values.ndim}-D {values.dtype} array"
        raise BadInput(f"{what} ({_place(declared.build)}): {reason}")
    values = values.copy()  # the application may still change its own array
    values.setflags(write=False)
    return values


def _fitting(what: str, values: Any, item: Scalar, shape: tuple[int, ...]) -> np.ndarray:
    """Convert values, one per row or one for all rows, to the type of their field. Like a store, it loses nothing."""
    try:
        wide = np.asarray(values)
        # A value per row goes to scalars, and a row of items, or one for each row, to arrays.
        column = np.broadcast_to(wide, shape)
    except ValueError as error:
        raise BadInput(f"{what}: {' '.join(str(error).split())}") from None
    if wide.size and wide.dtype.kind not in ("biuf" if item.is_float else "biu"):
        raise BadInput(f"{what}: cannot store values of type {wide.dtype} in a field of type {item.name}")
    if item.is_float:
        return one_nan(np.ascontiguousarray(column, item.dtype))
    wrong = (column < item.low) | (column > item.high)
    if wrong.any():
        position = np.unravel_index(wrong.argmax(), shape)
        limits = range_text(item.low, item.high)
        reason = f"must be {limits} ({item.name}), got {int(column[position])} in row {position[0]}"
        raise BadInput(f"{what} {reason}")
    return np.ascontiguousarray(column, item.dtype)


def called(what: str, function: Callable, *arguments: Any) -> Any:
    """Call a function of the application, and report its exception in one line.

    Raises:
        BadInput: The function raised; cites file and line. A BadInput of the function itself passes unchanged.
    """
    try:
        return function(*arguments)
    except (BadInput, MemoryError):
        raise
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == _file(function)]
        message = " ".join(str(error).split())
        raise BadInput(f"{what} ({_place(function, *lines[-1:])}): {type(error).__name__}: {message}") from error


def _file(function: Callable) -> str:
    code = getattr(function, "__code__", None)
    return code.co_filename if code else "?"


def _place(function: Callable, *line: int | None) -> str:
    """`file.py:line` for this line of a function, or for its first."""
    code = getattr(function, "__code__", None)
    return place(_file(function), line[0] if line else code.co_firstlineno if code else "?")
