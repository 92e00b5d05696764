"""Runs queries of NEXMark on DuckDB: the SQL beside each application, over tables in memory."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from lockstep_engine import OnePass, Task, main

APPLICATIONS = Path(__file__).parents[3] / "streaming_core" / "apps" / "nexmark"
QUERIES = ("nexmark_q1", "nexmark_q2", "nexmark_q5", "nexmark_q7", "nexmark_q8")
STREAMS = ("person", "auction", "bid")


def query(task: Task) -> OnePass:
    """Load the streams into tables, and answer the SQL of the application."""
    connection = duckdb.connect(config={"threads": task.threads})
    connection.register("events", task.events)
    for number, stream in enumerate(STREAMS):
        connection.execute(f"CREATE TABLE {stream} AS SELECT * FROM events WHERE stream = {number}")
    connection.unregister("events")
    sql = (APPLICATIONS / f"{task.app}.sql").read_text()
    return lambda: rows(connection.sql(sql).to_arrow_table(), task.schema)


def rows(answer: pa.Table, schema: pa.Schema) -> pa.Table:
    """The answer as outputs. DuckDB's decimals have 128 bits, and those of an application wrap around at 64 bits."""
    columns = [
        pa.chunked_array([wrapped(chunk, field.type) for chunk in answer[field.name].chunks], field.type)
        if pa.types.is_decimal(field.type)
        else answer[field.name].cast(field.type)
        for field in schema
    ]
    return pa.table(columns, schema)


def wrapped(values: pa.Decimal128Array, to: pa.Decimal128Type) -> pa.Array:
    """Decimals without nulls, each modulo 2^64 as an integer with sign."""
    halves = np.frombuffer(values.buffers()[1], np.int64).reshape(-1, 2)
    low = halves[values.offset : values.offset + len(values), 0]
    return pa.Array.from_buffers(to, len(low), [None, pa.py_buffer(np.stack([low, low >> 63], axis=1))])


main(dict.fromkeys(QUERIES, query), versions={"duckdb": duckdb.__version__})
