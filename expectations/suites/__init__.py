"""The data sets of a run and their expectations, one file each. A data set is a Spark DataFrame.

Expectations are data, in the form in which Great Expectations stores them. `expectations/files.py` writes them as the
suites of the context, which Great Expectations reads. Values that depend on the run are parameters of the suite.

SQL finds the rows that break a rule (`broken_rows`), so that a failing expectation shows them. Each query first selects
the application and the cell.

Severities: an expectation is

- `critical` if a result cannot be trusted when it fails: a cell is wrong, was not judged, or cannot be reproduced.
  Only these fail the stage.
- `warning` if a measurement is doubtful when it fails. Results are right nevertheless, and dbt puts runs with
  impossible figures into quarantine.
- `info` if it only counts what a critical expectation of the same suite already shows row by row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from jobs.session import from_arrow_schema
from streaming_core.data.parts import Parts
from streaming_core.errors import BadInput
from streaming_core.language.expectations import CRITICAL
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import check_version

Expectation = dict[str, Any]


@dataclass
class DataSet:
    """A data set: its name, which is also the name of its suite, its rows, and the values of the suite's parameters."""

    name: str
    rows: DataFrame
    parameters: dict[str, Any] = field(default_factory=dict)


def expect(kind: str, severity: str, description: str = "", **kwargs: Any) -> Expectation:
    """An expectation of Great Expectations.

    Args:
        kind: Its type, such as `expect_column_values_to_be_in_set`.
        severity: What follows if it fails: critical, warning or info.
        description: The rule in words. Without one, pages use the words of Great Expectations.
        kwargs: Its arguments.
    """
    return {"type": kind, "severity": severity, "description": description, "kwargs": kwargs}


def broken_rows(rule: str, select: str, severity: str = CRITICAL) -> Expectation:
    """Expect that `SELECT <select>`, where `{batch}` is the data set, returns no row.

    Args:
        rule: The rule in words. Pages and messages show it.
        select: Selects the rows that break the rule.
        severity: What follows if there are any.
    """
    return expect("unexpected_rows_expectation", severity, rule, unexpected_rows_query=f"SELECT {select}")


def parameter(name: str) -> dict[str, str]:
    """The value of an argument that the run states."""
    return {"$PARAMETER": name}


def raw_rows(home: Home, table: str, run_id: str) -> pa.Table:
    """The rows of one run in a raw warehouse table.

    Raises:
        BadInput: The file is missing or damaged, or has another schema version.
    """
    path = home.part(table, run_id)
    if not path.is_file():
        job = "load_metrics" if table in ("cells", "samples") else "validate_outputs"
        raise BadInput(f"run {run_id} has no table {table}: {path} is missing. The task {job} writes it; see its log")
    check_version(path, table)
    return Parts([path]).read()


def frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows as a DataFrame. They go to Spark with each query, which then reads no file and often starts no job."""
    return spark.createDataFrame(rows, from_arrow_schema(rows.schema))
