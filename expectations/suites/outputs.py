"""Outputs: each cell that completed, and is not a bound, writes the output record that its application declares.

The data set `columns` compares the columns of each cell with the declared ones. The data set `outputs_<app>` holds the
output rows of an application. Its expectations check the declared columns and find the rows that break the declaration.
The expectations that are declared beside the application follow (streaming_core/language/expectations.py).
"""

from __future__ import annotations

from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from expectations.history import NON_NULL
from expectations.suites import DataSet, Expectation, broken_rows, expect, parameter, raw_rows
from streaming_core.apps.registry import load
from streaming_core.data.parts import Parts
from streaming_core.language.application import App
from streaming_core.language.expectations import CRITICAL, INFO, path_of, read
from streaming_core.language.record import Nullable, Scalar
from streaming_core.regression.home import Home
from streaming_core.regression.plan import Plan, PlannedCell
from streaming_core.run.way import RunSpec

LEADING = ("seq", "sub")
LEAST, MOST = "No value is below the type's range", "No value is above the type's range"
PLANNED = "planned events"  # a column with a space, so that no output record has it
# The type of a declared column -> the type of the data set's column, in the words of Great Expectations. Spark has no
# unsigned integers and reads them as the next larger type. The data set holds text as strings.
SPARK_TYPES = {
    pa.bool_(): "BooleanType",
    pa.int8(): "ByteType",
    pa.int16(): "ShortType",
    pa.int32(): "IntegerType",
    pa.int64(): "LongType",
    pa.uint8(): "ShortType",
    pa.uint16(): "IntegerType",
    pa.uint32(): "LongType",
    pa.float64(): "DoubleType",
    pa.binary(): "StringType",
}

COLUMNS = [
    expect("expect_table_row_count_to_be_between", CRITICAL, "A cell has outputs to check", min_value=1),
    broken_rows(
        "The outputs of a cell have the columns and types that its application declares",
        "app, cell, column, declared, actual FROM {batch} WHERE declared <> actual",
    ),
]


def _spark_type(kind: pa.DataType) -> str:
    return "DecimalType" if pa.types.is_decimal(kind) else SPARK_TYPES.get(kind, "ArrayType")


def suite_name(app: str) -> str:
    """The name of an application's data set and suite."""
    return f"outputs_{app}"


def expectations_of(app: App) -> list[Expectation]:
    """The expectations of an application's outputs: those of its output record, then those declared beside it."""
    declared = app.outputs.resolve(app.bind()).arrow()
    events = parameter("events")
    # Events are numbered from 0. Rows that are flushed at the end of the stream have the number after the last event.
    ranges: dict[str, tuple[int, int | dict[str, str] | None]] = {"seq": (0, events), "sub": (0, None)}
    for name in declared.names:
        kind = app.outputs.fields[name]
        kind = kind.item if isinstance(kind, Nullable) else kind
        # A 64-bit type has the bounds of Spark's type, so no value can be outside.
        if isinstance(kind, Scalar) and kind.name not in ("boolean", "i64") and not kind.is_float:
            ranges[name] = kind.bounds
    types = dict.fromkeys(LEADING, "LongType") | {field.name: _spark_type(field.type) for field in declared}
    columns, broken = [], []
    for name, kind in types.items():
        columns.append(
            expect("expect_column_values_to_be_of_type", INFO, "The type is the declared one", column=name, type_=kind)
        )
        if name in LEADING or not declared.field(name).nullable:
            columns.append(expect(NON_NULL, INFO, "No value is null", column=name, min_value=1))
            broken.append(f"`{name}` IS NULL")
        if name in ranges:
            low, high = ranges[name]
            columns.append(expect("expect_column_min_to_be_between", INFO, LEAST, column=name, min_value=low))
            broken.append(f"`{name}` < {low}")
            if high is not None:
                columns.append(expect("expect_column_max_to_be_between", INFO, MOST, column=name, max_value=high))
                broken.append(f"`{name}` > {f'`{PLANNED}`' if high is events else high}")
    shown = ", ".join(f"`{name}`" for name in types)
    return [
        expect("expect_table_row_count_to_be_between", CRITICAL, "The cells have outputs", min_value=1),
        # The expectations about columns count wrong values; this one shows the rows.
        broken_rows(
            "Only nullable values are null, each is in the range of its type, and seq is the number of an event",
            f"app, cell, {shown} FROM {{batch}} WHERE {' OR '.join(broken)}",
        ),
        *read(path_of(app.file), declared.names),
        *columns,
    ]


def data_sets(spark: SparkSession, home: Home, run_id: str, plan: Plan) -> list[DataSet]:
    """`columns`, and `outputs_<app>` for each application with a completed cell."""
    done = raw_rows(home, "cells", run_id).to_pylist()
    folders = {
        row["cell"]: home.attempt(run_id, row["cell"], row["attempt"]) / "outputs"
        for row in done
        if row["status"] == "ok" and not row["is_bound"]
    }
    cells = [cell for cell in plan["cells"] if cell["cell"] in folders]
    if not cells:
        return []
    workloads = {workload["address"]: workload for workload in plan["workloads"]}
    apps: dict[str, list[PlannedCell]] = {}
    for cell in cells:
        apps.setdefault(cell["spec"]["app"], []).append(cell)
    columns, sets = [], []
    for name, mine in apps.items():
        app, workload = load(name), workloads[mine[0]["workload"]]
        declared = app.outputs.resolve(app.bind(workload["params"])).arrow(LEADING)
        frames = []
        for cell in mine:
            parts = Parts.of(folders[cell["cell"]])
            kinds = {field.name: field.type for field in parts.schema} if parts.paths else {}
            written = RunSpec.parse(cell["spec"]).output_columns(app)
            expected = {column: declared.field(column).type for column in written}
            # Types are compared as such: in their texts, Parquet calls the item of an array by another name.
            kinds = {
                column: expected[column] if kind == expected.get(column) else kind for column, kind in kinds.items()
            }
            names = dict.fromkeys([*expected, *kinds])
            columns += [(name, cell["cell"], c, *(str(of.get(c, "none")) for of in (expected, kinds))) for c in names]
            # The data set has all columns, so a cell that writes a part of them has no rows in it.
            if written == declared.names and all(kinds.get(c) == kind for c, kind in expected.items()):
                frames.append(_rows(spark, name, cell["cell"], parts.paths, declared.names))
        if frames:
            events = workload["events"]
            rows = reduce(DataFrame.unionByName, frames).withColumn(PLANNED, F.lit(events).cast("bigint"))
            sets.append(DataSet(suite_name(name), rows, {"events": events}))
    schema = "app string, cell string, column string, declared string, actual string"
    return [DataSet("columns", spark.createDataFrame(columns, schema)), *sets]


def _rows(spark: SparkSession, app: str, cell: str, files: list[Path], names: list[str]) -> DataFrame:
    frame = spark.read.parquet(*map(str, files))
    columns = [_shown(name) if kind == "binary" else F.col(f"`{name}`") for name, kind in frame.dtypes if name in names]
    return frame.select(F.lit(app).alias("app"), F.lit(cell).alias("cell"), *columns)


def _shown(name: str) -> Column:
    """Text as it is; bytes that are not UTF-8 in hexadecimal."""
    text = F.col(f"`{name}`")
    return F.when(F.is_valid_utf8(text.cast("string")), text.cast("string")).otherwise(F.hex(text)).alias(name)
