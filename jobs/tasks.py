"""Runs a function on each of several pieces of work, one Spark task a piece."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from streaming_core.errors import BadInput, CommandFailed, RunFailed, line_of, refusal


def run_tasks(spark: SparkSession, work: Callable[[Any], Any], pieces: list[Any]) -> list[tuple[Any, str | None]]:
    """Run `work(piece)` for every piece.

    Args:
        spark: The session.
        work: A function that executors can import by name. Its argument and result must fit into JSON. Spark may call
            it twice for a piece.
        pieces: The arguments.

    Returns:
        For each piece, in order: its result and None, or None and a one-line complaint.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            indices = batch.column(0).to_pylist()
            outcomes = []
            for index in indices:
                try:
                    outcomes.append(json.dumps([work(pieces[index]), None]))
                except (BadInput, RunFailed, CommandFailed) as error:
                    outcomes.append(json.dumps([None, line_of(error)]))
                except OSError as error:
                    outcomes.append(json.dumps([None, str(refusal(error))]))
            yield pa.RecordBatch.from_arrays([pa.array(indices, pa.int32()), pa.array(outcomes)], ["piece", "outcome"])

    if not pieces:
        return []
    frame = spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(run, "piece int, outcome string")
    outcomes = {row["piece"]: json.loads(row["outcome"]) for row in frame.toArrow().to_pylist()}
    return [tuple(outcomes[index]) for index in range(len(pieces))]
