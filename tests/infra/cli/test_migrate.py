"""lockstep migrate to a synthetic version 2 of the raw results: all or nothing, even after a kill."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.cli import backup as backup_command
from infra.services import backup, migration
from infra.services.decisions import acknowledge
from infra.services.lock import hold
from streaming_core.data.parts import Parts
from streaming_core.errors import BadInput
from streaming_core.regression import warehouse
from streaming_core.regression.decisions import decisions
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import CELLS, RAW, VIOLATIONS, check_version, check_versions, parts
from tests.infra.cli.conftest import lockstep
from tests.reports import past_runs

CELLS_2 = CELLS.append(pa.field("region", pa.string()))
READS = ("warehouse", "freshness")  # a command that reads raw results
USERS = (warehouse, backup, backup_command)  # modules that have the version by its name


def to_2(table: str, rows: pa.Table) -> pa.Table:
    """Version 2: a cell has a region, and a status in capitals."""
    if table != "cells":
        return rows
    statuses = pa.array([value.upper() for value in rows["status"].to_pylist()])
    rows = rows.set_column(rows.column_names.index("status"), "status", statuses)
    return rows.append_column("region", pa.array(["eu"] * len(rows)))


@pytest.fixture(scope="module")
def older_home(tmp_path_factory) -> Path:
    """A home of version 1 with two nights, entries in two files of decisions, and a table without rows."""
    home = Home(tmp_path_factory.mktemp("made") / "home")
    past_runs.make(home, nights=2)
    run = past_runs.RUN_IDS[1]
    red = [
        row["cell"] for row in warehouse.rows(home, "cells", run) if row["verdict"] not in ("equal", "not_comparable")
    ]
    for cell in red[:2]:
        acknowledge(home, run, [cell], "ada", f"the disk was full at {cell}")
    assert len(decisions(home)) == 2
    return home.root


@pytest.fixture
def home(older_home, tmp_path, monkeypatch) -> Home:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    shutil.copytree(older_home, tmp_path / "home")
    return Home(tmp_path / "home")


@pytest.fixture
def version_2(monkeypatch):
    for module in USERS:
        monkeypatch.setattr(module, "SCHEMA_VERSION", 2)
    monkeypatch.setitem(RAW, "cells", CELLS_2)
    monkeypatch.setitem(migration.MIGRATIONS, 1, to_2)


def content(home: Home) -> dict[str, bytes]:
    return {
        str(path.relative_to(home.root)): path.read_bytes()
        for path in home.root.rglob("*")
        if path.is_file() and path.name != "lock.json"
    }


def refused(capsys, *arguments: str) -> str:
    assert lockstep(*arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def raw(home: Home) -> dict[Path, list[dict]]:
    return {path.relative_to(home.root): Parts([path]).read().to_pylist() for name in RAW for path in parts(home, name)}


def expected(before: dict[Path, list[dict]]) -> dict[Path, list[dict]]:
    """The rows of version 2, without digests."""
    after = {}
    for path, rows in before.items():
        more = [{"region": "eu", "status": row["status"].upper()} if "cells" in path.parts else {} for row in rows]
        after[path] = [bare(row | {"schema_version": 2} | new) for row, new in zip(rows, more, strict=True)]
    return after


def bare(row: dict) -> dict:
    return {name: value for name, value in row.items() if name not in ("digest", "previous")}


def check_migrated(home: Home, before: dict[Path, list[dict]], decided: list) -> None:
    assert {path: [bare(row) for row in rows] for path, rows in raw(home).items()} == expected(before)
    assert decisions(home) == decided
    check_versions(home)
    assert not [path for path in home.root.rglob("*") if "migrat" in path.name]


def test_all_raw_results_get_the_new_version_and_the_chain_of_decisions_holds(home, version_2, capsys):
    before = raw(home)
    assert "then `lockstep migrate`" in refused(capsys, *READS)
    decided = [row["why"] for path, rows in before.items() if "decisions" in path.parts for row in rows]
    assert lockstep("migrate") == 0
    output = capsys.readouterr().out
    assert output.startswith(
        f"migrate: migrated {len([rows for rows in before.values() if rows])} files from version 1 to 2"
    )
    assert output.endswith("next: lockstep warehouse rebuild, then lockstep publish\n")
    check_migrated(home, before, decisions(home))
    assert sorted(one.why for one in decisions(home)) == sorted(decided)
    assert lockstep("migrate") == 0
    assert "all raw results have version 2; nothing was changed" in capsys.readouterr().out
    assert lockstep("sql", "SELECT DISTINCT region FROM raw_cells") == 0
    assert "eu" in capsys.readouterr().out


def test_file_without_rows_gets_the_new_columns(home, version_2, monkeypatch, capsys):
    path = home.part("violations", past_runs.RUN_IDS[0])
    pq.write_table(VIOLATIONS.empty_table(), path)
    monkeypatch.setitem(RAW, "violations", VIOLATIONS.append(pa.field("region", pa.string())))
    monkeypatch.setitem(
        migration.MIGRATIONS,
        1,
        lambda table, rows: (
            rows.append_column("region", pa.nulls(len(rows), pa.string()))
            if table == "violations"
            else to_2(table, rows)
        ),
    )
    with pytest.raises(BadInput, match="has older columns"):
        check_version(path, "violations")
    assert lockstep("migrate") == 0
    check_versions(home)
    assert Parts([path]).schema.names[-1] == "region"


def test_dry_run_changes_nothing(home, version_2, capsys):
    before = content(home)
    assert lockstep("migrate", "--dry-run") == 0
    assert "migrate: would migrate " in capsys.readouterr().out
    assert content(home) == before


def test_backup_of_the_old_version_can_be_restored_and_migrated(home, version_2, tmp_path, monkeypatch, capsys):
    before = raw(home)
    assert lockstep("backup", str(tmp_path / "b.tar.gz"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["raw_schema"] == 1
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "new"))
    assert lockstep("restore", str(tmp_path / "b.tar.gz")) == 0
    assert capsys.readouterr().out.endswith(
        "next: lockstep migrate, then lockstep warehouse build, then lockstep publish\n"
    )
    assert lockstep("migrate") == 0
    restored = Home(tmp_path / "new")
    check_migrated(restored, before, decisions(restored))


# --- bad input: one line, and nothing has changed --------------------------------------------------------------------


def fails(table: str, rows: pa.Table) -> pa.Table:
    raise ValueError("no such region\nor others")


@pytest.mark.parametrize(
    ("migrations", "message"),
    [
        ({}, "and this checkout cannot migrate version 1; migrate with an earlier Lockstep first"),
        ({1: fails}, "the migration of version 1 fails: no such region\n"),
        ({1: lambda table, rows: rows}, "the migration makes other columns than version 2 has: region"),
    ],
)
def test_migration_that_fails_changes_nothing(home, version_2, monkeypatch, capsys, migrations, message):
    monkeypatch.delitem(migration.MIGRATIONS, 1)
    for number, function in migrations.items():
        monkeypatch.setitem(migration.MIGRATIONS, number, function)
    before = content(home)
    assert message in refused(capsys, "migrate")
    assert content(home) == before


def test_newer_results_say_that_the_checkout_is_older(home, monkeypatch, capsys):
    path = home.part("cells", past_runs.LAST if home.part("cells", past_runs.LAST).exists() else past_runs.RUN_IDS[1])
    table = pq.ParquetFile(path).read()
    pq.write_table(table.set_column(0, table.schema.field(0), pa.array([2] * len(table), pa.int32())), path)
    before = content(home)
    assert "check out the newer Lockstep that wrote it" in refused(capsys, "migrate")
    assert content(home) == before


def test_damaged_chain_is_not_migrated(home, version_2, capsys):
    path = next(iter(parts(home, "decisions")))
    rows = [row | {"why": "nothing to see"} for row in Parts([path]).read().to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows, schema=RAW["decisions"]), path)
    before = content(home)
    assert "was changed: its content does not have its digest" in refused(capsys, "migrate")
    assert content(home) == before


def test_home_in_use_is_not_migrated(home, version_2, capsys):
    before = content(home)
    with hold(home, "run 7"):
        assert "is in use by run 7 on " in refused(capsys, "migrate")
    assert content(home) == before


def test_missing_home_has_nothing_to_migrate(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "nosuch"))
    assert "there is nothing to migrate" in refused(capsys, "migrate")


# --- killed ----------------------------------------------------------------------------------------------------------


def killed_migration(root: str, place: str, at: int) -> None:
    """Migrates until it has computed `at` files, or written the list of new files, or replaced `at` old files."""
    for module in USERS:
        module.SCHEMA_VERSION = 2
    RAW["cells"] = CELLS_2
    calls = iter(range(1, 1000))

    def end_at_last(there: bool) -> None:
        if there and next(calls) == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(table: str, rows: pa.Table) -> pa.Table:
        end_at_last(place == "compute")
        return to_2(table, rows)

    replace = os.replace

    def and_end(source, target) -> None:
        replace(source, target)
        name = Path(target).name
        end_at_last({"write": name.endswith(".migrated"), "replace": name == "part-0.parquet"}.get(place, False))

    migration.MIGRATIONS[1] = counted
    os.replace = and_end
    migration.migrate(Home(root))


@pytest.mark.parametrize(
    ("place", "at", "begun"), [("compute", 3, False), ("write", 2, False), ("replace", 1, True), ("replace", 5, True)]
)
def test_killed_migration_changed_nothing_or_resumes(home, version_2, capsys, place, at, begun):
    before, files = raw(home), content(home)
    child = multiprocessing.get_context("spawn").Process(target=killed_migration, args=(str(home.root), place, at))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    old = {name: data for name, data in content(home).items() if "migrat" not in name}
    assert (old == files) is not begun
    assert "then `lockstep migrate`" in refused(capsys, *READS)
    assert lockstep("migrate") == 0
    assert ("finished an earlier migration" in capsys.readouterr().out) is begun
    check_migrated(home, before, decisions(home))
