"""Reads a live source as micro-batches of recorded events (`lockstep follow`): a folder that grows, or a Kafka topic.

Structured Streaming decides what makes a micro-batch, and keeps its decisions in a checkpoint before this module sees
them. So it repeats the same micro-batch after a kill. The rows are read as an import reads them (import_events.py):
each row becomes an event or is set aside with a reason. Within a micro-batch, events are sorted by `ts`. A row is set
aside if its `ts` lies before an event of an earlier micro-batch. If the application declares a `delay`, or its events
have no `ts`, all rows keep the order of the source.

A folder:

- A file must be complete when its name appears. Write it under a name that does not match, then rename it. Names that
  begin with '.' or '_', and names with another ending than those of an import, are left alone.
- The files of a micro-batch are ordered by the time of their last change, then by path. All files must have the same
  columns. A file that is removed before it was read is left out.

A topic:

- The value of each record is one JSON object, as a line of a JSON lines file. The records of a micro-batch are ordered
  by partition and offset. The micro-batch keeps them as files, one for each partition, until their rows are recorded.
- Spark's connector for Kafka is no Python package. LOCKSTEP_SPARK_JARS names the folder with its jars.

The session must run in this process: a Spark Connect server would run the callback elsewhere.
"""

from __future__ import annotations

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
from typing import Any, ClassVar

import pyarrow.compute as pc
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from jobs import files, import_events
from jobs.files import COMPRESSED, KINDS
from jobs.session import connector_jars
from streaming_core import interruption
from streaming_core.data import microbatch
from streaming_core.data.microbatch import Position
from streaming_core.data.parts import Parts
from streaming_core.errors import BadInput
from streaming_core.language.application import App
from streaming_core.run.live import BATCHES

CHECKPOINT = "checkpoint"
TRIGGER = "500 milliseconds"
POLL_SECONDS = 0.1
CONNECT_SECONDS = 5
_ENDINGS = [*KINDS, *(kind + packed for kind in KINDS if kind != ".parquet" for packed in COMPRESSED)]


@dataclass(frozen=True)
class Source(ABC):
    """A live source, and how to read its rows.

    Attributes:
        app: The application.
        params: Its parameters.
        mapping: Field -> column, for fields whose column has another name.
        unit: The unit of integers that are read from times, or None.
        separator: The character between the columns of CSV, or None.
        limit: Most items in a micro-batch, by default.
    """

    app: App
    params: dict[str, Any]
    mapping: dict[str, str]
    unit: str | None
    separator: str | None
    limit: ClassVar[int]

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the source: a path or a URL."""

    @abstractmethod
    def stream(self, spark: SparkSession, limit: int) -> DataFrame:
        """The source as Structured Streaming reads it, with at most `limit` of its items in a micro-batch."""

    @abstractmethod
    def origin(self, frame: DataFrame) -> list[Any]:
        """The part of the source that a micro-batch takes, as JSON."""

    @abstractmethod
    def files(self, frame: DataFrame, origin: list[Any], folder: Path) -> list[Path]:
        """The files with the rows of a micro-batch. A source that has no files writes them to the folder."""

    @abstractmethod
    def advice(self) -> BadInput | None:
        """The fault of the source that explains a failure of the query; None if there is none."""

    def check(self) -> None:
        """Raise BadInput unless the application and the options fit the source."""
        if self.app.streams is not None:
            names = ", ".join(self.app.streams.names)
            raise BadInput(f"app {self.app.name} has several streams ({names}); a live run reads one")
        import_events.check_options(self.app, self.mapping, self.unit)

    def about(self) -> dict[str, Any]:
        """The source as JSON values."""
        return {"source": self.name, "map": self.mapping, "unit": self.unit, "separator": self.separator}


@dataclass(frozen=True)
class Folder(Source):
    """A folder that grows. Its items are files."""

    path: Path
    limit = 100

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path.resolve())

    def check(self) -> None:
        """Raise BadInput unless the folder exists, and the options fit the application."""
        super().check()
        if not self.path.is_dir():
            raise BadInput(f"--source {self.path} is not a folder: create it, and let files appear in it")

    def stream(self, spark: SparkSession, limit: int) -> DataFrame:
        """The names of new files. No column with their contents is read."""
        return (
            spark.readStream.format("binaryFile")
            .schema("path string, modificationTime timestamp, length bigint, content binary")
            .option("maxFilesPerTrigger", limit)
            .option("maxFileAge", "36500d")  # by default, Spark leaves out files that are a week older than the newest
            .option("recursiveFileLookup", "true")
            .option("pathGlobFilter", f"*{{{','.join(_ENDINGS)}}}")
            .load(self.name)
        )

    def origin(self, frame: DataFrame) -> list[Any]:
        """The paths of the files, in order."""
        rows = frame.select("path", "modificationTime").orderBy("modificationTime", "path").collect()
        return [row["path"].removeprefix("file:") for row in rows]

    def files(self, frame: DataFrame, origin: list[Any], folder: Path) -> list[Path]:
        """The files that still exist."""
        return [Path(path) for path in origin if os.path.exists(path)]

    def advice(self) -> BadInput | None:
        """A name that Spark cannot read."""
        colon = next((path for path in sorted(self.path.rglob("*:*")) if path.is_file()), None)
        return None if colon is None else BadInput(f"{colon}: Spark cannot read a name with ':' in it; rename the file")


@dataclass(frozen=True)
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

    def check(self) -> None:
        """Raise BadInput unless the connector is there, and the options fit the application."""
        super().check()
        if not any(path.name.startswith("spark-sql-kafka-") for path in connector_jars()):
            raise BadInput(
                f"--source {self.name} needs Spark's connector for Kafka: set LOCKSTEP_SPARK_JARS to the folder with "
                "its jars"
            )
        if not any(map(_listens, self.servers.split(","))):
            raise BadInput(
                f"--source {self.name}: no broker answers at {self.servers}; start it, or correct the address"
            )

    def stream(self, spark: SparkSession, limit: int) -> DataFrame:
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

    def advice(self) -> BadInput | None:
        """Nothing: Spark's own error names the broker or the offset."""
        return None


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
    if "://" not in text:
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
    recorder = _Recorder(source, live / BATCHES)
    stream = source.stream(spark, limit)
    writer = stream.writeStream.foreachBatch(recorder.take).option("checkpointLocation", str(live / CHECKPOINT))
    writer = writer.trigger(availableNow=True) if until_idle == 0 else writer.trigger(processingTime=TRIGGER)
    query = writer.start()
    try:
        yield from _ticks(query, recorder, until_idle)
    finally:
        with suppress(ConnectionError, Py4JNetworkError):  # a signal to all processes ended the JVM first
            query.stop()


def _ticks(query: StreamingQuery, recorder: _Recorder, until_idle: float | None) -> Generator[None, None, None]:
    """Yield after each micro-batch, until the query ends or has been idle for long enough."""
    last, is_over = time.monotonic(), False
    while True:
        interruption.check()
        is_active = query.isActive  # before the queue: what the query recorded last is in it by then
        try:
            recorder.recorded.get(timeout=POLL_SECONDS)
        except queue.Empty:
            if not is_active:
                break
            if until_idle is not None and not recorder.is_at_work and time.monotonic() - last >= until_idle > 0:
                query.stop()
                is_over = True
        else:
            yield
            last = time.monotonic()
    if is_over:
        return
    if recorder.failure is not None:
        raise recorder.failure
    if error := query.exception():
        raise recorder.source.advice() or import_events.failure([], error)


class _Recorder:
    """The callback of the query. It runs in a thread of py4j.

    Attributes:
        source: The source.
        recorded: Has an item for each micro-batch that was recorded.
        is_at_work: Whether a micro-batch is being recorded.
        failure: What ended the query, if this class did.
    """

    def __init__(self, source: Source, root: Path):
        self.source = source
        self.recorded: queue.Queue[int] = queue.Queue()
        self.is_at_work = False
        self.failure: BaseException | None = None
        self._root = root
        self._last: microbatch.MicroBatch | None = None
        for batch in microbatch.read_all(root, source.app, source.params):
            self._last = batch

    def take(self, frame: DataFrame, number: int) -> None:
        """Record a micro-batch, unless it is recorded already."""
        self.is_at_work = True
        try:
            self._take(frame, number)
        except (PySparkException, Py4JError) as error:
            self.failure = import_events.failure([], error)
            raise
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self.is_at_work = False

    def _take(self, frame: DataFrame, number: int) -> None:
        source, before = self.source, self._last.position if self._last is not None else Position()
        taken = source.origin(frame)
        if number != before.batches:
            self._check_repeated(number, taken)
            return
        mark = before.mark if source.app.delay is None else None
        origin: dict[str, Any] = {"taken": taken, "columns": self._columns()}
        named: list[str] = []

        def fill(folder: Path) -> tuple[list[dict[str, Any]], int | None, dict[str, Any]]:
            rows = folder / "rows"
            rows.mkdir()
            paths = source.files(frame, taken, rows)
            named.extend(map(str, paths))
            if not paths:
                rows.rmdir()
                return [], None, {"files": [], "rows": 0, "aside": []}
            request = import_events.request(
                source.app, source.params, paths, source.mapping, source.unit, source.separator
            )
            origin["columns"] = self._check_columns(request.streams[0].files)
            with files.settings(frame.sparkSession):
                request = replace(request, mark=mark)
                parts, about = import_events.write_rows(frame.sparkSession, request, folder, before.total[0])
            shutil.rmtree(rows)
            return parts, _highest(folder), about

        try:
            microbatch.write(self._root, before, origin, fill)
        except (PySparkException, Py4JError) as error:
            raise import_events.failure(named, error) from None
        self._last = microbatch.read(self._root, number, source.app, source.params)
        self.recorded.put(number)

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
        if batch is None or any(one not in batch.manifest["origin"]["taken"] for one in taken):
            raise BadInput(
                f"the checkpoint in {self._root.parent} does not belong to its micro-batches: choose a new run folder"
            )


def _list(columns: dict[str, str]) -> str:
    return ", ".join(name if kind == "None" else f"{name} {kind}".strip() for name, kind in columns.items())


def _highest(folder: Path) -> int | None:
    """The highest `ts` of the events in a folder; None without events, or without the field."""
    events = Parts.of(folder / "events")
    if not events.rows or "ts" not in events.schema.names:
        return None
    return max(pc.max(table["ts"]).as_py() for table in events.slices(files.BATCH_ROWS, ["ts"]))
