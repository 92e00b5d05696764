"""Outputs: what each application declares of its output record, of every cell that completed and is not a bound.

`columns` compares the columns of each cell with the declared ones; `outputs_<app>` holds the rows.
"""

from __future__ import annotations

from functools import reduce
from pathlib import Path

from great_expectations.expectations import ExpectTableRowCountToBeBetween
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from expectations.suites import DataSet, broken_rows, raw_file
from streaming_core.api import App
from streaming_core.apps.registry import load
from streaming_core.data.parts import Parts
from streaming_core.language.record import Scalar
from streaming_core.regression.home import Home

LEADING = ("seq", "sub")


def data_sets(spark: SparkSession, home: Home, run_id: str, plan: dict) -> list[DataSet]:
    """`columns`, and `outputs_<app>` of each application of which a cell completed."""
    done = Parts([raw_file(home, "cells", run_id)]).read().to_pylist()
    folders = {
        row["cell"]: home.attempt(run_id, row["cell"], row["attempt"]) / "outputs"
        for row in done
        if row["status"] == "ok" and not row["is_bound"]
    }
    cells = [cell for cell in plan["cells"] if cell["cell"] in folders]
    if not cells:
        return []
    workloads = {workload["address"]: workload for workload in plan["workloads"]}
    apps: dict[str, list[dict]] = {}
    for cell in cells:
        apps.setdefault(cell["spec"]["app"], []).append(cell)
    columns, sets = [], []
    for name, mine in apps.items():
        app, workload = load(name), workloads[mine[0]["workload"]]
        declared = app.outputs.resolve(app.bind(workload["params"])).arrow(LEADING)
        frames = []
        for cell in mine:
            parts = Parts.of(folders[cell["cell"]])
            kinds = {field.name: str(field.type) for field in parts.schema} if parts.paths else {}
            names = dict.fromkeys([*declared.names, *kinds])
            wanted = {field.name: str(field.type) for field in declared}
            columns += [(name, cell["cell"], c, wanted.get(c, "none"), kinds.get(c, "none")) for c in names]
            if all(kinds.get(c) == kind for c, kind in wanted.items()):
                frames.append(_rows(spark, name, cell["cell"], parts.paths, declared.names))
        if frames:
            sets.append(_output_rows(app, reduce(DataFrame.unionByName, frames), workload["events"]))
    shape = "app string, cell string, column string, declared string, found string"
    return [_columns(spark.createDataFrame(columns, shape)), *sets]


def _rows(spark: SparkSession, app: str, cell: str, files: list[Path], names: list[str]) -> DataFrame:
    frame = spark.read.parquet(*map(str, files))
    columns = [_shown(name) if kind == "binary" else F.col(f"`{name}`") for name, kind in frame.dtypes if name in names]
    return frame.select(F.lit(app).alias("app"), F.lit(cell).alias("cell"), *columns)


def _shown(name: str) -> Column:
    """Text as people read it; bytes that are no text in hexadecimal."""
    text = F.col(f"`{name}`")
    return F.when(F.is_valid_utf8(text.cast("string")), text.cast("string")).otherwise(F.hex(text)).alias(name)


def _columns(rows: DataFrame) -> DataSet:
    return DataSet(
        "columns",
        rows,
        [
            ExpectTableRowCountToBeBetween(min_value=1),
            broken_rows(
                "a cell's outputs have the columns and types its application declares",
                "app, cell, column, declared, found FROM {batch} WHERE declared <> found",
            ),
        ],
    )


def _output_rows(app: App, rows: DataFrame, events: int) -> DataSet:
    names = [*LEADING, *app.outputs.fields]
    nulls = " OR ".join(f"`{name}` IS NULL" for name in names)
    # Events are numbered from 0; what is flushed at the end of the stream bears the number after the last.
    ranges = [f"seq BETWEEN 0 AND {events}", "sub >= 0"]
    for name, kind in app.outputs.fields.items():
        if isinstance(kind, Scalar) and kind.low is not None and kind.name != "boolean":
            ranges.append(f"`{name}` BETWEEN {kind.low} AND {kind.high}")
    shown = ", ".join(f"`{name}`" for name in names)
    return DataSet(
        f"outputs_{app.name}",
        rows,
        [
            ExpectTableRowCountToBeBetween(min_value=1),
            broken_rows("no value is null", f"app, cell, {shown} FROM {{batch}} WHERE {nulls}"),
            broken_rows(
                "every value lies in the range of its declared type, seq among the events",
                f"app, cell, {shown} FROM {{batch}} WHERE NOT ({' AND '.join(ranges)})",
            ),
        ],
    )
