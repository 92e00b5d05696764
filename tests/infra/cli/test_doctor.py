"""lockstep doctor tests the file system, and reports one without the features that Lockstep needs."""

import fcntl
import json
import os
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.hosts import sharing
from jobs.raw import write_raw
from streaming_core.regression.home import Home
from tests.infra.cli.conftest import lockstep

NAMES = ["file system", "renames", "locks", "fsync", "names", "clock", "raw results"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Home:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    yield Home(tmp_path)
    assert not list(tmp_path.glob(".doctor-*"))


def fault(capsys, name: str) -> str:
    """The line of the only fault."""
    assert lockstep("doctor") == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("fault ")]
    assert line.split(None, 1)[1].startswith(name)
    assert "; to fix: " in line
    return line


def test_local_disk_passes_every_check(capsys):
    assert lockstep("doctor") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[9:20].strip() for line in lines] == NAMES
    assert all(line.startswith("ok ") for line in lines)
    assert "GB free" in lines[0]


def test_json_has_the_same_findings(capsys):
    assert lockstep("doctor", "--json") == 0
    assert [(finding["name"], finding["fix"]) for finding in json.loads(capsys.readouterr().out)] == [
        (name, "") for name in NAMES
    ]


def test_ineffective_lock_is_reported(monkeypatch, capsys):
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    assert "two processes hold one lock" in fault(capsys, "locks")


def test_nfs_mount_without_locks_between_hosts_is_reported(home, monkeypatch, capsys):
    device = sharing._numbers(os.stat(home.root).st_dev)
    mount = sharing.Mount(home.root, "nfs", {"rw", "local_lock=flock"})
    monkeypatch.setattr(sharing, "_mounts", lambda: iter([(device, mount)]))
    assert "the mount option local_lock=flock keeps locks on this host" in fault(capsys, "locks")


def test_rename_that_replaces_a_folder_is_reported(monkeypatch, capsys):
    rename = os.rename

    def replacing(source, target) -> None:
        shutil.rmtree(target, ignore_errors=True)
        rename(source, target)

    monkeypatch.setattr(os, "rename", replacing)
    assert "a rename replaced a folder with files in it" in fault(capsys, "renames")


def test_partial_file_replacement_is_reported(monkeypatch, capsys):
    def copying(source, target) -> None:
        with open(target, "r+b") as file:
            file.write(Path(source).read_bytes()[:100])
        Path(source).unlink()

    monkeypatch.setattr(os, "replace", copying)
    assert lockstep("doctor") == 1
    assert "a reader saw a file in part" in capsys.readouterr().out


def test_clock_difference_is_reported(monkeypatch, capsys):
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 100)
    assert "the file system is 100 s ahead of this host" in fault(capsys, "clock")


def test_case_insensitive_names_are_reported(monkeypatch, capsys):
    touch = Path.touch
    monkeypatch.setattr(Path, "touch", lambda path, **more: touch(path.with_name(path.name.lower()), **more))
    assert "fails: File exists" in fault(capsys, "names")


def test_results_of_another_version_have_a_remedy(home, capsys):
    part = write_raw(home, "cells", "20260101T000000Z-00000001", [{"cell": "c"}])
    table = pq.ParquetFile(part).read()
    for version in (0, 9):
        pq.write_table(table.set_column(0, table.schema.field(0), pa.array([version], pa.int32())), part)
        line = fault(capsys, "raw results")
        assert f"{part} has raw schema version {version}" in line
        assert "check out the Lockstep that wrote it" in line.partition("; to fix: ")[2]


@pytest.mark.parametrize(("folder", "message"), [("nosuch", "is not a folder"), ("/proc", "cannot be written")])
def test_unusable_home_is_bad_input(tmp_path, monkeypatch, capsys, folder, message):
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / folder))
    assert lockstep("doctor") == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert message in error
    assert error.count("\n") == 1
