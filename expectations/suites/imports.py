"""Imports: each import has about as many rows, and as many without a value, as in the last nights.

The data set `import_<name>` has a row for each row of the user's files. Its columns are the number of the event that
the row became, and the nullable fields of the event. They are null for a row that the import set aside. So the nulls of
`seq` are the rows that were set aside.

The bounds are the usual range of the last nights (`expectations/anomaly.py`), from the raw table `expectations`. The
last run of a day (UTC) is its night. With too few nights, every figure is usual. The setting LOCKSTEP_ANOMALIES sets
the severity of an unusual figure; by default it is a warning.
"""

from __future__ import annotations

import math
import os
import statistics
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from expectations.anomaly import usual_range
from expectations.history import NON_NULL, ROW_COUNT
from expectations.suites import DataSet, Expectation, expect, parameter
from streaming_core.apps.registry import load
from streaming_core.data.parts import Parts
from streaming_core.errors import BadInput
from streaming_core.language.application import App
from streaming_core.language.expectations import SEVERITIES, WARNING
from streaming_core.language.record import Nullable
from streaming_core.regression import warehouse
from streaming_core.regression.home import Home
from streaming_core.regression.plan import Plan, PlannedWorkload
from streaming_core.regression.provenance import provenance_of, set_aside

SETTING = "LOCKSTEP_ANOMALIES"
PREFIX = "import_"
ROWS_SPREAD = 0.01  # the least spread of the number of rows, as a share of it
SHARE_SPREAD = 0.005  # the least spread of a share
MOST_RUNS = 200  # earlier runs that are read
Figure = tuple[str, str | None]  # data set and column; the column of a number of rows is None


def severity() -> str:
    """The severity of an unusual figure.

    Raises:
        BadInput: The setting has another value.
    """
    value = os.environ.get(SETTING) or WARNING
    if value not in SEVERITIES:
        raise BadInput(f"{SETTING} must be one of {', '.join(SEVERITIES)}, got {value!r}")
    return value


def suite_name(name: str) -> str:
    """The name of the data set and the suite of an import. Great Expectations makes folders of names with dots."""
    return PREFIX + name.replace(".", "+")


def imports_of(plan: Plan) -> dict[str, PlannedWorkload]:
    """The workloads of a plan that are imports, by the name of their data set. Several applications may share one."""
    return {suite_name(workload["data"]): workload for workload in plan["workloads"] if workload.get("data")}


def columns_of(app: App) -> list[str]:
    """The columns of the data set of an import: `seq`, and the nullable fields of the events."""
    return ["seq", *(name for name, kind in app.event.fields.items() if isinstance(kind, Nullable))]


def expectations_of(app: App) -> list[Expectation]:
    """The expectations of an import for an application."""
    level = severity()
    shares = {"seq": "The share of rows that were not set aside is as in the last nights"}
    return [
        expect(
            ROW_COUNT,
            level,
            "The number of rows is as in the last nights",
            min_value=parameter("low"),
            max_value=parameter("high"),
        ),
        *(
            expect(
                NON_NULL,
                level,
                shares.get(name, f"The share of rows with a value of {name} is as in the last nights"),
                column=name,
                min_value=parameter(f"{name}_low"),
                max_value=parameter(f"{name}_high"),
            )
            for name in columns_of(app)
        ),
    ]


def data_sets(spark: SparkSession, home: Home, run_id: str, plan: Plan) -> list[DataSet]:
    """`import_<name>` for each import of the run that is a workload by now."""
    known, history, sets = provenance_of(home, run_id), {}, []
    imports = {name: workload for name, workload in imports_of(plan).items() if workload["address"] in known}
    if imports:
        history = nights(home, run_id)
    for name, workload in imports.items():
        columns = columns_of(load(workload["app"]))
        files = Parts.of(home.workload(workload["app"], workload["address"]) / "events").paths
        aside = set_aside(known[workload["address"]].imported or {"aside": []})
        rows = spark.range(aside).select(F.lit(None).cast("bigint").alias("seq"))
        if files:
            events = spark.read.parquet(*map(str, files)).select(*columns)
            rows = events.unionByName(rows, allowMissingColumns=True)
        sets.append(DataSet(name, rows, bounds(name, columns, history)))
    return sets


def nights(home: Home, run_id: str) -> dict[Figure, list[float]]:
    """The observed figures of all imports in the nights before the day of a run, the oldest first.

    Raises:
        BadInput: A file cannot be read, or has another version of the schema.
    """
    ids = sorted(path.name.removeprefix("run_id=") for path in home.raw("expectations").glob("run_id=*"))
    before = [past_id for past_id in ids if past_id[:8] < run_id[:8]][-MOST_RUNS:]
    by_day: dict[Figure, dict[str, float]] = {}
    for past_id in before:
        for row in warehouse.rows(home, "expectations", past_id) or []:
            if row["data_set"].startswith(PREFIX) and row["observed_value"] is not None:
                by_day.setdefault((row["data_set"], row["column"]), {})[past_id[:8]] = row["observed_value"]
    return {figure: list(days.values()) for figure, days in by_day.items()}


def bounds(name: str, columns: list[str], history: dict[Figure, list[float]]) -> dict[str, Any]:
    """The parameters of the suite of an import: the usual range of each figure."""
    rows = history.get((name, None), [])
    usual = usual_range(rows, ROWS_SPREAD * statistics.median(rows or [0])) or (0, None)
    low, high = max(0, math.floor(usual[0])), None if usual[1] is None else math.ceil(usual[1])
    parameters: dict[str, Any] = {"low": low, "high": high}
    for column in columns:
        low_share, high_share = usual_range(history.get((name, column), []), SHARE_SPREAD) or (0.0, 1.0)
        parameters |= {f"{column}_low": max(0.0, low_share), f"{column}_high": min(1.0, high_share)}
    return parameters
