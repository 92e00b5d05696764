"""Runs a cell: the application's kernels on the native runtime, over a workload, into a run folder.

A run is one or more passes over the same workload, each from fresh state: the first delivers to the spec's sink, then
`repetitions` at peak rate into the digest sink, then, if a rate is set, one open-loop pass. Parquet is decoded between
blocks while the engine's clock stands still, with bounded memory; but the pass that writes Parquet, which is to be
finished soon and not to be measured (unless it is the open-loop one), reads and writes in threads of their own while
the engine is at work.

A repetition is as many passes as take `seconds`, in turns with the compiled loop (yardstick.py); its sample is the pass
of median time. Before the first, both have had a pass that is not measured.

A run folder is one process's at a time, by a lock that ends with it. While it is at work, what it makes lies in
`.run/` below; outputs and state are moved out when all are there, report.json is written, `.run` goes, in this order.
Whoever comes next answers from the report if there is one, else throws away what was left and begins anew.

With `checkpoint` in the spec, the first pass leaves checkpoints in the run folder, and a run that finds one goes on
from there (checkpoint.py). The passes after it are measured from their beginning.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streaming_core import interruption, storage
from streaming_core.api import App
from streaming_core.apps import registry
from streaming_core.data import rows as row_format
from streaming_core.data import workload
from streaming_core.data.agreement import states_digest
from streaming_core.data.arrow import to_arrow
from streaming_core.data.digest import format_digest
from streaming_core.data.parts import Writer, ahead, write_states
from streaming_core.errors import BadInput, CommandFailed, RunFailed, refusal
from streaming_core.kernels.program import Program, compile_app
from streaming_core.run import checkpoint
from streaming_core.run.energy import Meter, Spent
from streaming_core.run.failure import runtime_failures
from streaming_core.run.processor import processor
from streaming_core.run.report import LOG, Balance, Latency, Planned, RunReport, Sample
from streaming_core.run.way import RunSpec
from streaming_core.run.yardstick import Turns, Yardstick, keep_memory

if TYPE_CHECKING:
    from streaming_core import _runtime

BLOCK = 1 << 17  # events per block, rounded up to whole punctuation intervals
KEPT_BLOCKS = 4  # blocks kept decoded between passes; longer workloads are read again
BUILD_FILE = "BUILD"  # in the package, if it was shipped to a host (infra/services/wheel.py)
WORK = ".run"  # below the folder of a run without checkpoints, while it is at work
PUBLISHED = ("outputs", "state")
MAX_CHECKPOINTS = 99_999  # each makes a file of outputs, and their names have five digits

Progress = Callable[[str, int, int], None]
Rates = list[tuple[int, float]]  # from an event on, so many a second
Beside = Callable[["_runtime.Engine"], AbstractContextManager[None]]
# The plan for a run, and what is said of it after a pass.
FindPlan = Callable[[RunSpec, workload.Workload, Progress | None], tuple[Planned, Callable[[Sample], Planned]]]


class Blocks:
    """The workload as (rows, text) blocks, decoded once if it has at most `keep` of them, else on every pass."""

    def __init__(
        self,
        source: workload.Source,
        program: Program,
        size: int,
        keep: int = KEPT_BLOCKS,
        decode: Callable[[pa.Table], tuple[np.ndarray, np.ndarray]] | None = None,
    ):
        """decode: what makes a block of a table, if not the engine is to read it."""
        self._source, self._size, self._keep = source, size, keep

        def encoded(table: pa.Table) -> tuple[tuple[np.ndarray, np.ndarray], int]:
            if decode is not None:
                return decode(table), source.hashes(table)
            rows, text, value = row_format.encode(table, program.event)
            return (rows, text), value

        self._decode = encoded
        self._kept: list[tuple[np.ndarray, np.ndarray]] | None = None
        self.events, self.end = source.rows, source.end

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return self.read()

    def read(self, reading: Callable[[Iterable], Iterable] = iter) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The blocks; `reading`: `ahead`, to read one while the one before it is in use."""
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[tuple[np.ndarray, np.ndarray]] | None = []
        for block, _ in self._source.read_on((0, 0), self._size, self._decode, reading=reading):
            if kept is not None:
                kept.append(block)
                if len(kept) > self._keep:
                    kept = None
            yield block
        self._kept = kept

    def read_on(
        self, read: tuple[int, int], cut: int, reading: Callable[[Iterable], Iterable] = iter
    ) -> Iterator[tuple[np.ndarray, np.ndarray, tuple[int, int]]]:
        """The blocks behind `read`, each with `read` at its end; none spans a multiple of `cut`."""
        for block, total in self._source.read_on(read, self._size, self._decode, cut, reading):
            yield *block, total


def run(
    spec: RunSpec,
    source: Path,
    out: Path | None,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
    meter: Meter | None = None,
    find_plan: FindPlan | None = None,
    requires_plan: bool = True,
) -> RunReport:
    """Executes `spec` over the workload at `source`; writes outputs, state and, last, report.json into `out`.

    The same call on the same folder returns the report of a run that is complete; of one that was killed on the way it
    leaves nothing but, with checkpoints, the last checkpoint, from which it goes on.

    Args:
        out: run folder; None keeps nothing but the returned report, and no checkpoints. A folder that holds this very
            spec's spec.json and nothing else of a run is taken over.
        progress: called with (pass, events done, events in all).
        say: called with a line when the run goes on from somewhere.
        meter: what energy is read from, if not from this machine's counters.
        find_plan: Finds the plan of a spec with plan `auto` (planning.py), unless the run is complete.
        requires_plan: Whether a failure to find that plan is an error. Otherwise the run uses the replicated plan, and
            its report says why (`unplanned`).

    Raises:
        BadInput: the request cannot be carried out; nothing was written.
        RunFailed: an operator failed (operator, event, reason).
        CommandFailed: the disk is full, or fails.
    """
    app = registry.load(spec.app)
    spec.check(app)
    opened = workload.read(source, app, spec.params)
    params = opened.manifest["params"]
    if spec.checkpoint_interval and opened.rows // spec.checkpoint_interval > MAX_CHECKPOINTS:
        count = opened.rows // spec.checkpoint_interval
        raise BadInput(
            f"a run can have at most {MAX_CHECKPOINTS} checkpoints, got {count} with checkpoint "
            f"{spec.option('checkpoint')}; raise checkpoint, the punctuations between two checkpoints"
        )
    meter, say = meter or Meter(), say or (lambda line: None)
    load_before = os.getloadavg()[0]

    def passes(folder: Path | None, durable: checkpoint.Checkpoints | None) -> RunReport:
        report = _passes(way, program, blocks, opened, folder, durable, load_before, meter, progress)
        requested = {"spec": spec.model_dump(mode="json"), "spec_digest": spec.spec_digest, "cell": spec.cell}
        return report.model_copy(
            update=requested | {"planned": judge(report.peak) if judge else None, "unplanned": unplanned}
        )

    if out is not None and out.exists() and not out.is_dir():
        raise BadInput(f"{out} is not a folder")
    judge, way, unplanned = None, spec, None
    if spec.needs_plan and not opened.rows:
        way = spec.model_copy(update={"plan": {}})  # nothing can be measured, or gained
    elif spec.needs_plan and not (out is not None and (out / "report.json").exists()):
        try:
            way, judge = _planned(spec, app, opened, find_plan, progress)
        except BadInput as error:
            if requires_plan:
                raise
            unplanned = str(error)
            way = spec.model_copy(update={"plan": {}})
            say(f"found no plan, so the run uses the replicated plan: {unplanned}")
    program = compile_app(app, params)  # first: an application that is refused leaves nothing behind
    blocks = Blocks(opened, program, block_size(spec))
    if out is None:
        return passes(None, None)
    with folder_of(spec, out) as is_complete:
        if is_complete:
            return complete(out, app, opened, say)
        if spec.checkpoint_interval:
            return _durable(spec, program, opened, out, say, passes)
        return run_anew(out, lambda folder: passes(folder, None))


@contextmanager
def folder_of(spec: RunSpec, out: Path) -> Iterator[bool]:
    """Hold the folder of a run while the block runs; tells whether the run is complete already (`complete`).

    Raises:
        BadInput: Another process uses the folder, or the folder cannot be written or is another run's.
        CommandFailed: The disk is full, or fails.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = storage.Lock(out / ".lock")
        if not lock.take():
            raise BadInput(f"another run is using the folder {out}; wait for it, or choose a new folder")
        try:
            _check_folder(out, spec)
            yield (out / "report.json").exists()
        finally:
            lock.leave(remove=True)
    except OSError as error:
        raise refusal(error, f"cannot write run folder {out}") from None


def _planned(
    spec: RunSpec, app: App, opened: workload.Workload, find_plan: FindPlan | None, progress: Progress | None
) -> tuple[RunSpec, Callable[[Sample], Planned]]:
    """The spec with the plan that is found for it, and the function that judges the plan after a pass.

    Raises:
        BadInput: No plan was found, whatever the reason.
        RunFailed: An operator failed while it was measured, or passes of the measurement differ.
    """
    if find_plan is None:
        raise BadInput("plan auto is not available here; set a plan, or plan replicated")
    try:
        planned, judge = find_plan(spec, opened, progress)
        way = spec.model_copy(update={"plan": planned.plan, "pin": True})
        way.check(app)
    except (BadInput, RunFailed, MemoryError):
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, CommandFailed) else f"{type(error).__name__}: {error}"
        raise BadInput(f"found no plan for {spec.app}: {reason}; set plan replicated to run without one") from error
    return way, judge


def complete(out: Path, app: App, opened: workload.Workload, say: Callable[[str], None]) -> RunReport:
    """The report of an earlier run in this folder. Removes what that run left beside its results.

    Raises:
        BadInput: The earlier run had another workload or another version of the code.
    """
    report = RunReport.model_validate_json((out / "report.json").read_bytes())
    digests = report.code_digest, report.workload["content_digest"]
    if digests != (registry.code_digest(app), opened.manifest["content_digest"]):
        raise BadInput(f"{out} holds a run of another workload or another version of the code; choose a new folder")
    for name in (checkpoint.FOLDER, WORK):
        shutil.rmtree(out / name, ignore_errors=True)
    say(f"{out} already holds this run; nothing to do")
    return report


def run_anew(out: Path, passes: Callable[[Path], RunReport]) -> RunReport:
    """A run from the beginning: what a run that did not end left in the folder is thrown away.

    Args:
        out: The folder of the run, which `folder_of` holds.
        passes: Makes the passes, and writes PUBLISHED into a folder for the time of the run.
    """
    folder = out / WORK
    if folder.exists():  # goes last: it says that the others are nobody's
        for name in (*PUBLISHED, WORK):
            if (out / name).exists():
                shutil.rmtree(out / name)
    folder.mkdir()
    storage.sync(out)
    try:
        report = passes(folder)
        storage.sync_tree(folder)
        interruption.check()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    for name in PUBLISHED:
        if (folder / name).exists():
            os.replace(folder / name, out / name)
    storage.sync(out)
    storage.write_json(out / "report.json", report.model_dump(mode="json"))
    storage.sync(out)
    shutil.rmtree(folder, ignore_errors=True)
    return report


def _durable(spec, program, opened, out, say, passes) -> RunReport:
    about = {
        "spec": spec.spec_digest,
        "application code": registry.code_digest(program.app),
        "workload": opened.manifest["content_digest"],
        "table layout": table_layout(program),
    }
    schema = program.output.arrow(("seq", "sub")) if spec.sink == "parquet" else None
    with checkpoint.opened(out, about, spec.checkpoint_interval, schema) as durable:
        if durable.last is not None:
            say(f"resuming from the checkpoint at event {durable.last.events}")
        try:
            report = passes(durable.folder, durable)
        except BadInput as error:
            raise BadInput(f"{error}; choose a new folder for another workload") from None
        interruption.check()
        durable.publish()
        storage.write_json(out / "report.json", report.model_dump(mode="json"))
        storage.sync(out)
    return report


def table_layout(program: Program) -> list[dict[str, Any]]:
    """How the tables lie in memory, which the images of a checkpoint depend on."""
    names = ("name", "rows", "stride", "growing", "index")
    return [{name: table.get(name) for name in names} for table in program.description["tables"]]


def _check_folder(out: Path, spec: RunSpec) -> None:
    """Sees to it that a folder that is held is this spec's, and says so in it. Raises BadInput when it is not."""
    found = sorted(p.name for p in out.iterdir() if not p.name.startswith(".")) if out.exists() else []
    if (out / "spec.json").exists():
        other = RunSpec.parse((out / "spec.json").read_bytes())
        if other.spec_digest != spec.spec_digest:
            digests = f"{other.spec_digest}, requested {spec.spec_digest}"
            raise BadInput(f"{out} holds a run with other options ({digests}); choose a new folder")
    known = {"spec.json", LOG}
    if (out / "spec.json").exists():
        # Outputs are moved out of the folder of a run at work when all are there, the report comes when they were.
        if (out / "report.json").exists():
            known |= {*PUBLISHED, "report.json"}
        elif (out / (checkpoint.FOLDER if spec.checkpoint_interval else WORK)).exists():
            known |= {*PUBLISHED}
    if leftovers := [name for name in found if name not in known]:
        raise BadInput(f"{out} already holds {', '.join(leftovers)}; choose a new folder")
    storage.sweep_files(out)
    if not (out / "spec.json").exists():
        storage.write_json(out / "spec.json", spec.model_dump(mode="json"))


def block_size(spec: RunSpec) -> int:
    """Events in a block: whole punctuation intervals."""
    if spec.executor != "transactional":
        return BLOCK
    return -(-BLOCK // spec.punctuation) * spec.punctuation


def _passes(spec, program, blocks, opened, folder, durable, load_before, meter, progress) -> RunReport:
    kinds = [("verified", spec.sink, 0.0)]
    kinds += [("peak", "digest", 0.0)] * spec.repetitions
    if spec.rate > 0:
        kinds = (
            [("open_loop", spec.sink, spec.rate)]
            if not spec.repetitions
            else [*kinds, ("open_loop", "digest", spec.rate)]
        )
    keep_memory()  # a block takes the memory of an earlier one
    samples: list[Sample] = []
    digest = ""
    where: dict[str, Any] = {}
    turns = Turns(spec.seconds if opened.rows else 0.0, lambda: yardstick_of(program, opened))
    peak_memory = 0
    for number, (kind, sink, rate) in enumerate(kinds):
        first = number == 0
        if kind == "peak" and not first:
            again = partial(
                one_pass, spec, program, blocks, kind, number, sink, 0.0, None, progress, False, None, meter
            )
            samples.append(turns.repetition(lambda: again()[0], samples[0]))  # noqa: B023 - called in this turn
            continue
        sample, state, where = one_pass(
            spec,
            program,
            blocks,
            kind,
            number,
            sink,
            rate,
            folder if first else None,
            progress,
            export=first,
            durable=durable if first else None,
            meter=meter,
        )
        samples.append(sample)
        if first:
            digest = states_digest(program.app, spec.order, state)
            peak_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # the loop's is not the engine's
    load_after = os.getloadavg()[0]
    spent = [sample.energy_joules for sample in samples]
    return report_of(
        spec,
        program,
        opened,
        samples,
        digest,
        where,
        load_before,
        peak_memory_bytes=peak_memory,
        energy_joules=None if None in spent else sum(spent),
        resumed=durable.resumed if durable else [],
        yardstick=turns.yardstick,
        host={
            "load_after": load_after,
            **({"energy": meter.why} if meter.why else {}),
            **turns.host,
        },
    )


def report_of(
    spec: RunSpec,
    program: Program,
    opened: workload.Workload,
    samples: list[Sample],
    state_digest: str | None,
    where: dict[str, Any],
    load_before: float,
    host: dict[str, Any],
    **measured: Any,
) -> RunReport:
    """The report of a run.

    Args:
        spec: The spec.
        program: The compiled application.
        opened: The workload.
        samples: The samples of all passes.
        state_digest: The digest of the final state; None if the run leaves none.
        where: The binding of threads and memory in the last pass.
        load_before: The load average before the run.
        host: What is known of the host beside its name and versions.
        measured: More fields of the report.
    """
    return RunReport(
        spec=spec.model_dump(mode="json"),
        spec_digest=spec.spec_digest,
        cell=spec.cell,
        app=spec.app,
        code_digest=registry.code_digest(program.app),
        build=build(),
        workload={k: opened.manifest[k] for k in ("address", "content_digest", "events", "seed", "params")},
        is_bound=spec.is_bound,
        samples=samples,
        state_digest=state_digest,
        compile_seconds=program.compile_seconds,
        topology=topology(),
        binding=where["binding"],
        memory=where["memory"],
        host={
            "name": socket.gethostname(),
            "load_before": load_before,
            "python": platform.python_version(),
            "kernel": platform.release(),
            "cpu": processor(),
            **host,
        },
        **measured,
    )


def yardstick_of(program: Program, opened: workload.Workload) -> Yardstick:
    """The compiled loop of a workload."""
    from streaming_core.oracle.loop import Loop  # loads the compiler, which kept kernels do without

    loop = Loop(program.app, opened.manifest["params"])
    return Yardstick(loop, Blocks(opened, program, BLOCK, decode=loop.decode), opened.end)


@runtime_failures()
def one_pass(
    spec: RunSpec,
    program: Program,
    blocks: Blocks,
    kind: str = "peak",
    number: int = 0,
    sink: str = "digest",
    rate: float | Rates = 0.0,
    folder: Path | None = None,
    progress: Progress | None = None,
    export: bool = True,
    durable: checkpoint.Checkpoints | None = None,
    meter: Meter | None = None,
    beside: Beside | None = None,
    deliveries: bool = False,
    middle: bool = False,
) -> tuple[Sample, dict[str, pa.Table], dict]:
    """One pass from fresh state: its sample, the final state by table, the binding of threads and memory, deliveries.

    `folder` receives outputs (parquet sink) and state; without `export` the state returned is empty. `durable` gives
    the checkpoint to go on from, and takes those on the way and the one at the end. Without a `meter` the sample says
    nothing of energy, nor does it of a pass that was gone on with. `beside` is what goes on while events are processed:
    it may ask for reconfigurations. `deliveries`: executor pinned notes what was delivered when (runtime/ABI.md), in
    memory that grows with the events. `middle`: the latencies of an open loop leave out the first and the last fifth of
    the events. Raises RunFailed when an operator fails, or an event becomes too many rows.
    """
    options = spec.runtime_options | {
        "sink": sink if folder is not None or sink != "parquet" else "digest",
        "rate": rate,
        "deliveries": deliveries,
        "latencies": [blocks.events // 5, blocks.events - blocks.events // 5] if middle and rate else None,
    }
    writes = folder is not None and sink == "parquet"
    last = durable.last if durable is not None else None
    with Pass(program, options, last) as work:
        done, read = (last.events, last.read) if last else (0, (0, 0))
        # The energy up to a checkpoint that is gone on from is not known.
        spent = Spent(None, last.cpu_seconds) if last else Spent(meter)
        reading = ahead if writes and not rate else iter
        stream: Iterable = ((*block, None) for block in blocks.read(reading))
        if durable is not None:
            stream = blocks.read_on(read, durable.interval, reading)
        made = last.parts if last else 0
        with (
            Writer(folder / "outputs", work.schema, made) if folder is not None and writes else nullcontext() as writer
        ):
            with beside(work.engine) if beside else nullcontext():
                for rows, text, read in stream:
                    interruption.check()
                    with spent.counting():
                        work.process(rows, text)
                    done += len(rows)
                    if writer is not None:
                        _take(work, writer)
                        if rate:
                            writer.settle()
                    if durable is not None and done % durable.interval == 0 and done < blocks.events:
                        _save(work.engine, durable, writer, read, spent.cpu)
                    if progress is not None:
                        progress(kind, done, blocks.events)
            with spent.counting():
                work.engine.finish(blocks.end)
            if writer is not None:
                _take(work, writer)
        if durable is not None and (last is None or last.events < done):
            _save(work.engine, durable, writer, read, spent.cpu)
        state = final_state(work.engine, program) if export else {}
        if folder is not None:
            write_states(folder, state)
        metrics = json.loads(work.engine.metrics())
    sample = sample_of(metrics, kind, number, blocks.events, spent, rate)
    return sample, state, {name: metrics[name] for name in ("binding", "memory", "deliveries")}


class Pass:
    """The engine in one pass: blocks of events go in, tables of outputs come out.

    A pass is a context, at whose end the engine stops. The caller has `runtime_failures`.

    Attributes:
        engine: The engine.
        schema: Columns of the outputs.
    """

    def __init__(self, program: Program, options: dict[str, Any], last: checkpoint.Checkpoint | None = None):
        """Prepare an engine.

        Args:
            program: The compiled application.
            options: The runtime's options (runtime/ABI.md).
            last: The checkpoint to go on from; None starts from fresh state.
        """
        from streaming_core import _runtime

        self._program = program
        self._nameable = row_format.nameable_text() if program.makes_texts else None
        # What outputs name: their block's text, or all that can be named.
        self._named = np.zeros(row_format.TEXT_PADDING, np.uint8) if self._nameable is None else self._nameable
        self._last = last
        self.engine = _runtime.Engine(program.json(), json.dumps(options), self._nameable)
        self.schema = program.output.arrow(("seq", "sub"))

    def __enter__(self) -> Pass:
        """Bring tables and states to their start."""
        try:
            if self._last is not None:
                self.engine.resume(json.dumps(self._last.standing), self._last.images)
            else:
                load_tables(self.engine, self._program)
        except BaseException:
            self.engine.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the engine."""
        self.engine.stop()

    def process(self, rows: np.ndarray, text: np.ndarray) -> None:
        """Process a block of events (`rows.encode`)."""
        if self._nameable is None:
            self._named = text
        else:
            self._nameable[: len(text)] = text
            text = self._nameable[: len(text)]
        self.engine.process(rows.view(np.uint8), len(rows), text)

    def outputs(self) -> Iterator[pa.Table]:
        """The outputs since the last call, in delivered order; only with sink parquet."""
        data, subs, count = self.engine.take_outputs()
        rows = np.frombuffer(data, dtype=self._program.output.dtype(header=True), count=count)
        for at in range(0, count, 1 << 16):
            part = slice(at, at + (1 << 16))
            yield row_format.decode(rows[part], self._named, self._program.output, np.frombuffer(subs, "<u4")[part])


def sample_of(
    metrics: dict[str, Any], kind: str, number: int, events: int, spent: Spent, rate: float | Rates = 0.0
) -> Sample:
    """The sample of a pass.

    Args:
        metrics: The runtime's metrics of the pass.
        kind: The kind of the pass (report.Sample).
        number: The number of the pass.
        events: Number of events.
        spent: Processor time and energy.
        rate: The rate of an open loop; 0 means peak rate.
    """
    seconds = metrics["seconds"]
    return Sample(
        kind=kind,
        repetition=number,
        events=events,
        outputs=metrics["outputs"],
        digest=format_digest(metrics["outputs"], metrics["digest"]),
        in_order=metrics["in_order"],
        seconds=seconds,
        events_per_s=events / seconds if seconds else 0.0,
        processing=Latency(**metrics["processing"]),
        # Of a stream without events nothing arrives.
        end_to_end=Latency(**metrics["end_to_end"]) if rate and metrics["end_to_end"] else None,
        breakdown=metrics["breakdown"],
        cpu_seconds=spent.cpu,
        energy_joules=spent.joules,
        dropped_invalid=metrics["dropped"],
        dropped_late=metrics["late"],
        rejected=metrics["rejected"],
        reconfigurations=metrics["reconfigurations"] or [],
        loads=metrics["loads"] or {},
        balance={name: Balance(calls=calls) for name, calls in (metrics["calls"] or {}).items()},
        omitted_reconfigurations=metrics["omitted_reconfigurations"],
        omitted_loads=metrics["omitted_loads"],
        tasks=metrics["tasks"] or [],
        chosen=metrics["chosen"],
        costs=metrics["costs"],
    )


def _save(engine, durable: checkpoint.Checkpoints, writer: Writer | None, read: tuple[int, int], cpu) -> None:
    if writer is not None:
        writer.cut()
    standing, images = engine.checkpoint()
    parts = writer.parts if writer is not None else 0
    durable.save(checkpoint.Checkpoint(read, parts, json.loads(standing), cpu, durable.resumed, durable.about, images))


def _take(work: Pass, writer: Writer) -> None:
    for table in work.outputs():
        writer.write(table)


def load_tables(engine: _runtime.Engine, program: Program) -> None:
    """Hands the initial rows of the tables to an engine, and their keys."""
    for index, (rows, keys) in enumerate(zip(program.initial, program.keys, strict=True)):
        engine.load_table(index, rows.view(np.uint8), keys.tobytes() if isinstance(keys, np.ndarray) else keys)


def final_state(engine, program: Program) -> dict[str, pa.Table]:
    """Shared tables and keyed states by name, sorted by key."""
    state = {}
    for index, (table, record, size) in enumerate(program.tables):
        keys, data = engine.table(index)
        numbers = to_arrow(np.arange(size, dtype=np.int64)) if keys is None else row_format.key_column(keys)
        state[table.name] = row_format.decode_state(data, record, numbers)
    for index, operator in enumerate(program.description.get("operators", [])):
        found = [record for op, record in program.states if op.name == operator["name"]]
        if not found:
            continue
        keys, data = engine.states(index)
        column = None if operator["kind"] == "stateful" else row_format.key_column(keys)
        state[operator["name"]] = row_format.decode_state(data, found[0], column)
    return state


@cache
def build() -> str:
    """Short revision of the checkout the engine runs from, `-dirty` when files differ or are not known to it, as a new
    application is at first; `unknown` without one. A build on another host has its name with it."""
    shipped = Path(__file__).parents[1] / BUILD_FILE
    if shipped.exists():
        return shipped.read_text().strip()

    def git(*words: str) -> str:
        command = ["git", *words]
        here = Path(__file__).parent
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        revision, changed = git("describe", "--always", "--exclude=*"), git("status", "--porcelain")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{revision}{'-dirty' if changed else ''}" if revision else "unknown"


@cache
def topology() -> dict:
    """Sockets, cores and distances of this host, as the runtime sees them."""
    from streaming_core import _runtime

    return json.loads(_runtime.probe())


def pool_is_shared(pool: str, threads: int) -> bool:
    """Tells whether two threads share a pool of operation chains.

    A machine with one socket has two made-up sockets, and two threads have one each. Then `shared_per_socket` equals
    `shared_nothing`.

    Raises:
        ValueError: The runtime does not know the pool.
    """
    from streaming_core import _runtime

    return len(set(_runtime.pools(pool, threads))) < threads


def decider(controller: str) -> Callable[[dict[str, int]], int | None]:
    """Returns a function that asks a controller, one period after the other.

    The function takes what the controller sees (report.Load). It returns the number of replicas that the controller
    asks for, or None if it keeps them.
    """
    from streaming_core import _runtime

    deciding = _runtime.Controller(controller)
    return lambda seen: deciding.decide(json.dumps(seen))
