"""Cells: each planned cell has one row, ran to its end, and names its inputs and builds."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from expectations.suites import DataSet, broken_rows, expect, frame, parameter, raw_rows
from streaming_core.language.expectations import CRITICAL, WARNING
from streaming_core.regression.home import Home
from streaming_core.regression.plan import Plan
from streaming_core.regression.provenance import provenance_of

PROVENANCE = ("spec_digest", "code_digest", "build", "workload_address", "oracle_address", "output_digest")
_UNKNOWN = " OR ".join(f"{name} IS NULL" for name in PROVENANCE)

EXPECTATIONS = [
    expect("expect_table_row_count_to_be_between", CRITICAL, "The run has cells", min_value=1),
    expect(
        "expect_column_distinct_values_to_equal_set",
        CRITICAL,
        "The cells are those of the plan",
        column="cell",
        value_set=parameter("cells"),
    ),
    broken_rows(
        "Each cell has one row",
        "app, cell, count(*) AS copies FROM {batch} GROUP BY app, cell HAVING count(*) > 1",
    ),
    broken_rows(
        "Every cell ran to its end", "app, cell, status, error, attempt, host FROM {batch} WHERE status <> 'ok'"
    ),
    broken_rows(
        "A cell that ran names its specification, code, build, workload, oracle and output digest",
        f"app, cell, {', '.join(PROVENANCE)} FROM {{batch}} WHERE status = 'ok' AND ({_UNKNOWN})",
    ),
    broken_rows(
        "A cell that ran has plausible numbers of threads, events, bytes of memory and seconds of compilation",
        "app, cell, threads, events, peak_memory_bytes, compile_seconds FROM {batch} WHERE status = 'ok' AND"
        " NOT coalesce(threads > 0 AND events >= 0 AND peak_memory_bytes > 0 AND compile_seconds >= 0, false)",
        WARNING,
    ),
    broken_rows(
        "An import set aside no more rows than it tolerates",
        "app, min(cell) AS cell, set_aside FROM {batch} WHERE set_aside <> '' GROUP BY app, set_aside",
        WARNING,
    ),
]


def data_set(spark: SparkSession, home: Home, run_id: str, plan: Plan) -> DataSet:
    """One row per planned cell, with the rows that its import set aside beyond the tolerance, in words."""
    cells, known = raw_rows(home, "cells", run_id), provenance_of(home, run_id)
    aside = [known[address].excess if address in known else "" for address in cells["workload_address"].to_pylist()]
    rows = frame(spark, cells.append_column("set_aside", pa.array(aside, pa.string())))
    return DataSet("cells", rows, {"cells": [cell["cell"] for cell in plan["cells"]]})
