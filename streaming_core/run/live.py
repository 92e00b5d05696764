"""A live run: one engine over micro-batches that are recorded while it runs (data/microbatch.py).

The folder of a run at work holds

    live.json               the request: options, source, code
    outputs/part-*.parquet  outputs in delivered order; each part appears whole, and never changes
    status.json             the progress (live_folder.py), and live.html, its page
    verified.json           up to which event the run is verified (verification.py)
    .live/batches/          the micro-batches
    .live/checkpoint/       Structured Streaming's own checkpoint
    .live/checkpoints/      the engine's checkpoints
    .live/oracle/           the oracle's snapshots
    .live/left.json         the items of the source that were not read, written at the end of the stream
    .live/closed            the stream has ended: the run takes no more micro-batches

A killed run resumes from the newest sound checkpoint. It processes the micro-batches behind it again. Outputs are
deterministic: the run skips as many as the folder has of these events, and compares their digest. No part reads the
source again. The run can drop micro-batches and outputs once they are old, verified and before each checkpoint.

At the end of the stream, the run marks itself closed, flushes the operators, and writes state/, workload/ and, last,
report.json. `streaming-core run` writes the same for that workload, so `streaming-core diff` can check it.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming_core import interruption, storage
from streaming_core.apps import registry
from streaming_core.data import microbatch
from streaming_core.data.agreement import states_digest
from streaming_core.data.digest import MASK, add, digest_table
from streaming_core.data.microbatch import MicroBatch
from streaming_core.data.parts import Parts, part_number, part_path, write_states, write_whole
from streaming_core.errors import BadInput
from streaming_core.kernels.program import Program, compile_app
from streaming_core.run.blocks import Blocks, block_size
from streaming_core.run.checkpoint import states, store
from streaming_core.run.checkpoint.store import KEPT, Checkpoints
from streaming_core.run.energy import Meter, Spent
from streaming_core.run.failure import runtime_failures
from streaming_core.run.folder import RESULT, locked
from streaming_core.run.live_folder import (
    BATCHES,
    CHECKPOINTS,
    CLOSED,
    LEFT,
    LIVE,
    OUTPUTS,
    PAGE,
    REQUEST,
    STATE,
    STATUS,
    VERIFIED,
    WORKLOAD,
    Sizes,
    Status,
    drop,
    outputs_from,
    show,
    size_of,
)
from streaming_core.run.one_pass import PassEngine, PassRequest, final_state, sample_of
from streaming_core.run.provenance import Outcome, PreparedRun, report_of
from streaming_core.run.report import RunReport, read_report
from streaming_core.run.verification import Verification
from streaming_core.run.way import RunSpec

SHOW_SECONDS = 1.0  # between two versions of the status
DROP_SECONDS = 10.0  # between two looks for old files
POLL_SECONDS = 0.1
COUNTS = {"dropped_invalid": "dropped", "dropped_late": "late", "rejected": "rejected"}  # the oracle's, the runtime's

# Takes the folder .live. Yields after each micro-batch that it recorded and often in between, and ends with the stream.
Feed = Callable[[Path], Generator[None, None, None]]


@dataclass(frozen=True)
class LiveRequest:
    """What a live run does.

    Attributes:
        spec: The way of executing: one pass, with sink parquet.
        source: Describes the source, as JSON values.
        out: The run folder.
        feed: Records micro-batches below `out`.
        is_verified: Whether the oracle follows the run, in a process of its own.
        keep: Seconds for which recorded events and outputs stay at least; None: for ever.
        say: Receives a line about each micro-batch.
        show: Receives the status, about once a second.
    """

    spec: RunSpec
    source: dict[str, Any]
    out: Path
    feed: Feed
    is_verified: bool = True
    keep: float | None = None
    say: Callable[[str], None] = lambda line: None
    show: Callable[[Status], None] = lambda status: None


def run(request: LiveRequest) -> RunReport:
    """Run an application over a live source until the source ends; write outputs, state, workload and report.

    The same request on the folder of a killed run resumes it. Only application, parameters, code and source must be
    the same. On the folder of a complete run it returns the report.

    Raises:
        BadInput: The request cannot be carried out, or the folder belongs to another run.
        RunFailed: An operator failed, or the run differs from the oracle.
        CommandFailed: The disk is full, or fails.
    """
    spec, out = request.spec, request.out
    app = registry.load(spec.app)
    spec.check(app)
    if spec.needs_plan:
        raise BadInput("a live run cannot measure operators first: set plan replicated or a plan file, not plan auto")
    if spec.order != "total" or spec.is_bound:
        raise BadInput("a live run keeps total order: choose another way of executing")
    program = compile_app(app, app.bind(spec.params))
    with locked(out):
        _claim(request, {"code": registry.code_digest(app), **request.source})
        if (out / "report.json").exists():
            shutil.rmtree(out / LIVE, ignore_errors=True)
            request.say(f"{out} already holds this run; nothing to do")
            return read_report(out)
        status = Status(spec.app, request.source["source"], started=time.time())
        try:
            with _shown(status, request):
                return _run(request, program, status)
        except BadInput:
            _forget(out)
            raise


@contextmanager
def _shown(status: Status, request: LiveRequest) -> Iterator[None]:
    """Show how the block ended."""
    try:
        yield
    except interruption.Interrupted:
        status.state = "stopped"
        raise
    except BaseException as error:
        status.state, status.reason = "failed", str(error)
        raise
    else:
        status.state = "complete"
    finally:
        status.bytes = size_of(request.out)
        _show(status, request)


def _show(status: Status, request: LiveRequest) -> None:
    """Show the status; a full disk ends the run elsewhere."""
    status.updated = time.time()
    with suppress(OSError):
        show(request.out / STATUS, storage.json_text(asdict(status)))
        request.show(status)


def _claim(request: LiveRequest, identity: dict[str, Any]) -> None:
    """Raise BadInput unless the folder is new or holds a run with the same result; note the request."""
    out, spec = request.out, request.spec
    storage.sweep_files(out)
    result = {name: getattr(spec, name) for name in RESULT} | identity
    if not (out / REQUEST).exists():
        if leftovers := sorted(path.name for path in out.iterdir() if not path.name.startswith(".")):
            raise BadInput(f"{out} already holds {', '.join(leftovers)}; choose a new folder")
    else:
        earlier = storage.left_json(out / REQUEST)
        earlier = earlier.get("options", {}) | earlier
        for name, value in result.items():
            if earlier.get(name) != value:
                values = "" if isinstance(value, dict) else f" ({earlier.get(name)}, now {value})"
                raise BadInput(f"{out} holds a live run with another {name}{values}; choose a new folder")
    storage.write_json(out / REQUEST, {"options": spec.model_dump(mode="json"), **identity})


def _forget(out: Path) -> None:
    """Empty the folder of a run that recorded nothing, so that the same folder takes a corrected command."""
    if not any((out / LIVE / BATCHES).glob("[0-9]*")):
        for name in (LIVE, OUTPUTS):
            shutil.rmtree(out / name, ignore_errors=True)
        for name in (REQUEST, STATUS, VERIFIED, PAGE):
            (out / name).unlink(missing_ok=True)


@runtime_failures()
def _run(request: LiveRequest, program: Program, status: Status) -> RunReport:
    spec, out, load_before = request.spec, request.out, os.getloadavg()[0]
    live = out / LIVE
    for name in (BATCHES, CHECKPOINTS):
        (live / name).mkdir(parents=True, exist_ok=True)
    for name in (STATE, WORKLOAD):  # of a run that was killed at its end
        shutil.rmtree(out / name, ignore_errors=True)
    about = {store.CODE: registry.code_digest(program.app)}
    declared, way = states.declarations(program.bound), spec.model_dump(mode="json")
    durable = Checkpoints(live / CHECKPOINTS, spec.interval, about, declared, way, request.say)
    durable.recover()
    options = spec.runtime_options | {"sink": "parquet", "rate": 0.0, "deliveries": False, "latencies": None}
    with ExitStack() as stack:
        stack.callback(durable.close)
        engine = stack.enter_context(PassEngine(program, options, durable))
        progress = _Progress(spec, program, engine, out, durable)
        beside = _Beside(request, status, progress, durable)
        stack.callback(beside.close)
        progress.replay()
        if progress.read[0]:
            where = f"the checkpoint at event {durable.last.events}" if durable.last else "event 0"
            request.say(f"resumed from {where}, and processed {progress.repeated} recorded events again")
        if not (live / CLOSED).exists():
            progress.check_replay()
            with closing(request.feed(live)) as ticks:
                for _ in ticks:
                    for batch in progress.recorded():
                        request.say(f"micro-batch {_about(batch)}, {progress.take(batch)} outputs")
                        beside.look()
                    beside.look()
            storage.write_text(live / CLOSED, f"{progress.batches}\n")
            storage.sync(live)
        progress.finish()
        state = final_state(engine.runtime, program)
        metrics = json.loads(engine.runtime.metrics())
        storage.sync(out / OUTPUTS)
        write_states(out, state)
        storage.sync_tree(out / STATE)
        beside.finish({"outputs": metrics["outputs"], **{name: metrics[key] for name, key in COUNTS.items()}})
    source = request.source | storage.left_json(live / LEFT)
    opened = microbatch.seal(live / BATCHES, out / WORKLOAD, program.app, program.app.bind(spec.params), source)
    outcome = Outcome(
        samples=[sample_of(metrics, PassRequest("verified"), progress.read[0], progress.spent)],
        state_digest=states_digest(program.app, spec.order, state),
        peak_memory_bytes=_peak_memory(),
        binding=metrics["binding"],
        memory=metrics["memory"],
        resumed=durable.resumed,
        host={"load_after": os.getloadavg()[0]},
    )
    report = report_of(PreparedRun(spec, program, opened, load_before), outcome)
    report.workload["start"] = opened.manifest["imported"]["start"]
    storage.write_json(out / "report.json", report.model_dump(mode="json"))
    storage.sync(out)
    shutil.rmtree(live, ignore_errors=True)
    return report


def _about(batch: MicroBatch) -> str:
    imported = batch.manifest["imported"]
    aside = sum(reason["rows"] for reason in imported["aside"])
    return f"{batch.manifest['number']}: {len(imported['files'])} files, {batch.rows} events, {aside} rows set aside"


def _peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class _Progress:
    """The progress of a run: the engine's position in the recorded events, and the written outputs.

    Attributes:
        spent: Processor time and energy.
        read: Number of processed events, and the sum of their hashes.
        batches: Number of the next micro-batch. The engine may have processed its first events.
        outputs: Number of outputs that the engine made.
        repeated: Number of events that were processed again.
        first: The first event that was recorded and not dropped before the process began.
    """

    def __init__(self, spec: RunSpec, program: Program, engine: PassEngine, out: Path, durable: Checkpoints):
        self._program, self._engine, self._durable = program, engine, durable
        self._folder, self._root = out / OUTPUTS, out / LIVE / BATCHES
        self._block = block_size(spec)
        last = durable.last
        self.spent = Spent(None, last.cpu_seconds) if last else Spent(Meter())
        self.read = last.read if last else (0, 0)
        self.outputs = store.closed_digest(last)[0] if last else 0
        self.first = self.repeated = 0
        self.batches = self._first_batch()
        self._folder.mkdir(exist_ok=True)
        storage.sweep_files(self._folder)
        paths = Parts.of(self._folder).paths
        self._parts = part_number(paths[-1]) + 1 if paths else 0
        self._written = self._replayed = (0, 0)  # digests of outputs behind the checkpoint: in files, and made again
        for table in outputs_from(out, self.read[0]):
            self._written = add(self._written, digest_table(table, ("seq", "sub")))
        self._left = self._written[0]

    def _first_batch(self) -> int:
        """The first micro-batch with events that the engine has not processed."""
        recorded, events = microbatch.numbers(self._root), self.read[0]
        number = microbatch.behind(self._root, events)
        if recorded:
            first, last = (microbatch.manifest_of(self._root, number) for number in (recorded[0], recorded[-1]))
            self.first = first["start"]
            if self.first <= events <= last["total"][0]:
                return number
        elif not events:
            return number
        raise BadInput(
            f"{self._root} lacks recorded events behind the checkpoint at event {events}: choose a new folder"
        )

    def recorded(self) -> Iterator[MicroBatch]:
        """The micro-batches that were recorded and not yet processed."""
        return microbatch.read_all(self._root, self._program.app, self._program.params, self.batches)

    def replay(self) -> None:
        """Process the events that were recorded behind the checkpoint."""
        start = self.read[0]
        for batch in self.recorded():
            self.take(batch)
        self.repeated = self.read[0] - start

    def take(self, batch: MicroBatch) -> int:
        """Process the rest of a micro-batch, and write its outputs; return the number of new outputs."""
        new, before = 0, batch.before
        done = self.read[0] - before[0], self.read[1] - before[1] & MASK
        blocks = Blocks(batch, self._program, self._block, keep=0)
        for rows, text, read in blocks.read_on(done, self._durable.room):
            interruption.check()
            with self.spent.counting():
                self._engine.process(rows, text)
            new += self._write()
            self.read = add(before, read)
            self.save()
        self.batches = batch.position.batches
        return new

    def save(self) -> None:
        """Make a checkpoint if it is due. Commit the last one if it is written."""
        if self._durable.is_due(self.read[0]):
            self._durable.make(self._engine.runtime, self.read, self.spent.cpu)
        else:
            self._durable.settle(wait=False)

    def finish(self) -> None:
        """End the stream, and write the last outputs."""
        with self.spent.counting():
            self._engine.runtime.finish(self.read[0])
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
        self.outputs += table.num_rows
        known = min(self._left, table.num_rows)
        if known:
            self._replayed = add(self._replayed, digest_table(table.slice(0, known), ("seq", "sub")))
            self._left -= known
            if not self._left and self._replayed != self._written:
                raise self._changed()
        return table.slice(known)

    def _changed(self) -> BadInput:
        return BadInput(
            f"the files in {self._folder} are not the outputs of the recorded events: they were changed or removed; "
            "choose a new folder"
        )


class _Beside:
    """What goes on beside the engine's work: checkpoints, verification, the status, and the removal of old files."""

    def __init__(self, request: LiveRequest, status: Status, progress: _Progress, durable: Checkpoints):
        self._request, self._status, self._progress, self._durable = request, status, progress, durable
        self._verification = Verification(request.out) if request.is_verified else None
        self._sizes = Sizes(request.out)
        self._announced = -1  # the number of events at the last call of `Verification.tell`
        self._times: deque[tuple[int, float]] = deque()  # numbers of events that are not verified, and when
        self._shown = self._dropped = 0.0
        status.resumed = durable.last.events if durable.last else None
        status.first = progress.first

    def look(self) -> None:
        """Do what is due between two blocks."""
        progress, now = self._progress, time.monotonic()
        progress.save()
        if self._verification is not None:
            if progress.read[0] != self._announced:
                self._announced = progress.read[0]
                self._times.append((self._announced, time.time()))
                self._verification.tell(self._announced)
            self._verification.check()
        if self._request.keep is not None and now >= self._dropped + DROP_SECONDS:
            self._dropped = now
            self._drop(self._request.keep)
        if now >= self._shown + SHOW_SECONDS:
            self._shown = now
            self.show()

    def _drop(self, keep: float) -> None:
        """Drop what no checkpoint and no verification needs."""
        checkpoints = self._durable.checkpoints
        limit = checkpoints[0].events if len(checkpoints) == KEPT else 0
        if self._verification is not None:
            limit = min(limit, storage.left_json(self._request.out / VERIFIED).get("needs", 0))
        first = drop(self._request.out, limit, time.time() - keep)
        if first is not None:
            self._status.first = first

    def finish(self, counts: dict[str, int]) -> None:
        """Wait until the whole run is verified."""
        if self._verification is not None:
            self._verification.tell(self._progress.read[0], counts)
            while not self._verification.check():
                interruption.check()
                time.sleep(POLL_SECONDS)
                if time.monotonic() >= self._shown + SHOW_SECONDS:
                    self._shown = time.monotonic()
                    self.show()

    def show(self) -> None:
        """Write the status."""
        self._update()
        _show(self._status, self._request)

    def _update(self) -> None:
        status, progress = self._status, self._progress
        status.micro_batches, status.events, status.outputs = progress.batches, progress.read[0], progress.outputs
        status.repeated = progress.repeated
        for newest in self._durable.checkpoints[-1:]:
            status.checkpoint, status.checkpoint_time = newest.events, newest.time
        if self._verification is not None:
            verified = storage.left_json(self._request.out / VERIFIED)
            status.verified, status.verified_time = verified.get("events", 0), verified.get("time")
            while self._times and self._times[0][0] <= status.verified:
                self._times.popleft()
            status.lag = status.events - status.verified
            status.lag_seconds = time.time() - self._times[0][1] if self._times else 0.0
        status.bytes, status.free_bytes = self._sizes.measure()
        status.peak_memory_bytes = _peak_memory()

    def close(self) -> None:
        """End the process that verifies, and bring the status up to date."""
        if self._verification is not None:
            self._verification.close()
        with suppress(OSError):
            self._update()
