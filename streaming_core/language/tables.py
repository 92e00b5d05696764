"""What an application's tables hold before the first event: how many rows, which values, and what is refused.

The bookkeeping of tables and constants, for every reader of an application alike; what operators make of them, each
reader finds out by itself.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from streaming_core.errors import BadInput
from streaming_core.language.application import App, Constant, Table
from streaming_core.language.record import Array, Resolved, Scalar, one_nan
from streaming_core.language.source import place

MOST_ROWS = (1 << 32) - 1  # an access of a plan names its row in 32 bits (runtime/README.md)


def size(app: App, table: Table, params: dict[str, Any]) -> int:
    """Rows of a table under these parameters.

    Raises:
        BadInput: no integer, none, or more than the runtime counts.
    """
    rows = params[table.size] if isinstance(table.size, str) else table.size
    if not isinstance(rows, int) or isinstance(rows, bool) or not 1 <= rows <= MOST_ROWS:
        raise BadInput(f"app {app.name}: table {table.name}: size {rows!r} must lie in 1..{MOST_ROWS}")
    return rows


def initial(app: App, table: Table, row: Resolved, params: dict[str, Any]) -> dict[str, np.ndarray]:
    """The columns that a table's `init` gives, in the types of their fields; what is absent is zero.

    Raises:
        BadInput: `init` raises, or gives what the fields of `row` cannot hold; the line names its file and line.
    """
    rows = size(app, table, params)
    if table.init is None:
        return {}
    what = f"app {app.name}: table {table.name}: init"
    given = called(what, table.init, np.arange(rows, dtype=np.int64), dict(params))
    what = f"{what} ({_place(table.init)})"
    if not isinstance(given, dict | None):
        raise BadInput(f"{what}: gives a {type(given).__name__}, must give columns by name")
    columns = {}
    for name, values in (given or {}).items():
        slot = row.state[0].get(name)
        if slot is None or not isinstance(slot.type, Scalar | Array):
            raise BadInput(f"{what}: {row.name} has no scalar or array {name!r} that could be initialised")
        item, shape = (slot.type.item, (rows, slot.count)) if isinstance(slot.type, Array) else (slot.type, (rows,))
        columns[name] = _fitting(f"{what}: {name}", values, item, shape)
    return columns


def initial_rows(app: App, table: Table, row: Resolved, params: dict[str, Any]) -> np.ndarray:
    """The rows a table starts with, as they lie in memory. Raises as `initial` does."""
    rows = np.zeros(size(app, table, params), row.dtype(header=False))
    for name, column in initial(app, table, row, params).items():
        rows[name] = column
    return rows


def constant(app: App, declared: Constant, params: dict[str, Any]) -> np.ndarray:
    """A side table's values, read-only.

    Raises:
        BadInput: `build` raises, or gives no 1-D int64 or float64 array; the line names its file and line.
    """
    what = f"app {app.name}: constant {declared.name}"
    values = np.ascontiguousarray(called(what, declared.build, dict(params)))
    if values.ndim != 1 or values.dtype not in (np.int64, np.float64):
        raise BadInput(f"{what} ({_place(declared.build)}): must be a 1-D int64 or float64 array")
    values = values.copy()  # what the application built stays its own
    values.setflags(write=False)
    return values


def _fitting(what: str, values: Any, item: Scalar, shape: tuple[int, ...]) -> np.ndarray:
    """`values`, one or as many as there are, in the type of their field: as a store of an operator, nothing is lost."""
    try:
        wide = np.asarray(values)
        # A value per row goes to scalars, and a row of items, or one for each row, to arrays.
        column = np.broadcast_to(wide, shape)
    except ValueError as error:
        raise BadInput(f"{what}: {' '.join(str(error).split())}") from None
    if wide.dtype.kind not in ("biuf" if item.is_float else "biu"):
        raise BadInput(f"{what}: values of type {wide.dtype} cannot be stored as {item.name}")
    if item.is_float:
        return one_nan(np.ascontiguousarray(column, item.dtype))
    wrong = (column < item.low) | (column > item.high)
    if wrong.any():
        place = np.unravel_index(wrong.argmax(), shape)
        value = f"the value {int(column[place])} of row {place[0]}"
        raise BadInput(f"{what}: {value} does not fit {item.name}, {item.low}..{item.high}")
    return np.ascontiguousarray(column, item.dtype)


def called(what: str, function: Callable, *arguments: Any) -> Any:
    """What a function of the application returns; whatever it raises is its author's to mend, and said in a line.

    Raises:
        BadInput: what it raised, with file and line; its own refusals as they are.
    """
    try:
        return function(*arguments)
    except (BadInput, MemoryError):
        raise
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == _file(function)]
        said = " ".join(str(error).split())
        raise BadInput(f"{what} ({_place(function, *lines[-1:])}): {type(error).__name__}: {said}") from error


def _file(function: Callable) -> str:
    code = getattr(function, "__code__", None)
    return code.co_filename if code else "?"


def _place(function: Callable, *line: int | None) -> str:
    """`file.py:line` in a function: this line of it, or its first."""
    code = getattr(function, "__code__", None)
    return place(_file(function), line[0] if line else code.co_firstlineno if code else "?")
