"""One run's partition of a raw warehouse table: replaced whole, so that loading twice changes nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import RAW, SCHEMA_VERSION
from streaming_core.storage import replacing


def write_raw(home: Home, table: str, run_id: str, rows: list[dict]) -> Path:
    """Writes raw/<table>/run_id=<run id>/part-0.parquet in place of what was there.

    Args:
        rows: dicts with the columns of the table's schema; `schema_version` and `run_id` are filled in, columns
            that a row lacks are null.
    """
    whole = [{"schema_version": SCHEMA_VERSION, "run_id": run_id, **row} for row in rows]
    schema = RAW[table]
    unknown = {name for row in whole for name in row} - set(schema.names)
    if unknown:
        raise KeyError(f"raw table {table} has no column {', '.join(sorted(unknown))}")
    target = home.part(table, run_id)
    # Spark and dbt skip names that begin with a dot: a reader sees the old partition or the new one.
    with replacing(target) as file:
        pq.write_table(pa.Table.from_pylist(whole, schema=schema), file)
    return target


def forget_raw(home: Home, table: str, run_id: str) -> None:
    """Removes the run's partition of a table, which is to be written anew."""
    home.part(table, run_id).unlink(missing_ok=True)
