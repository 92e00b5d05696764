"""Run a cell on Apache Flink: convert the workload, start Java, convert its answer.

The Java program in `lockstep/` makes all passes in one process. The two programs exchange files of big-endian numbers
of eight bytes, so the Java program needs no reader of Parquet.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lockstep_engine import Task, latency, read_task, write_outputs, write_report

VERSION = "2.3.0"
# The columns of the events that the Java program reads, in its order.
EVENTS = {
    "wc": ["line"],
    "sd": ["line"],
    "wordcount": ["ts", "text"],
    "scalejoin": ["ts", "stream", "x", "y", "a", "b", "c", "d"],
}
# The order of the outputs, and the columns that the Java program writes, in its order.
OUTPUTS = {
    "wc": ("total", ["seq", "sub", "word", "n"]),
    "sd": ("total", ["seq", "sub", "device", "average", "value", "spike"]),
    "wordcount": ("none", ["ts", "word", "n"]),
    "scalejoin": ("none", ["ts", "earlier", "x", "y", "a", "b", "c", "d"]),
}
HEAP = 2 << 10  # MiB; and four times the size of the events
# Flink's own settings for Java 17 (env.java.opts.all), as far as these programs need them.
OPENS = ("java.lang", "java.net", "java.nio", "java.time", "java.util", "java.util.concurrent")


def write_events(task: Task, file: BinaryIO) -> None:
    """Write the columns of the events, one after the other: numbers, or the lengths of texts and then their bytes."""
    for name in EVENTS[task.app]:
        column = task.events[name]
        if not pa.types.is_binary(column.type):
            dtype = ">f8" if pa.types.is_floating(column.type) else ">i8"
            file.write(column.to_numpy().astype(dtype).tobytes())
            continue
        file.write(pc.binary_length(column).to_numpy().astype(">i8").tobytes())
        for chunk in column.chunks:
            _, offsets, data = chunk.buffers()
            ends = np.frombuffer(offsets, np.int32)[[chunk.offset, chunk.offset + len(chunk)]] if len(chunk) else (0, 0)
            if data is not None:
                file.write(data[ends[0] : ends[1]])


def read_outputs(task: Task, folder: Path) -> pa.Table:
    """Read the rows of all sinks: in each, rows of numbers, and beside them the bytes of the texts."""
    parts = [part(task.schema, folder, sink) for sink in range(task.threads)]
    return pa.concat_tables(parts)


def part(schema: pa.Schema, folder: Path, sink: int) -> pa.Table:
    """Read the rows of one sink."""
    words = np.fromfile(folder / f"rows-{sink}", ">i8").reshape(-1, len(schema)).astype("<i8")
    columns = []
    for position, field in enumerate(schema):
        values = np.ascontiguousarray(words[:, position])
        if pa.types.is_binary(field.type):
            offsets = np.concatenate([[0], np.cumsum(values)])
            text = pa.py_buffer((folder / f"texts-{sink}").read_bytes())
            column = pa.Array.from_buffers(pa.large_binary(), len(values), [None, pa.py_buffer(offsets), text])
        else:
            column = pa.array(values.view("<f8") if pa.types.is_floating(field.type) else values)
        columns.append(column.cast(field.type))
    return pa.table(columns, schema=schema)


def run_java(task: Task, folder: Path) -> None:
    """Run all passes. Java says on stderr what is wrong, and then this program ends with Java's exit code."""
    home = os.environ["ENGINE_HOME"]
    cell = {**task.params, "app": task.app, "threads": task.threads, "rate": task.rate, "events": task.events.num_rows}
    cell |= {"repetitions": task.repetitions, "seconds": task.seconds}
    (folder / "cell.properties").write_text("".join(f"{name}={value}\n" for name, value in cell.items()))
    with (folder / "events").open("wb") as file:
        write_events(task, file)
    heap = HEAP + 4 * ((folder / "events").stat().st_size >> 20)
    java = ["java", f"-Xms{heap}m", f"-Xmx{heap}m", "-XX:+UseG1GC", f"-Djava.io.tmpdir={folder}"]
    java += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    java += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENS]
    java += ["-cp", f"{home}/classes:{home}/jars/*", "lockstep.Main", str(folder)]
    try:
        code = subprocess.run(java, check=False).returncode
    except FileNotFoundError:
        sys.exit("flink: no `java` on PATH; install a Java of version 17 (Debian: openjdk-17-jdk-headless)")
    if code:
        sys.exit(code if code > 0 else 128 - code)


def main() -> None:
    """Run the cell of the command line."""
    task = read_task()
    if (task.order, task.schema.names) != OUTPUTS.get(task.app):
        sys.exit(f"flink: {task.app} in order {task.order} with columns {task.schema.names} is not supported")
    with tempfile.TemporaryDirectory(prefix="flink-", dir=task.out) as name:
        folder = Path(name)
        run_java(task, folder)
        passes = [json.loads(line) for line in (folder / "passes").read_text().splitlines()]
        for number, pass_ in enumerate(passes):
            microseconds = np.fromfile(folder / f"latencies-{number}", ">f4").astype(float)
            if len(microseconds):
                pass_["latency_us"] = latency(microseconds)
        write_outputs(task, read_outputs(task, folder))
    write_report(task, passes, versions={"flink": VERSION})


main()
