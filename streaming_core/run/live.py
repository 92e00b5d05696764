"""A live run: one engine over micro-batches that are recorded while it runs (data/microbatch.py).

The folder of a run at work holds

    live.json               the request: options, source, code
    outputs/part-*.parquet  outputs in delivered order; each part appears whole, and never changes
    .live/batches/          the micro-batches
    .live/checkpoint/       Structured Streaming's own checkpoint, with the offsets of the source
    .live/checkpoints/      the engine's checkpoints (checkpoint/)
    .live/left.json         the items of the source that were not read, written at the end of the stream
    .live/closed            the stream has ended: the run takes no more micro-batches

A killed run resumes from there. State is a function of the recorded events. So the engine starts from its checkpoint,
or without one from the first event, and processes the recorded micro-batches again. Outputs are deterministic: the run
skips as many as the folder has, and compares their digest. Without a checkpoint, a run resumes in the time that the
engine needs for all events so far. No part reads the source again.

At the end of the stream, the run marks itself closed, flushes the operators, and writes state/, workload/ and, last,
report.json. `streaming-core run` writes the same for that workload, so `streaming-core diff` can check it.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming_core import interruption, storage
from streaming_core.apps import registry
from streaming_core.data import microbatch
from streaming_core.data.agreement import states_digest
from streaming_core.data.digest import add, digest_table
from streaming_core.data.microbatch import MicroBatch, Position
from streaming_core.data.parts import Parts, part_path, write_states, write_whole
from streaming_core.errors import BadInput
from streaming_core.kernels.program import Program, compile_app
from streaming_core.run.blocks import Blocks, block_size
from streaming_core.run.checkpoint import states, store
from streaming_core.run.checkpoint.store import Checkpoints
from streaming_core.run.energy import Meter, Spent
from streaming_core.run.failure import runtime_failures
from streaming_core.run.folder import locked
from streaming_core.run.one_pass import PassEngine, PassRequest, final_state, sample_of
from streaming_core.run.provenance import Outcome, PreparedRun, report_of
from streaming_core.run.report import RunReport, read_report
from streaming_core.run.way import RunSpec

REQUEST = "live.json"
LIVE = ".live"
BATCHES = "batches"
CLOSED = "closed"
LEFT = "left.json"
WORKLOAD = "workload"
STATE = "state"

# Takes the folder .live. Yields after each micro-batch that it recorded, and ends with the stream.
Feed = Callable[[Path], Generator[None, None, None]]


def run(spec: RunSpec, source: dict[str, Any], out: Path, feed: Feed, say: Callable[[str], None]) -> RunReport:
    """Execute `spec` over a live source until the source ends; write outputs, state, workload and report into `out`.

    The same call on the folder of a killed run resumes it. On the folder of a complete run it returns the report.

    Args:
        spec: The options of the run: one pass, with sink parquet.
        source: Describes the source, as JSON values.
        out: The run folder.
        feed: Records micro-batches below `out`.
        say: Receives a line about each micro-batch.

    Raises:
        BadInput: The request cannot be carried out, or the folder belongs to another run.
        RunFailed: An operator failed.
        CommandFailed: The disk is full, or fails.
    """
    app = registry.load(spec.app)
    spec.check(app)
    if spec.needs_plan:
        raise BadInput("a live run cannot measure operators first: set plan replicated or a plan file, not plan auto")
    program = compile_app(app, app.bind(spec.params))
    request = {"options": spec.model_dump(mode="json"), "code": registry.code_digest(app), **source}
    with locked(out):
        _check_folder(out, request)
        if (out / "report.json").exists():
            shutil.rmtree(out / LIVE, ignore_errors=True)
            say(f"{out} already holds this run; nothing to do")
            return read_report(out)
        try:
            return _run(spec, program, source, out, feed, say)
        except BadInput:
            _forget(out)
            raise


def _check_folder(out: Path, request: dict[str, Any]) -> None:
    """Raise BadInput unless the folder is new or holds a run of this request. Note the request in a new one."""
    storage.sweep_files(out)
    if not (out / REQUEST).exists():
        if leftovers := sorted(path.name for path in out.iterdir() if not path.name.startswith(".")):
            raise BadInput(f"{out} already holds {', '.join(leftovers)}; choose a new folder")
        storage.write_json(out / REQUEST, request)
        return
    earlier = storage.left_json(out / REQUEST)
    for name, value in request.items():
        if earlier.get(name) != value:
            values = "" if isinstance(value, dict) else f" ({earlier.get(name)}, now {value})"
            raise BadInput(f"{out} holds a live run with another {name}{values}; choose a new folder")


def _forget(out: Path) -> None:
    """Empty the folder of a run that recorded nothing, so that the same folder takes a corrected command."""
    if not any((out / LIVE / BATCHES).glob("[0-9]*")):
        for name in (LIVE, "outputs"):
            shutil.rmtree(out / name, ignore_errors=True)
        (out / REQUEST).unlink(missing_ok=True)


@runtime_failures()
def _run(
    spec: RunSpec, program: Program, source: dict[str, Any], out: Path, feed: Feed, say: Callable[[str], None]
) -> RunReport:
    live, load_before = out / LIVE, os.getloadavg()[0]
    (live / BATCHES).mkdir(parents=True, exist_ok=True)
    for name in (STATE, WORKLOAD):  # of a run that was killed at its end
        shutil.rmtree(out / name, ignore_errors=True)
    about = {store.CODE: registry.code_digest(program.app)}
    (live / "checkpoints").mkdir(exist_ok=True)
    declared, way = states.declarations(program.bound), spec.model_dump(mode="json")
    durable = Checkpoints(live / "checkpoints", spec.interval, about, declared, way, say)
    durable.recover()
    try:
        options = spec.runtime_options | {"sink": "parquet", "rate": 0.0, "deliveries": False, "latencies": None}
        with PassEngine(program, options, durable) as engine:
            progress = _Progress(spec, program, engine, out / "outputs", durable)
            for batch in _recorded(live, program, progress.position):
                progress.take(batch)
            if progress.position.batches:
                say(f"resumed after micro-batch {progress.position.batches - 1}: {progress.position.total[0]} events")
            if not (live / CLOSED).exists():
                progress.check_replay()
                with closing(feed(live)) as ticks:
                    for _ in ticks:
                        for batch in _recorded(live, program, progress.position):
                            say(f"micro-batch {_about(batch)}, {progress.take(batch)} outputs")
                storage.write_text(live / CLOSED, f"{progress.position.batches}\n")
                storage.sync(live)
            progress.finish()
            state = final_state(engine.runtime, program)
            metrics = json.loads(engine.runtime.metrics())
    finally:
        durable.close()
    storage.sync(out / "outputs")
    write_states(out, state)
    storage.sync_tree(out / STATE)
    about = source | storage.left_json(live / LEFT)
    opened = microbatch.seal(live / BATCHES, out / WORKLOAD, program.app, program.app.bind(spec.params), about)
    outcome = Outcome(
        samples=[sample_of(metrics, PassRequest("verified"), opened.rows, progress.spent)],
        state_digest=states_digest(program.app, spec.order, state),
        peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        binding=metrics["binding"],
        memory=metrics["memory"],
        resumed=durable.resumed,
        host={"load_after": os.getloadavg()[0]},
    )
    report = report_of(PreparedRun(spec, program, opened, load_before), outcome)
    storage.write_json(out / "report.json", report.model_dump(mode="json"))
    storage.sync(out)
    shutil.rmtree(live, ignore_errors=True)
    return report


def _recorded(live: Path, program: Program, position: Position) -> Iterator[MicroBatch]:
    """The recorded micro-batches behind a position."""
    return microbatch.read_all(live / BATCHES, program.app, program.params, position.batches)


def _about(batch: MicroBatch) -> str:
    imported = batch.manifest["imported"]
    aside = sum(one["rows"] for one in imported["aside"])
    return f"{batch.manifest['number']}: {len(imported['files'])} files, {batch.rows} events, {aside} rows set aside"


class _Progress:
    """The progress of a run: the engine's position in the recorded events, and the written outputs.

    Attributes:
        spent: Processor time and energy.
        position: The position behind the last micro-batch.
    """

    def __init__(self, spec: RunSpec, program: Program, engine: PassEngine, folder: Path, durable: Checkpoints):
        self._program, self._engine, self._folder, self._durable = program, engine, folder, durable
        self._block = block_size(spec)
        last = durable.last
        self.spent = Spent(None, last.cpu_seconds) if last else Spent(Meter())
        self.position = Position()
        self._start = last.read if last else (0, 0)
        folder.mkdir(exist_ok=True)
        storage.sweep_files(folder)
        written = Parts.of(folder)
        self._parts = len(written.paths)
        self._written = (0, 0)
        for table in written.slices(1 << 16):
            self._written = add(self._written, digest_table(table, ("seq", "sub")))
        self._replayed = store.closed_digest(last) if last else (0, 0)
        self._left = self._written[0] - self._replayed[0]
        self._check_written()

    def take(self, batch: MicroBatch) -> int:
        """Process a micro-batch, and write its outputs; return the number of new outputs.

        The checkpoint has its events if it was made later.
        """
        self.position = batch.position
        if self.position.total[0] <= self._start[0]:
            if self.position.total[0] == self._start[0] and self.position.total != self._start:
                raise BadInput(
                    f"{batch.directory.parents[1]}: the recorded events are not those of the checkpoint; choose a new "
                    "folder"
                )
            return 0
        new = 0
        for rows, text in Blocks(batch, self._program, self._block, keep=0):
            interruption.check()
            with self.spent.counting():
                self._engine.process(rows, text)
            new += self._write()
        self._save()
        return new

    def finish(self) -> None:
        """End the stream, and write the last outputs."""
        with self.spent.counting():
            self._engine.runtime.finish(self.position.total[0])
        self._write()
        self.check_replay()
        if not self._parts:  # a part holds the columns
            write_whole(part_path(self._folder, 0), self._engine.schema, [])

    def check_replay(self) -> None:
        """Raise BadInput if the folder has more outputs than the recorded events make."""
        if self._left:
            raise self._changed()

    def _write(self) -> int:
        """Write the new outputs of the engine as one part; return their number."""
        tables = (new for table in self._engine.outputs() if (new := self._new(table)).num_rows)
        first = next(tables, None)
        if first is None:
            return 0
        rows = 0

        def counted() -> Iterator[pa.Table]:
            nonlocal rows
            for table in chain([first], tables):
                rows += table.num_rows
                yield table

        write_whole(part_path(self._folder, self._parts), self._engine.schema, counted())
        storage.sync(self._folder)
        self._parts += 1
        return rows

    def _new(self, table: pa.Table) -> pa.Table:
        """The outputs of a table that were not written before."""
        known = min(self._left, table.num_rows)
        if known:
            self._replayed = add(self._replayed, digest_table(table.slice(0, known), ("seq", "sub")))
            self._left -= known
            self._check_written()
        return table.slice(known)

    def _check_written(self) -> None:
        """Compare the two once the engine has made all written outputs again."""
        if self._left < 0 or (self._left == 0 and self._replayed != self._written):
            raise self._changed()

    def _changed(self) -> BadInput:
        return BadInput(
            f"the files in {self._folder} are not the outputs of the recorded events: they were changed or removed; "
            "choose a new folder"
        )

    def _save(self) -> None:
        """Make a checkpoint if it is due."""
        if self._durable.is_due(self.position.total[0]):
            self._durable.make(self._engine.runtime, self.position.total, self.spent.cpu)
