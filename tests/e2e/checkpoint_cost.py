"""The cost of checkpoints: throughput with and without, pauses, bytes written, and the time to resume.

    python -m tests.e2e.checkpoint_cost [--megabytes 1 10 100 1000] [--seconds 30] [--every 10s] [--share 1.0]

The application has one state of 128 bytes for each key. Events name the keys at random: all of them, or a share with
--share. Passes with and without checkpoints take turns. The program prints a JSON object for each size.
A pause is the time between two blocks that a checkpoint takes. Leave the machine alone meanwhile.
"""

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from streaming_core.api import App, Array, i64, record
from streaming_core.bench.race.statistics import interval_of_ratio
from streaming_core.kernels.program import Program, compile_app
from streaming_core.run.checkpoint.file import paths
from streaming_core.run.checkpoint.store import Checkpoints
from streaming_core.run.one_pass import PassEngine
from streaming_core.run.way import Interval, Pooled

STATE = 128  # bytes
BLOCK = 1 << 17
app = App("checkpoint_cost")


@record
class Event:
    key: i64
    value: i64


@record
class State:
    n: i64
    sums: Array[i64, 15]


@record
class Output:
    n: i64


def keep(event, state, out):
    state.n += 1
    state.sums[event.value % 15] += event.value
    if state.n % 4096 == 0:
        out.emit(n=state.n)


app.source(Event).key_by("key").process(keep, state=State, output=Output).sink()
app.generates(lambda params, seed, start, stop: {})


def blocks(program: Program, keys: int, share: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks without end: first each key once, then keys at random below a share of all."""
    rng, seq = np.random.default_rng(1), 0
    text = np.zeros(64, np.uint8)
    while True:
        rows = np.zeros(BLOCK, program.bound.event.dtype(header=True))
        rows["seq"] = np.arange(seq, seq + BLOCK)
        drawn = rng.integers(0, max(1, int(keys * share)), BLOCK)
        rows["key"] = rows["seq"] if seq + BLOCK <= keys else drawn
        rows["value"] = drawn >> 3
        yield rows, text
        seq += BLOCK


def run_pass(program: Program, spec: Pooled, keys: int, args: argparse.Namespace, folder: Path | None) -> dict:
    """Fill the state, then process events for so many seconds; with checkpoints if there is a folder."""
    durable = checkpoints_of(folder, Interval.parse(args.every)) if folder else None
    stream, done, blocks_s, pauses = blocks(program, keys, args.share), 0, [], []
    with PassEngine(program, options(spec)) as engine:
        while done < keys:
            rows, text = next(stream)
            engine.process(rows, text)
            done += len(rows)
        if durable:  # the first one writes everything
            durable.make(engine.runtime, (done, 0), 0.0)
            durable.settle()
        first, written, begin, busy = done, 0, time.monotonic(), 0.0
        seen = {path.name for path in paths(folder)} if folder else set()
        while time.monotonic() - begin < args.seconds:
            rows, text = next(stream)  # costs the same in both passes, and does not count
            at = time.perf_counter()
            engine.process(rows, text)
            done += len(rows)
            blocks_s.append(time.perf_counter() - at)
            between = time.perf_counter()
            if durable and durable.is_due(done):
                durable.make(engine.runtime, (done, 0), 0.0)
                pauses.append(time.perf_counter() - between)
            busy += time.perf_counter() - at
            new = [path for path in paths(folder) if path.name not in seen] if folder else []
            written += sum(path.stat().st_size for path in new)
            seen |= {path.name for path in new}
        if durable:
            durable.settle()
    return {"rate": (done - first) / busy, "longest": max(blocks_s), "pauses": pauses, "written": written}


def options(spec: Pooled) -> dict:
    return spec.runtime_options | {"sink": "digest", "rate": 0.0, "deliveries": False, "latencies": None, "cores": 0}


def checkpoints_of(folder: Path, every: Interval) -> Checkpoints:
    return Checkpoints(folder, every, {}, {}, {}, lambda line: print(line, file=sys.stderr))


def seconds_to_resume(program: Program, spec: Pooled, folder: Path) -> float:
    """The time from nothing to an engine that can take the next event."""
    begin = time.perf_counter()
    durable = checkpoints_of(folder, Interval())
    durable.recover()
    with PassEngine(program, options(spec)) as engine:
        durable.restore(engine.runtime)
        return time.perf_counter() - begin


def measure(program: Program, args: argparse.Namespace, megabytes: int) -> dict:
    """Figures of one size of state."""
    spec = Pooled(app=app.name, threads=args.threads)
    keys = max(BLOCK, megabytes * 1_000_000 // STATE // BLOCK * BLOCK)
    without, with_, resumes = [], [], []
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        for number in range(args.rounds):
            folder = Path(name) / str(number)
            folder.mkdir()
            for is_with in ((False, True), (True, False))[number % 2]:
                figures = run_pass(program, spec, keys, args, folder if is_with else None)
                (with_ if is_with else without).append(figures)
            resumes.append(seconds_to_resume(program, spec, folder))
            size = sum(path.stat().st_size for path in paths(folder))
            for path in folder.iterdir():
                path.unlink()
    ratio = interval_of_ratio([figures["rate"] for figures in with_], [figures["rate"] for figures in without])
    pauses = [pause for figures in with_ for pause in figures["pauses"]]
    return {
        "state_mb": keys * STATE / 1e6,
        "events_per_s": sorted(figures["rate"] for figures in without)[len(without) // 2],
        "ratio": ratio,
        "checkpoints": len(pauses),
        "longest_fork_s": max(pauses, default=None),
        "longest_block_s": {"without": max(o["longest"] for o in without), "with": max(o["longest"] for o in with_)},
        "written_mb_per_pass": [figures["written"] / 1e6 for figures in with_],
        "disk_mb": size / 1e6,
        "resume_s": sorted(resumes),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="checkpoint_cost", description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, nargs="+", default=[1, 10, 100, 1000], help="sizes of the state")
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds of a pass")
    parser.add_argument("--every", default="10s", help="interval between two checkpoints")
    parser.add_argument("--rounds", type=int, default=5, help="passes with checkpoints, and without")
    parser.add_argument("--share", type=float, default=1.0, help="share of the keys that events name")
    parser.add_argument("--threads", type=int, default=2, help="threads of the engine")
    parser.add_argument("--folder", default=os.environ.get("TMPDIR"), help="a folder on the disk to measure")
    args = parser.parse_args()
    program = compile_app(app, app.bind({}))
    for megabytes in args.megabytes:
        print(json.dumps(measure(program, args, megabytes)), flush=True)


if __name__ == "__main__":
    main()
