"""What the invariants of applications find, asked of Spark: SQL over `events`, `outputs` and `state_<table>` that
selects violating rows. Asked of the outputs of cells (validate_outputs) and of one run (`lockstep invariants`); and,
before anything is run (prepare_workloads), whether it can be asked at all.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema

from jobs.comparison import spark_row
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.data.parts import Parts, states
from streaming_core.errors import BadInput
from streaming_core.regression.warehouse import VIOLATION_CAP

# It would say in JSON on stderr what is said in a line of ours.
PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True

Asked = tuple[int, str, str]  # subject, invariant, its SQL
Views = Mapping[int, Mapping[str, str]]  # of each subject, name of a view -> the query that it stands for


@dataclass
class Holds:
    """What an invariant found: how many violating rows, the first of them, or why it could not be evaluated."""

    found: int = 0
    rows: list[dict] = field(default_factory=list)
    error: str = ""


def rows_of(path: Path) -> str:
    """The view of a Parquet file, or folder of such."""
    quoted = str(path).replace("`", "``")
    return f"SELECT * FROM parquet.`{quoted}`"


def views_of(run: Path, source: Path) -> dict[str, str]:
    """What invariants read of a run's folder, and of its workload's."""
    outputs = {"outputs": run / "outputs"} if Parts.of(run / "outputs").paths else {}
    tables = {f"state_{name}": table.paths[0] for name, table in states(run).items()}
    return {name: rows_of(path) for name, path in {"events": source / "events", **outputs, **tables}.items()}


# Invariants that one Spark job checks. A plan of several hundred fills the driver's heap and is no faster.
INVARIANTS_PER_JOB = 32


def find(spark: SparkSession, asked: Sequence[Asked], views: Views) -> dict[tuple[int, str], Holds]:
    """Check invariants in Spark jobs of `INVARIANTS_PER_JOB`; when a job fails, check each of its invariants alone.

    Returns:
        (subject, invariant) -> its result.
    """
    results = {(subject, name): Holds() for subject, name, _ in asked}
    schemas: dict[tuple[int, str], pa.Schema] = {}  # schema of the rows that an invariant selects, per subject

    def run(asked: Sequence[Asked]) -> None:
        sql = {(subject, name): text for subject, name, text in asked}
        for row in spark.sql(query(asked, views)).toArrow().to_pylist():
            key = row["subject"], row["invariant"]
            if key not in schemas:
                schemas[key] = to_arrow_schema(spark.sql(_selected(key[0], sql[key], views)).schema)
            results[key].found = row["found"]
            results[key].rows.append(spark_row(row["row"], schemas[key]) or {})

    for begin in range(0, len(asked), INVARIANTS_PER_JOB):
        portion = asked[begin : begin + INVARIANTS_PER_JOB]
        # A DataFrame is part of a reference cycle. Until Python collects it, Spark keeps its plan and its results.
        gc.collect()
        try:
            run(portion)
        except PySparkException:
            for one in portion:
                results[one[0], one[1]] = Holds()
                try:
                    run([one])
                except PySparkException as error:
                    results[one[0], one[1]].error = _line(error)
    return results


def query(asked: Sequence[Asked], views: Views) -> str:
    """One query for many invariants over the files of many subjects: each one's first violating rows as JSON, with
    their number.

    Files are listed and their schemas read where they are named, so each is named once, as a common table expression
    that those of the invariants select from. Not as a temporary view: nothing of it stays in the session.
    """
    common: dict[str, str] = {}
    branches = []
    for subject, name, sql in asked:
        used = [view for view in views[subject] if view in sql]
        common |= {f"{view} of {subject}": views[subject][view] for view in used}
        named = _with({view: f"SELECT * FROM `{view} of {subject}`" for view in used})
        label = name.replace("\\", "\\\\").replace("'", "\\'")
        violating = f"SELECT to_json(struct(v.*)) AS row, count(*) OVER () AS found FROM ({_bare(sql)}) v"
        chosen = f"SELECT {subject} AS subject, '{label}' AS invariant, row, found FROM ({violating})"
        # The shorter rows first, which are those of the smaller numbers: the same ones whenever they are asked for.
        branches.append(f"({named}{chosen} ORDER BY length(row), row LIMIT {VIOLATION_CAP})")
    return _with(common) + " UNION ALL ".join(branches)


def _selected(subject: int, sql: str, views: Views) -> str:
    """What one invariant selects, as it is: Spark's JSON has lost which columns are bytes."""
    used = {view: rows for view, rows in views[subject].items() if view in sql}
    return f"{_with(used)}SELECT * FROM ({_bare(sql)})"


def _with(views: Mapping[str, str]) -> str:
    named = ", ".join(f"`{view}` AS ({rows})" for view, rows in views.items())
    return f"WITH {named} " if named else ""


def _bare(sql: str) -> str:
    return sql.strip().rstrip(";")


def _line(error: PySparkException) -> str:
    """What Spark says first; of SQL that it cannot read, the line above is empty."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def refusals(spark: SparkSession, asked: Sequence[tuple[str, dict]]) -> list[str]:
    """What is wrong with the SQL of invariants: for each of the applications `asked`, with parameters, one line, empty
    where nothing is. Spark reads it, and resolves its names against the columns that there will be; nothing is run.
    """
    found = []
    for name, params in asked:
        try:
            app = registry.load(name)
            tables = {"events": workload.schema(app, params)} | app.results(params)
        except BadInput as error:
            found.append(str(error))
            continue
        views = {0: {view: no_rows(columns) for view, columns in tables.items()}}
        queries = [(0, label, sql) for label, sql in app.holds("total", params).items()]
        # Which of them it is, is looked for only where one is wrong.
        wrong = queries if _refused(spark, queries, views) else []
        faults = [(label, _refused(spark, [(0, label, sql)], views)) for _, label, sql in wrong]
        found.append("; ".join(f"{name}: invariant {label!r}: {fault}" for label, fault in faults if fault))
    return found


def _refused(spark: SparkSession, asked: Sequence[Asked], views: Views) -> str:
    try:
        if asked:
            _ = spark.sql(query(asked, views)).schema
    except PySparkException as error:
        return _line(error)
    return ""


def no_rows(columns: pa.Schema) -> str:
    """The view of a table without rows, whose columns are those that Spark reads of a Parquet file."""
    named = ", ".join(f"CAST(NULL AS {_type(column.type)}) AS `{column.name}`" for column in columns)
    return f"SELECT {named} WHERE false"


def _type(kind: pa.DataType) -> str:
    if kind in _UNSIGNED:
        return _UNSIGNED[kind]
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return f"ARRAY<{_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'`{field.name}`: {_type(field.type)}' for field in kind)}>"
    return from_arrow_type(kind).simpleString()


# Spark has no unsigned integers, and reads them as the next type that holds them.
_UNSIGNED = {pa.uint8(): "SMALLINT", pa.uint16(): "INT", pa.uint32(): "BIGINT", pa.uint64(): "DECIMAL(20, 0)"}
