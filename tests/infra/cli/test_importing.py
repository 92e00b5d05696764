"""`lockstep import`: data of a user's own is a workload like any other, for one command and for a regression."""

import csv
import itertools
import json
import os
import random
import shlex
import subprocess
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_core.cli.new import new
from streaming_core.data import workload
from tests.infra.cli.conftest import lockstep, refused
from tests.support import pages

RUN_ID = "20260101T000000Z-0123abcd"


def test_import_of_shuffled_exported_events_equals_the_generated_ones(home, tmp_path, capsys):
    """Its way through a regression is in tests/e2e/test_scheduler.py."""
    workload.write("fd", {"entities": 50}, 500, 1, tmp_path / "generated")
    events = [row for table in workload.read(tmp_path / "generated").blocks(500) for row in table.to_pylist()]
    random.Random(1).shuffle(events)
    with open(tmp_path / "events.csv", "w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["line", "when", "more"])
        lines.writerows([row["line"].decode(), row["ts"], "x"] for row in events)
        lines.writerow(["no", "time", ""])
    options = ["--map", "ts=when"]
    assert lockstep("import", "fd", str(tmp_path / "events.csv"), "--name", "mine", *options) == 0
    folder = home.imported("mine")
    late = sum(row["ts"] < before["ts"] for before, row in itertools.pairwise(events))
    assert capsys.readouterr().out.splitlines() == [
        f"{folder}: 500 events of fd, from 501 rows of {tmp_path / 'events.csv'}",
        f"sorted by ts: {late} rows had a lower ts than the row before",
        f"set aside 1 row, kept in {folder / 'aside'}:",
        f"           1  ts is neither an integer nor a time (first: {tmp_path / 'events.csv'}, row 501)",
        "warning: set aside 1 of 501 rows (0.2 %; tolerated 0 %)",
    ]
    read = workload.read(folder, "fd", {"entities": 50})
    assert sorted(row["line"] for row in events) == sorted(read.parts.read()["line"].to_pylist())


def test_tutorial_import_prints_the_output_on_its_page(home, package, tmp_path, capsys, monkeypatch):
    new("mine", package, tmp_path / "nowhere")
    (step,) = [step for step in pages.steps(pages.TUTORIAL) if "lockstep import" in step.command]
    lines, command = step.command.rstrip("\n").rsplit("\n", 1)
    subprocess.run(["bash", "-euc", lines], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    assert lockstep(*shlex.split(command)[1:]) == 0
    output = capsys.readouterr().out
    assert pages.missing(step.expected, output) is None, output
    assert len(step.expected) == len(output.splitlines())
    events = [
        row for table in workload.read(home.imported("nightly-mine"), "mine").blocks(9) for row in table.to_pylist()
    ]
    first = 1767344399000  # 2026-01-02T08:59:59Z in milliseconds
    assert [(row["ts"] - first, row["line"][:5]) for row in events] == [
        (0, b"enter"),
        (1000, b"to be"),
        (1250, b"that "),
    ]


def test_values_are_read_as_other_programs_write_them(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "ts,x,y\n1970-01-01 00:00:01+00,1,-nan\n1970-01-01 05:45:02+0545,2,+inf\n1970-01-01,3,1e400\n"
    (tmp_path / "ü [1].CSV").write_text(text)
    times = [datetime(1970, 1, 1, 0, 0, 3), datetime(9999, 12, 31)]
    more = {"id": pa.array([bytes(16)] * 2, pa.uuid()), "at": pa.array([1, 2], pa.time64("us"))}
    columns = {"ts": pa.array(times, pa.timestamp("us")), "a": [1, 2], "b": [1, 2], "c": [1.0, 2.0], "d": [True] * 2}
    pq.write_table(pa.table(columns | more), tmp_path / "right: {a}.parquet", use_deprecated_int96_timestamps=True)
    files = ["Left=ü [1].CSV", "Right=right: {a}.parquet"]
    assert lockstep("import", "scalejoin", *files, "--out", "w: +é") == 0
    events = [row for table in workload.read(tmp_path / "w: +é", "scalejoin").blocks(9) for row in table.to_pylist()]
    assert [row["ts"] for row in events] == [1_000, 2_000, 3_000, 253_402_214_400_000]
    assert [str(row["y"]) for row in events[:2]] == ["nan", "inf"]
    (aside,) = workload.read_manifest(tmp_path / "w: +é")["imported"]["aside"]
    assert (aside["reason"], aside["row"]) == ("y does not fit f64", 3)


def test_unusable_import_is_refused_before_the_regression_starts(home, tmp_path, capfd):
    (tmp_path / "a.csv").write_text("ts,line\n1,x\n")
    assert lockstep("import", "wc", str(tmp_path / "a.csv"), "--name", "mine") == 0
    capfd.readouterr()
    for data, more, message in (
        ({"wc": "../mine"}, [], "data: invalid import wc/../mine"),
        ({"wc": "nosuch"}, [], "unknown import 'nosuch'; known: mine; create it with `lockstep import wc FILES "),
        ({"gs": "mine"}, [], "data: the request imports events for 'gs' but does not run it"),
        ({"sl": "mine"}, ["--applications", "sl"], "does not fit sl: field "),
    ):
        assert message in refused(capfd, "run", "--applications", "wc", "--data", json.dumps(data), *more)


TWO = ["scalejoin", "Left=a.csv", "Right=a.csv", "--out", "w"]


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
        (
            ["scalejoin", "a.csv", "--out", "w"],
            "stream 'a.csv': write the file or the folder of each stream of ",
        ),
        ([*TWO, "Left=b.csv"], "stream 'Left=b.csv': Left already has the value 'a.csv'"),
        (["scalejoin", "Left=a.csv", "--out", "w"], "app scalejoin: stream Right has no file: add Right=PATH"),
        ([*TWO, "right=b.csv"], "unknown stream of scalejoin 'right' (did you mean 'Right'?); known: Left"),
        ([*TWO, "--map", "Left.a=b"], "the events of scalejoin have no field 'Left.a'; fields: Left.ts"),
        (TWO, "a.csv has no column 'x' for the field x (i64) of scalejoin's stream Left; its columns: ts, line. Name "),
        (["fd", str(tmp_path / "a.csv"), "--out", "w", "--map", "ts=when"], "has no column 'when' for the field ts"),
        (["fd", str(tmp_path / "a.csv"), "--out", "w", "--set", "entities=none"], "entities"),
    ):
        assert message in refused(capfd, "import", *arguments)
