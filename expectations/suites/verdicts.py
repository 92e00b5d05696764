"""Verdicts: each planned cell was judged, with one verdict per check, and equals the oracle unless it is a bound."""

from __future__ import annotations

from pyspark.sql import SparkSession

from expectations.suites import DataSet, broken_rows, expect, frame, parameter, raw_rows
from streaming_core.language.expectations import CRITICAL
from streaming_core.regression.home import Home
from streaming_core.regression.plan import Plan
from streaming_core.regression.verdict import VERDICTS

COUNTS = "missing, extra, different, out_of_order"

EXPECTATIONS = [
    expect("expect_table_row_count_to_be_between", CRITICAL, "The run has verdicts", min_value=1),
    expect(
        "expect_column_distinct_values_to_equal_set",
        CRITICAL,
        "The judged cells are those of the plan",
        column="cell",
        value_set=parameter("cells"),
    ),
    expect(
        "expect_column_values_to_be_in_set",
        CRITICAL,
        f"A verdict is one of {', '.join(VERDICTS)}",
        column="verdict",
        value_set=list(VERDICTS),
    ),
    broken_rows(
        "Each check of each cell is equal to the oracle, or belongs to a declared bound",
        f"app, cell, `check`, verdict, {COUNTS}, detail FROM {{batch}}"
        " WHERE verdict NOT IN ('equal', 'not_comparable')",
    ),
    broken_rows(
        "A check with the verdict equal compared at least one row, and found no difference",
        f"app, cell, `check`, expected_rows, actual_rows, {COUNTS} FROM {{batch}} WHERE verdict = 'equal'"
        " AND (greatest(expected_rows, actual_rows) = 0 OR missing + extra + different + out_of_order > 0)",
    ),
    broken_rows(
        "A cell has one verdict per check",
        "app, cell, `check`, count(*) AS verdicts FROM {batch} GROUP BY app, cell, `check` HAVING count(*) > 1",
    ),
]


def data_set(spark: SparkSession, home: Home, run_id: str, plan: Plan) -> DataSet:
    """One row per cell and check of the run."""
    rows = frame(spark, raw_rows(home, "verdicts", run_id))
    return DataSet("verdicts", rows, {"cells": [cell["cell"] for cell in plan["cells"]]})
