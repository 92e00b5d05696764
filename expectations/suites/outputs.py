"""Outputs: what each application declares of its output record, of every cell that completed and is not a bound.

`columns` compares the columns of each cell with the declared ones; `outputs_<app>` holds the rows: what is declared of
every column, asked in one pass over them, the rows that are otherwise, in another, and the application's invariants.
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
# What Spark calls the types of columns in SQL, and what Great Expectations wants them called.
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
            wanted = {field.name: str(field.type) for field in declared}
            columns += [(name, cell["cell"], c, wanted.get(c, "none"), kinds.get(c, "none")) for c in names]
            if all(kinds.get(c) == kind for c, kind in wanted.items()):
                frames.append(_rows(spark, name, cell["cell"], parts.paths, declared.names))
        if frames:
            invariants = _invariants(app, workload["params"], checks, violations)
            sets.append(_output_rows(app, reduce(DataFrame.unionByName, frames), workload["events"], invariants))
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


def _output_rows(app: App, rows: DataFrame, events: int, invariants: list[Expectation]) -> DataSet:
    kinds = dict(rows.dtypes)
    # Events are numbered from 0; what is flushed at the end of the stream bears the number after the last.
    ranges: dict[str, tuple[int, int | None]] = {"seq": (0, events), "sub": (0, None)}
    for name, kind in app.outputs.fields.items():
        # The bounds of a type of 64 bits are those of Spark's type, too: no value can break them.
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
            # What the expectations of columns say in figures, this one shows in rows.
            broken_rows(
                "no value is null, and every one lies in the range of its declared type, seq among the events",
                f"app, cell, {shown} FROM {{batch}} WHERE {' OR '.join(broken)}",
            ),
            *invariants,
            *columns,
        ],
    )


def _invariants(app: App, params: dict, checks: list[dict], violations: list[dict]) -> list[Expectation]:
    """The application's invariants, with what the comparison found of each; those that are asked of no cell that ran
    are left out."""
    made = []
    for name, sql in app.holds("total", params).items():
        check = f"invariant:{name}"
        asked = [row for row in checks if (row["app"], row["check"]) == (app.name, check)]
        found = []
        for row in asked:
            if row["verdict"] in ("equal", "not_comparable"):
                continue
            rows = [v for v in violations if (v["cell"], v["check"]) == (row["cell"], check)]
            place = {"app": app.name, "cell": row["cell"]}
            shown = ("seq", "sub", "actual", "event")
            found += [place | {name: v[name] for name in shown} for v in rows] or [place | {"detail": row["detail"]}]
        if asked:
            made.append(invariant(f"{app.name}: {name}", sql, found))
    return made
