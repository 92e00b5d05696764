"""Samples: each measured pass processed all events, in order, and has plausible figures."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from expectations.suites import DataSet, broken_rows, expect, frame, raw_rows
from streaming_core.language.expectations import CRITICAL, WARNING
from streaming_core.regression.home import Home
from streaming_core.regression.plan import Plan

PERCENTILES = [f"processing_{p}_us" for p in ("p50", "p95", "p99", "p999", "max")]
_RISING = " AND ".join(f"{a} <= {b}" for a, b in pairwise(PERCENTILES))

EXPECTATIONS = [
    expect("expect_table_row_count_to_be_between", CRITICAL, "A pass was measured", min_value=1),
    expect(
        "expect_column_values_to_be_in_set",
        CRITICAL,
        "A pass is verified, peak or open_loop",
        column="kind",
        value_set=["verified", "peak", "open_loop"],
    ),
    broken_rows(
        "A pass processed every event of its workload",
        "app, cell, kind, repetition, events, planned FROM {batch} WHERE events <> planned",
    ),
    broken_rows(
        "Outputs were delivered in order, except by declared bounds and by cells without order",
        "app, cell, kind, repetition FROM {batch} WHERE NOT in_order AND NOT is_bound AND `order` = 'total'",
    ),
    broken_rows(
        "A pass took more than 0 seconds, and its rate is its events divided by its seconds, within 1 %",
        "app, cell, kind, repetition, events, seconds, events_per_s FROM {batch} WHERE NOT"
        " coalesce(seconds > 0 AND abs(events_per_s * seconds - events) <= 0.01 * events, false)",
        WARNING,
    ),
    broken_rows(
        "Latency percentiles do not decrease from p50 to the maximum",
        f"app, cell, kind, repetition, {', '.join(PERCENTILES)} FROM {{batch}} WHERE NOT coalesce({_RISING}, false)",
        WARNING,
    ),
    broken_rows(
        "A digest is the number of outputs, a colon and 16 hex digits",
        "app, cell, kind, repetition, outputs, digest FROM {batch} WHERE NOT coalesce("
        "digest RLIKE '^[0-9]+:[0-9a-f]{{16}}$' AND cast(split(digest, ':')[0] AS BIGINT) = outputs, false)",
    ),
]


def data_set(spark: SparkSession, home: Home, run_id: str, plan: Plan) -> DataSet:
    """One row per measured pass, with its cell's application and planned events."""
    cells, samples = (raw_rows(home, table, run_id) for table in ("cells", "samples"))
    cell = {row["cell"]: row for row in cells.to_pylist()}
    rows = samples.filter(pc.is_in(samples["cell"], cells["cell"]))
    for name, source in {"app": "app", "is_bound": "is_bound", "order": "order", "planned": "events"}.items():
        values = [cell[name][source] for name in rows["cell"].to_pylist()]
        rows = rows.append_column(name, pa.array(values, cells.schema.field(source).type))
    return DataSet("samples", frame(spark, rows))
