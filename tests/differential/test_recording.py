"""Every operator's input, recorded in random ways, is what the oracle saw it take; replayed, it puts out the same."""

import importlib.util
import itertools
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_core import profile, recording, workload
from streaming_core.api.kernels import compile_app
from streaming_core.diff import diff
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.runspec.spec import RunSpec
from tests.differential import branching
from tests.differential.case import strategies
from tests.differential.pipelines import write
from tests.differential.streams import SEED

WAYS = [fields for executor in ("pooled", "pinned") for fields in strategies(executor)]


def watched(app, events):
    """By operator, what the oracle sees it take and put out when it interprets the whole application."""
    oracle = Interpreter(app, {})
    taken, made = {}, {}
    for step in oracle._steps:
        name, seq, fields = step.operator.name, step.seq, list(step.operator.output.fields)
        taken[name], made[name] = [], []

        def take(row, take=step.take, rows=taken[name], names=tuple(step.operator.input.fields)):
            rows.append((row.seq, *(getattr(row, field) for field in names)))
            take(row)

        def append(row, append=step.rows.append, rows=made[name], names=tuple(fields), seq=seq):
            rows.append((seq[0], *(row if isinstance(row, tuple) else (getattr(row, field) for field in names))))
            append(row)

        step.take, step.namespace["_append"] = take, append
    oracle.process(events)
    oracle.finish(events.num_rows)
    return taken, made


def ranked(rows):
    """(seq, rank among the rows of that seq, fields)."""
    return [
        (seq, sub, *row[1:]) for seq, group in itertools.groupby(rows, lambda r: r[0]) for sub, row in enumerate(group)
    ]


def written(folder):
    """The rows in a folder's parts, in order."""
    table = pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("part-*.parquet"))])
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def examine(app, root, r, count=400):
    """Records and replays every operator of the application; returns how many rows of the end of the stream it met."""
    workload.write(app, {}, count, 1, root / "workload")
    source = workload.read(root / "workload", app)
    taken, made = watched(app, pa.concat_tables(source.blocks(count)))
    program, flushed = compile_app(app, {}), 0
    for name in taken:
        way = {"threads": r.choice((1, 2, 3)), "batch": r.choice((1, 7, 64))} | r.choice(WAYS)
        ours, theirs, out = (root / f"{name}.{of}" for of in ("engine", "oracle", "replayed"))
        recording.record(source, name, ours, RunSpec(app=app.name, **way), program)
        recording.record_oracle(source, name, theirs)
        assert written(ours / "rows") == ranked(taken[name]), (name, way)
        assert diff(ours, theirs).exit_code == (0 if taken[name] else 2)
        found = profile.replay(recording.read(ours, app), 1, out, program)
        assert written(out / "outputs") == ranked(made[name]), name
        assert (found.rows_in, found.rows_out) == (len(taken[name]), len(made[name]))
        flushed += sum(row[0] == count for row in taken[name])
    return flushed


@pytest.mark.parametrize("number", range(4))
def test_what_operators_take_in_random_pipelines(tmp_path, number):
    examine_one(tmp_path, number)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4, 60))
def test_what_operators_take_in_full(tmp_path, number):
    examine_one(tmp_path, number)


def examine_one(folder, number):
    path = write(folder, f"{SEED}_{number}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    examine(module.app.check(), folder, random.Random(f"recording {SEED} {number}"))


def test_what_operators_take_where_streams_meet_and_flush(tmp_path):
    assert examine(branching.app.check(), tmp_path, random.Random(1)) == 24  # keys 0 to 23 of tally, flushed into trace
