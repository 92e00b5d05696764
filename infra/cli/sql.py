"""`lockstep sql`: query the history, or list its tables."""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from infra.services.sql import query, tables
from reports.history import NOTHING
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home


def sql(home: Home, text: str | None, as_json: bool) -> None:
    """Print the rows of a query, or each table with its columns.

    Args:
        home: LOCKSTEP_HOME.
        text: The query; None lists the tables.
        as_json: Print JSON instead of a table: a list with an object per row.

    Raises:
        BadInput: The query is wrong, there is no history yet, a file cannot be read, or JSON needs other names.
    """
    rows = _columns(tables(home)) if text is None else query(home, text)
    if as_json:
        if len(set(rows.column_names)) < len(rows.column_names):
            raise BadInput("two columns have the same name, which JSON cannot hold: rename one with AS")
        print(json.dumps([{name: _plain(value) for name, value in row.items()} for row in rows.to_pylist()], indent=1))
        return
    console = Console()
    table = _table(rows)
    # Print the table whole: a cut line cannot be read, and a file has no width.
    console.width = max(console.width, console.measure(table, options=console.options.update(width=100_000)).maximum)
    console.print(table)


def _columns(schemas: dict[str, pa.Schema]) -> pa.Table:
    """A row per column of each table."""
    columns = [(name, field.name, str(field.type)) for name, schema in schemas.items() for field in schema]
    return pa.table(dict(zip(("table", "column", "type"), map(list, zip(*columns, strict=True)), strict=True)))


def _table(rows: pa.Table) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for field in rows.schema:
        number = any(kind(field.type) for kind in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))
        table.add_column(Text(field.name), justify="right" if number else "left", no_wrap=True)
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        table.add_row(*(Text(_text(value)) for value in row))
    return table


def _text(value: object) -> str:
    plain = _plain(value)
    if plain is None:
        return NOTHING
    if isinstance(plain, float):
        return f"{plain:,.6g}"
    text = plain if isinstance(plain, str) else json.dumps(plain)
    return " ".join("".join(one if one.isprintable() or one.isspace() else "\ufffd" for one in text).split())


def _plain(value: Any) -> Any:
    """A value as JSON has it: times as text, a number that is not finite as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)
