"""Tasks: a stage on a range of the events or on one share of the keys, and the sink.

Rows travel in *blocks*: columns in Arrow's format, which a cluster engine moves as one value. So it moves thousands of
rows at the cost of one. A task yields blocks for the consumers of its stage, each for one share of one consumer. It
takes the blocks of its share in the order of their first `seq`, and puts their rows into the order of (seq, rank).

Nothing is combined before a shuffle. Every row can have outputs of its own, in the order of events, and operators
declare no function that merges two states.

Everything else goes into files below the folder of the pass. A task that runs again writes the same content there:

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
from functools import cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_core import storage
from streaming_core.apps import registry
from streaming_core.cluster.ranks import Ranks
from streaming_core.cluster.stages import Stage, Step, has_keys, stages
from streaming_core.cluster.step import Dealing, Intake, Outputs, Running
from streaming_core.data import workload
from streaming_core.data.arrow import to_arrow, to_numpy
from streaming_core.data.digest import add, digest_table
from streaming_core.data.parts import Parts, Writer, write_file
from streaming_core.errors import BadInput, CommandFailed, RunFailed, line_of
from streaming_core.kernels.program import Program, compile_app
from streaming_core.language.application import App
from streaming_core.language.operator import Operator
from streaming_core.run.checkpoint import file

EVENTS = 1 << 16  # that a task reads at a time
ROWS = 1 << 16  # that a task takes at a time, or a few more; no block has more
BEGIN = -1  # the seq of the block without rows that begins a share, so that a share without rows has a task
# A block as a cluster engine moves it: the number of the exit, the share of its consumer, the first seq, the columns.
BLOCK = pa.schema([("exit", pa.int32()), ("share", pa.int32()), ("seq", pa.int64()), ("rows", pa.binary())])
# The columns of a block beside the fields, which no field can be. SEQ counts from the first seq.
SEQ, WORDS, BITS = ":seq", ":words", ":bits"
# The order of an operator's rows at the end of the stream: those flushed to it come before those of its own flush.
TAKEN, FLUSHED = 0, 1


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


@dataclass
class Rows:
    """Rows of a stage: `seq` and fields, with the ranks of the rows."""

    table: pa.Table
    ranks: Ranks

    def through(self, number: int) -> Rows:
        """The same rows, as those of input `number`."""
        return Rows(self.table, Ranks.number(number, 8, len(self.ranks)).then(self.ranks))

    def take(self, positions: np.ndarray) -> Rows:
        """The rows at these positions."""
        return Rows(self.table.take(to_arrow(positions)), self.ranks.take(positions))

    def slice(self, begin: int, end: int) -> Rows:
        """The rows from `begin` to `end`."""
        return Rows(self.table.slice(begin, end - begin), self.ranks.take(slice(begin, end)))

    @classmethod
    def of(cls, parts: list[Rows]) -> Rows:
        """Rows together, in the order of (seq, rank), which each part has already."""
        if len(parts) == 1:
            return parts[0]
        table, ranks = pa.concat_tables([part.table for part in parts]), Ranks.concat([part.ranks for part in parts])
        order = ranks.sort(to_numpy(table.column("seq")))
        return cls(table, ranks) if order is None else cls(table.combine_chunks(), ranks).take(order)

    def block(self) -> pa.Buffer:
        """The columns of a block; there are rows. Integers are as short as they may be, because Spark copies them."""
        seqs = to_numpy(self.table.column("seq"))
        seqs = seqs - seqs[0]
        table = self.table.drop_columns("seq")
        columns = (to_arrow(seqs.astype(np.min_scalar_type(seqs[-1]))), *self.ranks.columns())
        for name, column in zip((SEQ, WORDS, BITS), columns, strict=True):
            table = table.append_column(name, column)
        size = pa.MockOutputStream()
        _write(size, table)
        data = pa.allocate_buffer(size.size())
        _write(pa.FixedSizeBufferWriter(data), table)
        return data

    @classmethod
    def of_block(cls, first: int, data: bytes) -> Rows:
        """Inverse of `block`; `first` is the first seq."""
        (batch,) = pa.ipc.open_stream(data)
        seqs = to_numpy(batch.column(SEQ)).astype(np.int64) + first
        fields = [name for name in batch.schema.names if name not in (SEQ, WORDS, BITS)]
        columns = [to_arrow(seqs), *map(batch.column, fields)]
        return cls(pa.table(columns, ["seq", *fields]), Ranks.of_columns(batch.column(WORDS), batch.column(BITS)))


def _write(target: pa.NativeFile, table: pa.Table) -> None:
    """Write one batch; `target` may only count its bytes."""
    with pa.ipc.new_stream(target, table.schema) as writer:
        writer.write_batch(table.combine_chunks().to_batches()[0])


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
            Dealing(program, exit_.consumer, pass_.shares) if has_keys(exit_.consumer) and pass_.shares > 1 else None
            for exit_ in self._stage.exits
        ]
        self._intakes = [self._prepared.intake(exit_.consumer) for exit_ in self._stage.exits]
        self.figures = Figures()

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
        ranks = rows.ranks.take(outputs.positions).then(outputs.order)
        is_end = to_numpy(outputs.rows.column("seq")) == self._pass.end
        if is_end.any():
            ranks = Ranks(Ranks.number(TAKEN, 1, len(ranks)).words, is_end.astype(np.int64)).then(ranks)
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

    def _flushed(self, outputs: Outputs, state: pa.Table | None) -> Ranks:
        """The ranks of flushed rows: by key, then in the order of the flush."""
        assert self._stage.operator is not None  # only the stage of an operator flushes
        columns = [] if state is None else [state.column(name) for name in self._stage.operator.key_columns]
        ranks = Ranks.number(FLUSHED, 1, len(outputs.positions))
        for column in columns:
            ranks = ranks.then(sortable(column).take(outputs.positions))
        return ranks.then(outputs.order)

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
                ranks = inputs.ranks.take(outputs.positions).then(outputs.order)
                rows[number] = Rows(outputs.rows, ranks)
        for number, exit_ in enumerate(self._stage.exits):
            streams = exit_.consumer.window.streams if exit_.consumer.window else None
            parts = []
            for source, input_ in exit_.inputs:
                if source in rows and rows[source].table.num_rows:
                    part = rows[source].through(input_) if exit_.joins else rows[source]
                    table = self._intakes[number].table(part.table, streams[input_] if streams else 0)
                    parts.append(Rows(table, part.ranks))
            if parts:
                yield from self._leave(number, Rows.of(parts))

    def _inputs(self, step: Step, rows: dict[int, Rows]) -> Rows | None:
        parts = [rows[source].through(number) if step.joins else rows[source] for source, number in step.inputs
                 if source in rows and rows[source].table.num_rows]  # fmt: skip
        return Rows.of(parts) if parts else None

    def _leave(self, number: int, leaving: Rows) -> Iterator[pa.RecordBatch]:
        """Blocks for the consumer of an exit, of rows in the order of (seq, rank)."""
        positions, shares = self._deal(number, leaving.table)
        if positions is not None:
            leaving = leaving.take(positions)
        self.figures.rows_out += len(shares)
        cuts = [0, *(np.flatnonzero(np.diff(shares)) + 1).tolist(), len(shares)]
        for begin, end in itertools.pairwise(cuts):
            for at in range(begin, end, ROWS):
                part = leaving.slice(at, min(at + ROWS, end))
                first = part.table.column("seq")[0].as_py()
                data = part.block()
                ends = pa.py_buffer(np.array([0, data.size], np.int32))
                columns = [
                    pa.array([number], pa.int32()),
                    pa.array([int(shares[at])], pa.int32()),
                    pa.array([first], pa.int64()),
                    pa.Array.from_buffers(pa.binary(), 1, [None, ends, data]),
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=BLOCK)

    def _deal(self, number: int, table: pa.Table) -> tuple[np.ndarray | None, np.ndarray]:
        """Deal rows for an exit to shares: the positions of rows (None: all in order) by ascending share, and these."""
        if dealer := self._dealers[number]:
            positions, shares = dealer.deal(table)
            if (np.diff(positions.astype(np.int64)) < 0).any():  # an operator with windows
                order = np.argsort(positions, kind="stable")
                positions, shares = positions[order], shares[order]
            order = np.argsort(shares.astype(np.uint16), kind="stable")
            return positions[order], shares[order]
        if self._stage.exits[number].consumer.kind != "sink":
            return None, np.zeros(table.num_rows, np.int64)
        first, events = self._pass.first, max(self._pass.events - self._pass.first, 1)
        shares = (to_numpy(table.column("seq")) - first) * self._pass.shares // events
        return None, np.minimum(shares, self._pass.shares - 1)


def sortable(keys: pa.ChunkedArray) -> Ranks:
    """Keys as ranks in the same order. None is the beginning of another one."""
    if pa.types.is_binary(keys.type):
        return Ranks.of_texts([text.replace(b"\x00", b"\x00\xff") + b"\x00\x00" for text in keys.to_pylist()])
    words = to_numpy(keys).astype(np.int64).view(np.uint64) ^ np.uint64(1 << 63)
    return Ranks.number(words, 64, len(words))


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
        yield from task.take(Rows(table, Ranks.empty(table.num_rows)))
        if not left:
            break
    yield from task.finish()


def run_stage(pass_: SparkPass, number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A stage with an operator, on blocks by ascending (share, seq).

    The first block of a share has seq BEGIN.
    """
    name, share = pass_.prepared.stages[number].name, -1
    with _noting_failure(pass_, name, lambda: share):
        for share, blocks in _by_share(batches):
            task = StageTask(pass_, number, share)
            for rows in merged(blocks):
                yield from task.take(rows)
            yield from task.finish()


def run_sink(pass_: SparkPass, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The sink, on blocks as for `run_stage`: number the outputs of each event, digest them, and write them."""
    schema, share = pass_.prepared.program.bound.output.arrow(("seq", "sub")), -1
    with _noting_failure(pass_, "sink", lambda: share):
        for share, blocks in _by_share(batches):
            sink = _Sink(pass_, share, schema)
            for rows in merged(blocks):
                sink.take(rows.table)
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


def _by_share(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[tuple[int, bytes]]]]:
    """The shares, each with the first seqs of its blocks and their columns."""

    def blocks() -> Iterator[tuple[int, int, bytes]]:
        for batch in batches:
            for row in range(batch.num_rows):
                yield tuple(batch.column(name)[row].as_py() for name in ("share", "seq", "rows"))

    for share, own in itertools.groupby(blocks(), key=itemgetter(0)):
        yield share, ((seq, data) for _, seq, data in own if seq != BEGIN)


def merged(blocks: Iterable[tuple[int, bytes]]) -> Iterator[Rows]:
    """The rows of blocks in the order of (seq, rank). The blocks come in the order of their first seqs.

    Rows wait until no later block can have an earlier row. So those in memory are a block of each producer, or all rows
    of one event.
    """
    waiting: list[Rows] = []
    for seq, data in blocks:
        if sum(map(len, (rows.ranks for rows in waiting))) >= ROWS:
            rows = Rows.of(waiting)
            ready = int(np.searchsorted(to_numpy(rows.table.column("seq")), seq))
            if ready:
                yield rows.slice(0, ready)
            waiting = [rows.slice(ready, len(rows.ranks))] if ready < len(rows.ranks) else []
        waiting.append(Rows.of_block(seq, data))
    if waiting:
        yield Rows.of(waiting)


def state_parts(pass_: SparkPass, operator: str) -> Parts:
    """The states of an operator's shares."""
    return Parts(sorted(Path(pass_.folder, "state", operator).glob("[0-9]*.parquet")))
