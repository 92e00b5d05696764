"""`lockstep import`: data of a user's own is a workload like any other, for one command and for a regression."""

import csv
import json
import os
import random
import shlex
import subprocess
import sys
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.session import CHECKOUT
from streaming_core.cli.new import new
from streaming_core.data import workload
from tests.infra.cli.conftest import lockstep, refused
from tests.support import pages

RUN_ID = "20260101T000000Z-0123abcd"


@pytest.mark.slow
def test_import_of_shuffled_exported_events_equals_the_generated_ones(home, session, tmp_path, capsys):
    """Its way through a regression is in tests/e2e/test_scheduler.py."""
    workload.write("fd", {"entities": 50}, 500, 1, tmp_path / "generated")
    events = [row for table in workload.read(tmp_path / "generated").blocks(500) for row in table.to_pylist()]
    random.Random(1).shuffle(events)
    with open(tmp_path / "events.csv", "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["line", "when", "more"])
        lines.writerows([row["line"].decode(), row["ts"], "x"] for row in events)
        lines.writerow(["no", "time", ""])
    options = ["--map", "ts=when", "--set", "entities=50"]
    assert lockstep("import", "fd", str(tmp_path / "events.csv"), "--name", "mine", *options) == 0
    folder = home.imported("fd", "mine")
    assert capsys.readouterr().out.splitlines() == [
        f"{folder}: 500 events for fd, from 501 rows of {tmp_path / 'events.csv'}",
        f"set aside 1 row, kept in {folder / 'aside'}:",
        f"           1  ts is not an integer (first: {tmp_path / 'events.csv'}, row 501)",
        "warning: set aside 1 of 501 rows (0.2 %; tolerated 0 %)",
    ]
    assert sorted(row["line"] for row in events) == sorted(lines_of(folder))
    assert workload.read_manifest(folder)["params"]["entities"] == 50


def lines_of(folder):
    return [row["line"] for table in workload.read(folder).blocks(500) for row in table.to_pylist()]


@pytest.mark.slow
def test_tutorial_import_prints_the_output_on_its_page(home, session, package, tmp_path, capsys, monkeypatch):
    new("mine", package, tmp_path / "nowhere")
    (step,) = [step for step in pages.steps(pages.TUTORIAL) if "lockstep import" in step.command]
    lines, command = step.command.rstrip("\n").rsplit("\n", 1)
    subprocess.run(["bash", "-euc", lines], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    assert lockstep(*shlex.split(command)[1:]) == 0
    output = capsys.readouterr().out
    assert pages.missing(step.expected, output) is None, output
    assert len(step.expected) == len(output.splitlines())
    events = [row for table in workload.read(home.imported("mine", "nightly")).blocks(9) for row in table.to_pylist()]
    first = 1767344399000  # 2026-01-02T08:59:59Z in milliseconds
    assert [(row["ts"] - first, row["line"][:5]) for row in events] == [
        (0, b"enter"),
        (1000, b"to be"),
        (1250, b"that "),
    ]


@pytest.mark.slow
def test_values_are_read_as_other_programs_write_them(home, session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "ts,x,y\n1970-01-01 00:00:01+00,1,-nan\n1970-01-01 05:45:02+0545,2,+inf\n1970-01-01,3,1e400\n"
    (tmp_path / "ü [1].CSV").write_text(text)
    times = [datetime(1970, 1, 1, 0, 0, 3, 1), datetime(9999, 12, 31)]
    more = {"id": pa.array([bytes(16)] * 2, pa.uuid()), "at": pa.array([1, 2], pa.time64("us"))}
    columns = {"ts": pa.array(times, pa.timestamp("us")), "a": [1, 2], "b": [1, 2], "c": [1.0, 2.0], "d": [True] * 2}
    pq.write_table(pa.table(columns | more), tmp_path / "right: {a}.parquet", use_deprecated_int96_timestamps=True)
    files = ["--stream", "Left=ü [1].CSV", "--stream", "Right=right: {a}.parquet"]
    assert lockstep("import", "scalejoin", *files, "--unit", "us", "--out", "w: +é") == 0
    events = [row for table in workload.read(tmp_path / "w: +é").blocks(9) for row in table.to_pylist()]
    assert [row["ts"] for row in events] == [1_000_000, 2_000_000, 3_000_001, 253_402_214_400_000_000]
    assert [str(row["y"]) for row in events[:2]] == ["nan", "inf"]
    (aside,) = workload.read_manifest(tmp_path / "w: +é")["imported"]["aside"]
    assert (aside["reason"], aside["row"]) == ("y does not fit f64", 3)


def test_unusable_import_is_refused_before_the_regression_starts(home, tmp_path, capfd):
    workload.write("wc", {}, 10, 1, home.imported("wc", "mine"))
    for data, more, message in (
        ({"wc": "../mine"}, [], "data: invalid import wc/../mine"),
        ({"wc": "nosuch"}, [], "unknown import of wc 'nosuch'; known: mine; create it with `lockstep import wc FILES "),
        ({"gs": "mine"}, [], "data: the request imports events for 'gs' but does not run it"),
        ({"wc": "mine"}, ["--params", '{"wc": {"vocabulary": 7}}'], "=10000, but the request has vocabulary=7"),
    ):
        assert message in refused(capfd, "run", "--applications", "wc", "--data", json.dumps(data), *more)


TWO = ["scalejoin", "--stream", "Left=a.csv", "--stream", "Right=a.csv", "--out", "w"]


def test_bad_input_is_reported_before_anything_starts(home, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo.csv")
    for log in ("delta/_delta_log", "iceberg/metadata/1.metadata.json", "sink/_spark_metadata", "delta/day=1", "wrong"):
        (tmp_path / log).mkdir(parents=True)
    (tmp_path / os.fsdecode(b"wrong/\xff.csv")).touch()
    (tmp_path / "a.csv").write_text("ts,line\n")
    for arguments, message in (
        (["nosuch", "a.csv", "--out", "w"], "unknown application 'nosuch'"),
        (["fd", "a.csv"], "give either --name NAME, "),
        (["fd", "a.csv", "--out", "w", "--name", "x"], "give either --name NAME, "),
        (["fd", "a.csv", "--name", "../x"], "--name '../x': use at most 61 letters, digits"),
        (["fd", "a.csv", "--out", "w", "--map", "ts"], "--map 'ts': write FIELD=COLUMN"),
        (["fd", "a.csv", "--out", "w", "--map", "ts=a", "--map", "ts=b"], "ts already has the value 'a'"),
        (["fd", "nosuch.csv", "--out", "w"], "nosuch.csv does not exist"),
        (["fd", "fifo.csv", "--out", "w"], "fifo.csv is a FIFO: only regular files"),
        (["fd", "delta", "--out", "w"], "delta is a table of Delta Lake, and delta/_delta_log says which of its files"),
        (["fd", "delta/day=1", "--out", "w"], "delta is a table of Delta Lake"),
        (["fd", "iceberg", "--out", "w"], "iceberg is a table of Iceberg"),
        (["fd", "sink", "--out", "w"], "sink is a table of Spark's streaming sink"),
        (["fd", "wrong", "--out", "w"], "b'wrong/\\xff.csv' is not a name in UTF-8: rename it"),
        (["fd", "--out", "w"], "give either files, or --stream NAME=PATH for each stream"),
        (["fd", "a.csv", "--stream", "Left=a.csv", "--out", "w"], "give either files, or --stream NAME=PATH"),
        (["fd", "--stream", "Left=a.csv", "--out", "w"], "app fd has one source: give its files without --stream"),
        (["scalejoin", "a.csv", "--out", "w"], "app scalejoin has 2 streams: give the file or the folder of each with"),
        ([*TWO, "--stream", "Left=b.csv"], "--stream 'Left=b.csv': Left already has the value 'a.csv'"),
        ([*TWO[:3], *TWO[5:]], "app scalejoin: stream Right has no file: add --stream Right=PATH"),
        ([*TWO, "--stream", "right=b.csv"], "unknown stream of scalejoin 'right' (did you mean 'Right'?); known: Left"),
        ([*TWO, "--stream", "Left"], "--stream 'Left': write NAME=PATH"),
        ([*TWO, "--map", "Left.a=b"], "the events of scalejoin have no field 'Left.a'; fields: Left.ts"),
        (TWO, "a.csv has no column 'x' for the field x (i64) of scalejoin's stream Left; its columns: ts, line. Name "),
        (["fd", str(tmp_path / "a.csv"), "--out", "w", "--map", "ts=when"], "has no column 'when' for the field ts"),
        (["fd", str(tmp_path / "a.csv"), "--out", "w", "--set", "entities=none"], "entities"),
    ):
        assert message in refused(capfd, "import", *arguments)


def test_folder_that_is_not_empty_is_refused_before_spark_starts(tmp_path, capfd, monkeypatch):
    def start(*_, **__):
        raise AssertionError("Spark was started")

    monkeypatch.setattr("jobs.session.spark_session", start)
    (tmp_path / "a.csv").write_text("ts,line\n1,x\n")
    assert "already exists: choose another name, or remove it first" in refused(
        capfd, "import", "fd", str(tmp_path / "a.csv"), "--out", str(tmp_path)
    )


def imported_by_a_process(folder, prefix=(), **environment):
    """`lockstep import` with a session of its own."""
    (folder / "ü.csv").write_text("ts,line\n1,x\n")
    command = [sys.executable, "-m", "infra.cli", "import", "fd", "ü.csv", "--out", "é"]
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT), "LOCKSTEP_TRACEBACK": "0"} | environment
    return subprocess.run([*prefix, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=240)


@pytest.mark.slow
def test_import_prints_nothing_on_stderr(tmp_path):
    """Neither does the JVM of its session, even where the name of the host does not resolve."""
    nameless = ["unshare", "--map-root-user", "--uts", "sh", "-c", 'hostname no-such-host && exec "$@"', "sh"]
    done = imported_by_a_process(tmp_path, nameless, LC_ALL="C")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "é: 1 event for fd, from 1 row of ü.csv\n"


@pytest.mark.parametrize("cause", ["Error: no room for the heap", "/x/bin/java: No such file or directory"])
def test_failed_jvm_start_is_one_line_that_names_the_cause(tmp_path, cause):
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\nprintf '%s\\n' 'WARNING: Using incubator modules' '\tat x' '{cause}' >&2; exit 1\n")
    java.chmod(0o755)
    done = imported_by_a_process(tmp_path, JAVA_HOME=str(java.parents[1]))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"lockstep: Spark did not start: {cause}\n"
    assert not (tmp_path / "é").exists()
