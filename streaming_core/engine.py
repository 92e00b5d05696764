"""Runs a cell: the application's kernels on the native runtime, over a workload, into a run folder.

A run is one or more passes over the same workload, each from fresh state: the first delivers to the spec's sink, then
`repetitions` passes at peak rate into the digest sink, then, if a rate is set, one open-loop pass. Decoding Parquet and
writing outputs happens between blocks while the engine's clock stands still, in this thread, with bounded memory.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streaming_core import rows as row_format
from streaming_core import workload
from streaming_core.api.app import App
from streaming_core.api.kernels import Program, compile_app, describe_error
from streaming_core.apps import registry
from streaming_core.columns import from_bytes, to_arrow
from streaming_core.digest import format_digest
from streaming_core.errors import BadInput, RunFailed
from streaming_core.runspec.layout import atomic_directory, write_json
from streaming_core.runspec.report import Latency, RunReport, Sample
from streaming_core.runspec.spec import EXECUTORS, RunSpec
from streaming_core.state import state_digest

BLOCK = 1 << 17  # events per block, rounded up to whole punctuation intervals
KEPT_BLOCKS = 4  # blocks kept decoded between passes; longer workloads are read again
PART_ROWS = 1 << 20  # rows per output file

Progress = Callable[[str, int, int], None]


class Blocks:
    """The workload as (rows, text) blocks, decoded once if it has at most `keep` of them, else on every pass."""

    def __init__(self, source: workload.Workload, program: Program, size: int, keep: int = KEPT_BLOCKS):
        self._source, self._record, self._size, self._keep = source, program.event, size, keep
        self._kept: list[tuple[np.ndarray, np.ndarray]] | None = None
        self.events = source.rows

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[tuple[np.ndarray, np.ndarray]] | None = []
        for table in self._source.blocks(self._size):
            block = row_format.encode(table, self._record)
            if kept is not None:
                kept.append(block)
                if len(kept) > self._keep:
                    kept = None
            yield block
        self._kept = kept


class OutputFiles:
    """Outputs in delivered order, as outputs/part-*.parquet."""

    def __init__(self, folder: Path, schema: pa.Schema):
        folder.mkdir(parents=True)
        self._folder, self._schema = folder, schema
        self._writer: pq.ParquetWriter | None = None
        self._rows = self._parts = 0
        self._open()

    def _open(self) -> None:
        self._writer = pq.ParquetWriter(
            self._folder / f"part-{self._parts:05d}.parquet", self._schema, compression="zstd", compression_level=1
        )
        self._parts += 1
        self._rows = 0

    def write(self, table: pa.Table) -> None:
        """Appends rows."""
        if self._rows >= PART_ROWS:
            self.close()
            self._open()
        self._writer.write_table(table)
        self._rows += table.num_rows

    def close(self) -> None:
        """Ends the current file."""
        self._writer.close()


def check(spec: RunSpec, app: App) -> None:
    """Raises BadInput unless the application runs that way."""
    executor = EXECUTORS[spec.executor]
    if app.kind not in executor.runs:
        able = [e.name for e in EXECUTORS.values() if app.kind in e.runs]
        supported = ", ".join(able) or "no executor yet"
        raise BadInput(f"application {app.name} does not run on {spec.executor}; it supports: {supported}")
    if refused(spec, app):
        raise BadInput(f"scheme {spec.scheme} is refused for {app.name}: its tables hold containers")


def refused(spec: RunSpec, app: App) -> bool:
    """Whether the spec is a bound that would not be memory-safe: threads could change a container at the same time."""
    return spec.is_bound and any(t.row.resolve(app.bind(spec.params)).has_containers for t in app.tables)


def run(spec: RunSpec, source: Path, out: Path | None, progress: Progress | None = None) -> RunReport:
    """Executes `spec` over the workload at `source`; writes outputs, state and, last, report.json into `out`.

    Args:
        out: run folder; None keeps nothing but the returned report. A folder that holds this very spec's spec.json and
            nothing else of a run is taken over.
        progress: called with (pass, events done, events in all).

    Raises:
        BadInput: the request cannot be carried out; nothing was written.
        RunFailed: an operator failed (operator, event, reason), or the folder cannot be written.
    """
    app = registry.load(spec.app)
    check(spec, app)
    opened = workload.read(source, app, spec.params)
    params = opened.manifest["params"]
    if out is not None:
        _check_folder(out, spec)
    load_before = os.getloadavg()[0]
    program = compile_app(app, params)
    blocks = Blocks(opened, program, block_size(spec))
    if out is None:
        return _passes(spec, program, blocks, opened, None, load_before, progress)
    try:
        with atomic_directory(out / ".run") as folder:
            report = _passes(spec, program, blocks, opened, folder, load_before, progress)
        for name in ("outputs", "state"):
            if (out / ".run" / name).exists():
                os.replace(out / ".run" / name, out / name)
        (out / ".run").rmdir()
        write_json(out / "report.json", report.model_dump(mode="json"))
    except OSError as error:
        raise RunFailed(f"run folder {out} cannot be written: {error.strerror or error}") from None
    return report


def _check_folder(out: Path, spec: RunSpec) -> None:
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is not a folder")
    found = sorted(p.name for p in out.iterdir() if not p.name.startswith(".")) if out.exists() else []
    if (out / "spec.json").exists():
        other = RunSpec.parse((out / "spec.json").read_bytes())
        if other.spec_digest != spec.spec_digest:
            raise BadInput(
                f"{out} holds another spec ({other.spec_digest}, asked is {spec.spec_digest}): give a new folder"
            )
    if leftovers := [name for name in found if name != "spec.json"]:
        raise BadInput(f"{out} already holds {', '.join(leftovers)}: give a new folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not (out / "spec.json").exists():
            write_json(out / "spec.json", spec.model_dump(mode="json"))
    except OSError as error:
        raise RunFailed(f"run folder {out} cannot be written: {error.strerror or error}") from None


def block_size(spec: RunSpec) -> int:
    """Events in a block: whole punctuation intervals."""
    if spec.executor != "transactional":
        return BLOCK
    return -(-BLOCK // spec.punctuation) * spec.punctuation


def _passes(spec, program, blocks, opened, folder, load_before, progress) -> RunReport:
    kinds = [("verified", spec.sink, 0.0)]
    kinds += [("peak", "digest", 0.0)] * spec.repetitions
    if spec.rate > 0:
        kinds = (
            [("open_loop", spec.sink, spec.rate)]
            if not spec.repetitions
            else [*kinds, ("open_loop", "digest", spec.rate)]
        )
    samples, digest, binding = [], "", None
    for number, (kind, sink, rate) in enumerate(kinds):
        first = number == 0
        sample, state, binding = one_pass(
            spec, program, blocks, kind, number, sink, rate, folder if first else None, progress, export=first
        )
        samples.append(sample)
        if first:
            digest = state_digest(state)
    load_after = os.getloadavg()[0]
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
        state_digest=digest,
        compile_seconds=program.compile_seconds,
        peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        topology=topology(),
        binding=binding,
        host={
            "name": socket.gethostname(),
            "load_before": load_before,
            "load_after": load_after,
            "python": platform.python_version(),
            "kernel": platform.release(),
        },
    )


def one_pass(
    spec: RunSpec,
    program: Program,
    blocks: Blocks,
    kind: str = "peak",
    number: int = 0,
    sink: str = "digest",
    rate: float = 0.0,
    folder: Path | None = None,
    progress: Progress | None = None,
    export: bool = True,
) -> tuple[Sample, dict[str, pa.Table], list[int] | None]:
    """One pass from fresh state: its sample, the final state by table, the binding of threads to cores.

    `folder` receives outputs (parquet sink) and state; without `export` the state returned is empty. Raises RunFailed
    when an operator fails.
    """
    from streaming_core import _runtime

    options = {
        "executor": spec.executor,
        "scheme": spec.scheme,
        "pool": spec.pool,
        "stealing": spec.stealing,
        "heuristic": spec.heuristic,
        "queue": spec.queue,
        "reorder": spec.reorder,
        "threads": spec.threads,
        "punctuation": spec.punctuation,
        "batch": spec.batch,
        "idle": spec.idle,
        "pin": spec.pin,
        "sink": sink if folder is not None or sink != "parquet" else "digest",
        "rate": rate,
    }
    engine = _runtime.Engine(program.json(), json.dumps(options))
    writer = None
    try:
        for index, (table, record, size) in enumerate(program.tables):
            engine.load_table(index, row_format.initial_rows(table, record, size, program.params).view(np.uint8))
        if folder is not None and sink == "parquet":
            writer = OutputFiles(folder / "outputs", program.output.arrow(("seq", "sub")))
        cpu, done = 0.0, 0
        text = np.zeros(row_format.TEXT_PADDING, np.uint8)
        for rows, text in blocks:
            started = time.process_time()
            engine.process(rows.view(np.uint8), len(rows), text)
            cpu += time.process_time() - started
            done += len(rows)
            if writer is not None:
                _take(engine, program, text, writer)
            if progress is not None:
                progress(kind, done, blocks.events)
        started = time.process_time()
        engine.finish(blocks.events)
        cpu += time.process_time() - started
        if writer is not None:
            _take(engine, program, text, writer)
            writer.close()
        state = final_state(engine, program) if export else {}
        if folder is not None:
            (folder / "state").mkdir()
            for name, table in state.items():
                pq.write_table(table, folder / "state" / f"{name}.parquet", compression="zstd", compression_level=1)
        metrics = json.loads(engine.metrics())
    except _runtime.KernelFailed as error:
        operator, seq, payload = error.args
        raise RunFailed(f"operator {operator} failed at event {seq}: {describe_error(payload)}") from None
    finally:
        engine.stop()
    seconds = metrics["seconds"]
    sample = Sample(
        kind=kind,
        repetition=number,
        events=blocks.events,
        outputs=metrics["outputs"],
        digest=format_digest(metrics["outputs"], metrics["digest"]),
        in_order=metrics["in_order"],
        seconds=seconds,
        events_per_s=blocks.events / seconds if seconds else 0.0,
        processing=Latency(**metrics["processing"]),
        end_to_end=Latency(**metrics["end_to_end"]) if rate else None,
        breakdown=metrics["breakdown"],
        cpu_seconds=cpu,
        dropped_invalid=metrics["dropped"],
        rejected=metrics["rejected"],
        chosen=metrics.get("chosen", {}),
    )
    return sample, state, metrics.get("binding")


def _take(engine, program: Program, text: np.ndarray, writer: OutputFiles) -> None:
    data, subs, count = engine.take_outputs()
    if count:
        rows = np.frombuffer(data, dtype=program.output.dtype(header=True), count=count)
        for at in range(0, count, 1 << 16):
            part = slice(at, at + (1 << 16))
            writer.write(row_format.decode(rows[part], text, program.output, np.frombuffer(subs, "<u4")[part]))


def final_state(engine, program: Program) -> dict[str, pa.Table]:
    """Shared tables and keyed states by name, sorted by key."""
    state = {}
    for index, (table, record, size) in enumerate(program.tables):
        keys = to_arrow(np.arange(size, dtype=np.int64))
        state[table.name] = row_format.decode_state(engine.table(index), record, keys)
    for index, operator in enumerate(program.description.get("operators", [])):
        found = [record for op, record in program.states if op.name == operator["name"]]
        if not found:
            continue
        keys, data = engine.states(index)
        if operator["kind"] == "stateful":
            keys = None
        elif isinstance(keys, bytes):
            keys = to_arrow(np.frombuffer(keys, "<i8"))
        else:
            keys = from_bytes(keys)
        state[operator["name"]] = row_format.decode_state(data, found[0], keys)
    return state


@cache
def build() -> str:
    """Short revision of the checkout the engine runs from, `-dirty` when files differ; `unknown` without one."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.strip() or "unknown"


@cache
def topology() -> dict:
    """Sockets, cores and distances of this host, as the runtime sees them."""
    from streaming_core import _runtime

    return json.loads(_runtime.probe())
