"""NEXMark's queries against the SQL beside them, which DuckDB answers, in every way that fits.

`make test-full` also takes 200,000 events. They are those of the import in the folder NEXMARK_IMPORT, if that variable
is set, for example of another generator: docs/how-to/import-nexmark.md.
"""

import ast
import os
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.data.parts import Parts
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.run.way import ENGINE_EXECUTORS, RunSpec
from tests.differential.case import Case
from tests.differential.test_loop import agree

NAMES = sorted(registry.names("nexmark"), key=lambda name: int(name.removeprefix("nexmark_q")))
EVENTS, MANY, SEED = 4_000, 200_000, 5
# The events take 40 seconds, or three days for the queries that read the date.
DAYS = ("nexmark_q14", "nexmark_q15", "nexmark_q16", "nexmark_q17")
INTERVALS = dict.fromkeys(NAMES, 10_000) | dict.fromkeys(DAYS, 65_000_000)


def generate(name: str, events: int) -> tuple[dict, pa.Table]:
    """The parameters and the events of a query."""
    params = {"interval": INTERVALS[name]}
    return params, workload.generate_chunk(name, params, events, SEED, 0, events)


def check_against_duckdb(name: str, events: pa.Table, outputs: pa.Table) -> None:
    """Compare a result with the answer to the SQL of the query, row by row, in any order."""
    texts = [
        pa.field(field.name, pa.string() if pa.types.is_binary(field.type) else field.type) for field in events.schema
    ]
    with duckdb.connect() as connection:
        connection.register("events", events.cast(pa.schema(texts)))
        for number, stream in enumerate(("person", "auction", "bid")):
            connection.execute(f"CREATE VIEW {stream} AS SELECT * FROM events WHERE stream = {number}")
        answer = connection.sql((Path(registry.__file__).parent / f"nexmark/{name}.sql").read_text())
        assert {*answer.columns} == {*outputs.column_names} - {"seq", "sub"}
        columns = [outputs.column(column).to_pylist() for column in answer.columns]
        expected = sorted(answer.fetchall())
    rows = zip(*([v.decode() if isinstance(v, bytes) else v for v in column] for column in columns), strict=True)
    assert expected
    assert sorted(rows) == expected


def check_executors(name: str, case: Case, block: int = 1_000) -> None:
    """Run the query on one, two and three threads of each executor that fits."""
    for executor, declared in ENGINE_EXECUTORS.items():
        if case.app.kind in declared.application_kinds:
            for threads in (1, 2, 3):
                case.check(RunSpec.parse({"app": name, "executor": executor, "threads": threads}), block)


@pytest.mark.parametrize("name", NAMES)
def test_query_answers_as_duckdb_does(name):
    params, events = generate(name, EVENTS)
    at, ts = events.column_names.index("ts"), events["ts"]
    middle = (ts[0].as_py() + ts[-1].as_py()) // 2
    events = events.set_column(at, "ts", pc.subtract(ts, middle))  # from before 1970 until after it
    app = registry.load(name)
    oracle = Interpreter(app, app.bind(params))
    check_against_duckdb(name, events, pa.concat_tables([oracle.process(events), oracle.finish(EVENTS)]))


@pytest.mark.slow  # to compile the queries takes minutes
@pytest.mark.parametrize("name", NAMES)
def test_every_way_equals_the_interpreter(name):
    params, events = generate(name, EVENTS)
    app = registry.load(name)
    check_executors(name, Case(app, app.bind(params), events))
    agree(app, params, events, cuts=(0, 1_000))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_events_answer_as_duckdb_does(name):
    if folder := os.environ.get("NEXMARK_IMPORT"):
        events = Parts.of(Path(folder) / "events").read()
    else:
        _, events = generate(name, MANY)
    app = registry.load(name)
    case = Case(app, app.bind(), events, oracle=Loop)
    check_against_duckdb(name, events, case.outputs)
    check_executors(name, case, block=1 << 16)


def test_one_import_serves_every_query():
    served = [workload.records(registry.load(name), {}) for name in NAMES]
    assert all(records == served[0] for records in served)


# Lines of each query's file in NEXMark for Flink, without comments and blank lines.
SQL_LINES = {
    0: 11, 1: 17, 2: 8, 3: 15, 4: 17, 5: 37, 6: 20, 7: 20, 8: 26, 9: 30, 11: 16, 13: 27, 14: 27, 15: 34, 16: 38, 17: 28,
    18: 16, 19: 16, 20: 27, 21: 22, 22: 17, 23: 53,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_query_is_at_most_twice_as_long_as_its_sql(name):
    source = Path(registry.load(name).file).read_text()
    others = set()  # lines of imports and docstrings
    for node in ast.walk(ast.parse(source)):
        is_documented = isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node)
        if is_documented or isinstance(node, ast.Import | ast.ImportFrom):
            part = node.body[0] if is_documented else node
            others.update(range(part.lineno, part.end_lineno + 1))
    code = [line for n, line in enumerate(source.splitlines(), 1) if line and n not in others]
    assert len(code) <= 2 * SQL_LINES[int(name.removeprefix("nexmark_q"))]
