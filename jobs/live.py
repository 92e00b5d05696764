"""Reads a live source as micro-batches of recorded events: a folder that grows (`lockstep follow`).

Structured Streaming decides which files make a micro-batch, and keeps its decisions in a checkpoint before this module
sees them. So it repeats the same micro-batch after a kill. The rows are read as an import reads them
(import_events.py): each row becomes an event or is set aside with a reason.

- A file must be complete when its name appears. Write it under a name that does not match, then rename it. Names that
  begin with '.' or '_', and names with another ending than those of an import, are left alone.
- The files of a micro-batch are ordered by the time of their last change, then by path. Within a micro-batch, events
  are sorted by (ts, file, row). A row is set aside if its `ts` lies before an event of an earlier micro-batch. If the
  application declares a `delay`, or its events have no `ts`, all rows keep the order of files and rows.
- All files must have the same columns.
- A file that is removed before it was read is left out; the manifest counts its rows as zero.

The session must run in this process: a Spark Connect server would run the callback elsewhere.
"""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from jobs import files, import_events
from jobs.files import COMPRESSED, KINDS
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
_ENDINGS = [*KINDS, *(kind + packed for kind in KINDS if kind != ".parquet" for packed in COMPRESSED)]
# Spark takes only the names of files from this source: it reads no column with contents.
_FILES = "path string, modificationTime timestamp, length bigint, content binary"


@dataclass(frozen=True)
class Source:
    """A folder that grows, and how to read its files.

    Attributes:
        app: The application.
        params: Its parameters.
        folder: The folder.
        mapping: Field -> column, for fields whose column has another name.
        unit: The unit of integers that are read from times, or None.
        separator: The character between the columns of CSV, or None.
    """

    app: App
    params: dict[str, Any]
    folder: Path
    mapping: dict[str, str]
    unit: str | None = None
    separator: str | None = None

    def check(self) -> None:
        """Raise BadInput unless the folder exists, and the options fit the application."""
        if self.app.streams is not None:
            names = ", ".join(self.app.streams.names)
            raise BadInput(f"app {self.app.name} has several streams ({names}); a live run reads one")
        if not self.folder.is_dir():
            raise BadInput(f"--source {self.folder} is not a folder: create it, and let files appear in it")
        import_events.check_options(self.app, self.mapping, self.unit)

    def about(self) -> dict[str, Any]:
        """The source as JSON values."""
        return {
            "source": str(self.folder.resolve()),
            "map": self.mapping,
            "unit": self.unit,
            "separator": self.separator,
        }


def feed(
    spark: SparkSession, source: Source, live: Path, limit: int, until_idle: float | None
) -> Generator[None, None, None]:
    """Record micro-batches, and yield after each.

    Args:
        spark: A session in this process.
        source: The source.
        live: The folder of a live run (run/live.py).
        limit: Most files in a micro-batch.
        until_idle: Seconds without new files after which the stream ends. 0 takes the files that exist. None means
            that it never ends.

    Raises:
        BadInput: A file is damaged, or does not fit. The micro-batch is not recorded.
        CommandFailed: Spark fails, or the disk is full.
    """
    recorder = _Recorder(source, live / BATCHES)
    stream = (
        spark.readStream.format("binaryFile")
        .schema(_FILES)
        .option("maxFilesPerTrigger", limit)
        .option("maxFileAge", "36500d")  # Spark would silently leave out files that are a week older than the newest
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", f"*{{{','.join(_ENDINGS)}}}")
        .load(str(source.folder.resolve()))
    )
    writer = stream.writeStream.foreachBatch(recorder.take).option("checkpointLocation", str(live / CHECKPOINT))
    writer = writer.trigger(availableNow=True) if until_idle == 0 else writer.trigger(processingTime=TRIGGER)
    query = writer.start()
    try:
        yield from _ticks(query, recorder, until_idle)
    finally:
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
        if colon := next((path for path in sorted(recorder.folder.rglob("*:*")) if path.is_file()), None):
            raise BadInput(f"{colon}: Spark cannot read a name with ':' in it; rename the file")
        raise import_events.failure([], error)


class _Recorder:
    """The callback of the query. It runs in a thread of py4j.

    Attributes:
        folder: The folder of the source.
        recorded: Has an item for each micro-batch that was recorded.
        is_at_work: Whether a micro-batch is being recorded.
        failure: What ended the query, if this class did.
    """

    def __init__(self, source: Source, root: Path):
        self.folder = source.folder
        self.recorded: queue.Queue[int] = queue.Queue()
        self.is_at_work = False
        self.failure: BaseException | None = None
        self._source, self._root = source, root
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
        before = self._last.position if self._last is not None else Position()
        rows = frame.select("path", "modificationTime").orderBy("modificationTime", "path").collect()
        paths = [row["path"].removeprefix("file:") for row in rows]
        if number != before.batches:
            self._check_repeated(number, paths)
            return
        here = [Path(path) for path in paths if os.path.exists(path)]
        mark = before.mark if self._source.app.delay is None else None
        params = self._source.params
        origin: dict[str, Any] = {"files": paths, "columns": self._columns()}

        def fill(folder: Path) -> tuple[list[dict[str, Any]], int | None, dict[str, Any]]:
            if not here:
                return [], None, {"files": [], "rows": 0, "aside": []}
            source = self._source
            request = import_events.request(source.app, params, here, source.mapping, source.unit, source.separator)
            origin["columns"] = self._check_columns(request.streams[0].files)
            with files.settings(frame.sparkSession):
                parts, about = import_events.write_rows(
                    frame.sparkSession, replace(request, mark=mark), folder, before.total[0]
                )
            return parts, _highest(folder), about

        try:
            microbatch.write(self._root, before, origin, fill)
        except (PySparkException, Py4JError) as error:
            raise import_events.failure([str(path) for path in here], error) from None
        self._last = microbatch.read(self._root, number, self._source.app, params)
        self.recorded.put(number)

    def _columns(self) -> dict[str, str] | None:
        """The columns of all files so far."""
        return self._last.manifest["origin"]["columns"] if self._last is not None else None

    def _check_columns(self, found: files.Files) -> dict[str, str] | None:
        """The columns of all files; raise BadInput if those of this micro-batch differ from earlier ones."""
        columns = {name: str(kind) for name, kind in (found.columns or {}).items()} | {"": found.kind}
        earlier = self._columns()
        if earlier is not None and earlier != columns:
            raise BadInput(
                f"{found.names[0]} has other columns than the files before ({_list(columns)}; {_list(earlier)}): "
                "remove it, or follow it in a run of its own"
            )
        return columns

    def _check_repeated(self, number: int, paths: list[str]) -> None:
        """Raise BadInput unless a micro-batch that Spark repeats is the one that was recorded."""
        batch = microbatch.read(self._root, number, self._source.app, self._source.params)
        if batch is None or not set(paths) <= set(batch.manifest["origin"]["files"]):
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
