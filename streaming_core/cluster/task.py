"""Tasks: a stage on a range of the events or on one share of the keys, and the sink.

A task takes rows in the order of (seq, rank) and yields rows for the consumers of its stage. Everything else goes into
files below the folder of the pass. A task that runs again writes the same content there:

    tasks/<stage>-<share>.json       figures, and the digests of its input or output
    failures/<stage>-<share>.json    why it failed
    state/<operator>/<share>.parquet the final state of its keys, by ascending key
    outputs/<share>/part-*.parquet   outputs, with `sub`
"""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming_core import storage
from streaming_core.apps import registry
from streaming_core.cluster.stages import Exit, Stage, Step, has_keys, stages
from streaming_core.cluster.step import Dealing, Intake, Outputs, Running
from streaming_core.cluster.wire import field_column, from_wire, to_wire, wire_schema
from streaming_core.data import workload
from streaming_core.data.arrow import from_bytes, to_arrow, to_numpy
from streaming_core.data.digest import add, digest_table
from streaming_core.data.parts import Parts, Writer, write_file
from streaming_core.errors import BadInput, CommandFailed, RunFailed, line_of
from streaming_core.kernels.program import Program, compile_app
from streaming_core.language.application import App
from streaming_core.language.operator import Operator
from streaming_core.run.checkpoint import file

EVENTS = 1 << 16  # that a task reads at a time
BEGIN = -1  # the seq of the row that begins a share, so that a share without rows has a task
LEADING = pa.schema([("exit", pa.int32()), ("share", pa.int32()), ("seq", pa.int64()), ("rank", pa.binary())])
# The order of an operator's rows at the end of the stream: those flushed to it come before those of its own flush.
TAKEN, FLUSHED = b"\x00", b"\x01"


@dataclass(frozen=True)
class SparkPass:
    """One pass of an application over a workload. Tasks get it by value.

    Attributes:
        app: Name of the application.
        params: All parameters.
        workload: Folder of the workload.
        events: Number of events.
        end: The seq of the end of the stream.
        shares: Number of tasks of a stage.
        folder: The folder that tasks write to; all machines see it.
        writes: Whether the sink writes outputs and tasks write states. It always digests them.
        first: Number of events before the checkpoint that the pass goes on from.
        checkpoint: The file of that checkpoint, which all machines see; empty if there is none.
    """

    app: str
    params: tuple[tuple[str, Any], ...]
    workload: str
    events: int
    end: int
    shares: int
    folder: str
    writes: bool
    first: int = 0
    checkpoint: str = ""

    @property
    def prepared(self) -> Prepared:
        """The application, compiled; once in a process."""
        return prepared(self.app, self.params)


@cache
def prepared(app: str, params: tuple[tuple[str, Any], ...]) -> Prepared:
    """An application of the registry, compiled."""
    return Prepared.of(registry.load(app), dict(params))


@dataclass(frozen=True)
class Prepared:
    """A compiled application, cut into stages."""

    program: Program
    stages: list[Stage]

    @classmethod
    def of(cls, app: App, params: dict[str, Any]) -> Prepared:
        """Compile an application and cut it into stages."""
        return cls(compile_app(app, params), stages(app))

    def intake(self, consumer: Operator) -> Intake:
        """The input of an operator with state, or of the sink."""
        return Intake(self.program, consumer)

    def arriving(self, stage: Stage | None) -> pa.Schema:
        """The columns with the fields of the rows for a stage, or for the sink (None), as Spark carries them."""
        consumer = stage.operator if stage else self.program.app.operators[-1]
        assert consumer is not None, "no rows arrive at the events"
        own = wire_schema(self.intake(consumer).columns)
        return pa.schema([pa.field(field_column(field.name), field.type) for field in own])

    def columns(self, stage: Stage) -> pa.Schema:
        """The columns of the rows that leave a stage, as Spark carries them. Those of each exit have its number."""
        columns = LEADING
        for number, exit_ in enumerate(stage.exits):
            for column in wire_schema(self.intake(exit_.consumer).columns):
                columns = columns.append(pa.field(exit_column(number, column.name), column.type))
        return columns


def exit_column(exit_: int, name: str) -> str:
    """The column of a stage's rows with a field of those that go to one consumer."""
    return f"{exit_}:{name}"


@dataclass
class Rows:
    """Rows of a stage: `seq` and fields, with the ranks of the rows."""

    table: pa.Table
    ranks: pa.Array

    def through(self, number: int) -> Rows:
        """The same rows, as those of input `number`."""
        return Rows(self.table, _join(pa.scalar(bytes([number])), self.ranks))

    @classmethod
    def of(cls, parts: list[Rows]) -> Rows:
        """Rows together. A step or consumer that has one input gets them in order."""
        if len(parts) == 1:
            return parts[0]
        ranks = pa.chunked_array([part.ranks for part in parts]).combine_chunks()
        return cls(pa.concat_tables([part.table for part in parts]), ranks)


def _join(*parts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*parts, pa.scalar(b""))


@dataclass
class Figures:
    """The figures of a task.

    Attributes:
        rows_in: Rows that entered.
        rows_out: Rows for consumers.
        read: Number and hash of the events that it read.
        written: Number and hash of the sink's outputs, or of the rows of an operator's final state.
        dropped: Events that operators dropped.
        late: Rows that came too late for every window.
        seconds: From the task's first row to its end.
        engine: Seconds of the runtime.
        cpu: Processor seconds of the Python process.
        peak: The most resident memory of the Python process so far, in bytes.
    """

    rows_in: int = 0
    rows_out: int = 0
    read: tuple[int, int] = (0, 0)
    written: tuple[int, int] = (0, 0)
    dropped: int = 0
    late: int = 0
    seconds: float = 0.0
    engine: float = 0.0
    cpu: float = 0.0
    peak: int = 0
    _began: tuple[float, float] = field(default_factory=lambda: (time.monotonic(), time.process_time()), repr=False)

    @classmethod
    def of(cls, known: dict[str, Any]) -> Figures:
        """Make figures of the JSON that a task wrote."""
        return cls(**known | {name: tuple(known[name]) for name in ("read", "written")})

    def write(self, pass_: SparkPass, stage: str, share: int) -> None:
        """Write the figures of a task that has ended."""
        self.seconds, self.cpu = time.monotonic() - self._began[0], time.process_time() - self._began[1]
        self.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        known = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        path = Path(pass_.folder, "tasks", f"{stage}-{share}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        storage.write_json(path, known)


class StageTask:
    """A stage at work on one share, or on a range of the events.

    Attributes:
        figures: The figures of the task.
    """

    def __init__(self, pass_: SparkPass, number: int, share: int):
        self._pass, self._share = pass_, share
        self._prepared = pass_.prepared
        self._stage = self._prepared.stages[number]
        program = self._prepared.program
        self._steps = [
            Running(program, step, (share, pass_.shares) if has_keys(step.operators[0]) else (0, 1))
            for step in self._stage.steps
        ]
        if pass_.checkpoint and self._stage.operator is not None:
            self._resume(Path(pass_.checkpoint))
        self._dealers = [
            Dealing(program, exit_.consumer, pass_.shares) if has_keys(exit_.consumer) else None
            for exit_ in self._stage.exits
        ]
        self._intakes = [self._prepared.intake(exit_.consumer) for exit_ in self._stage.exits]
        self._columns = self._prepared.columns(self._stage)
        self.figures = Figures()

    @cached_property
    def columns(self) -> pa.Schema:
        """The columns of the stage's own rows, behind `seq`."""
        program, operator = self._prepared.program, self._stage.operator
        return program.bound.event.arrow() if operator is None else Intake(program, operator).columns

    def _resume(self, path: Path) -> None:
        """Take the state of the stage's operator from a checkpoint."""
        try:
            checkpoint = file.read(path)
            parts = [part for part in checkpoint.parts if part.name == self._stage.name]
            images = (image for _, image in file.images(path.parent, replace(checkpoint, parts=parts)))
            self._steps[0].resume(images, checkpoint.standing)
        except file.Damage as damage:  # since the driver has checked it
            raise BadInput(f"{path} is damaged: {damage}") from None

    def take(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Take rows in order; yield rows for the consumers."""
        self.figures.rows_in += rows.table.num_rows
        if self._stage.operator is None:
            yield from self._run_steps({-1: rows}, 0)
            return
        outputs = self._steps[0].process(rows.table)
        ranks = _join(rows.ranks.take(to_arrow(outputs.positions)), outputs.order)
        is_end = to_numpy(outputs.rows.column("seq")) == self._pass.end
        if is_end.any():
            ranks = _join(pc.if_else(to_arrow(is_end), pa.scalar(TAKEN), pa.scalar(b"")), ranks)
        yield from self._run_steps({0: Rows(outputs.rows, ranks)}, 1)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """End the stream: yield the rows that operators emit at its end, and write state and figures."""
        if self._stage.operator is not None:
            outputs, state = self._steps[0].finish(self._pass.end)
            if outputs.rows.num_rows:
                ranks = self._flushed(outputs, state)
                yield from self._run_steps({0: Rows(outputs.rows, ranks)}, 1)
            if state is not None:
                self.figures.written = digest_table(state, ("key",) if "key" in state.column_names else ())
                if self._pass.writes:
                    self._write_state(self._stage.operator.name, state)
        for step in self._steps:
            metrics = step.stop()
            self.figures.dropped += metrics["dropped"]
            self.figures.late += metrics["late"]
            self.figures.engine += metrics["seconds"]
        self.figures.write(self._pass, self._stage.name, self._share)

    def _flushed(self, outputs: Outputs, state: pa.Table | None) -> pa.Array:
        """The ranks of flushed rows: by key, then in the order of the flush."""
        assert self._stage.operator is not None  # only the stage of an operator flushes
        columns = [] if state is None else [state.column(name) for name in self._stage.operator.key_columns]
        keys = [sortable(column).take(to_arrow(outputs.positions)) for column in columns]
        return _join(pa.scalar(FLUSHED), *keys, outputs.order)

    def _write_state(self, name: str, state: pa.Table) -> None:
        folder = Path(self._pass.folder, "state", name)
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{self._share}.{os.getpid()}"
        write_file(part, state)
        os.replace(part, folder / f"{self._share:05d}.parquet")

    def _run_steps(self, rows: dict[int, Rows], first: int) -> Iterator[pa.RecordBatch]:
        """Take rows through the steps from number `first` on, and yield those of the exits."""
        for number in range(first, len(self._steps)):
            step = self._stage.steps[number]
            if inputs := self._inputs(step, rows):
                outputs = self._steps[number].process(inputs.table)
                ranks = _join(inputs.ranks.take(to_arrow(outputs.positions)), outputs.order)
                rows[number] = Rows(outputs.rows, ranks)
        for number, exit_ in enumerate(self._stage.exits):
            for source, input_ in exit_.inputs:
                if source in rows and rows[source].table.num_rows:
                    leaving = rows[source].through(input_) if exit_.joins else rows[source]
                    yield from self._leave(number, exit_, input_, leaving)

    def _inputs(self, step: Step, rows: dict[int, Rows]) -> Rows | None:
        parts = [rows[source].through(number) if step.joins else rows[source] for source, number in step.inputs
                 if source in rows and rows[source].table.num_rows]  # fmt: skip
        return Rows.of(parts) if parts else None

    def _leave(self, number: int, exit_: Exit, input_: int, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Rows for one consumer, by one of its inputs, as Spark carries them."""
        window = exit_.consumer.window
        table = self._intakes[number].table(rows.table, window.streams[input_] if window else 0)
        ranks, shares = rows.ranks, np.zeros(table.num_rows, np.int32)
        if dealer := self._dealers[number]:
            positions, shares = dealer.deal(table)
            table, ranks = table.take(to_arrow(positions)), ranks.take(to_arrow(positions))
        n = table.num_rows
        self.figures.rows_out += n
        columns = {
            "exit": to_arrow(np.full(n, number, np.int32)),
            "share": to_arrow(shares.astype(np.int32)),
            "seq": table.column("seq"),
            "rank": ranks,
        }
        own = {exit_column(number, name): table.column(name) for name in table.column_names if name != "seq"}
        for column in self._columns:
            if column.name not in columns:
                columns[column.name] = own.get(column.name, pa.nulls(n, column.type))
        yield from to_wire(pa.table(columns), self._columns)


def sortable(keys: pa.ChunkedArray) -> pa.Array:
    """Keys as byte strings in the same order. No string begins another one."""
    if pa.types.is_binary(keys.type):
        texts = keys.to_pylist()
        return from_bytes([text.replace(b"\x00", b"\x00\xff") + b"\x00\x00" for text in texts])
    words = (to_numpy(keys).astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)).astype(">u8")
    ends = np.arange(len(words) + 1, dtype=np.int32) * 8
    return pa.Array.from_buffers(pa.binary(), len(words), [None, pa.py_buffer(ends), pa.py_buffer(words.tobytes())])


# --- functions that Spark calls ------------------------------------------------------------------------------------


@contextmanager
def _noting_failure(pass_: SparkPass, stage: str, share: Callable[[], int]) -> Iterator[None]:
    """Write the failure of a task for the driver, which Spark gives only a traceback."""
    try:
        yield
    except (BadInput, RunFailed, CommandFailed, MemoryError, OSError) as error:
        path = Path(pass_.folder, "failures", f"{stage}-{share()}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        storage.write_json(path, {"kind": type(error).__name__, "line": line_of(error)})
        raise


def read_events(pass_: SparkPass, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The stage of the events, on the ranges of events whose numbers come in column `id`."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            with _noting_failure(pass_, "events", partial(int, number)):
                yield from _read_range(pass_, number)


def _read_range(pass_: SparkPass, number: int) -> Iterator[pa.RecordBatch]:
    first, end = (pass_.first + (pass_.events - pass_.first) * at // pass_.shares for at in (number, number + 1))
    task = StageTask(pass_, 0, number)
    opened = workload.read(Path(pass_.workload), pass_.prepared.program.app)
    left = end - first
    # A task without events has nothing to read.
    for table in opened.parts.slices(EVENTS, start=first) if left else ():
        table = table.slice(0, left).cast(opened.schema)
        left -= table.num_rows
        task.figures.read = add(task.figures.read, (table.num_rows, opened.hashes(table)))
        ranks = from_bytes([b""] * table.num_rows)
        yield from task.take(Rows(table, ranks))
        if not left:
            break
    yield from task.finish()


def run_stage(pass_: SparkPass, number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A stage with an operator, on rows in the order of (seq, rank), share by share.

    The first row of a share has seq BEGIN.
    """
    name, task, share = pass_.prepared.stages[number].name, None, -1
    with _noting_failure(pass_, name, lambda: share):
        for part_share, rows in _by_share(batches):
            if part_share != share:
                if task:
                    yield from task.finish()
                task, share = StageTask(pass_, number, part_share), part_share
            assert task
            if rows.num_rows:
                ranks = rows.column("rank").combine_chunks()
                yield from task.take(Rows(from_wire(rows, task.columns), ranks))
        if task:
            yield from task.finish()


def run_sink(pass_: SparkPass, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The sink, on rows as for `run_stage`: number the outputs of each event, digest them, and write them."""
    schema = pass_.prepared.program.bound.output.arrow(("seq", "sub"))
    share = -1
    with _noting_failure(pass_, "sink", lambda: share):
        sink: _Sink | None = None
        for part_share, rows in _by_share(batches):
            if part_share != share:
                if sink:
                    sink.close()
                sink, share = _Sink(pass_, part_share, schema), part_share
            assert sink
            if rows.num_rows:
                sink.take(from_wire(rows, pa.schema(list(schema)[2:])))
        if sink:
            sink.close()
    yield from ()


class _Sink:
    """The outputs of one share, which is a range of events."""

    def __init__(self, pass_: SparkPass, share: int, schema: pa.Schema):
        self._pass, self._share, self._schema = pass_, share, schema
        self._figures = Figures()
        self._last, self._next = BEGIN, 0
        self._folder = Path(pass_.folder, "outputs", f".{share}.{os.getpid()}")
        self._writer: Writer | None = None
        if pass_.writes:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._writer = Writer(self._folder, schema)

    def take(self, table: pa.Table) -> None:
        seqs = to_numpy(table.column("seq"))
        if (np.diff(seqs, prepend=self._last) < 0).any():
            raise RunFailed(f"outputs of share {self._share} came out of order")
        starts = np.flatnonzero(np.diff(seqs, prepend=self._last))  # rows that begin another event
        numbers = np.arange(len(seqs))
        begins = np.zeros(len(seqs), np.int64)
        begins[starts] = starts
        subs = numbers - np.maximum.accumulate(begins)
        same_event = int(starts[0]) if len(starts) else len(seqs)  # rows of the last event of the table before
        subs[:same_event] = numbers[:same_event] + self._next
        self._last, self._next = int(seqs[-1]), int(subs[-1]) + 1
        outputs = table.add_column(1, self._schema.field("sub"), to_arrow(subs)).cast(self._schema)
        self._figures.rows_in += len(seqs)
        self._figures.written = add(self._figures.written, digest_table(outputs, ("seq", "sub")))
        if self._writer:
            self._writer.write(outputs)

    def close(self) -> None:
        if self._writer:
            with self._writer:
                pass
            target = self._folder.with_name(f"{self._share:05d}")
            shutil.rmtree(target, ignore_errors=True)
            os.replace(self._folder, target)
        self._figures.write(self._pass, "sink", self._share)


def _by_share(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """The rows, cut where another share begins, without the rows that begin a share."""
    for batch in batches:
        if not batch.num_rows:
            continue
        shares = to_numpy(batch.column("share"))
        cuts = [0, *(np.flatnonzero(np.diff(shares)) + 1).tolist(), len(shares)]
        for begin, end in itertools.pairwise(cuts):
            part = batch.slice(begin, end - begin)
            first = int(np.searchsorted(to_numpy(part.column("seq")), 0))  # they come first
            yield int(shares[begin]), pa.Table.from_batches([part.slice(first)])


def state_parts(pass_: SparkPass, operator: str) -> Parts:
    """The states of an operator's shares."""
    return Parts(sorted(Path(pass_.folder, "state", operator).glob("[0-9]*.parquet")))
