"""Reads a live source as micro-batches of recorded events (`lockstep follow`): a folder that grows, or a Kafka topic.

Structured Streaming decides what makes a micro-batch. The recorded micro-batches alone say what was read. The rows are
read as an import reads them (importing/events.py): each row becomes an event or is set aside with a reason. Within a
micro-batch, events are sorted by `ts`. A row is set aside if its `ts` lies before an event of an earlier micro-batch.
If the application declares a `delay`, or its events have no `ts`, all rows keep the order of the source.

A folder:

- A file must be complete when its name appears. Write it under a name that does not match, then rename it. Names that
  begin with '.' or '_' are left alone.
- This module lists the folder, by the rules of an import. It writes a note about each new file, and Spark takes the
  notes. So the names may have any characters, and a file that replaces another is read too.
- Spark never forgets a file. So each query begins with a new checkpoint and without notes, and ends after MOST_FILES.
  The file `seen` has a line for each file of a recorded micro-batch. A line goes away once its micro-batch was dropped
  and the file was removed.
- New files are ordered by the time of their last change, then by path. All files must have the same columns.
- At the end of the stream, `left` names each file that was seen but not read, with the reason.

A topic:

- The value of each record is one JSON object, as a line of a JSON lines file. The records of a micro-batch are ordered
  by partition and offset. The micro-batch keeps them as files, one for each partition, until their rows are recorded.
- Spark's checkpoint keeps the offsets from query to query. Spark repeats the same micro-batch after a kill, and keeps
  the last 100 of them.
- Spark's connector for Kafka is no Python package. LOCKSTEP_SPARK_JARS names the folder with its jars.

The session must run in this process: a Spark Connect server would run the callback elsewhere.
"""

from __future__ import annotations

import json
import math
import os
import queue
import re
import shutil
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pyarrow.compute as pc
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from jobs.session import connector_jars
from streaming_core import interruption, storage
from streaming_core.data import microbatch
from streaming_core.data.microbatch import Position
from streaming_core.data.parts import Parts
from streaming_core.data.workload import NewPart
from streaming_core.errors import BadInput, CommandFailed
from streaming_core.importing import events, files, paths
from streaming_core.language.application import App
from streaming_core.run.live import BATCHES, LEFT

CHECKPOINT = "checkpoint"
NOTES = "notes"
SEEN = "seen"
MOST_FILES = 50_000  # that one query reads
TRIGGER = "500 milliseconds"
POLL_SECONDS = 0.25
CONNECT_SECONDS = 5


@dataclass
class Source(ABC):
    """A live source, and how to read its rows.

    Attributes:
        app: The application.
        params: Its parameters.
        mapping: Field -> column, for fields whose column has another name.
        separator: The character between the columns of CSV, or None.
        limit: Most items in a micro-batch, by default.
    """

    app: App
    params: dict[str, Any]
    mapping: dict[str, str]
    separator: str | None
    limit: ClassVar[int]

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the source: a path or a URL."""

    def begin(self, live: Path) -> int:
        """Prepare a query in the folder of a live run. Return the number of the micro-batch that Spark calls 0."""
        return 0

    @abstractmethod
    def stream(self, spark: SparkSession, live: Path, limit: int) -> DataFrame:
        """The source as Structured Streaming reads it, with at most `limit` of its items in a micro-batch."""

    def settle(self, batch: microbatch.MicroBatch) -> None:
        """Take note of a micro-batch that was recorded."""
        return

    @abstractmethod
    def is_idle(self, query: StreamingQuery) -> bool | None:
        """Look for new items. Whether all are recorded, or None while this is unknown."""

    @property
    def is_worn(self) -> bool:
        """Whether another query should follow once this one is idle."""
        return False

    @abstractmethod
    def origin(self, frame: DataFrame) -> list[Any]:
        """The part of the source that a micro-batch takes, as JSON."""

    @abstractmethod
    def files(self, frame: DataFrame, origin: list[Any], folder: Path) -> list[Path]:
        """The files with the rows of a micro-batch. A source that has no files writes them to the folder."""

    def left(self) -> list[str]:
        """The items that were seen but not read, each with the reason. Only files can be left."""
        return []

    def check(self, out: Path) -> None:
        """Raise BadInput unless the application, the options and the run folder fit the source."""
        if self.app.streams is not None:
            names = ", ".join(self.app.streams.names)
            raise BadInput(f"app {self.app.name} has several streams ({names}); a live run reads one")
        events.check_mapping(self.app, self.mapping)

    def about(self) -> dict[str, Any]:
        """The source as JSON values."""
        return {"source": self.name, "map": self.mapping, "separator": self.separator}


@dataclass
class Folder(Source):
    """A folder that grows. Its items are files, as [number of the note, path, inode, time of the last change, size]."""

    path: Path
    limit = 100

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path.resolve())

    def check(self, out: Path) -> None:
        """Raise BadInput unless the folder exists, and the options and the run folder fit."""
        super().check(out)
        if not self.path.is_dir():
            raise BadInput(f"--source {self.path} is not a folder: create it, and let files appear in it")
        if out.resolve().is_relative_to(self.path.resolve()):
            raise BadInput(f"--out {out} lies in --source {self.path}: choose a folder outside")
        if pattern := re.search(r"[][{}*?\\]", str(out.resolve())):
            raise BadInput(f"--out {out.resolve()}: Spark reads {pattern[0]} as a pattern; choose a name without it")

    def begin(self, live: Path) -> int:
        """Remove Spark's checkpoint and all notes, and read which files were seen."""
        for name in (CHECKPOINT, NOTES):
            shutil.rmtree(live / name, ignore_errors=True)
        (live / NOTES).mkdir()
        self._live, self._notes = live, 0
        self._noted: dict[tuple[str, int], Path] = {}  # notes about files that no recorded micro-batch took
        recorded, there = microbatch.numbers(live / BATCHES), self._there()
        seen = [_Seen(*values) for values in _lines(live / SEEN)]
        needed = [file for file in seen if file.batch >= recorded.start or (file.path, file.inode) in there]
        self._seen = {(file.path, file.inode): file for file in needed}
        settled = max((file.batch + 1 for file in needed), default=0)
        for batch in microbatch.read_all(live / BATCHES, self.app, self.params, max(settled, recorded.start)):
            self._seen |= _seen_in(batch)
        storage.write_text(live / SEEN, "".join(map(_line, self._seen.values())))
        self._note()
        return recorded.stop

    def stream(self, spark: SparkSession, live: Path, limit: int) -> DataFrame:
        """The notes about the files."""
        return (
            spark.readStream.option("maxFilesPerTrigger", limit)
            .option("maxFileAge", "36500d")  # by default, Spark leaves out files that are a week older than the newest
            .text(str((live / NOTES).resolve()))
        )

    def _note(self) -> None:
        """Write a note about each new file, which Spark finds."""
        for path, inode, changed, size in self._listed()[0]:
            if (path, inode) in self._noted or (path, inode) in self._seen:
                continue
            note = self._live / NOTES / f"{self._notes:09d}"
            hidden = note.with_name(f".{note.name}")
            hidden.write_text(json.dumps([self._notes, path, inode, changed, size]))
            self._notes += 1
            os.utime(hidden, (self._notes, self._notes))  # Spark takes the oldest first
            hidden.rename(note)
            self._noted[path, inode] = note

    def settle(self, batch: microbatch.MicroBatch) -> None:
        """Write lines about the files of a recorded micro-batch, and remove their notes."""
        seen = _seen_in(batch)
        with open(self._live / SEEN, "a") as file:
            file.writelines(map(_line, seen.values()))
            file.flush()
            os.fsync(file.fileno())
        self._seen |= seen
        for key in seen:
            self._noted.pop(key).unlink()

    def _listed(self) -> tuple[list[tuple[str, int, int, int]], list[str]]:
        """Each file with its inode, the time of its last change and its size; and why others cannot be read."""
        listed, refused = [], []
        for path in paths.within(Path(self.name)):
            try:
                about = os.stat(paths.regular_file(path, None))
                files.kind_of(path)
                listed.append((str(path), about.st_ino, about.st_mtime_ns, about.st_size))
            except FileNotFoundError:
                continue
            except BadInput as error:
                refused.append(str(error))
        return sorted(listed, key=lambda entry: (entry[2], entry[0])), refused

    def _there(self) -> set[tuple[str, int]]:
        """Path and inode of each file that exists."""
        return {(path, inode) for path, inode, *_ in self._listed()[0]}

    def is_idle(self, query: StreamingQuery) -> bool | None:
        """Write notes about new files. Whether each file with a note is recorded."""
        if not self.is_worn:
            self._note()
        return not self._noted

    @property
    def is_worn(self) -> bool:
        """Whether the query has seen so many files that it gets no more notes."""
        return self._notes >= MOST_FILES

    def origin(self, frame: DataFrame) -> list[Any]:
        """The files, in order."""
        return sorted(json.loads(row["value"]) for row in frame.collect())

    def files(self, frame: DataFrame, origin: list[Any], folder: Path) -> list[Path]:
        """The files that still exist."""
        there = self._there()
        return [Path(path) for _, path, inode, *_ in origin if (path, inode) in there]

    def left(self) -> list[str]:
        """The files that were seen but not read, each with the reason."""
        listed, left = self._listed()
        there = {(path, inode): (changed, size) for path, inode, changed, size in listed}
        for key, file in self._seen.items():
            if not file.was_read:
                left.append(f"{file.path} was removed or replaced before it was read")
            elif there.get(key, (file.changed, file.size)) != (file.changed, file.size):
                left.append(f"{file.path} changed after it was seen, and was not read again")
        return left + [f"{path} appeared after the last micro-batch" for path, _ in sorted(there.keys() - self._seen)]


class _Seen(NamedTuple):
    """A file that a recorded micro-batch took: its path, inode, time of the last change and size.

    `was_read` says whether the micro-batch has its rows: it has not if the file was removed or replaced before.
    """

    path: str
    inode: int
    changed: int
    size: int
    was_read: bool
    batch: int


def _seen_in(batch: microbatch.MicroBatch) -> dict[tuple[str, int], _Seen]:
    """The files that a micro-batch took, by path and inode."""
    names, taken = set(batch.manifest["imported"]["files"]), batch.manifest["origin"]["taken"]
    latest = {path: inode for _, path, inode, *_ in taken}
    return {
        (path, inode): _Seen(
            path, inode, changed, size, path in names and latest[path] == inode, batch.manifest["number"]
        )
        for _, path, inode, changed, size in taken
    }


def _line(seen: _Seen) -> str:
    return json.dumps(seen) + "\n"


def _lines(path: Path) -> list[list[Any]]:
    """The values of each line; a kill leaves no more than one line unfinished, and no line behind it."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


@dataclass
class Topic(Source):
    """A topic of Kafka. Its items are records.

    Attributes:
        servers: The brokers, as `HOST:PORT,...`.
        topic: The topic.
    """

    servers: str
    topic: str
    limit = 100_000

    @property
    def name(self) -> str:
        """The URL."""
        return f"kafka://{self.servers}/{self.topic}"

    def check(self, out: Path) -> None:
        """Raise BadInput unless the connector is there, and the options fit the application."""
        super().check(out)
        if not any(path.name.startswith("spark-sql-kafka-") for path in connector_jars()):
            raise BadInput(
                f"--source {self.name} needs Spark's connector for Kafka: set LOCKSTEP_SPARK_JARS to the folder with "
                "its jars"
            )
        if not any(map(_listens, self.servers.split(","))):
            raise BadInput(
                f"--source {self.name}: no broker answers at {self.servers}; start it, or correct the address"
            )

    def stream(self, spark: SparkSession, live: Path, limit: int) -> DataFrame:
        """The records of all partitions, from the first one on."""
        return (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.servers)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", limit)
            .load()
        )

    def origin(self, frame: DataFrame) -> list[Any]:
        """The first and the last offset of each partition, as [partition, first, last]."""
        offsets = frame.groupBy("partition").agg(F.min("offset").alias("first"), F.max("offset").alias("last"))
        return [list(row) for row in offsets.orderBy("partition").collect()]

    def files(self, frame: DataFrame, origin: list[Any], folder: Path) -> list[Path]:
        """A file for each partition, with a line for each record."""
        paths = []
        for partition, first, _ in origin:
            paths.append(folder / f"{self.topic}-{partition}-from-{first}.json")
            records = frame.where(F.col("partition") == partition).orderBy("offset").select("value").toArrow()
            with open(paths[-1], "wb") as file:
                for value in records["value"].to_pylist():
                    # JSON has no line breaks in its texts, and elsewhere they mean as much as a space.
                    file.write((value or b"null").replace(b"\n", b" ").replace(b"\r", b" ") + b"\n")
        return paths

    def is_idle(self, query: StreamingQuery) -> bool | None:
        """Whether the query waits after it found no records. It is unknown until the query has looked for some."""
        status = query.status
        return False if status["isDataAvailable"] else status["message"].startswith("Waiting") or None


def _listens(server: str) -> bool:
    """Whether a connection to HOST:PORT succeeds. Kafka's own client would wait for minutes."""
    host, _, port = server.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), CONNECT_SECONDS):
            return True
    except (OSError, OverflowError):
        return False


def source_of(app: App, params: dict[str, Any], text: str, **options: Any) -> Source:
    """The source that a text names: a path, or `kafka://HOST:PORT/TOPIC`.

    Args:
        app: The application.
        params: Its parameters.
        text: The path or the URL.
        options: The other attributes of Source.

    Raises:
        BadInput: The text is a URL of another form.
    """
    if text and "://" not in text:
        return Folder(app, params, path=Path(text), **options)
    url = re.fullmatch(r"kafka://([^/\s,:]+:\d+(?:,[^/\s,:]+:\d+)*)/([A-Za-z0-9._-]+)", text)
    if url is None:
        raise BadInput(f"--source {text!r}: give a folder, or kafka://HOST:PORT/TOPIC")
    return Topic(app, params, servers=url[1], topic=url[2], **options)


def feed(
    spark: SparkSession, source: Source, live: Path, limit: int, until_idle: float | None
) -> Generator[None, None, None]:
    """Record micro-batches, and yield after each.

    Args:
        spark: A session in this process.
        source: The source.
        live: The folder of a live run (run/live.py).
        limit: Most files or records in a micro-batch.
        until_idle: Seconds without new rows after which the stream ends. 0 takes what exists. None means
            that it never ends.

    Raises:
        BadInput: A file is damaged, or does not fit. The micro-batch is not recorded.
        CommandFailed: Spark fails, or the disk is full.
    """
    while True:
        recorder = _Recorder(source, live)
        stream = source.stream(spark, live, limit)
        writer = stream.writeStream.foreachBatch(recorder.take).option(
            "checkpointLocation", str(live.resolve() / CHECKPOINT)
        )
        writer = writer.trigger(availableNow=True) if until_idle == 0 else writer.trigger(processingTime=TRIGGER)
        query = writer.start()
        try:
            is_over = yield from _ticks(query, recorder, until_idle)
        finally:
            with suppress(ConnectionError, Py4JNetworkError):  # a signal to all processes ended the JVM first
                query.stop()
        if is_over:
            break
    storage.write_json(live / LEFT, {"left": source.left()})


def _ticks(query: StreamingQuery, recorder: _Recorder, until_idle: float | None) -> Generator[None, None, bool]:
    """Yield after each micro-batch and while none comes. Return whether the stream is over; else the query is worn."""
    source, idle_since = recorder.source, math.inf
    is_over = is_stopped = False
    while True:
        interruption.check()
        is_active = query.isActive  # before the queue: what the query recorded last is in it by then
        try:
            source.settle(recorder.recorded.get(timeout=POLL_SECONDS))
            idle_since = math.inf
        except queue.Empty:
            if not is_active:
                break
            if until_idle != 0 and not is_stopped:
                is_idle, now = source.is_idle(query), time.monotonic()
                idle_since = math.inf if is_idle is False else min(idle_since, now) if is_idle else idle_since
                is_over = until_idle is not None and now - idle_since >= until_idle
                if is_over or (is_idle and source.is_worn):
                    query.stop()  # what it records until then comes next
                    is_stopped = True
        yield
    if is_stopped:
        return is_over
    if recorder.failure is not None:
        raise recorder.failure
    if error := query.exception():
        raise failure(error)
    return not source.is_worn


class _Recorder:
    """The callback of a query. It runs in a thread of py4j.

    Attributes:
        source: The source.
        recorded: Receives each micro-batch that was recorded.
        failure: What ended the query, if this class did.
    """

    def __init__(self, source: Source, live: Path):
        self.source = source
        self.recorded: queue.Queue[microbatch.MicroBatch] = queue.Queue()
        self.failure: BaseException | None = None
        self._root = live / BATCHES
        numbers = microbatch.numbers(self._root)
        self._last = microbatch.read(self._root, numbers[-1], source.app, source.params) if numbers else None
        self._first = source.begin(live)

    def take(self, frame: DataFrame, number: int) -> None:
        """Record a micro-batch, unless it is recorded already."""
        try:
            self._take(frame, self._first + number)
        except (PySparkException, Py4JError) as error:
            self.failure = failure(error)
            raise
        except BaseException as error:
            self.failure = error
            raise

    def _take(self, frame: DataFrame, number: int) -> None:
        source, before = self.source, self._last.position if self._last is not None else Position()
        taken = source.origin(frame)
        if number != before.batches:
            self._check_repeated(number, taken)
            return
        mark = before.mark if source.app.delay is None else None
        origin: dict[str, Any] = {"taken": taken, "columns": self._columns()}

        def fill(folder: Path) -> tuple[list[NewPart], int | None, dict[str, Any]]:
            rows = folder / "rows"
            rows.mkdir()
            named = source.files(frame, taken, rows)
            if not named:
                rows.rmdir()
                return [], None, {"files": [], "rows": 0, "aside": []}
            request = events.request(source.app, source.params, named, source.mapping, source.separator)
            origin["columns"] = self._check_columns(request.streams[0].files)
            parts, about = events.write_rows(replace(request, mark=mark), folder, before.total[0])
            shutil.rmtree(rows)
            return parts, _highest(folder), about

        try:
            microbatch.write(self._root, before, origin, fill)
        except (PySparkException, Py4JError) as error:
            raise failure(error) from None
        self._last = microbatch.read(self._root, number, source.app, source.params)
        assert self._last is not None
        self.recorded.put(self._last)

    def _columns(self) -> dict[str, str] | None:
        """The columns of all files so far."""
        return self._last.manifest["origin"]["columns"] if self._last is not None else None

    def _check_columns(self, batch: files.Files) -> dict[str, str] | None:
        """The columns of all files; raise BadInput if those of this micro-batch differ from earlier ones."""
        columns = {name: str(kind) for name, kind in (batch.columns or {}).items()} | {"": batch.kind}
        earlier = self._columns()
        if earlier is not None and earlier != columns:
            raise BadInput(
                f"{batch.names[0]} has other columns than the files before ({_list(columns)}; {_list(earlier)}): "
                "remove it, or follow it in a run of its own"
            )
        return columns

    def _check_repeated(self, number: int, taken: list[Any]) -> None:
        """Raise BadInput unless a micro-batch that Spark repeats is the one that was recorded."""
        batch = microbatch.read(self._root, number, self.source.app, self.source.params)
        if batch is None or any(entry not in batch.manifest["origin"]["taken"] for entry in taken):
            raise BadInput(
                f"the checkpoint in {self._root.parent} does not belong to its micro-batches: choose a new run folder"
            )


def failure(error: Exception) -> CommandFailed:
    """The error for a failure of Spark."""
    text = str(error)
    cause = re.findall(r"Caused by: [\w.$]*?(\w+Exception: .*)", text)
    reason = (cause[-1] if cause else text.strip().partition("\n")[0])[:200]
    return CommandFailed(f"Spark failed: {reason}")


def _list(columns: dict[str, str]) -> str:
    return ", ".join(name if kind == "None" else f"{name} {kind}".strip() for name, kind in columns.items())


def _highest(folder: Path) -> int | None:
    """The highest `ts` of the events in a folder; None without events, or without the field."""
    events = Parts.of(folder / "events")
    if not events.rows or "ts" not in events.schema.names:
        return None
    return max(pc.max(table["ts"]).as_py() for table in events.slices(files.BATCH_ROWS, ["ts"]))
