"""The data sets of a run and their expectations, one file each. A data set is a Spark DataFrame.

SQL finds the rows that break a rule (`broken_rows`), so that a failing expectation shows them. Each query first selects
the application and the cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from great_expectations.expectations import Expectation
from pyspark.sql import DataFrame, SparkSession

from expectations.rows import ExpectInvariantToHold, ExpectNoRowToBreakTheRule
from streaming_core.errors import BadInput
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import check_version


@dataclass
class DataSet:
    """A data set: its name, which is also the name of its suite, its rows, and its expectations."""

    name: str
    rows: DataFrame
    expectations: list[Expectation]


def broken_rows(rule: str, select: str) -> Expectation:
    """Expect that `SELECT <select>`, where `{batch}` is the data set, returns no row.

    Args:
        rule: The rule in words. Pages and messages show it.
        select: Selects the rows that break the rule.
    """
    return ExpectNoRowToBreakTheRule(unexpected_rows_query=f"SELECT {select}", description=rule)


def invariant(rule: str, sql: str, violations: list[dict]) -> Expectation:
    """Expect that an invariant holds.

    Args:
        rule: The invariant in words.
        sql: The SQL of the invariant, for the page.
        violations: The known rows that break it.
    """
    ExpectInvariantToHold.violations[rule] = violations
    quoted = sql.strip().replace("{", "{{").replace("}", "}}")
    return ExpectInvariantToHold(unexpected_rows_query=f"{quoted}\n-- for every cell in {{batch}}", description=rule)


def raw_table(spark: SparkSession, home: Home, table: str, run_id: str) -> DataFrame:
    """The rows of one run in a raw warehouse table.

    Raises:
        BadInput: The file is missing, or has another schema version.
    """
    path = raw_file(home, table, run_id)
    return spark.read.parquet(str(path))


def raw_file(home: Home, table: str, run_id: str) -> Path:
    """The file behind `raw_table`."""
    path = home.part(table, run_id)
    if not path.is_file():
        job = "load_metrics" if table in ("cells", "samples") else "validate_outputs"
        raise BadInput(f"run {run_id} has no table {table}: {path} is missing. The task {job} writes it; see its log")
    check_version(path, table)
    return path
