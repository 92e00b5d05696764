"""Outputs: each cell that completed, and is not a bound, writes the output record that its application declares.

The data set `columns` compares the columns of each cell with the declared ones. The data set `outputs_<app>` holds the
output rows of an application. Its expectations check the declared columns, find the rows that break the declaration,
and check the application's invariants.
"""

from __future__ import annotations

from functools import reduce
from pathlib import Path

from great_expectations.expectations import (
    Expectation,
    ExpectColumnMaxToBeBetween,
    ExpectColumnMinToBeBetween,
    ExpectColumnProportionOfNonNullValuesToBeBetween,
    ExpectColumnValuesToBeOfType,
    ExpectTableRowCountToBeBetween,
)
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from expectations.suites import DataSet, broken_rows, invariant, raw_file
from streaming_core.api import App
from streaming_core.apps.registry import load
from streaming_core.data.parts import Parts
from streaming_core.language.record import Scalar
from streaming_core.regression.home import Home

LEADING = ("seq", "sub")
# The name of a type in Spark SQL -> its name in Great Expectations.
SPARK_TYPES = {
    "array": "ArrayType",
    "bigint": "LongType",
    "boolean": "BooleanType",
    "decimal": "DecimalType",
    "double": "DoubleType",
    "float": "FloatType",
    "int": "IntegerType",
    "smallint": "ShortType",
    "string": "StringType",
    "tinyint": "ByteType",
}


def data_sets(spark: SparkSession, home: Home, run_id: str, plan: dict) -> list[DataSet]:
    """`columns`, and `outputs_<app>` for each application with a completed cell."""
    done = Parts([raw_file(home, "cells", run_id)]).read().to_pylist()
    folders = {
        row["cell"]: home.attempt(run_id, row["cell"], row["attempt"]) / "outputs"
        for row in done
        if row["status"] == "ok" and not row["is_bound"]
    }
    cells = [cell for cell in plan["cells"] if cell["cell"] in folders]
    if not cells:
        return []
    checks, violations = (Parts([raw_file(home, t, run_id)]).read().to_pylist() for t in ("verdicts", "violations"))
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
            expected = {field.name: str(field.type) for field in declared}
            columns += [(name, cell["cell"], c, expected.get(c, "none"), kinds.get(c, "none")) for c in names]
            if all(kinds.get(c) == kind for c, kind in expected.items()):
                frames.append(_rows(spark, name, cell["cell"], parts.paths, declared.names))
        if frames:
            invariants = _invariants(app, workload["params"], checks, violations)
            sets.append(_output_rows(app, reduce(DataFrame.unionByName, frames), workload["events"], invariants))
    schema = "app string, cell string, column string, declared string, actual string"
    return [_columns(spark.createDataFrame(columns, schema)), *sets]


def _rows(spark: SparkSession, app: str, cell: str, files: list[Path], names: list[str]) -> DataFrame:
    frame = spark.read.parquet(*map(str, files))
    columns = [_shown(name) if kind == "binary" else F.col(f"`{name}`") for name, kind in frame.dtypes if name in names]
    return frame.select(F.lit(app).alias("app"), F.lit(cell).alias("cell"), *columns)


def _shown(name: str) -> Column:
    """Text as it is; bytes that are not UTF-8 in hexadecimal."""
    text = F.col(f"`{name}`")
    return F.when(F.is_valid_utf8(text.cast("string")), text.cast("string")).otherwise(F.hex(text)).alias(name)


def _columns(rows: DataFrame) -> DataSet:
    return DataSet(
        "columns",
        rows,
        [
            ExpectTableRowCountToBeBetween(min_value=1),
            broken_rows(
                "The outputs of a cell have the columns and types that its application declares",
                "app, cell, column, declared, actual FROM {batch} WHERE declared <> actual",
            ),
        ],
    )


def _output_rows(app: App, rows: DataFrame, events: int, invariants: list[Expectation]) -> DataSet:
    kinds = dict(rows.dtypes)
    # Events are numbered from 0. Rows that are flushed at the end of the stream have the number after the last event.
    ranges: dict[str, tuple[int, int | None]] = {"seq": (0, events), "sub": (0, None)}
    for name, kind in app.outputs.fields.items():
        # A 64-bit type has the bounds of Spark's type, so no value can be outside.
        if isinstance(kind, Scalar) and kind.name not in ("boolean", "i64", "u64") and not kind.is_float:
            ranges[name] = kind.bounds
    columns: list[Expectation] = []
    broken = []
    for name in (*LEADING, *app.outputs.fields):
        columns.append(
            ExpectColumnValuesToBeOfType(
                column=name, type_=SPARK_TYPES[kinds[name].partition("(")[0].partition("<")[0]]
            )
        )
        columns.append(ExpectColumnProportionOfNonNullValuesToBeBetween(column=name, min_value=1))
        broken.append(f"`{name}` IS NULL")
        if name in ranges:
            low, high = ranges[name]
            columns.append(ExpectColumnMinToBeBetween(column=name, min_value=low))
            broken.append(f"`{name}` < {low}")
            if high is not None:
                columns.append(ExpectColumnMaxToBeBetween(column=name, max_value=high))
                broken.append(f"`{name}` > {high}")
    shown = ", ".join(f"`{name}`" for name in (*LEADING, *app.outputs.fields))
    return DataSet(
        f"outputs_{app.name}",
        rows,
        [
            ExpectTableRowCountToBeBetween(min_value=1),
            # The expectations about columns count wrong values; this one shows the rows.
            broken_rows(
                "No value is null, each value is in the range of its declared type, and seq is the number of an event",
                f"app, cell, {shown} FROM {{batch}} WHERE {' OR '.join(broken)}",
            ),
            *invariants,
            *columns,
        ],
    )


def _invariants(app: App, params: dict, checks: list[dict], violations: list[dict]) -> list[Expectation]:
    """An expectation for each invariant of the application, with the rows that break it.

    It leaves out invariants that were checked for no cell.
    """
    expectations = []
    for name, sql in app.holds("total", params).items():
        check = f"invariant:{name}"
        verdicts = [row for row in checks if (row["app"], row["check"]) == (app.name, check)]
        broken: list[dict] = []
        for row in verdicts:
            if row["verdict"] in ("equal", "not_comparable"):
                continue
            rows = [v for v in violations if (v["cell"], v["check"]) == (row["cell"], check)]
            place = {"app": app.name, "cell": row["cell"]}
            shown = ("seq", "sub", "actual", "event")
            broken += [place | {name: v[name] for name in shown} for v in rows] or [place | {"detail": row["detail"]}]
        if verdicts:
            expectations.append(invariant(f"{app.name}: {name}", sql, broken))
    return expectations
