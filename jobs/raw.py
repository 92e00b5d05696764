"""Writes the partition of a run in a raw warehouse table. It replaces the old one, so a retry changes nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import RAW, SCHEMA_VERSION
from streaming_core.storage import replacing


def write_raw(home: Home, table: str, run_id: str, rows: list[dict]) -> Path:
    """Write raw/<table>/run_id=<run id>/part-0.parquet, and replace an earlier file.

    Args:
        home: LOCKSTEP_HOME.
        table: Name of the table.
        run_id: The run.
        rows: Column -> value. The function adds `schema_version` and `run_id`; a missing column is null.

    Returns:
        The path of the file.
    """
    whole = [{"schema_version": SCHEMA_VERSION, "run_id": run_id, **row} for row in rows]
    schema = RAW[table]
    unknown = {name for row in whole for name in row} - set(schema.names)
    if unknown:
        raise KeyError(f"raw table {table} has no column {', '.join(sorted(unknown))}")
    target = home.part(table, run_id)
    # Spark and dbt skip names that begin with a dot, so a reader sees either the old partition or the new one.
    with replacing(target) as file:
        pq.write_table(pa.Table.from_pylist(whole, schema=schema), file)
    return target


def forget_raw(home: Home, table: str, run_id: str) -> None:
    """Remove the partition of a run, before another task writes it again."""
    home.part(table, run_id).unlink(missing_ok=True)
