"""lockstep warehouse rebuild: its refusals, its lock, and marts from raw results alone."""

import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.raw import write_raw
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import ELSEWHERE, RAW, SCHEMA_VERSION, parts, rows
from tests.dbt.conftest import read_mart
from tests.dbt.conftest import warehouse as run_warehouse
from tests.dbt.raw_runs import FASTER, GREEN, RED, write_runs
from tests.infra.cli.conftest import lockstep, refused
from tests.support.draws import some

CHECK_OUT = "check out the Lockstep that wrote it"
MARTS = ("cells", "throughput", "speed", "latency", "verdicts", "runs")


def content(home: Home) -> dict[str, list[str]]:
    """Mart -> its rows, in an order of their own."""
    return {name: sorted(map(repr, read_mart(home, name))) for name in MARTS}


@pytest.mark.parametrize(
    ("folder", "arguments", "message"),
    [("home", ["everything"], "everything"), ("home", [], "missing command"), ("ho me:x", ["build"], "' ' ':'")],
)
def test_bad_input_gets_one_line(tmp_path, monkeypatch, capsys, folder, arguments, message):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / folder))
    assert message in refused(capsys, "warehouse", *arguments)


def test_unwritable_home_is_bad_input(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "file"))
    assert lockstep("warehouse", "build") == 2
    assert capsys.readouterr().err.startswith(f"lockstep: LOCKSTEP_HOME={tmp_path}")


@pytest.mark.slow
def test_empty_warehouse_has_empty_marts(tmp_path):
    home = Home(tmp_path)
    done = run_warehouse(home, "build")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {name: read_mart(home, name) for name in MARTS} == {name: [] for name in MARTS}
    assert (home.reports / "dbt" / "index.html").is_file()


@pytest.mark.slow
def test_outdated_results_are_reported(tmp_path):
    home = Home(tmp_path)
    done = run_warehouse(home, "freshness")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"lockstep: {home.raw('cells')} has no results yet: start a run with `lockstep run`\n"
    write_runs(home)
    done = run_warehouse(home, "freshness")
    assert done.returncode == 1, done.stdout + done.stderr
    line = done.stderr.strip().splitlines()[-1]
    assert re.fullmatch(r"lockstep: the newest results are from 2025-03-\d\d \d\d:\d\d UTC, [\d,]+ hours ago, .*", line)
    today = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-00000000"
    shutil.copytree(next(home.raw("cells").glob("run_id=*")), home.raw("cells") / f"run_id={today}")
    part = home.part("cells", today)
    table = pq.ParquetFile(part).read()
    ids = pa.array([today] * len(table), table.schema.field("run_id").type)
    pq.write_table(table.set_column(table.schema.get_field_index("run_id"), "run_id", ids), part)
    done = run_warehouse(home, "freshness")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().splitlines()[-1].endswith("UTC, 0 hours ago")


@pytest.mark.slow
def test_rebuild_replaces_all_but_raw_data_and_gives_the_same_marts(tmp_path):
    home = Home(tmp_path)
    write_runs(home)
    raw = {path: path.read_bytes() for path in (tmp_path / "warehouse" / "raw").rglob("*.parquet")}
    assert run_warehouse(home, "build").returncode == 0
    first = content(home)

    # Nothing has changed, but a mart is gone.
    shutil.rmtree(tmp_path / "warehouse" / "marts" / "cells")
    assert run_warehouse(home, "build").returncode == 0
    assert content(home) == first

    # Nothing has changed, but a mart is none.
    for path in (tmp_path / "warehouse" / "marts" / "cells").rglob("*.parquet"):
        path.write_text("not parquet")
    broken = run_warehouse(home, "build")
    assert broken.returncode == 2
    assert "`lockstep warehouse rebuild` makes it again" in broken.stderr.splitlines()[-1]
    done = run_warehouse(home, "rebuild")
    assert done.returncode == 0, done.stdout + done.stderr
    assert content(home) == first
    assert {path: path.read_bytes() for path in raw} == raw


@pytest.mark.slow
def test_build_keeps_current_documentation_and_docs_writes_it(tmp_path):
    home = Home(tmp_path)
    page = home.reports / "dbt" / "docs.html"
    write_runs(home, (GREEN,))
    assert run_warehouse(home, "build").returncode == 0
    first = page.read_bytes()
    write_runs(home, (RED,))
    assert run_warehouse(home, "build").returncode == 0
    assert page.read_bytes() == first
    done = run_warehouse(home, "docs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert page.read_bytes() != first


@pytest.mark.slow
def test_verdict_contradicted_by_its_rows_is_named(tmp_path):
    home = Home(tmp_path)
    write_runs(home, (FASTER,))
    cells = rows(home, "cells", FASTER)
    checks = rows(home, "verdicts", FASTER)
    right = next(row["cell"] for row in cells if row["verdict"] == "equal")
    nothing = {"expected_rows": 0, "actual_rows": 0}
    write_raw(home, "verdicts", FASTER, [row | nothing if row["cell"] == right else row for row in checks])
    done = run_warehouse(home, "build")
    assert done.returncode == 1
    message = "no_cell_counts_as_right_that_its_rows_speak_against fails for 1 row ("
    assert message in done.stderr.splitlines()[-1]


def without_a_column(table: pa.Table) -> pa.Table:
    return table.drop_columns(table.column_names[-1:])


def of_version(number: int) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        return table.set_column(0, table.schema.field(0), pa.array([number] * len(table), pa.int32()))

    return change


@pytest.mark.parametrize("command", ["build", "rebuild", "freshness"])
@pytest.mark.parametrize("table", some(RAW))
@pytest.mark.parametrize(
    ("change", "difference", "advice"),
    [
        (of_version(SCHEMA_VERSION + 7), f"has raw schema version {SCHEMA_VERSION + 7}", CHECK_OUT),
        (of_version(SCHEMA_VERSION - 1), f"has raw schema version {SCHEMA_VERSION - 1}", CHECK_OUT),
        (without_a_column, f"does not have the columns of raw schema version {SCHEMA_VERSION}", ELSEWHERE),
        (lambda table: table.drop_columns(["schema_version"]), "does not have the columns of raw schema", ELSEWHERE),
    ],
)
def test_raw_file_of_another_version_is_refused_before_any_change(
    tmp_path, monkeypatch, capsys, command, table, change, difference, advice
):
    home = Home(tmp_path)
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    write_runs(home, (FASTER,))
    write_raw(home, "decisions", FASTER, [{"of_run": GREEN}])
    for name in ("finds", "searches"):
        write_raw(home, name, FASTER, [{"app": "wc"}])
    # Spark reads every file below a table's folder, whatever its name.
    path = home.raw(table) / "other" / "part-1.parquet"
    path.parent.mkdir()
    pq.write_table(change(pq.ParquetFile(home.part(table, FASTER)).read()), path)
    mart = home.root / "warehouse" / "marts" / "cells" / "part-00000.parquet"
    mart.parent.mkdir(parents=True)
    mart.touch()
    error = refused(capsys, "warehouse", command)
    assert error.startswith(f"lockstep: {path} {difference}")
    assert error.endswith(f"; {advice}\n")
    assert mart.exists()


def test_raw_file_in_another_format_is_bad_input(tmp_path, monkeypatch, capsys):
    home = Home(tmp_path)
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    write_runs(home)
    home.part("cells", RED).write_text("not parquet")
    assert refused(capsys, "warehouse", "build").startswith(f"lockstep: cannot read {home.part('cells', RED)}: ")


def test_files_that_spark_hides_are_not_checked(tmp_path):
    home = Home(tmp_path)
    write_runs(home, (GREEN,))
    for name in (".part-0.parquet.123", "_SUCCESS"):
        (home.part("cells", GREEN).parent / name).write_text("not parquet")
    assert list(parts(home, "cells")) == [home.part("cells", GREEN)]
