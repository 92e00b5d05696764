"""A cluster engine of one process, to test tasks alone: it moves rows between stages as Spark does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from streaming_core.cluster import task
from streaming_core.cluster.task import BEGIN, BLOCK, SparkPass
from streaming_core.data.parts import Parts

BATCH = 3  # blocks


def run(pass_: SparkPass) -> None:
    """Run all stages and the sink."""
    prepared = pass_.prepared
    arrived: dict[int, list[dict]] = {}  # by consumer, its blocks
    for number, stage in enumerate(prepared.stages):
        operator = stage.operator
        if operator is None:
            ranges = pa.RecordBatch.from_pydict({"id": list(range(pass_.shares))})
            leaving = task.read_events(pass_, [ranges])
        else:
            blocks = arrived.pop(id(operator), [])
            leaving = task.run_stage(pass_, number, shuffled(stage.shares(pass_.shares), blocks))
        for batch in leaving:
            assert batch.schema == BLOCK
            for block in batch.to_pylist():
                arrived.setdefault(id(stage.exits[block.pop("exit")].consumer), []).append(block)
    sink = prepared.program.app.operators[-1]
    for _ in task.run_sink(pass_, shuffled(pass_.shares, arrived.pop(id(sink), []))):
        raise AssertionError("the sink has no consumers")
    assert not arrived


def shuffled(shares: int, blocks: list[dict]) -> Iterator[pa.RecordBatch]:
    """The blocks by ascending (share, seq), with one that begins each share."""
    begins = [{"share": share, "seq": BEGIN, "rows": b""} for share in range(shares)]
    blocks = sorted([*begins, *blocks], key=lambda block: (block["share"], block["seq"]))
    for begin in range(0, len(blocks), BATCH):
        yield pa.RecordBatch.from_pylist(blocks[begin : begin + BATCH], pa.schema(list(BLOCK)[1:]))


def outputs(pass_: SparkPass) -> pa.Table:
    """The output of the sink."""
    folders = sorted(Path(pass_.folder, "outputs").glob("[0-9]*"))
    return Parts([path for folder in folders for path in Parts.of(folder).paths]).read()


def figures(pass_: SparkPass) -> list[dict]:
    """The figures of all tasks."""
    return [json.loads(path.read_text()) for path in sorted(Path(pass_.folder, "tasks").glob("*.json"))]
