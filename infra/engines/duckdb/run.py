"""Runs queries of NEXMark on DuckDB: the SQL beside each application, over tables in memory."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
from lockstep_engine import OnePass, Task, main

APPLICATIONS = Path(__file__).parents[3] / "streaming_core" / "apps" / "nexmark"
QUERIES = ("nexmark_q1", "nexmark_q2", "nexmark_q5", "nexmark_q7", "nexmark_q8")
STREAMS = ("person", "auction", "bid")


def query(task: Task) -> OnePass:
    """Load the streams into tables, and answer the SQL of the application."""
    schema = [(f.name, pa.string() if pa.types.is_binary(f.type) else f.type) for f in task.events.schema]
    connection = duckdb.connect(config={"threads": task.threads})
    connection.register("events", task.events.cast(pa.schema(schema)))
    for number, stream in enumerate(STREAMS):
        connection.execute(f"CREATE TABLE {stream} AS SELECT * FROM events WHERE stream = {number}")
    connection.unregister("events")
    sql = (APPLICATIONS / f"{task.app}.sql").read_text()
    return lambda: connection.sql(sql).to_arrow_table().select(task.schema.names).cast(task.schema)


main(dict.fromkeys(QUERIES, query), versions={"duckdb": duckdb.__version__})
