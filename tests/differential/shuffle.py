"""A cluster engine of one process, to test tasks alone: it moves rows between stages as Spark does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from streaming_core.cluster import task
from streaming_core.cluster.stages import Stage
from streaming_core.cluster.task import BEGIN, LEADING, SparkPass, exit_column
from streaming_core.cluster.wire import field_column
from streaming_core.data.parts import Parts

BATCH = 97  # rows, so that shares and events are cut anywhere


def run(pass_: SparkPass) -> None:
    """Run all stages and the sink."""
    prepared = pass_.prepared
    arrived: dict[int, list[dict]] = {}  # by consumer, its rows
    for number, stage in enumerate(prepared.stages):
        operator = stage.operator
        if operator is None:
            ranges = pa.RecordBatch.from_pydict({"id": list(range(pass_.shares))})
            leaving = task.read_events(pass_, [ranges])
        else:
            rows = arrived.pop(id(operator), [])
            leaving = task.run_stage(pass_, number, shuffled(pass_, stage, rows))
        for batch in leaving:
            assert batch.schema == prepared.columns(stage)
            for row in batch.to_pylist():
                exit_ = stage.exits[row["exit"]]
                names = [name for name in batch.schema.names if name.startswith(exit_column(row["exit"], ""))]
                plain = {field_column(name.partition(":")[2]): row[name] for name in names}
                arrived.setdefault(id(exit_.consumer), []).append({name: row[name] for name in LEADING.names} | plain)
    sink = prepared.program.app.operators[-1]
    for _ in task.run_sink(pass_, shuffled(pass_, None, arrived.pop(id(sink), []))):
        raise AssertionError("the sink has no consumers")
    assert not arrived


def shuffled(pass_: SparkPass, stage: Stage | None, rows: list[dict]) -> Iterator[pa.RecordBatch]:
    """The rows in the order of (share, seq, rank), with one that begins each share."""
    for row in rows:
        if stage is None:
            at = (row["seq"] - pass_.first) * pass_.shares // max(pass_.events - pass_.first, 1)
            row["share"] = min(at, pass_.shares - 1)
        elif stage.operator.kind == "stateful":
            row["share"] = 0
    begins = [
        {"share": share, "seq": BEGIN, "rank": b""}
        for share in range(stage.shares(pass_.shares) if stage else pass_.shares)
    ]
    rows = sorted([*begins, *rows], key=lambda row: (row["share"], row["seq"], row["rank"]))
    schema = pa.schema([*list(LEADING)[1:], *pass_.prepared.arriving(stage)])
    for begin in range(0, len(rows), BATCH):
        yield pa.RecordBatch.from_pylist(rows[begin : begin + BATCH], schema)


def outputs(pass_: SparkPass) -> pa.Table:
    """The output of the sink."""
    folders = sorted(Path(pass_.folder, "outputs").glob("[0-9]*"))
    return Parts([path for folder in folders for path in Parts.of(folder).paths]).read()


def figures(pass_: SparkPass) -> list[dict]:
    """The figures of all tasks."""
    return [json.loads(path.read_text()) for path in sorted(Path(pass_.folder, "tasks").glob("*.json"))]
