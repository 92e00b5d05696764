"""One pass over a workload, from fresh state or from a checkpoint: a request goes in, a sample comes out.

Parquet is decoded between blocks while the engine's clock stands still, in bounded memory. A pass that writes Parquet
at peak rate is there to end soon, not to be measured. It reads and writes in threads of their own while the engine
works.

`run` makes the pass. `PassEngine` is the engine in a pass, for callers that feed events themselves (live.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from streaming_core import interruption
from streaming_core.data import rows as row_format
from streaming_core.data.arrow import to_arrow
from streaming_core.data.digest import format_digest
from streaming_core.data.parts import Writer, ahead, part_path, write_states
from streaming_core.kernels.program import Program
from streaming_core.run.blocks import Blocks
from streaming_core.run.checkpoint.store import Checkpoints
from streaming_core.run.energy import Meter, Spent
from streaming_core.run.failure import runtime_failures
from streaming_core.run.node_loads import Counters
from streaming_core.run.report import Balance, Latency, Sample
from streaming_core.run.way import RunSpec

if TYPE_CHECKING:
    from streaming_core import _runtime

Progress = Callable[[str, int, int], None]  # receives the kind of the pass, the events done, and all events
Rates = list[tuple[int, float]]  # from an event on, so many events per second
Beside = Callable[["_runtime.Engine"], AbstractContextManager[None]]


@dataclass(frozen=True)
class PassRequest:
    """The request for one pass.

    Attributes:
        kind: The kind of its sample (report.Sample).
        number: Its number in the run.
        sink: Where the outputs go. Sink parquet needs a folder; without one, the pass uses sink digest.
        rate: Events per second of the open-loop source, or rates from events on; 0 = peak rate.
        folder: Receives outputs (sink parquet) and state.
        progress: Called after each block.
        exports_state: Whether the pass returns its final state.
        durable: Gives the checkpoint to resume from, and makes those on the way.
        meter: Measures energy. None: the sample has no energy. Nor has that of a pass that resumed.
        counters: Count loads from memory nodes; None: nothing does.
        beside: A context for the time in which events are processed. It may request reconfigurations.
        records_deliveries: Executor pinned notes which rows it delivered when (runtime/ABI.md). The memory for them
            grows with the events.
        trims_latencies: The latencies of an open loop leave out the first and the last fifth of the events.
        cores: The number of cores that the choice of threads reckons with; 0: those of this process.
    """

    kind: str = "peak"
    number: int = 0
    sink: str = "digest"
    rate: float | Rates = 0.0
    folder: Path | None = None
    progress: Progress | None = None
    exports_state: bool = True
    durable: Checkpoints | None = None
    meter: Meter | None = None
    counters: Counters | None = None
    beside: Beside | None = None
    records_deliveries: bool = False
    trims_latencies: bool = False
    cores: int = 0


PEAK_PASS = PassRequest()

# The cores that passes reckon with, unless their request says so; 0: those of this process.
CORES: ContextVar[int] = ContextVar("cores", default=0)


class PassResult(NamedTuple):
    """The result of one pass: its sample, the final state by table, and the binding, memory and deliveries."""

    sample: Sample
    state: dict[str, pa.Table]
    metrics: dict[str, Any]


@runtime_failures()
def run(spec: RunSpec, program: Program, blocks: Blocks, request: PassRequest = PEAK_PASS) -> PassResult:
    """Make one pass.

    Args:
        spec: The way of executing.
        program: The compiled application.
        blocks: The events.
        request: The details of the pass.

    Raises:
        RunFailed: An operator fails, or an event becomes too many rows.
    """
    durable, folder = request.durable, request.folder
    last = durable.last if durable is not None else None
    with PassEngine(program, _runtime_options(spec, blocks.events, request), durable) as engine:
        # The energy up to a checkpoint that the pass resumes from is not known.
        spent = Spent(None, last.cpu_seconds) if last else Spent(request.meter, counters=request.counters)
        writing: AbstractContextManager[Writer | None] = nullcontext()
        if folder is not None and request.sink == "parquet":
            writing = Writer(folder / "outputs", engine.schema, last.outputs if last else 0)
        with writing as writer:
            _process_events(engine, blocks, request, writer, spent)
        state = final_state(engine.runtime, program) if request.exports_state else {}
        if folder is not None:
            write_states(folder, state)
        metrics = json.loads(engine.runtime.metrics())
    sample = sample_of(metrics, request, blocks.events, spent)
    return PassResult(sample, state, {name: metrics[name] for name in ("binding", "memory", "deliveries")})


def _runtime_options(spec: RunSpec, events: int, request: PassRequest) -> dict[str, Any]:
    """The runtime's options for a pass over so many events (runtime/ABI.md)."""
    is_trimmed = request.trims_latencies and request.rate
    return spec.runtime_options | {
        "sink": request.sink if request.folder is not None or request.sink != "parquet" else "digest",
        "rate": request.rate,
        "deliveries": request.records_deliveries,
        "latencies": [events // 5, events - events // 5] if is_trimmed else None,
        "cores": request.cores or CORES.get(),
    }


def _process_events(
    engine: PassEngine, blocks: Blocks, request: PassRequest, writer: Writer | None, spent: Spent
) -> None:
    """Process the events behind the last checkpoint, if any, and make checkpoints on the way."""
    durable = request.durable
    last = durable.last if durable is not None else None
    done, read = (last.events, last.read) if last else (0, (0, 0))
    reading = ahead if writer is not None and not request.rate else iter
    stream: Iterable = ((*block, read) for block in blocks.read(reading))
    if durable is not None:
        stream = blocks.read_on(read, durable.room, reading)
    with request.beside(engine.runtime) if request.beside else nullcontext():
        for rows, text, read in stream:
            interruption.check()
            with spent.counting():
                engine.process(rows, text)
            done += len(rows)
            if writer is not None:
                _write_outputs(engine, writer)
                if request.rate:
                    writer.settle()
            if durable is not None and done < blocks.events and durable.is_due(done):
                outputs = []
                if writer is not None:
                    writer.cut()
                    outputs = [part_path(writer.folder, number) for number in range(writer.parts)]
                durable.make(engine.runtime, read, spent.cpu, outputs)
            if request.progress is not None:
                request.progress(request.kind, done, blocks.events)
    with spent.counting():
        engine.runtime.finish(blocks.end)
    if writer is not None:
        _write_outputs(engine, writer)
    if durable is not None:
        durable.settle()


def _write_outputs(engine: PassEngine, writer: Writer) -> None:
    for table in engine.outputs():
        writer.write(table)


class PassEngine:
    """The engine in one pass: blocks of events go in, tables of outputs come out.

    It is a context, at whose end the engine stops. The caller has `runtime_failures`.

    Attributes:
        runtime: The runtime's engine.
        schema: Columns of the outputs.
    """

    def __init__(self, program: Program, options: dict[str, Any], durable: Checkpoints | None = None):
        """Prepare an engine.

        Args:
            program: The compiled application.
            options: The runtime's options (runtime/ABI.md).
            durable: Has the checkpoint to resume from; without one, the engine starts from fresh state.
        """
        from streaming_core import _runtime

        self._program = program
        self._nameable = row_format.nameable_text() if program.makes_texts else None
        # The text that outputs refer to: that of their block, or all that an operator can name.
        self._named = np.zeros(row_format.TEXT_PADDING, np.uint8) if self._nameable is None else self._nameable
        self._durable = durable
        self.runtime = _runtime.Engine(program.json(), json.dumps(options), self._nameable)
        self.schema = program.bound.output.arrow(("seq", "sub"))

    def __enter__(self) -> PassEngine:
        """Bring tables and states to their start."""
        try:
            load_tables(self.runtime, self._program)
            if self._durable is not None and self._durable.last is not None:
                self._durable.restore(self.runtime)
        except BaseException:
            self.runtime.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.runtime.stop()

    def process(self, rows: np.ndarray, text: np.ndarray) -> None:
        """Process a block of events (`rows.encode`)."""
        if self._nameable is None:
            self._named = text
        else:
            self._nameable[: len(text)] = text
            text = self._nameable[: len(text)]
        self.runtime.process(rows.view(np.uint8), len(rows), text)

    def outputs(self) -> Iterator[pa.Table]:
        """The outputs since the last call, in delivered order; only with sink parquet."""
        data, subs, count = self.runtime.take_outputs()
        record = self._program.bound.output
        rows = np.frombuffer(data, dtype=record.dtype(header=True), count=count)
        for at in range(0, count, 1 << 16):
            part = slice(at, at + (1 << 16))
            yield row_format.decode(rows[part], self._named, record, np.frombuffer(subs, "<u4")[part])


def sample_of(metrics: dict[str, Any], request: PassRequest, events: int, spent: Spent) -> Sample:
    """The sample of a pass.

    Args:
        metrics: The runtime's metrics of the pass.
        request: The pass: its kind, number and rate.
        events: Number of events.
        spent: Processor time, energy and loads from memory nodes.
    """
    seconds, loads = metrics["seconds"], spent.node_loads
    return Sample(
        kind=request.kind,
        repetition=request.number,
        events=events,
        outputs=metrics["outputs"],
        digest=format_digest(metrics["outputs"], metrics["digest"]),
        in_order=metrics["in_order"],
        seconds=seconds,
        events_per_s=events / seconds if seconds else 0.0,
        processing=Latency(**metrics["processing"]),
        # A stream without events has no arrivals.
        end_to_end=Latency(**metrics["end_to_end"]) if request.rate and metrics["end_to_end"] else None,
        breakdown=metrics["breakdown"],
        cpu_seconds=spent.cpu,
        threads=metrics["threads"],
        energy_joules=spent.joules,
        node_loads=loads.loads if loads else None,
        node_load_misses=loads.misses if loads else None,
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


def load_tables(engine: _runtime.Engine, program: Program) -> None:
    """Load the initial rows of the tables, and their keys, into an engine."""
    for index, (rows, keys) in enumerate(zip(program.initial, program.keys, strict=True)):
        engine.load_table(index, rows.view(np.uint8), keys.tobytes() if isinstance(keys, np.ndarray) else keys)


def final_state(engine: _runtime.Engine, program: Program) -> dict[str, pa.Table]:
    """Shared tables and keyed states by name, sorted by key."""
    state = {}
    for index, table in enumerate(program.bound.tables):
        keys, data = engine.table(index)
        numbers = row_format.decode_keys(keys) or [to_arrow(np.arange(table.size, dtype=np.int64))]
        state[table.name] = row_format.decode_state(data, table.row, numbers)
    records = {o.name: program.bound.records[o.state] for o in program.app.operators if o.state is not None}
    for index, operator in enumerate(program.description.get("operators", [])):
        if operator["name"] not in records:
            continue
        keys, data = engine.states(index)
        columns = row_format.decode_keys(keys)
        state[operator["name"]] = row_format.decode_state(data, records[operator["name"]], columns)
    return state
