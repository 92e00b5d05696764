"""`lockstep sql` queries marts and raw tables, and gives a query no way to change anything."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.cli import sql
from jobs.raw import write_raw
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import RAW
from tests.infra.cli.conftest import lockstep, refused
from tests.reports import past_runs


@pytest.fixture(scope="module")
def history(tmp_path_factory) -> Home:
    home = Home(tmp_path_factory.mktemp("history"))
    past_runs.make(home)
    return home


@pytest.fixture(autouse=True)
def used(history, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOME", str(history.root))


def rows(capsys, query: str = "") -> list[dict]:
    assert lockstep("sql", *filter(None, [query]), "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_rows_are_printed_as_a_table_or_as_json(capsys):
    query = "SELECT app, count(*) AS cells, sum(threads) AS threads FROM raw_cells GROUP BY app ORDER BY app;"
    assert lockstep("sql", query) == 0
    _, header, _, _, first, *_ = capsys.readouterr().out.splitlines()
    assert header.replace("\u2502", " ").split() == ["app", "cells", "threads"]
    objects = rows(capsys, query)
    assert [type(value) for value in objects[0].values()] == [str, int, int]
    assert first.replace("\u2502", " ").split() == [str(value) for value in objects[0].values()]


def test_tables_are_named_as_dbt_names_them_and_can_be_joined(capsys):
    listed = {(row["table"], row["column"]) for row in rows(capsys)}
    assert {(f"raw_{name}", column) for name, schema in RAW.items() for column in schema.names} <= listed
    assert ("throughput", "median_events_per_s") in listed
    assert {name for name, _ in listed if not name.startswith("raw_")} <= set(sql.MARTS)
    for name in {name for name, _ in listed}:
        rows(capsys, f"SELECT * FROM {name} LIMIT 1")
    joined = "raw_cells JOIN raw_samples USING (run_id, cell) JOIN throughput USING (run_id, cell)"
    assert rows(capsys, f"SELECT count(*) AS n FROM {joined}")[0]["n"] > 0


def test_values_have_a_json_form(capsys):
    query = "SELECT 'nan'::DOUBLE AS n, NULL AS m, DATE '2026-01-05' AS t, 2.5::DECIMAL(4, 1) AS d, [1] AS l"
    assert rows(capsys, query) == [{"n": None, "m": None, "t": "2026-01-05", "d": 2.5, "l": [1]}]


def test_text_cannot_control_the_terminal(capsys):
    assert lockstep("sql", "SELECT chr(27) || '[2J' || chr(10) || '[red]x' AS a") == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("", "QUERY must not be empty"),
        (" ", "the query must be one statement that reads"),
        ("SELECT 1; SELECT 2", "the query must be one statement that reads"),
        ("SELECT * FROM nosuch", "Table with name nosuch does not exist; `lockstep sql` lists the tables"),
        ("SELECT nosuch FROM raw_cells", 'column "nosuch" not found'),
        ("SELECT * FROM quarantine", "dbt has not built this mart yet; use `lockstep warehouse build`"),
        ("SELECT 'x'::INT", "Conversion Error"),
    ],
)
def test_wrong_query_gets_one_line(capsys, query, message):
    assert message in refused(capsys, "sql", query)


def test_message_without_history_says_how_to_start_one(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    for arguments in ([], ["SELECT 1"]):
        assert lockstep("sql", *arguments) == 2
        assert capsys.readouterr().err == f"lockstep: {tmp_path} has no history yet: start a run with `lockstep run`\n"


# The first group is no statement that reads. DuckDB itself refuses the second one.
STATEMENTS = ["COPY (SELECT 1) TO '{file}'", "COPY raw_cells FROM '{file}'", "EXPORT DATABASE '{folder}'"]
STATEMENTS += ["EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}'", "ATTACH '{file}'", "INSTALL httpfs", "LOAD httpfs"]
STATEMENTS += ["SET enable_external_access = true", "RESET lock_configuration", "DELETE FROM raw_cells"]
STATEMENTS += ["DROP VIEW raw_cells", "CREATE TABLE t AS SELECT 1", "CREATE PERSISTENT SECRET s (TYPE s3)"]
READS = [
    "SELECT * FROM '{secret}'",
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_blob('{secret}')",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM read_parquet('{part}')",
    "SELECT * FROM history",  # a variable of Python
    "SELECT getenv('HOME')",
    "SELECT * FROM query('COPY (SELECT 1) TO ''{file}''')",
]


@pytest.mark.parametrize("query", STATEMENTS + READS)
def test_query_reaches_nothing_but_the_tables(history, tmp_path, capsys, query):
    (tmp_path / "secret.csv").write_text("a\n1\n")
    part = history.part("cells", past_runs.LAST)
    before = {path: path.read_bytes() for path in history.root.rglob("*") if path.is_file()}
    paths = {"file": tmp_path / "out", "folder": tmp_path, "secret": tmp_path / "secret.csv", "part": part}
    assert lockstep("sql", query.format(**paths)) == 2
    assert ("must be one statement that reads" in capsys.readouterr().err) == (query in STATEMENTS)
    assert {path: path.read_bytes() for path in history.root.rglob("*") if path.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]


def test_files_refused_by_other_readers_are_refused(capsys, tmp_path, monkeypatch):
    home = Home(tmp_path)
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    write_raw(home, "cells", past_runs.LAST, [{"cell": "a", "started_at": datetime(2026, 1, 5, tzinfo=UTC)}])
    part = write_raw(home, "samples", past_runs.LAST, [{"cell": "a"}])
    table = pq.ParquetFile(part).read()
    pq.write_table(table.set_column(0, table.schema.field(0), pa.array([9], pa.int32())), part)
    write_raw(home, "decisions", past_runs.LAST, [{"entry": 1, "cell": "a"}])
    assert lockstep("sql", "SELECT cell FROM raw_cells") == 0
    assert lockstep("sql", "SELECT cell FROM RAW_SAMPLES") == 2
    assert f"{part} has raw schema version 9" in capsys.readouterr().err
    assert lockstep("sql", "SELECT cell FROM raw_decisions") == 2
    assert "_last.json: the file is missing" in capsys.readouterr().err
