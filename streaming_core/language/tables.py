"""The tables and constants of an application before the first event: their sizes and their values.

This is bookkeeping, so the oracle and the kernel compiler share it. Each of them finds the meaning of the operators by
itself.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from streaming_core.errors import BadInput, range_text
from streaming_core.language.application import App, Constant, Table
from streaming_core.language.record import Array, Resolved, Scalar, one_nan
from streaming_core.language.source import place

MOST_ROWS = (1 << 32) - 1  # an access of a plan names its row in 32 bits (runtime/ABI.md)


def size(app: App, table: Table, params: dict[str, Any]) -> int:
    """The number of rows of a table under these parameters.

    Raises:
        BadInput: The size is not an integer, is not positive, or exceeds the limit of the runtime.
    """
    rows = params[table.size] if isinstance(table.size, str) else table.size
    if not isinstance(rows, int) or isinstance(rows, bool) or not 1 <= rows <= MOST_ROWS:
        raise BadInput(f"app {app.name}: table {table.name}: the size must be between 1 and {MOST_ROWS}, got {rows!r}")
    return rows


def initial(app: App, table: Table, row: Resolved, params: dict[str, Any]) -> dict[str, np.ndarray]:
    """The columns that a table's `init` returns, in the types of their fields. Other columns start at zero.

    Raises:
        BadInput: `init` raises, or returns values that the fields of `row` cannot hold; cites file and line.
    """
    rows = size(app, table, params)
    if table.init is None:
        return {}
    what = f"app {app.name}: table {table.name}: init"
    initial_values = called(what, table.init, np.arange(rows, dtype=np.int64), dict(params))
    what = f"{what} ({_place(table.init)})"
    if not isinstance(initial_values, dict | None):
        raise BadInput(f"{what}: must return a dict of columns by name, got a {type(initial_values).__name__}")
    columns = {}
    for name, values in (initial_values or {}).items():
        slot = row.state[0].get(name)
        if slot is None or not isinstance(slot.type, Scalar | Array):
            raise BadInput(f"{what}: {row.name} has no scalar or array field {name!r} to initialise")
        item, shape = (slot.type.item, (rows, slot.count)) if isinstance(slot.type, Array) else (slot.type, (rows,))
        columns[name] = _fitting(f"{what}: {name}", values, item, shape)
    return columns


def initial_rows(app: App, table: Table, row: Resolved, params: dict[str, Any]) -> np.ndarray:
    """The initial rows of a table, in the layout of the runtime. Raises as `initial` does."""
    rows = np.zeros(size(app, table, params), row.dtype(header=False))
    for name, column in initial(app, table, row, params).items():
        rows[name] = column
    return rows


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
    if wide.dtype.kind not in ("biuf" if item.is_float else "biu"):
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
