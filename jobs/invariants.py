"""Evaluates the invariants of applications in Spark. An invariant is SQL that selects the rows that violate it.

The SQL reads the views `events`, `outputs` and `state_<table>`. validate_outputs evaluates it for the outputs of all
cells, and `lockstep invariants` for one run. Before cells run, prepare_workloads checks that Spark can evaluate it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from jobs.comparison import spark_row
from jobs.session import from_arrow_type, spark_session, to_arrow_schema
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.data.parts import Parts, states
from streaming_core.errors import BadInput
from streaming_core.language.application import App
from streaming_core.regression.warehouse import VIOLATION_CAP
from streaming_core.search.case import Case

# It writes errors as JSON to stderr, which our messages report in a line.
PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True

Query = tuple[int, str, str]  # subject, invariant, its SQL
Views = Mapping[int, Mapping[str, str]]  # subject -> name of a view -> the query of the view


@dataclass
class Violations:
    """The violations of an invariant: the number of violating rows and the first of them, or Spark's error."""

    count: int = 0
    rows: list[dict] = field(default_factory=list)
    error: str = ""


def rows_of(path: Path) -> str:
    """The query of the view of a Parquet file or folder."""
    quoted = str(path).replace("`", "``")
    return f"SELECT * FROM parquet.`{quoted}`"


def views_of(run: Path, source: Path) -> dict[str, str]:
    """The views that invariants read, from the folders of a run and its workload."""
    outputs = {"outputs": run / "outputs"} if Parts.of(run / "outputs").paths else {}
    tables = {f"state_{name}": table.paths[0] for name, table in states(run).items()}
    return {name: rows_of(path) for name, path in {"events": source / "events", **outputs, **tables}.items()}


# Invariants that one Spark job checks. A plan of several hundred fills the driver's heap and is no faster.
INVARIANTS_PER_JOB = 32


def evaluate(spark: SparkSession, queries: Sequence[Query], views: Views) -> dict[tuple[int, str], Violations]:
    """Check invariants in Spark jobs of `INVARIANTS_PER_JOB`; when a job fails, check each of its invariants alone.

    Returns:
        (subject, invariant) -> its violations.
    """
    results = {(subject, name): Violations() for subject, name, _ in queries}
    schemas: dict[tuple[int, str], pa.Schema] = {}  # schema of the rows that an invariant selects, per subject

    def run(queries: Sequence[Query]) -> None:
        sql = {(subject, name): text for subject, name, text in queries}
        for row in spark.sql(query(queries, views)).toArrow().to_pylist():
            key = row["subject"], row["invariant"]
            if key not in schemas:
                schemas[key] = to_arrow_schema(spark.sql(_selected(key[0], sql[key], views)).schema)
            results[key].count = row["count"]
            results[key].rows.append(spark_row(row["row"], schemas[key]) or {})

    for begin in range(0, len(queries), INVARIANTS_PER_JOB):
        portion = queries[begin : begin + INVARIANTS_PER_JOB]
        # A DataFrame is part of a reference cycle. Until Python collects it, Spark keeps its plan and its results.
        gc.collect()
        try:
            run(portion)
        except PySparkException:
            for subject, name, sql in portion:
                results[subject, name] = Violations()
                try:
                    run([(subject, name, sql)])
                except PySparkException as error:
                    results[subject, name].error = _line(error)
    return results


def query(queries: Sequence[Query], views: Views) -> str:
    """One query for many invariants of many subjects: the first violating rows of each as JSON, and their number.

    Spark lists files and reads schemas wherever a query names a file. So each file is named once, in a common table
    expression. A temporary view would stay in the session.
    """
    common: dict[str, str] = {}
    branches = []
    for subject, name, sql in queries:
        used = [view for view in views[subject] if view in sql]
        common |= {f"{view} of {subject}": views[subject][view] for view in used}
        named = _with({view: f"SELECT * FROM `{view} of {subject}`" for view in used})
        label = name.replace("\\", "\\\\").replace("'", "\\'")
        violating = f"SELECT to_json(struct(v.*)) AS row, count(*) OVER () AS count FROM ({_bare(sql)}) v"
        chosen = f"SELECT {subject} AS subject, '{label}' AS invariant, row, count FROM ({violating})"
        # Sorted by length, then text, so that the rows are the same in each evaluation, with small numbers first.
        branches.append(f"({named}{chosen} ORDER BY length(row), row LIMIT {VIOLATION_CAP})")
    return _with(common) + " UNION ALL ".join(branches)


def _selected(subject: int, sql: str, views: Views) -> str:
    """The query of one invariant. Its schema tells which columns are bytes, which Spark's JSON does not."""
    used = {view: rows for view, rows in views[subject].items() if view in sql}
    return f"{_with(used)}SELECT * FROM ({_bare(sql)})"


def _with(views: Mapping[str, str]) -> str:
    named = ", ".join(f"`{view}` AS ({rows})" for view, rows in views.items())
    return f"WITH {named} " if named else ""


def _bare(sql: str) -> str:
    return sql.strip().rstrip(";")


def _line(error: PySparkException) -> str:
    """The first line of Spark's message. For invalid SQL, an empty line precedes it."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def refusals(spark: SparkSession, applications: Sequence[tuple[str, dict]]) -> list[str]:
    """Check the SQL of the invariants of applications. Spark parses it and resolves its names, but runs nothing.

    Args:
        spark: The session.
        applications: Names of applications, with parameters.

    Returns:
        For each application one line on what is wrong, or an empty string.
    """
    lines = []
    for name, params in applications:
        try:
            app = registry.load(name)
            tables = {"events": workload.schema(app, params)} | app.results(params)
        except BadInput as error:
            lines.append(str(error))
            continue
        views = {0: {view: no_rows(columns) for view, columns in tables.items()}}
        queries = [(0, label, sql) for label, sql in app.required_invariants("total", params).items()]
        # All invariants are checked at once; each one alone only if that fails.
        wrong = queries if _refused(spark, queries, views) else []
        faults = [(label, _refused(spark, [(0, label, sql)], views)) for _, label, sql in wrong]
        lines.append("; ".join(f"{name}: invariant {label!r}: {fault}" for label, fault in faults if fault))
    return lines


def _refused(spark: SparkSession, queries: Sequence[Query], views: Views) -> str:
    try:
        if queries:
            _ = spark.sql(query(queries, views)).schema
    except PySparkException as error:
        return _line(error)
    return ""


def no_rows(columns: pa.Schema) -> str:
    """The query of a view without rows, with the columns that Spark would read from a Parquet file."""
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


Results = Sequence[tuple[Case, Path]]


@contextmanager
def beside(app: App) -> Iterator[Callable[[Results], list[list[str]]] | None]:
    """A function that tells which invariants of an application results of the oracle break.

    Spark starts beside the caller. None if the application declares no invariants.
    """
    if not app.invariants:
        yield None
        return
    with ExitStack() as sessions, ThreadPoolExecutor(1) as background:
        starting = background.submit(lambda: sessions.enter_context(spark_session("lockstep find")))
        yield lambda results: broken(starting.result(), app, results)


def broken(spark: SparkSession, app: App, results: Results) -> list[list[str]]:
    """The names of the invariants that each result breaks. Its folder has `workload` and `oracle`."""
    queries, views = list[Query](), {}
    for number, (case, folder) in enumerate(results):
        views[number] = views_of(folder / "oracle", folder / "workload")
        queries += [(number, label, sql) for label, sql in app.required_invariants("total", case.params).items()]
    violations = evaluate(spark, queries, views)
    return [[name for (n, name), v in violations.items() if n == number and v.count] for number in views]


# Spark has no unsigned integers. It reads them as the next larger type.
_UNSIGNED = {pa.uint8(): "SMALLINT", pa.uint16(): "INT", pa.uint32(): "BIGINT", pa.uint64(): "DECIMAL(20, 0)"}
