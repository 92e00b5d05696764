"""Brings raw results of an older schema version to the version of this checkout (`lockstep migrate`).

`MIGRATIONS` has a function for each version, which makes the rows of a file those of the next version. Add one whenever
you raise SCHEMA_VERSION.

A migration first writes the new files beside the old ones, under hidden names that no reader sees. Only when all of
them are there, it replaces the old files, one at a time. If it is killed before that, nothing has changed; after that,
the next migration goes on. In between, every reader refuses the files that are still old.

Entries of `decisions` contain digests of themselves and of the entry before. So a migration checks the old chain, and
computes a new one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from infra.services.lock import holder, of_home, signature
from streaming_core.data.parts import Parts
from streaming_core.errors import BadInput
from streaming_core.regression import decisions, warehouse
from streaming_core.regression.home import Home
from streaming_core.regression.warehouse import RAW, VERSION, check_version, parts, version_of
from streaming_core.storage import replacing, sync, write_json

# Version -> the function that migrates rows of this version to the next one. It gets the name of the table and the
# rows, and returns rows with the columns of the next version.
MIGRATIONS: dict[int, Callable[[str, pa.Table], pa.Table]] = {}
MIGRATED = ".migrated"
NEXT = "next: lockstep warehouse rebuild, then lockstep publish"


class Old(NamedTuple):
    """A file to migrate: its table and its version; None if it has no rows, and columns of some older version."""

    table: str
    version: int | None


def migrate(home: Home, dry_run: bool = False) -> str:
    """Migrate all raw results to the version of this checkout.

    Args:
        home: LOCKSTEP_HOME.
        dry_run: Do everything but write.

    Returns:
        A line that says what was done.

    Raises:
        BadInput: Another command uses `home`; or a file cannot be read, is newer than this checkout, or cannot be
            migrated. Nothing has changed.
    """
    if not home.root.is_dir():
        raise BadInput(f"LOCKSTEP_HOME={home.root} does not exist: there is nothing to migrate")
    newest = warehouse.SCHEMA_VERSION
    with _alone(home):
        ready = _Ready(home)
        if ready.are_written():
            count = ready.replace_old()
            return f"migrate: finished an earlier migration of {_files(count)} to version {newest}; {NEXT}"
        ready.remove()
        known = {path: Old(table, version_of(path, table)) for table in RAW for path in parts(home, table)}
        old = {path: one for path, one in known.items() if one.version != newest}
        if not old:
            return f"migrate: all raw results have version {newest}; nothing was changed"
        tables = dict(_migrated(home, old))
        if dry_run:
            return f"migrate: would migrate {_files(len(tables))} to version {newest}; nothing was changed (--dry-run)"
        ready.write(tables)
        count = ready.replace_old()
    before = ", ".join(str(version) for version in sorted({one.version for one in old.values() if one.version}))
    return f"migrate: migrated {_files(count)} from version {before} to {newest}; {NEXT}"


def _migrated(home: Home, old: dict[Path, Old]) -> Iterator[tuple[Path, pa.Table]]:
    """The new content of each old file; of decisions, of all files if one is old."""
    for path, one in old.items():
        _check(path, one)
        if one.table != decisions.TABLE:
            yield path, _columns(path, one, Parts([path]).read())
    if any(one.table == decisions.TABLE for one in old.values()):
        yield from _decisions(home, old)


def _check(path: Path, old: Old) -> None:
    if old.version is None:
        return
    if old.version > warehouse.SCHEMA_VERSION:
        check_version(path, old.table)
    if missing := [number for number in range(old.version, warehouse.SCHEMA_VERSION) if number not in MIGRATIONS]:
        raise BadInput(
            f"{path} has raw schema version {old.version}, and this checkout cannot migrate version {missing[0]}; "
            "migrate with an earlier Lockstep first"
        )


def _decisions(home: Home, old: dict[Path, Old]) -> Iterator[tuple[Path, pa.Table]]:
    """All entries, in a new chain. The file of an entry stays the same."""
    rows: dict[Path, list[dict]] = {}
    for row, path in decisions.entries(home, any_version=True):
        rows.setdefault(path, []).append(row)
    before = decisions.Last(0, decisions.FIRST)
    for path, of_file in rows.items():
        one = old.get(path, Old(decisions.TABLE, warehouse.SCHEMA_VERSION))
        table = _columns(path, one, pa.Table.from_pylist(of_file, schema=Parts([path]).schema))
        new = list(decisions.linked(before, table.to_pylist()))
        before = decisions.last_of(new)
        yield path, pa.Table.from_pylist(new, schema=RAW[decisions.TABLE])


def _columns(path: Path, old: Old, rows: pa.Table) -> pa.Table:
    """The rows with the columns of the newest version.

    Raises:
        BadInput: A migration fails on this file.
    """
    schema, newest = RAW[old.table], warehouse.SCHEMA_VERSION
    if old.version is None:
        return schema.empty_table()
    for number in range(old.version, newest):
        try:
            rows = MIGRATIONS[number](old.table, rows)
        except (pa.ArrowException, ValueError, TypeError, KeyError) as error:
            raise BadInput(
                f"{path}: the migration of version {number} fails: {str(error).partition(chr(10))[0]}"
            ) from None
    values = {name: rows[name] for name in rows.column_names}
    values[VERSION] = pa.array([newest] * len(rows), schema.field(VERSION).type)
    if values.keys() != set(schema.names):
        wrong = ", ".join(sorted(values.keys() ^ set(schema.names)))
        raise BadInput(f"{path}: the migration makes other columns than version {newest} has: {wrong}")
    return pa.table({name: values[name] for name in schema.names}, schema=schema)


class _Ready:
    """The new files, each beside the old one that it replaces, and the list that says that all of them are there."""

    def __init__(self, home: Home):
        self._home = home
        self._list = home.root / "warehouse" / "raw" / ".migration.json"

    def are_written(self) -> bool:
        return self._list.exists()

    def write(self, tables: dict[Path, pa.Table]) -> None:
        last = None
        for path, table in tables.items():
            with replacing(_beside(path)) as file:
                pq.write_table(table, file)
            sync(path.parent)
            if path.is_relative_to(self._home.raw(decisions.TABLE)):
                last = decisions.last_of(table.to_pylist())._asdict()
        paths = [path.relative_to(self._home.root).as_posix() for path in tables]
        write_json(self._list, {"paths": paths, "last": last})
        sync(self._list.parent)

    def replace_old(self) -> int:
        """Replace each old file, and return their number. A part of them may be replaced already."""
        written = json.loads(self._list.read_text())
        for path in (self._home.root / name for name in written["paths"]):
            if _beside(path).exists():
                os.replace(_beside(path), path)
                sync(path.parent)
        if written["last"]:
            write_json(decisions.last_file(self._home), written["last"])
            sync(decisions.last_file(self._home).parent)
        self._list.unlink()
        return len(written["paths"])

    def remove(self) -> None:
        """Remove the new files of a migration that was killed before all of them were there."""
        for table in RAW:
            for path in self._home.raw(table).rglob(f".*{MIGRATED}*"):
                path.unlink()


@contextmanager
def _alone(home: Home) -> Iterator[None]:
    """The lock on `home`. A migration does not wait for it: a person should know that a run goes on."""
    lock = of_home(home)
    if not lock.take(signature("migrate")):
        by = holder(lock)
        user = f"{by['owner']} on {by['host']} since {by['since']}" if by else "another process"
        raise BadInput(f"LOCKSTEP_HOME={home.root} is in use by {user}: wait until it ends, then migrate")
    try:
        yield
    finally:
        lock.leave()


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}{MIGRATED}")


def _files(count: int) -> str:
    return f"{count:,} file{'s' * (count != 1)}"
