"""The contract of engines (docs/reference/engines.md), for an engine whose command is a Python program.

    from lockstep_engine import Task, main

    def wc(task: Task):
        events = convert(task.events)      # into the engine's own form; not measured
        def one_pass():
            return count(events)           # a pyarrow.Table with the columns of task.schema; measured
        return one_pass

    main({"wc": wc}, versions={"polars": polars.__version__})

It needs numpy and pyarrow, and nothing of Lockstep. Lockstep puts its folder on the engine's PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SEED = 0x243F6A8885A308D3
K1 = np.uint64(0x9E3779B97F4A7C15)
K2 = np.uint64(0xD6E8FEB86659FD93)
SLICE = 1 << 16  # rows that are digested at a time
TEXT_WORD = 8  # bytes

OnePass = Callable[[], pa.Table]


@dataclass(frozen=True)
class Task:
    """What Lockstep asks of an engine: one application, over one workload.

    Attributes:
        workload: Folder of the workload.
        out: Folder to write, which is empty.
        app: Name of the application.
        params: All parameters of the application.
        threads: Worker threads.
        batch: Events in a batch, for engines that have batches.
        order: `total` if outputs have `seq` and `sub`; `none` if only some columns are compared, without order.
        rate: Events per second of the open-loop pass; 0 if there is none.
        repetitions: Measured passes at least.
        seconds: Seconds that the measured passes take at least, for each repetition.
        schema: Columns of the outputs.
    """

    workload: Path
    out: Path
    app: str
    params: dict[str, Any]
    threads: int
    batch: int
    order: str
    rate: float
    repetitions: int
    seconds: float
    schema: pa.Schema

    @cached_property
    def events(self) -> pa.Table:
        """The events: `seq` and the fields of the application, in order."""
        return pq.read_table(sorted((self.workload / "events").glob("part-*.parquet")))


def read_task(arguments: list[str] | None = None) -> Task:
    """The task that the command line names: `--workload DIR --spec FILE --out DIR`."""
    parser = argparse.ArgumentParser(description="Run one application over one workload, as Lockstep asks.")
    parser.add_argument("--workload", type=Path, required=True, help="folder of the workload")
    parser.add_argument("--spec", type=Path, required=True, help="JSON file that says what to run")
    parser.add_argument("--out", type=Path, required=True, help="folder to write outputs and report.json into")
    options = parser.parse_args(arguments)
    spec = json.loads(options.spec.read_text())
    names = ("app", "params", "threads", "batch", "order", "rate", "repetitions", "seconds")
    schema = pq.read_schema(options.spec.with_name(spec["columns"]))
    return Task(options.workload, options.out, **{name: spec[name] for name in names}, schema=schema)


def main(
    applications: dict[str, Callable[[Task], OnePass]],
    versions: dict[str, str],
    arguments: list[str] | None = None,
) -> None:
    """Run the task of the command line, and write its outputs and its report.

    Args:
        applications: By name, a function that makes an application ready and returns a function for one pass. A pass
            begins from fresh state and returns all outputs.
        versions: What the report says of the software.
        arguments: The command line, if it is not the process's.
    """
    task = read_task(arguments)
    one_pass = applications[task.app](task)
    samples = [_measured(task, one_pass, "verified")]
    while (measured := samples[1:]) is not None and (
        len(measured) < task.repetitions
        or sum(pass_["seconds"] for pass_ in measured) < task.repetitions * task.seconds
    ):
        samples.append(_measured(task, one_pass, "peak"))
    write_report(task, samples, versions)


def _measured(task: Task, one_pass: OnePass, kind: str) -> dict[str, Any]:
    """Make a pass, and digest its outputs; the verified pass also writes them."""
    began = time.perf_counter()
    outputs = one_pass()
    value = digest(outputs, task.order)
    seconds = time.perf_counter() - began
    if kind == "verified":
        write_outputs(task, outputs)
    return {
        "kind": kind,
        "events": task.events.num_rows,
        "outputs": outputs.num_rows,
        "digest": value,
        "seconds": seconds,
    }


def write_outputs(task: Task, outputs: pa.Table) -> None:
    """Write outputs as Parquet: in order of (`seq`, `sub`), unless the task has no order."""
    if outputs.schema.remove_metadata() != task.schema:
        outputs = outputs.select(task.schema.names).cast(task.schema)
    if task.order == "total":
        outputs = outputs.sort_by([("seq", "ascending"), ("sub", "ascending")])
    folder = task.out / "outputs"
    folder.mkdir(exist_ok=True)
    pq.write_table(outputs, folder / "part-00000.parquet")


def write_report(task: Task, passes: list[dict[str, Any]], versions: dict[str, str]) -> None:
    """Write report.json, which says that the engine is done.

    Args:
        task: The task.
        passes: The verified pass, the measured ones, and the open-loop one if the task has a rate. Each has kind,
            events, outputs, digest, seconds, and `latency_us` if the engine measures latencies (see `latency`).
        versions: Versions of the software, by name.
    """
    path = task.out / "report.json"
    path.with_suffix(".part").write_text(json.dumps({"passes": passes, "versions": versions}, indent=2))
    os.replace(path.with_suffix(".part"), path)


def latency(microseconds: np.ndarray) -> dict[str, float]:
    """Percentiles of latencies, as `latency_us` of a pass."""
    if not len(microseconds):
        return dict.fromkeys(("p50", "p95", "p99", "p999", "max", "mean"), 0.0)
    p50, p95, p99, p999 = np.percentile(microseconds, [50, 95, 99, 99.9]).tolist()
    most, mean = float(microseconds.max()), float(microseconds.mean())
    return {"p50": p50, "p95": p95, "p99": p99, "p999": p999, "max": most, "mean": mean}


# --- the digest: streaming_core/runtime/ABI.md, section Digest ----------------------------------------------------


def digest(table: pa.Table, order: str) -> str:
    """The digest of outputs: `<rows>:<16 hex digits>`.

    It does not depend on the order of rows. With order `total` it covers `seq` and `sub` first, then the other columns.
    Tables of all parts of a pass may be concatenated.
    """
    names = table.column_names
    if order == "total":
        names = ["seq", "sub", *(name for name in names if name not in ("seq", "sub"))]
    total = 0
    for batch in table.select(names).to_batches(max_chunksize=SLICE):
        total += int(_hashes(batch.columns, batch.num_rows).sum(dtype=np.uint64))
    return f"{table.num_rows}:{total & (1 << 64) - 1:016x}"


def _hashes(columns: Iterable[pa.Array], rows: int) -> np.ndarray:
    hashes = np.full(rows, SEED, np.uint64)
    for column in columns:
        kind = column.type
        if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or pa.types.is_string(kind):
            column = column.cast(pa.binary())
        if pa.types.is_binary(column.type):
            _fold_text(hashes, column)
        else:
            for words in _words(column).T:
                _fold(hashes, words)
    hashes *= K2
    hashes ^= hashes >> np.uint64(29)
    return hashes


def _fold(hashes: np.ndarray, words: np.ndarray) -> None:
    hashes ^= words
    hashes *= K1
    hashes ^= hashes >> np.uint64(32)


def _words(column: pa.Array) -> np.ndarray:
    """The words of a column: uint64 of shape (rows, words per row)."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind):
        return _words(column.flatten()).reshape(len(column), kind.list_size)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    if pa.types.is_decimal128(kind):  # the low halves, which are all
        words = np.frombuffer(column.buffers()[1], np.uint64)[2 * column.offset : 2 * (column.offset + len(column))]
        return words[::2].reshape(-1, 1)
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "u":
        return values.astype(np.uint64).reshape(-1, 1)
    return np.ascontiguousarray(values, "<f8" if values.dtype.kind == "f" else "<i8").view(np.uint64).reshape(-1, 1)


def _fold_text(hashes: np.ndarray, column: pa.Array) -> None:
    """Fold texts: the length, then words of eight bytes, the last one filled with zeros."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    _fold(hashes, lengths.astype(np.uint64))
    data = column.buffers()[2]
    text = np.frombuffer(data, np.uint8)[: int(offsets[-1])] if data else np.empty(0, np.uint8)
    text = np.concatenate([text, np.zeros(TEXT_WORD, np.uint8)])
    words = np.ndarray(len(text) - TEXT_WORD + 1, "<u8", buffer=text, strides=(1,))  # one begins at each byte
    at = 0
    rows = np.flatnonzero(lengths > 0)
    while len(rows):
        left = np.minimum(lengths[rows] - at, TEXT_WORD).astype(np.uint64)
        mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(TEXT_WORD) - left) * np.uint64(8)
        part = hashes[rows]
        _fold(part, words[starts[rows] + at] & mask)
        hashes[rows] = part
        at += TEXT_WORD
        rows = rows[lengths[rows] > at]
