"""The engine's own benchmark: every way of executing beside the compiled sequential loop, in one sitting.

Rounds are interleaved (loop, first way, second way, ..., loop, ...), figures are medians over rounds, and the figure to
quote is the ratio to the loop of the same round: these machines are shared, their speed drifts. Both sides run from
decoded rows to encoded outputs and digest. A result that is not the loop's fails the benchmark.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from streaming_core import engine, workload
from streaming_core.api.kernels import compile_app
from streaming_core.apps import registry
from streaming_core.digest import format_digest
from streaming_core.errors import BadInput
from streaming_core.runspec.layout import Home, write_json
from streaming_core.runspec.spec import EXECUTORS, MAX_THREADS, RunSpec
from streaming_core.state import state_digest

EVENTS = {"wc": 200_000}  # the others: 1,000,000; a line of wc is ten words
SEED = 1


def run(
    names: list[str] | None,
    events: int | None,
    threads: list[int] | None,
    repetitions: int,
    progress: engine.Progress | None = None,
) -> dict[str, Any]:
    """Benchmarks applications; returns the host, the settings and one result per application and way.

    Raises:
        BadInput: unknown application, thread counts or repetitions out of range.
    """
    if repetitions < 1:
        raise BadInput("repetitions must be at least 1")
    cores = os.cpu_count() or 1
    counts = threads or sorted({1, cores, *(1 << i for i in range(cores.bit_length()) if 1 << i <= cores)})
    if bad := [c for c in counts if not 1 <= c <= MAX_THREADS]:
        raise BadInput(f"threads must lie in 1..{MAX_THREADS}, got {bad[0]}")
    chosen = [registry.load(name) for name in names or registry.names()]
    results = []
    for app in chosen:
        results += _application(app, events or EVENTS.get(app.name, 1_000_000), counts, repetitions, progress)
    return {
        "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "build": engine.build(),
        "host": {"cores": cores, "machine": platform.machine(), "cpu": _cpu(), "load": os.getloadavg()[0]},
        "topology": engine.topology(),
        "repetitions": repetitions,
        "results": results,
    }


def _application(app, events: int, counts: list[int], repetitions: int, progress) -> list[dict[str, Any]]:
    from streaming_core.oracle.loop import Loop

    params = app.bind()
    folder = Home().workload(app.name, workload.address(app, params, events, SEED))
    workload.write(app, params, events, SEED, folder)
    source = workload.read(folder, app)
    loop, program = Loop(app, params), compile_app(app, params)
    decoded = [loop.decode(table) for table in source.blocks(engine.BLOCK)]
    ways = []
    for executor in EXECUTORS.values():
        if app.kind in executor.runs:
            for scheme in executor.axes.get("scheme", (None,)):
                ways += [RunSpec(app=app.name, executor=executor.name, scheme=scheme, threads=c) for c in counts]
    ways = [spec for spec in ways if not engine.refused(spec, app)]
    blocks = [engine.Blocks(source, program, engine.block_size(spec), keep=1 << 30) for spec in ways]
    expected: tuple[str, str] | None = None
    yard: list[float] = []
    samples: list[list[engine.Sample]] = [[] for _ in ways]
    wrong = [False] * len(ways)
    for round_number in range(repetitions + 1):  # the first warms up and is not counted
        loop.reset()
        for rows, text in decoded:
            loop.run(rows, text, keep=False)
        loop.finish(events)
        expected = expected or (format_digest(*loop.digest), state_digest(loop.state()))
        yard.append(loop.seconds)
        for i, spec in enumerate(ways):
            sample, state, _ = engine.one_pass(spec, program, blocks[i])
            if (sample.digest, state_digest(state)) != expected or not sample.in_order:
                wrong[i] = True
            samples[i].append(sample)
        if progress is not None:
            progress(f"bench {app.name}", round_number, repetitions)
    outputs = int(expected[0].partition(":")[0])
    results = [_row(app.name, "loop", 1, events, outputs, yard[1:], yard[1:], None, "yardstick")]
    for i, spec in enumerate(ways):
        result = "bound" if spec.is_bound else "different" if wrong[i] else "equal"
        seconds = [s.seconds for s in samples[i][1:]]
        p99 = statistics.median(s.processing.p99 for s in samples[i][1:])
        way = f"{spec.executor} {spec.strategy}"
        results.append(_row(app.name, way, spec.threads, events, outputs, seconds, yard[1:], p99, result))
    return results


def _row(app, way, threads, events, outputs, seconds, yard, p99, result) -> dict[str, Any]:
    median = statistics.median(seconds)
    return {
        "app": app,
        "way": way,
        "threads": threads,
        "events": events,
        "seconds": seconds,
        "events_per_s": events / median,
        "outputs_per_s": outputs / median,
        "to_loop": statistics.median(y / s for y, s in zip(yard, seconds, strict=True)),
        "p99_us": p99,
        "result": result,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


def save(found: dict[str, Any], out: Path | None) -> Path:
    """Writes the findings as JSON; returns where."""
    stamp = found["made_at"].replace("-", "").replace(":", "")
    path = out or Home().reports / "bench" / f"{stamp}.json"
    write_json(path, found)
    return path


def render(found: dict[str, Any], console: Console) -> None:
    """The table for people, and per application the threads at which a way beats the loop (COST)."""
    host = found["host"]
    console.print(f"{host['cpu']}, {host['cores']} cores; medians of {found['repetitions']} rounds", highlight=False)
    grid = Grid("app", "way", "threads", "events/s", "outputs/s", "x loop", "p99 ms", "result", box=None)
    for row in found["results"]:
        p99 = "" if row["p99_us"] is None else f"{row['p99_us'] / 1000:.3f}"
        figures = (f"{row['events_per_s']:,.0f}", f"{row['outputs_per_s']:,.0f}", f"{row['to_loop']:.2f}")
        grid.add_row(row["app"], row["way"], str(row["threads"]), *figures, p99, row["result"])
    console.print(grid)
    ways: dict[tuple[str, str], list] = {}
    for row in found["results"]:
        if row["result"] == "equal":
            ways.setdefault((row["app"], row["way"]), []).append(row)
    for (app, way), rows in ways.items():
        beats = [row["threads"] for row in rows if row["to_loop"] > 1]
        most = max(row["threads"] for row in rows)
        cost = f"{min(beats)} thread{'s' * (min(beats) > 1)}" if beats else f"more than {most} threads"
        console.print(f"COST of {app} on {way}: {cost}", highlight=False)
