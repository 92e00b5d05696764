"""Violations: only bounds have any, and each one has a rank and the expected or the actual row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from expectations.suites import DataSet, broken_rows, expect, frame, raw_rows
from streaming_core.language.expectations import INFO
from streaming_core.regression.home import Home
from streaming_core.regression.plan import Plan
from streaming_core.regression.warehouse import VIOLATION_CAP

SHOWN = "app, cell, `check`, kind, seq, sub, expected, actual, event"

EXPECTATIONS = [
    expect("expect_table_row_count_to_be_between", INFO, "The number of differing rows is known", min_value=0),
    broken_rows(
        "No row differs from the oracle, except in declared bounds",
        f"{SHOWN} FROM {{batch}} WHERE NOT is_bound",
    ),
    broken_rows(
        f"A violation has a rank from 1 to {VIOLATION_CAP}, a known kind, and an expected or an actual row",
        f"{SHOWN} FROM {{batch}} WHERE rank NOT BETWEEN 1 AND {VIOLATION_CAP}"
        " OR (expected IS NULL AND actual IS NULL)"
        " OR kind NOT IN ('missing', 'extra', 'different', 'out_of_order', 'invariant')",
    ),
]


def data_set(spark: SparkSession, home: Home, run_id: str, plan: Plan) -> DataSet:
    """The first differing rows of the run, with `is_bound` of their cell."""
    bounds = [cell["cell"] for cell in plan["cells"] if cell["is_bound"]]
    rows = raw_rows(home, "violations", run_id)
    is_bound = pc.is_in(rows["cell"], pa.array(bounds, pa.string()))
    return DataSet("violations", frame(spark, rows.append_column("is_bound", is_bound)))
