"""Files in a folder become recorded micro-batches once and in order, whatever happens in between."""

import json
import os
import random
from itertools import cycle
from pathlib import Path

import pytest

from jobs import live
from streaming_core.apps import registry
from streaming_core.data import microbatch, workload
from streaming_core.data.microbatch import Position
from streaming_core.data.parts import Parts
from streaming_core.run import live as live_run
from tests.differential.test_live import content
from tests.infra.cli.conftest import lockstep
from tests.support.waiting import wait_for

FILES = {
    "a.csv": "ts,line\n2,to be\n1,or not\nx,to be\n",
    "b b.csv": "ts,line\n1,a late row\n7,that is\n",
    "c%20[c].csv": "ts,line\n7,the question\n9,whether\n",
}


class Killed(Exception):
    """Stands for the end of the process."""


def killed(*_: object) -> None:
    raise Killed


def killed_after(written):
    def then(*arguments: object) -> None:
        written(*arguments)
        raise Killed

    return then


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for number, (name, text) in enumerate(FILES.items()):
        (folder / name).write_text(text)
        os.utime(folder / name, (number, number))
    (folder / "d.csv.tmp").write_text("unfinished")
    return folder


def run(source: Path, out: Path, *more: str) -> int:
    options = ["--executor", "pooled", "--threads", "1", "--limit", "1", "--until-idle", "0", *more]
    return lockstep("follow", "wc", "--source", str(source), "--out", str(out), *options)


def events(out: Path) -> list[tuple[int, str]]:
    blocks = workload.read(out / live_run.WORKLOAD, "wc").blocks(100)
    return [(row["ts"], row["line"].decode()) for table in blocks for row in table.to_pylist()]


@pytest.mark.slow
def test_files_are_followed_and_a_killed_run_resumes(session, source, tmp_path, monkeypatch, capsys):
    assert run(source, tmp_path / "whole") == 0
    output = capsys.readouterr()
    assert "micro-batch 1: 1 files, 1 events, 1 rows set aside, 2 outputs" in output.err
    assert "equal: 9 outputs" in output.out
    late = [(7, "that is"), (7, "the question"), (9, "whether")]
    assert events(tmp_path / "whole") == [(1, "or not"), (2, "to be"), *late]
    aside = Parts.of(tmp_path / "whole" / "workload" / "aside").read(["_file", "_row", "_reason"]).to_pylist()
    assert [tuple(row.values()) for row in aside] == [
        (str(source / "a.csv"), 3, "ts is neither an integer nor a time"),
        (str(source / "b b.csv"), 1, "ts is before the highest ts of an earlier micro-batch"),
    ]

    out = tmp_path / "killed"
    moments = {
        "the offsets are in Spark's checkpoint": (microbatch, "write", killed),
        "the micro-batch is recorded": (microbatch, "write", killed_after(microbatch.write)),
        "the outputs of a micro-batch are written": (live_run, "write_whole", killed_after(live_run.write_whole)),
        "the run is closed": (microbatch, "seal", killed),
    }
    executors = cycle(["pooled", "pinned", "morsel"])
    for moment, (module, name, replacement) in moments.items():
        with monkeypatch.context() as patch:
            patch.setattr(module, name, replacement)
            assert run(source, out, "--no-verify", "--checkpoint", "1", "--executor", next(executors)) != 0
        assert not (out / "report.json").exists(), moment
    assert run(source, out) == 0
    assert content(out) == content(tmp_path / "whole")
    assert not [path.name for path in out.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_worn_query_is_followed_by_another_one(session, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(live, "MOST_FILES", 2)
    source = tmp_path / "source"
    source.mkdir()
    for number in range(5):
        (source / f"{number}.csv").write_text(f"ts,line\n{number},word\n")
        os.utime(source / f"{number}.csv", (number, number))
    assert run(source, tmp_path / "out", "--no-verify", "--until-idle", "1") == 0
    assert [ts for ts, _ in events(tmp_path / "out")] == [*range(5)]


def test_files_are_seen_once_and_forgotten_after_their_events(tmp_path):
    """Over processes that end at any step, while files appear and go away, and old micro-batches are dropped."""
    draws, app = random.Random(3), registry.load("wc")
    incoming, folder = tmp_path / "incoming", tmp_path / "live"
    root = folder / "batches"
    incoming.mkdir()
    root.mkdir(parents=True)
    taken: list[str] = []
    for number in range(30):
        (incoming / f"{number}.csv").write_text("ts,line\n")
        source = live.source_of(app, app.bind({}), str(incoming), mapping={}, separator=None)
        assert source.begin(folder) == microbatch.numbers(root).stop
        notes = sorted((folder / "notes").iterdir())
        for note in draws.sample(notes, draws.randint(0, len(notes))):
            recorded = microbatch.numbers(root)
            before = Position(recorded.stop, (0, 0))
            origin = {"taken": [json.loads(note.read_text())]}
            about = {"files": [origin["taken"][0][1]], "rows": 0, "aside": []}
            microbatch.write(root, before, origin, lambda at, about=about: ([], None, about))
            taken.append(origin["taken"][0][1])
            if draws.random() < 0.3:
                break  # the process ends before it has settled the micro-batch
            source.settle(microbatch.read(root, recorded.stop, app, {}))
            assert not note.exists()
        recorded = microbatch.numbers(root)
        for old in recorded[: draws.randint(0, max(0, len(recorded) - 1))]:
            microbatch.drop(root, old)
        for path in draws.sample(taken, draws.randint(0, len(taken))):
            Path(path).unlink(missing_ok=True)
    source.begin(folder)
    lines = [json.loads(line) for line in (folder / "seen").read_text().splitlines()]
    assert len(taken) == len(set(taken))
    first, there = microbatch.numbers(root).start, {str(path) for path in incoming.iterdir()}
    assert {line[0] for line in lines} == {path for n, path in enumerate(taken) if n >= first or path in there}


@pytest.mark.slow
def test_every_file_is_read_or_named(session, tmp_path, monkeypatch, capsys):
    """While other programs replace, change and add files."""
    source = tmp_path / "source: [1]{x}"
    source.mkdir()
    monkeypatch.chdir(tmp_path)
    for name, text in {"a.CSV": "1,a\n", "ü:[b]*.csv": "2,b\nx,b\n"}.items():
        (source / name).write_text(f"ts,line\n{text}")
    # The first listing of Spark takes longer than this.
    arguments = ["wc", "--threads", "1", "--source", str(source), "--out", "out", "--until-idle", "0.01"]
    with monkeypatch.context() as patch:
        patch.setattr(microbatch, "write", killed_after(microbatch.write))
        assert lockstep("follow", *arguments) != 0
    (source / "new").write_text("ts,line\n3,c\n")
    (source / "new").rename(source / "a.CSV")
    with open(source / "ü:[b]*.csv", "a") as file:
        file.write("4,d\n")
    (source / "n.txt").touch()
    os.mkfifo(source / "f.csv")
    (source / "loop").symlink_to(source)
    (source / os.fsdecode(b"\xff.csv")).touch()
    capsys.readouterr()
    assert lockstep("follow", *arguments) == 0
    first, counts, *lines, equal = capsys.readouterr().out.splitlines()
    assert first.startswith("out: 3 events, 3 outputs")
    assert counts == "source: 8 files seen, 3 read, 5 set aside; 4 rows seen, 3 read, 1 set aside"
    assert lines[1].endswith(f"1  ts is neither an integer nor a time (first: {source}/ü:[b]*.csv, row 2)")
    assert [line.removeprefix(f"not read: {source}/").partition(":")[0] for line in lines[2:5]] == [
        "f.csv is a FIFO",
        "loop is a link to a folder",
        "n.txt",
    ]
    assert "\\xff.csv' is not a name in UTF-8" in lines[5]
    assert lines[6:] == [f"not read: {source}/ü:[b]*.csv changed after it was seen, and was not read again"]
    assert equal.startswith("equal: 3 outputs")


def test_topic_is_idle_when_its_query_waits_for_records(spark, tmp_path):
    app, answers = registry.load("wc"), []
    topic = live.Topic(app, app.bind({}), {}, None, servers="localhost:9092", topic="lines")
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a").write_text("a\n")
    writer = spark.readStream.text(str(tmp_path / "source")).writeStream
    query = writer.foreachBatch(lambda *_: answers.append(topic.is_idle(query))).start()
    try:
        query.processAllAvailable()
        wait_for(lambda: topic.is_idle(query) is True, 60)
    finally:
        query.stop()
    assert answers == [False]


@pytest.mark.slow
def test_mismatched_file_stops_the_run_until_it_is_removed(session, source, tmp_path, capsys):
    (source / "bad.csv").write_text("ts,word\n1,x\n")
    os.utime(source / "a.csv")
    assert run(source, tmp_path / "out") == 2
    assert "bad.csv has no column 'line'" in capsys.readouterr().err
    assert list((tmp_path / "out" / "outputs").iterdir())
    (source / "bad.csv").unlink()
    assert run(source, tmp_path / "out") == 0
    assert [ts for ts, _ in events(tmp_path / "out")] == [1, 7, 7, 9]  # those of a.csv are too late by now


def test_mismatched_command_leaves_the_folder_to_the_next_one(session, source, tmp_path, capsys):
    assert run(source, tmp_path / "out", "--map", "line=text") == 2
    assert "a.csv has no column 'text'" in capsys.readouterr().err
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["wc", "--source", "none"], "--source none is not a folder"),
        (["wc", "--source", "kafka://localhost:9092/topic"], "set LOCKSTEP_SPARK_JARS"),
        (["wc", "--source", "s3://bucket"], "give a folder, or kafka://HOST:PORT/TOPIC"),
        (["wc", "--source", "kafka://localhost/topic"], "give a folder, or kafka://HOST:PORT/TOPIC"),
        (["wc", "--source", ""], "--source must not be empty"),
        (["wc", "--source", "."], "--out out lies in --source .: choose a folder outside"),
        (["wc", "--source", "in", "--out", "in"], "--out in lies in --source in"),
        (["wc", "--source", "in", "--out", "a[1]"], "Spark reads [ as a pattern; choose a name without it"),
        (["nope", "--source", "in"], "nope"),
        (["scalejoin", "--source", "in"], "has several streams"),
        (["wc", "--source", "in", "--map", "word=x"], "have no field 'word'"),
        (["auto.json", "--source", "in"], "not plan auto"),
        (["wc", "--source", "in", "--executor", "spark"], "runs only in a regression"),
        (["wc", "--source", "in", "--until-idle", "-1"], "--until-idle"),
        (["wc", "--source", "in", "--keep", "7"], "--keep must be a number of days, hours, minutes or seconds"),
        (["wc", "--source", "in", "--checkpoint", "soon"], "--checkpoint"),
        (["wc", "--source", "in", "--executor", "pinned", "--checkpoint", "10s", "--keep", "1 d"], "got '1 d'"),
    ],
)
def test_bad_request_is_one_line_and_writes_nothing(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "auto.json").write_text(
        '{"app": "wc", "params": {}, "executor": "pinned", "threads": 2, "plan": "auto"}'
    )
    assert lockstep("follow", "--out", "out", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["auto.json", "in"]


def test_silent_broker_is_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(live, "connector_jars", lambda: [Path("spark-sql-kafka-0-10_2.13-4.1.3.jar")])
    assert lockstep("follow", "wc", "--source", "kafka://127.0.0.1:1/topic", "--out", str(tmp_path / "out")) == 2
    assert "no broker answers at 127.0.0.1:1; " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_status_of_a_folder_without_a_live_run_is_refused(tmp_path, capsys):
    assert lockstep("status", str(tmp_path)) == 2
    assert capsys.readouterr().err == f"lockstep: {tmp_path} holds no live run; `lockstep follow` makes one\n"


def test_folder_of_another_run_is_refused(tmp_path, source, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = live.source_of(registry.load("wc"), {}, str(source), mapping={"line": "text"}, separator=None)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / live_run.REQUEST).write_text(json.dumps(other.about()))
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine.txt").touch()
    for out, message in {"out": "holds a live run with another", "used": "already holds mine.txt"}.items():
        assert lockstep("follow", "wc", "--source", str(source), "--out", out) == 2
        assert message in capsys.readouterr().err
