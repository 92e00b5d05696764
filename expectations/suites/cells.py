"""Cells: each planned cell is there once, ran, and says what it ran with."""

from __future__ import annotations

from great_expectations.expectations import ExpectColumnDistinctValuesToEqualSet
from pyspark.sql import SparkSession

from expectations.suites import DataSet, broken_rows, raw_table
from streaming_core.regression.home import Home

PROVENANCE = ("spec_digest", "code_digest", "build", "workload_address", "oracle_address", "output_digest")


def data_set(spark: SparkSession, home: Home, run_id: str, plan: dict) -> DataSet:
    """One row per planned cell."""
    unknown = " OR ".join(f"{name} IS NULL" for name in PROVENANCE)
    return DataSet(
        "cells",
        raw_table(spark, home, "cells", run_id),
        [
            ExpectColumnDistinctValuesToEqualSet(column="cell", value_set=[cell["cell"] for cell in plan["cells"]]),
            broken_rows(
                "a cell is there once",
                "app, cell, count(*) AS copies FROM {batch} GROUP BY app, cell HAVING count(*) > 1",
            ),
            broken_rows(
                "every cell ran to its end", "app, cell, status, error, attempt, host FROM {batch} WHERE status <> 'ok'"
            ),
            broken_rows(
                "a cell that ran says what it ran with",
                f"app, cell, {', '.join(PROVENANCE)} FROM {{batch}} WHERE status = 'ok' AND ({unknown})",
            ),
            broken_rows(
                "a cell that ran used threads, events and memory",
                "app, cell, threads, events, peak_memory_bytes, compile_seconds FROM {batch} WHERE status = 'ok' AND"
                " NOT coalesce(threads > 0 AND events >= 0 AND peak_memory_bytes > 0 AND compile_seconds >= 0, false)",
            ),
        ],
    )
