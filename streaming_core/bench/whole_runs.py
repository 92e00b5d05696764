"""From file to file: runs that read a workload and write their outputs, compared with pyarrow on the same files.

The rounds are interleaved. In each round pyarrow reads the events, block by block, and writes the same outputs with the
same compression. Then the compiled loop runs, and then each way. A way runs like `streaming-core run --sink parquet` in
a process that has its kernels, up to the report, with all data on disk. The files that are read are in memory.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from streaming_core.bench.race import facts, length
from streaming_core.bench.race.ratios import threads_of
from streaming_core.bench.race.results import Record
from streaming_core.bench.race.rounds import Row
from streaming_core.bench.race.statistics import interval
from streaming_core.bench.race.subject import SEED
from streaming_core.data import workload
from streaming_core.data.parts import Parts, write_file
from streaming_core.oracle import oracle
from streaming_core.regression.home import Home
from streaming_core.run import engine
from streaming_core.run.blocks import BLOCK
from streaming_core.run.one_pass import Progress
from streaming_core.run.way import RunSpec, executors_of

APPS, EVENTS = ("gs", "wc"), {"gs": 5_000_000, "wc": 500_000}


def run(
    names: list[str] | None,
    events: int | None,
    threads: list[int] | None,
    repetitions: int,
    progress: Progress | None = None,
    quick: bool = False,
) -> dict[str, Any]:
    """Measure applications, with default parameters, from file to file.

    Returns:
        The host, the settings, and a row per application and way. Its `to_pyarrow` is the ratio of its seconds to those
        of pyarrow in the same round.

    Raises:
        BadInput: An application is unknown, or thread counts or repetitions are out of range.
    """
    counts = facts.thread_counts(threads, repetitions)
    record = Record(repetitions, quick)
    rows: list[Row] = []
    for name in names or APPS:
        home = Home().root
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home, prefix="bench-") as folder:

            def tick(done: int, name: str = name) -> None:
                if progress:
                    progress(f"bench {name}", done, repetitions + 1)

            usual = length.QUICK_EVENTS if quick else EVENTS.get(name, 1_000_000)
            size = events if events is not None else usual
            rows += _race(name, size, counts, repetitions, Path(folder), tick)
    return record.results({"files": rows})


def _race(
    name: str, events: int, counts: list[int], repetitions: int, folder: Path, tick: Callable[..., None]
) -> list[Row]:
    source, output = folder / "workload", folder / "output"
    workload.write(name, {}, events, SEED, source)
    app = workload.read(source).app
    executor = executors_of(app.kind)[0]
    specs = [
        RunSpec.parse({"app": name, "executor": executor, "threads": count, "sink": "parquet"}) for count in counts
    ]
    reads, expected = workload.read(source).parts, oracle.run(source, folder / "expected", "compiled")["output_digest"]
    writes = Parts.of(folder / "expected" / "outputs")

    def by_oracle() -> str:
        return oracle.run(source, output, "compiled")["output_digest"]

    def by(spec: RunSpec) -> Callable[[], str]:
        return lambda: engine.run(spec, source, output).verified.digest

    ways = [("oracle", 1, by_oracle), *((spec.strategy, spec.threads, by(spec)) for spec in specs)]
    seconds: list[list[float]] = [[] for _ in ways]
    yard, results = [], ["equal"] * len(ways)
    for turn in range(repetitions + 1):  # the first round compiles and is not measured
        tick(turn)
        yard.append(_by_pyarrow(reads, writes, folder))
        for i, (_, _, work) in enumerate(ways):
            started = time.perf_counter()
            digest = work()
            seconds[i].append(time.perf_counter() - started)
            if digest != expected:
                results[i] = "different"
            shutil.rmtree(output)
    rows: list[Row] = []
    for (way, count, _), took, result in zip(ways, seconds, results, strict=True):
        ratios = [mine / theirs for mine, theirs in zip(took[1:], yard[1:], strict=True)]
        rows.append({
            "app": name, "way": way, "threads": count, "events": events, "result": result,
            "seconds": took[1:], "seconds_range": interval(took[1:]), "pyarrow_seconds": yard[1:],
            "to_pyarrow": statistics.median(ratios), "to_pyarrow_range": interval(ratios),
        })  # fmt: skip
    return rows


def _by_pyarrow(reads: Parts, writes: Parts, folder: Path) -> float:
    """Return the seconds that pyarrow takes to read some files, in blocks, and to write others."""
    started = time.perf_counter()
    for path in reads.paths:
        with pq.ParquetFile(path) as file:
            for _ in file.iter_batches(BLOCK):
                pass
    took = time.perf_counter() - started
    for path in writes.paths:
        table = pq.read_table(path)
        started = time.perf_counter()
        write_file(folder / "copy.parquet", table)
        took += time.perf_counter() - started
    return took


def lines(rows: list[Row]) -> list[str]:
    """Return a line per row."""
    return [
        f"{row['app']}, {row['way']}, {threads_of(row)}: {statistics.median(row['seconds']):.2f} s for "
        f"{row['events']:,} events, {row['to_pyarrow']:.2f} ({_span(row['to_pyarrow_range'])}) times the time of "
        f"pyarrow; result {row['result']}"
        for row in rows
    ]


def _span(ends: list[float]) -> str:
    low, high = ends
    return f"{low:.2f} to {high:.2f}"
