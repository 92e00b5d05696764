"""Runs a hand-written loop: writes its events into a file, starts it, and asks it for passes."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from lockstep_engine import Task, read_task, write_outputs, write_report

NUMBERS = {"scalejoin": ("keys", "size")}
WORD, PADDING = 8, 64
TEXT = [("offset", "<u4"), ("length", "<u4")]


def main() -> None:
    """Make the passes of the task."""
    task = read_task()
    with tempfile.TemporaryDirectory(dir=task.out) as folder:
        events, outputs = Path(folder) / "events.bin", Path(folder) / "outputs.bin"
        write_events(task.events, events)
        numbers = [task.threads, *(task.params[name] for name in NUMBERS[task.app])] if task.app in NUMBERS else []
        command = [str(Path(os.environ["ENGINE_HOME"]) / "limits"), task.app, str(events), *map(str, numbers)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as loop:
            passes = [one_pass(task, loop, "verified", f"keep {outputs}")]
            measured: list[dict] = []
            while len(measured) < task.repetitions or seconds(measured) < task.repetitions * task.seconds:
                measured.append(one_pass(task, loop, "peak", "run"))
        write_outputs(task, read_outputs(outputs, task.schema))
    write_report(task, passes + measured, {"runtime": "benches/limits"})


def seconds(passes: list[dict]) -> float:
    """The seconds of all passes."""
    return sum(pass_["seconds"] for pass_ in passes)


def one_pass(task: Task, loop: subprocess.Popen, kind: str, line: str) -> dict:
    """Ask the loop for a pass."""
    assert loop.stdin is not None
    assert loop.stdout is not None
    loop.stdin.write(f"{line}\n")
    loop.stdin.flush()
    answer = loop.stdout.readline().split()
    if len(answer) != 3:
        sys.exit(f"the hand-written loop ended with code {loop.wait()}")
    nanoseconds, rows, value = answer
    return {
        "kind": kind,
        "events": task.events.num_rows,
        "outputs": int(rows),
        "digest": f"{rows}:{value}",
        "seconds": max(1, int(nanoseconds)) / 1e9,
    }


def write_events(events: pa.Table, path: Path) -> None:
    """Write the file that benches/limits/input.rs reads: no tables, and one block of rows with their texts."""
    dtype = np.dtype([(field.name, _kind(field.type)) for field in events.schema], align=True)
    rows, texts, size = np.zeros(events.num_rows, dtype), [], 0
    for name, column in zip(events.column_names, events.columns, strict=True):
        values = column.combine_chunks()
        if pa.types.is_binary(values.type):
            offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
            rows[name]["offset"] = offsets[:-1] - offsets[:1] + size
            rows[name]["length"] = np.diff(offsets)
            data = values.buffers()[2]
            texts.append(np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]].tobytes() if data else b"")
            size += len(texts[-1])
        else:
            rows[name] = values.to_numpy(zero_copy_only=False)
    with path.open("wb") as file:
        file.write(_word(0) + _word(1 if len(rows) else 0))
        if len(rows):
            file.write(_word(len(rows)))
            for content in (rows.tobytes(), b"".join(texts)):
                file.write(_word(len(content)) + content + bytes(-len(content) % WORD))


def _kind(kind: pa.DataType) -> object:
    if pa.types.is_binary(kind):
        return TEXT
    return "u1" if pa.types.is_boolean(kind) else kind.to_pandas_dtype()


def _word(number: int) -> bytes:
    return number.to_bytes(WORD, "little")


def read_outputs(path: Path, schema: pa.Schema) -> pa.Table:
    """Read the file that benches/limits/output.rs writes."""
    data, at, columns = path.read_bytes(), 0, []
    if not data:
        return schema.empty_table()

    def words(count: int) -> np.ndarray:
        nonlocal at
        at += count * WORD
        return np.frombuffer(data, "<u8", count, at - count * WORD)

    for field in schema:
        values = words(int(words(1)[0]))
        size = int(words(1)[0])
        text, at = data[at : at + size], at + size
        if pa.types.is_binary(field.type):
            offsets = np.concatenate([[0], np.cumsum(values)]).astype(np.int32)
            columns.append(
                pa.BinaryArray.from_buffers(field.type, len(values), [None, *map(pa.py_buffer, (offsets, text))])
            )
        else:
            values = values.view("<f8" if pa.types.is_floating(field.type) else "<i8")
            columns.append(pa.array(values.astype(field.type.to_pandas_dtype())))
    return pa.Table.from_arrays(columns, schema=schema)


main()
