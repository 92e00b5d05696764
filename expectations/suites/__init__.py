"""Data sets and what is expected of them, one file each; a data set is a Spark DataFrame of one run.

Rows that break a rule are found with SQL (`broken_rows`), so that a failing expectation always shows which ones: every
such query selects the application and the cell first.
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
    """A data set's name (that of its suite too), its rows, and what must hold of them."""

    name: str
    rows: DataFrame
    expectations: list[Expectation]


def broken_rows(rule: str, select: str) -> Expectation:
    """Expects `SELECT <select>` (with `{batch}` for the data set) to find no row; `rule` says in words what holds."""
    return ExpectNoRowToBreakTheRule(unexpected_rows_query=f"SELECT {select}", description=rule)


def invariant(rule: str, sql: str, found: list[dict]) -> Expectation:
    """Expects an invariant to hold, of which it is known which rows break it."""
    ExpectInvariantToHold.found[rule] = found
    quoted = sql.strip().replace("{", "{{").replace("}", "}}")
    return ExpectInvariantToHold(unexpected_rows_query=f"{quoted}\n-- of every cell in {{batch}}", description=rule)


def raw_table(spark: SparkSession, home: Home, table: str, run_id: str) -> DataFrame:
    """One run's rows of a raw warehouse table.

    Raises:
        BadInput: the run has none, and which job makes them; or they are of another schema version.
    """
    path = raw_file(home, table, run_id)
    return spark.read.parquet(str(path))


def raw_file(home: Home, table: str, run_id: str) -> Path:
    """The file behind `raw_table`."""
    path = home.part(table, run_id)
    if not path.is_file():
        job = "load_metrics" if table in ("cells", "samples") else "validate_outputs"
        raise BadInput(f"run {run_id} has no {table}: {path} is missing; {job} writes it")
    check_version(path, table)
    return path
