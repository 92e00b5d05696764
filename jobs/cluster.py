"""Runs a cell on a Spark cluster: executor `spark`.

Spark moves blocks of rows between the stages of the application (`streaming_core/cluster/stages.py`). Its tasks run the
stages on the compiled kernels (`streaming_core/cluster/task.py`). Before each stage but the first, Spark shuffles the
blocks by share, and sorts those of each share by their first seq.

A pass is one Spark job, from the events to the digest of the outputs. Its time is that of the job, with reading the
events and moving rows. All events arrive at the start, so the latency of an event is the time of the pass.

The first pass goes on from a checkpoint of another executor if the folder of the run has one. It makes none itself.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial, reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from streaming_core.apps import registry
from streaming_core.cluster import task
from streaming_core.cluster.task import BEGIN, Figures, Prepared, SparkPass, state_parts
from streaming_core.data import workload
from streaming_core.data.comparison import keys_of
from streaming_core.data.digest import add, format_digest, joint_digest
from streaming_core.data.parts import Parts, part_path, write_tables
from streaming_core.errors import BadInput, CommandFailed, RunFailed
from streaming_core.language.application import App
from streaming_core.run.checkpoint.file import Checkpoint
from streaming_core.run.checkpoint.store import Checkpoints, closed_digest
from streaming_core.run.engine import run_from_checkpoint
from streaming_core.run.folder import earlier_report, held, run_in
from streaming_core.run.provenance import Outcome, PreparedRun, report_of
from streaming_core.run.report import Latency, RunReport, Sample
from streaming_core.run.way import RunSpec
from streaming_core.run.yardstick import Turns, yardstick_of

BLOCK = "exit int, share int, seq long, rows binary"  # as in streaming_core/cluster/task.py
FAILURES = {error.__name__: error for error in (BadInput, RunFailed, CommandFailed)}
MERGED = 1 << 16  # rows of each share in memory while states are merged


def run_cell(
    spark: SparkSession, spec: RunSpec, source: Path, out: Path, say: Callable[[str], None] = lambda line: None
) -> RunReport:
    """Run a cell on Spark; write outputs, state and, last, report.json into `out`.

    Args:
        spark: A session. Its executors see the folders of `source` and `out`, and import this checkout.
        spec: A spec of executor spark.
        source: The folder of the workload.
        out: The folder of the run: new, or with nothing but its spec.json. If it holds this run already, its report is
            returned.
        say: Receives a line about each pass.

    Returns:
        The report, with one sample for each pass.

    Raises:
        BadInput: The request cannot be carried out; nothing was written.
        RunFailed: An operator failed.
        CommandFailed: Spark failed for another reason than the application.
    """
    app = registry.load(spec.app)
    spec.check(app)
    opened = workload.read(source, app, spec.params)
    prepared = task.prepared(spec.app, tuple(opened.manifest["params"].items()))
    run = PreparedRun(spec, prepared.program, opened, os.getloadavg()[0])
    with held(spec, out) as is_complete:
        if is_complete:
            return earlier_report(out, app, opened, say)
        passes = partial(_run_passes, spark, prepared, run, say)
        return run_in(out, lambda work: run_from_checkpoint(work, run, say, passes), resumes=True)


def _run_passes(
    spark: SparkSession,
    prepared: Prepared,
    run: PreparedRun,
    say: Callable[[str], None],
    work: Path,
    checkpoints: Checkpoints,
) -> RunReport:
    """Make all passes of a cell, and write outputs and state of the first one into `work`."""
    spec, opened, last = run.spec, run.workload, checkpoints.last
    if last and spec.sink != "parquet":  # the outputs before it are nowhere
        raise BadInput(f"executor spark resumes runs with sink parquet only, got {spec.sink}")
    turns = Turns(spec.seconds if opened.rows else 0.0, lambda: yardstick_of(run.program, opened))
    params, numbers = tuple(opened.manifest["params"].items()), itertools.count()

    def one_pass(number: int) -> tuple[SparkPass, Sample]:
        before = last if number == 0 else None
        pass_ = SparkPass(
            spec.app, params, str(opened.directory.resolve()), opened.rows, opened.end, spec.threads,
            str(work.resolve() / "passes" / str(next(numbers))), number == 0, before.events if before else 0,
            str(checkpoints.folder.resolve() / before.name) if before else "",
        )  # fmt: skip
        sample = _measured(spark, prepared, pass_, opened.manifest["content_digest"], number, before)
        say(f"a pass took {sample.seconds:.1f} s")
        return pass_, sample

    def repeat(number: int) -> Sample:
        return one_pass(number)[1]

    first, sample = one_pass(0)
    state_digest = publish(prepared, first, work, last.outputs if last else 0)
    samples = [sample]
    for number in range(1, 1 + spec.repetitions):
        shutil.rmtree(work / "passes")
        samples.append(turns.repetition(partial(repeat, number), samples[0]))
    shutil.rmtree(work / "passes")
    outcome = Outcome(
        samples=samples,
        state_digest=state_digest,
        peak_memory_bytes=max(sample.costs["task_peak_bytes"] for sample in samples),
        resumed=checkpoints.resumed,
        yardstick=turns.yardstick,
        host={
            "load_after": os.getloadavg()[0],
            "energy": "executor spark does not measure energy",
            **turns.host,
        },
    )
    return report_of(run, outcome)


def _measured(
    spark: SparkSession,
    prepared: Prepared,
    pass_: SparkPass,
    content_digest: str,
    number: int,
    before: Checkpoint | None,
) -> Sample:
    """Make a pass; return its sample, which covers the events before the checkpoint that the pass goes on from."""
    began = time.perf_counter()
    run_pass(spark, prepared, pass_)
    seconds, all_figures, outputs, dropped = time.perf_counter() - began, figures(pass_), (0, 0), 0
    if before:
        standing = json.loads(before.standing)
        seconds += standing["nanoseconds"] / 1e9
        outputs, dropped = closed_digest(before), standing["counters"]["dropped"]
    read = reduce(
        add, (figure.read for name, figure in all_figures if name == "events"), before.read if before else (0, 0)
    )
    if (digest := format_digest(*read)) != content_digest:
        raise BadInput(
            f"workload {pass_.workload}: the rows were changed after they were written: digest {digest}, expected "
            f"{content_digest}"
        )
    written = reduce(add, (figure.written for name, figure in all_figures if name == "sink"), outputs)
    own = [figure for _, figure in all_figures]
    engines, tasks = sum(figure.engine for figure in own), sum(figure.seconds for figure in own)
    return Sample(
        kind="verified" if number == 0 else "peak",
        repetition=number,
        events=pass_.events,
        outputs=written[0],
        digest=format_digest(*written),
        in_order=True,
        seconds=seconds,
        events_per_s=pass_.events / seconds,
        processing=Latency.of_pass(seconds),
        breakdown={"useful": engines, "sync": 0.0, "lock": 0.0, "remote": 0.0, "other": max(tasks - engines, 0.0)},
        cpu_seconds=sum(figure.cpu for figure in own),
        dropped_invalid=dropped + sum(figure.dropped for figure in own),
        dropped_late=sum(figure.late for figure in own),
        costs=costs(prepared, all_figures),
    )


def costs(prepared: Prepared, all_figures: list[tuple[str, Figures]]) -> dict[str, int]:
    """The costs of a pass: seconds of the tasks of each stage, and rows moved between tasks."""
    known = {"task_peak_bytes": max(figure.peak for _, figure in all_figures)}
    for name in [*(stage.name for stage in prepared.stages), "sink"]:
        own = [figure for stage, figure in all_figures if stage == name]
        known[f"{name}_tasks_ns"] = int(sum(figure.seconds for figure in own) * 1e9)
        known[f"{name}_python_ns"] = int(sum(figure.cpu for figure in own) * 1e9)
        known[f"{name}_engine_ns"] = int(sum(figure.engine for figure in own) * 1e9)
        known[f"{name}_rows"] = sum(figure.rows_in for figure in own)
    return known


# --- the Spark job -----------------------------------------------------------------------------------------------


def run_pass(spark: SparkSession, prepared: Prepared, pass_: SparkPass) -> None:
    """Run all stages and the sink of a pass.

    Raises:
        BadInput, RunFailed, CommandFailed: As the task that failed.
    """
    Path(pass_.folder).mkdir(parents=True)
    arriving: dict[int, list[DataFrame]] = {}  # by consumer
    kept, ends = [], []
    try:
        for number, stage in enumerate(prepared.stages):
            if stage.operator is None:
                frame = spark.range(0, pass_.shares, 1, pass_.shares)
                work = partial(task.read_events, pass_)
            else:
                frame = dealt(spark, stage.shares(pass_.shares), arriving.pop(id(stage.operator), []))
                work = partial(task.run_stage, pass_, number)
            leaving = frame.mapInArrow(work, BLOCK)
            if len(stage.exits) > 1:
                leaving = leaving.persist(StorageLevel.DISK_ONLY)
                kept.append(leaving)
            if not stage.exits:
                ends.append(leaving)
            for exit_number, exit_ in enumerate(stage.exits):
                rows = leaving.where(F.col("exit") == exit_number) if len(stage.exits) > 1 else leaving
                arriving.setdefault(id(exit_.consumer), []).append(rows.select("share", "seq", "rows"))
        sink = dealt(spark, pass_.shares, arriving.pop(id(prepared.program.app.operators[-1]), []))
        ends.append(sink.mapInArrow(partial(task.run_sink, pass_), "share int"))
        for end in ends:
            end.toArrow()
    except Exception as error:
        raise failure(pass_, error) from error
    finally:
        for frame in kept:
            frame.unpersist()


def dealt(spark: SparkSession, shares: int, arriving: list[DataFrame]) -> DataFrame:
    """The blocks of a consumer, each share in a partition of its own, by ascending first seq."""
    begins = spark.range(0, shares, 1, 1).select(
        F.col("id").cast("int").alias("share"), F.lit(BEGIN).cast("long").alias("seq"), F.lit(b"").alias("rows")
    )
    blocks = reduce(DataFrame.unionByName, arriving, begins)
    return blocks.repartitionById(shares, F.col("share")).sortWithinPartitions("seq")


def failure(pass_: SparkPass, error: Exception) -> Exception:
    """The error to raise for a failure of Spark: that of the task that failed, if one did."""
    notes = [json.loads(path.read_text()) for path in sorted(Path(pass_.folder, "failures").glob("*.json"))]
    for note in sorted(notes, key=lambda note: note["line"]):
        return FAILURES.get(note["kind"], CommandFailed)(note["line"])
    return error


def figures(pass_: SparkPass) -> list[tuple[str, Figures]]:
    """The figures of all tasks of a pass, each with the name of its stage."""
    paths = sorted(Path(pass_.folder, "tasks").glob("*.json"))
    return [(path.stem.rpartition("-")[0], Figures.of(json.loads(path.read_text()))) for path in paths]


# --- results -----------------------------------------------------------------------------------------------------


def publish(prepared: Prepared, pass_: SparkPass, out: Path, before: int) -> str:
    """Move the outputs of a pass into the folder of the run, and merge the states of all shares into its tables.

    Args:
        prepared: The application.
        pass_: The pass.
        out: The folder.
        before: Number of files with the outputs before those of the pass, which are there.

    Returns:
        The digest of the final states.
    """
    folder = Path(pass_.folder)
    parts = [path for share in sorted((folder / "outputs").iterdir()) for path in Parts.of(share).paths]
    filled = [path for path in parts if pq.read_metadata(path).num_rows] or parts[:1]
    (out / "outputs").mkdir(exist_ok=True)
    for number, path in enumerate(filled, before):
        os.replace(path, part_path(out / "outputs", number))
    (out / "state").mkdir()
    for operator in prepared.program.app.operators:
        if operator.state is not None:
            merge(state_parts(pass_, operator.name), out / "state" / f"{operator.name}.parquet")
    return states_digest(prepared.program.app, pass_)


def states_digest(app: App, pass_: SparkPass) -> str:
    """The digest of the final states (`data/digest.py: state_digest`), from those of the shares."""
    known = figures(pass_)
    names = [operator.name for operator in app.operators if operator.state is not None]
    return joint_digest(
        {name: reduce(add, (figure.written for stage, figure in known if stage == name), (0, 0)) for name in names}
    )


def merge(parts: Parts, target: Path) -> None:
    """Merge the states of shares, each by ascending key, into one file; a few rows of each share are in memory."""
    whole = [path for path, rows in zip(parts.paths, parts.sizes, strict=True) if rows] or parts.paths[:1]
    if len(whole) == 1:
        shutil.copyfile(whole[0], target)
        return
    write_tables(target, parts.schema, merged([Parts([path]).slices(MERGED) for path in whole]))


def merged(shares: list[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Tables of ascending key as one sequence of tables of ascending key. No key is in two of them."""
    heads = {number: table for number, share in enumerate(shares) if (table := next(share, None)) is not None}

    def key(table: pa.Table, row: int) -> list:
        return [table.column(name)[row].as_py() for name in keys_of(table.column_names)]

    while heads:
        # Up to the least of the last keys, all rows are here.
        last = min(key(table, -1) for table in heads.values())
        ready = []
        for number, table in list(heads.items()):
            count = bisect_right(range(table.num_rows), last, key=partial(key, table))
            ready.append(table.slice(0, count))
            left = table.slice(count)
            if not left.num_rows:
                left = next(shares[number], None)
            if left is None:
                del heads[number]
            else:
                heads[number] = left
        whole = pa.concat_tables(ready)
        yield whole.sort_by([(name, "ascending") for name in keys_of(whole.column_names)])
