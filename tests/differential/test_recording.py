"""The recorded input of every operator is its input in the oracle, and a replay emits the oracle's rows."""

import itertools
import random
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_core.data import workload
from streaming_core.kernels.program import compile_app
from streaming_core.language.record import VALID
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.run import recording
from streaming_core.run.comparison import diff
from streaming_core.run.replay import replay
from streaming_core.run.way import RunSpec
from tests.differential import branching
from tests.differential.case import strategies
from tests.differential.streams import SEED, Stream
from tests.differential.test_dataflows import EVENT, subject

WAYS = [fields for executor in ("pooled", "pinned", "morsel") for fields in strategies(executor)]


def values(row, record):
    """The values of a row's fields, or of a tuple of them; None for one that is null."""
    of = (
        dict(zip(record.resolve({}).event[0], row, strict=True)).get
        if isinstance(row, tuple)
        else partial(getattr, row)
    )
    return (of(name) if of(VALID + name, True) else None for name in record.fields)


def watched(app, events):
    """The rows that each operator takes and emits while the oracle interprets the whole application."""
    oracle = Interpreter(app, {})
    inputs, outputs = {}, {}
    for step in oracle._steps:
        name, seq = step.operator.name, step.seq
        inputs[name], outputs[name] = [], []

        def take(row, take=step.take, rows=inputs[name], record=step.operator.input):
            rows.append((row.seq, *values(row, record)))
            take(row)

        def append(row, append=step.rows.append, rows=outputs[name], record=step.operator.output, seq=seq):
            rows.append((seq[0], *values(row, record)))
            append(row)

        step.take, step.namespace["_append"] = take, append
    oracle.process(events)
    oracle.finish(events.num_rows)
    return inputs, outputs


def ranked(rows):
    """(seq, rank among the rows of that seq, fields)."""
    return [
        (seq, sub, *row[1:]) for seq, group in itertools.groupby(rows, lambda r: r[0]) for sub, row in enumerate(group)
    ]


def written(folder):
    """The rows in a folder's parts, in order."""
    table = pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("part-*.parquet"))])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def examine(app, program, events, root, r):
    """Record and replay every operator of the application; returns the number of rows at the end of the stream."""
    count, flushed = events.num_rows, 0
    workload.write(app, {}, count, 1, root / "workload", [events])
    source = workload.read(root / "workload", app)
    inputs, outputs = watched(app, events)
    for name in inputs:
        way = {"threads": r.choice((1, 2, 3)), "batch": r.choice((1, 7, 64))} | r.choice(WAYS)
        ours, theirs, out = (root / f"{name}.{of}" for of in ("engine", "oracle", "replayed"))
        recording.record(source, name, ours, RunSpec.parse({"app": app.name, **way}), program)
        recording.record_oracle(source, name, theirs)
        assert written(ours / "rows") == ranked(inputs[name]), (name, way)
        assert diff(ours, theirs).exit_code == 0
        replayed = replay(recording.read(ours, app), 1, out, program)
        assert written(out / "outputs") == ranked(outputs[name]), name
        assert (replayed.rows_in, replayed.rows_out) == (len(inputs[name]), len(outputs[name]))
        flushed += sum(row[0] == count for row in inputs[name])
    return flushed


def examine_one(folder, number):
    some, drawn = subject(folder, number), random.Random(f"recording {SEED} {number}")
    events = [drawn.randbytes(EVENT) for _ in range(100)]
    table = some.encode(Stream(events, rounds=3, span=drawn.choice((1, 3, 64)), fails=False))
    examine(some.app, some.program, table, folder, drawn)


@pytest.mark.parametrize("number", range(60))
@pytest.mark.slow
def test_recorded_inputs_of_random_pipelines_are_exact(tmp_path, number):
    examine_one(tmp_path, number)


def test_recorded_inputs_are_exact_where_streams_merge_and_flush(tmp_path):
    program, events = compile_app(branching.app.check(), {}), branching.table(400)
    flushed = examine(branching.app, program, events, tmp_path, random.Random(1))
    assert flushed == 24  # keys 0 to 23 of tally, flushed into trace
