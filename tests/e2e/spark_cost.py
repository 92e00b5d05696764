"""What a cell on Spark costs, stage by stage, in processor seconds for a million events.

    python -m tests.e2e.spark_cost [--apps wc sd wordcount] [--events 10000000] [--tasks 1 2]

It prints a Markdown table. A first, short pass of each cell starts Python workers and compiles Spark's plans: the
figures are those of the second pass. `Spark` is what its JVM takes: it shuffles blocks, sorts them, and hands them to
Python. `start` is what the Python workers take outside of the stages. The loop takes the same events in this process.
docs/benchmarks/spark.md has a result.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from infra.spark.server import SESSION_SETTINGS, settings_of
from jobs import cluster
from jobs.session import spark_session
from streaming_core.apps import registry
from streaming_core.cluster.task import SparkPass, prepared
from streaming_core.data import workload
from streaming_core.run.yardstick import Yardstick, yardstick_of

COLUMNS = ("application", "tasks", "events", "first stage", "other stages", "sink", "start", "Spark", "all", "loop",
           "times the loop", "seconds")  # fmt: skip


def processor_seconds() -> dict[str, float]:
    """The processor seconds so far of the JVM and of the Python workers below this process, with those that ended."""
    known, children = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = path.read_text().rpartition(")")
        except OSError:  # it ended
            continue
        fields = tail.split()
        known[int(path.parent.name)] = (head.partition("(")[2], sum(map(int, fields[11:15])))
        children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    seconds, below = {"java": 0.0, "python": 0.0}, children.get(os.getpid(), [])
    while below:
        process = below.pop()
        below += children.get(process, [])
        name, ticks = known[process]
        seconds["java" if name == "java" else "python"] += ticks / os.sysconf("SC_CLK_TCK")
    return seconds


def loop_seconds(yardstick: Yardstick) -> float:
    """The processor seconds of a pass of the compiled loop."""
    began = time.process_time()
    yardstick.one_pass()
    return time.process_time() - began


def row(spark: SparkSession, app: str, sources: Sequence[Path], tasks: int) -> tuple:
    """The figures of a pass over the last of `sources`, after one over each of the others."""
    for source in sources:
        opened = workload.read(source, registry.load(app))
        params = tuple(opened.manifest["params"].items())
        compiled = prepared(app, params)
        folder = source.with_name(f"{source.name}-{tasks}")
        pass_ = SparkPass(app, params, str(source), opened.rows, opened.end, tasks, str(folder), writes=False)
        before, began = processor_seconds(), time.perf_counter()
        cluster.run_pass(spark, compiled, pass_)
        wall, after = time.perf_counter() - began, processor_seconds()
    stages = cluster.figures(pass_)
    first, sink = (sum(figure.cpu for name, figure in stages if name == stage) for stage in ("events", "sink"))
    others = sum(figure.cpu for name, figure in stages if name not in ("events", "sink"))
    cost = {name: after[name] - before[name] for name in after}
    yardstick = yardstick_of(compiled.program, opened)
    loop = min(loop_seconds(yardstick) for _ in range(3))
    whole = sum(cost.values())
    seconds = (first, others, sink, cost["python"] - first - others - sink, cost["java"], whole, loop)
    return (app, tasks, opened.rows, *(f"{1e6 * value / opened.rows:.2f}" for value in seconds), f"{whole / loop:.1f}",
            f"{wall:.1f}")  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--apps", nargs="+", default=["wc", "sd", "wordcount"])
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--tasks", nargs="+", type=int, default=[1, 2])
    arguments = parser.parse_args()
    print("|", " | ".join(COLUMNS), "|\n" + "|---" * len(COLUMNS) + "|")
    with tempfile.TemporaryDirectory() as folder, spark_session("cost") as spark:
        for name, value in settings_of(SESSION_SETTINGS).items():
            if spark.conf.isModifiable(name):
                spark.conf.set(name, value)
        for app in arguments.apps:
            sources = Path(folder, f"{app}-short"), Path(folder, app)
            for source, events in zip(sources, (100_000, arguments.events), strict=True):
                workload.write(registry.load(app), {}, events, 5, source)
            for tasks in arguments.tasks:
                figures = row(spark, app, sources, tasks)
                print("|", " | ".join(map(str, figures)), "|", flush=True)


if __name__ == "__main__":
    main()
