"""`lockstep sql`: query marts and raw tables with DuckDB, which can only read them, or list them.

DuckDB runs in memory and opens no file itself. Arrow reads the Parquet files, and only the columns that a query uses.
So DuckDB needs no access to anything else, and has none:

- It reads and writes no other file, attaches no database, and spills nothing to disk.
- It installs and loads no extension, and keeps no secret.
- A query cannot change these settings. It is one statement that reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from infra import checkout
from streaming_core.cli.options import Json
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home

if TYPE_CHECKING:
    import pyarrow.dataset as ds

MARTS = sorted(path.stem for path in (checkout.ROOT / "dbt" / "models" / "marts").glob("*.sql"))
CLOSED = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",  # a query sees no variable of this process
    "temp_directory": "",
    "TimeZone": "UTC",
    "enable_external_access": "false",
    "lock_configuration": "true",
}
LIST = (
    'SELECT table_name AS "table", column_name AS "column", data_type AS type FROM duckdb_columns() '
    "WHERE NOT internal ORDER BY starts_with(table_name, 'raw_'), table_name, column_index"
)
ALL = 1 << 30  # rows, or characters of a row: a cut table cannot be read, and a file has no width


def sql(
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="One statement in DuckDB's SQL. Default: list the tables.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Query the history of all runs with SQL, or list its tables.

    A query names the tables as dbt does: marts such as throughput, and
    raw tables such as raw_cells. It can only read them. It reads and
    writes no other file, and loads no extension.

    Examples:
        lockstep sql
        lockstep sql "SELECT verdict, count(*) FROM cells GROUP BY ALL"
    """
    import duckdb
    import pyarrow as pa

    home, text = checkout.home(), (query or LIST).strip().rstrip("; ")
    try:
        with duckdb.connect(":memory:") as connection:
            for name, value in CLOSED.items():
                connection.execute(f"SET {name} = '{value}'")
            statements = connection.extract_statements(text)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise BadInput("the query must be one statement that reads, such as SELECT, DESCRIBE or SUMMARIZE")
            _check(home, text)
            for name, dataset in _datasets(home):
                connection.register(name, dataset)
            rows = connection.sql(text)
            if as_json:
                texts = rows.set_alias("history").project("to_json(history)").fetchall()
                # JSON has no number that is not finite.
                objects = [json.loads(text, parse_constant=lambda _: None) for (text,) in texts]
                print(json.dumps(objects, indent=1))
            else:
                rows.show(max_width=ALL, max_rows=ALL, max_col_width=ALL, null_value="")
    except duckdb.CatalogException as error:
        line = _line(error).rstrip("!")
        if any(f"Table with name {name} " in line for name in MARTS):
            raise BadInput(f"{line}: dbt has not built this mart yet; use `lockstep warehouse build`") from None
        raise BadInput(f"{line}; `lockstep sql` lists the tables") from None
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise BadInput(_line(error)) from None


def _datasets(home: Home) -> Iterator[tuple[str, ds.Dataset]]:
    """The marts that are built, then the raw tables."""
    import pyarrow.dataset as ds

    from streaming_core.regression.warehouse import RAW, parts

    if next(parts(home, "cells"), None) is None:
        raise BadInput(f"{home.root} has no history yet: start a run with `lockstep run`")
    for name in MARTS:
        folder = home.root / "warehouse" / "marts" / name
        if any(path.name[0] not in "._" for path in folder.rglob("*.parquet")):
            yield name, ds.dataset(folder, format="parquet", partitioning="hive")  # some are divided by month
    for name, schema in RAW.items():
        yield f"raw_{name}", ds.dataset([str(path) for path in parts(home, name)], schema=schema, format="parquet")


def _check(home: Home, text: str) -> None:
    """Check the raw files of the tables that a query names, as every reader does."""
    from streaming_core.regression import decisions
    from streaming_core.regression.warehouse import RAW, check_version, parts

    for name in RAW:
        if re.search(rf"\braw_{name}\b", text, re.IGNORECASE):
            for path in parts(home, name):
                check_version(path, name)
            if name == decisions.TABLE:
                decisions.chain(home)


def _line(error: Exception) -> str:
    """An error in one line, without the excerpt of the query that DuckDB draws below it, and its guess at a name."""
    return " ".join(re.split(r"\n\nLINE |\nDid you mean ", str(error))[0].split())
