"""NEXMark's queries against the SQL beside them, which DuckDB answers, in every way that fits.

Each query also has its SQL on the page "From SQL".
"""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.run.way import ENGINE_EXECUTORS, RunSpec
from tests.differential.case import Case
from tests.differential.test_loop import agree

NAMES = sorted(registry.names("nexmark"), key=lambda name: int(name.removeprefix("nexmark_q")))
EVENTS, SEED = 4_000, 5
# 40 seconds, or three days for the queries by day
DAYS = ("nexmark_q14", "nexmark_q15", "nexmark_q16", "nexmark_q17")
INTERVALS = dict.fromkeys(NAMES, 10_000) | dict.fromkeys(DAYS, 65_000_000)


def answer(name: str, events: pa.Table) -> list[tuple]:
    """What DuckDB answers to the SQL of a query, sorted."""
    texts = pa.schema([pa.field(f.name, pa.string() if pa.types.is_binary(f.type) else f.type) for f in events.schema])
    with duckdb.connect() as connection:
        connection.register("events", events.cast(texts))
        for number, stream in enumerate(("person", "auction", "bid")):
            connection.execute(f"CREATE VIEW {stream} AS SELECT * FROM events WHERE stream = {number}")
        sql = (Path(registry.__file__).parent / f"nexmark/{name}.sql").read_text()
        relation = connection.sql(sql)
        return relation.columns, sorted(relation.fetchall())


def rows(outputs: pa.Table, columns: list[str]) -> list[tuple]:
    """The rows of a result, sorted."""
    assert {*columns} == {*outputs.column_names} - {"seq", "sub"}
    values = [outputs.column(name).to_pylist() for name in columns]
    return sorted(tuple(v.decode() if isinstance(v, bytes) else v for v in row) for row in zip(*values, strict=True))


def events_of(name: str) -> tuple[dict, pa.Table]:
    params = {"interval": INTERVALS[name]}
    return params, workload.generate_chunk(name, params, EVENTS, SEED, 0, EVENTS)


@pytest.mark.parametrize("name", NAMES)
def test_query_answers_as_duckdb_does(name):
    params, events = events_of(name)
    columns, expected = answer(name, events)
    assert expected
    app = registry.load(name)
    case = Case(app, app.bind(params), events)
    assert rows(case.outputs, columns) == expected
    for executor, declared in ENGINE_EXECUTORS.items():
        if app.kind in declared.application_kinds:
            for threads in (1, 2, 3):
                case.check(RunSpec.parse({"app": name, "executor": executor, "threads": threads}))


@pytest.mark.parametrize("name", NAMES)
def test_loop_equals_the_interpreter(name):
    params, events = events_of(name)
    agree(registry.load(name), params, events, cuts=(0, 1_000))
