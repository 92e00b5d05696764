"""Queries over the history: DuckDB over the marts and the raw tables, which it can only read.

DuckDB runs in memory and opens no file itself. Arrow reads the Parquet files, and only the columns that a query uses.
So DuckDB needs no access to anything else, and has none:

- It reads and writes no other file, attaches no database, and spills nothing to disk.
- It installs and loads no extension, and keeps no secret.
- A query cannot change these settings. It is one statement that reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from infra.checkout import ROOT
from streaming_core.errors import BadInput
from streaming_core.regression import decisions
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import RAW, check_version, parts

MARTS = sorted(path.stem for path in (ROOT / "dbt" / "models" / "marts").glob("*.sql"))
MONTH = pa.schema([("month", pa.string())])  # dbt divides the files of some marts by it
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


def tables(home: Home) -> dict[str, pa.Schema]:
    """The columns of every table that a query can name: marts that are built, then raw tables.

    Raises:
        BadInput: There is no history yet, or a file cannot be read.
    """
    return {name: one.schema for name, one in _datasets(home)}


def query(home: Home, text: str) -> pa.Table:
    """The result of a query.

    Args:
        home: LOCKSTEP_HOME.
        text: One statement that reads, in DuckDB's SQL. It names tables as dbt does: `cells`, `raw_cells`.

    Raises:
        BadInput: The query is wrong or does more than read, there is no history yet, or a file cannot be read.
    """
    datasets = dict(_datasets(home))
    with duckdb.connect(":memory:") as connection:
        try:
            for name, value in CLOSED.items():
                connection.execute(f"SET {name} = '{value}'")
            statements = connection.extract_statements(text)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise BadInput("the query must be one statement that reads, such as SELECT, DESCRIBE or SUMMARIZE")
            _check(home, text)
            for name, dataset in datasets.items():
                connection.register(name, dataset)
            return connection.sql(text).to_arrow_table()
        except duckdb.CatalogException as error:
            line = _line(error).rstrip("!")
            if any(f"Table with name {name} " in line for name in MARTS):
                raise BadInput(f"{line}: dbt has not built this mart yet; use `lockstep warehouse build`") from None
            raise BadInput(f"{line}; `lockstep sql` lists the tables") from None
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise BadInput(_line(error)) from None


def _datasets(home: Home) -> Iterator[tuple[str, ds.Dataset]]:
    if next(parts(home, "cells"), None) is None:
        raise BadInput(f"{home.root} has no history yet: start a run with `lockstep run`")
    try:
        for name in MARTS:
            folder = home.root / "warehouse" / "marts" / name
            if any(path.name[0] not in "._" for path in folder.rglob("*.parquet")):
                month = ds.partitioning(MONTH, flavor="hive") if any(folder.glob("month=*")) else None
                yield name, ds.dataset(folder, format="parquet", partitioning=month)
        for name, schema in RAW.items():
            yield f"raw_{name}", ds.dataset([str(path) for path in parts(home, name)], schema=schema, format="parquet")
    except (pa.ArrowException, OSError) as error:
        raise BadInput(_line(error)) from None


def _check(home: Home, text: str) -> None:
    """Check the raw files of the tables that a query names, as every reader does."""
    for name in RAW:
        if re.search(rf"\braw_{name}\b", text, re.IGNORECASE):
            for path in parts(home, name):
                check_version(path, name)
            if name == decisions.TABLE:
                decisions.chain(home)


def _line(error: Exception) -> str:
    """An error in one line, without the excerpt of the query that DuckDB draws below it, and its guess at a name."""
    return " ".join(re.split(r"\n\nLINE |\nDid you mean ", str(error))[0].split())
