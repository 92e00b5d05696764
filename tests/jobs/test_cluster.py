"""Cells on a local Spark equal the oracle, and fail in one line."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import cluster
from streaming_core.apps import registry
from streaming_core.data import workload
from streaming_core.data.parts import Parts, states
from streaming_core.errors import BadInput, RunFailed
from streaming_core.oracle import oracle
from streaming_core.run import engine
from streaming_core.run.checkpoint import file
from streaming_core.run.way import RunSpec
from tests.differential.clustered import KINDS, Drawn, shared_outputs, shared_states


@pytest.fixture
def write_case(tmp_path):
    """A workload of an application with its oracle."""

    def make(name: str, events: int) -> tuple[Path, Path]:
        app = registry.load(name)
        workload.write(app, {}, events, 5, tmp_path / "workload")
        (tmp_path / "oracle").mkdir()
        oracle.compute(workload.read(tmp_path / "workload", app), tmp_path / "oracle")
        return tmp_path / "workload", tmp_path / "oracle"

    return make


def assert_equal(run: Path, expected: Path) -> None:
    """Compare the outputs and final states of two results."""
    assert Parts.of(run / "outputs").read().equals(Parts.of(expected / "outputs").read())
    tables = states(run)
    assert set(tables) == set(states(expected))
    for name, table in tables.items():
        assert table.read().equals(states(expected)[name].read()), name


class Killed(Exception):
    """Stands for a signal that ends a run."""


def interrupt(spec: RunSpec, source: Path, out: Path, events: int) -> int:
    """Run until so many events are done; returns the events before the last checkpoint."""

    def progress(kind: str, done: int, total: int) -> None:
        if done >= events:
            raise Killed

    with pytest.raises(Killed):
        engine.run(spec, source, out, progress)
    return max(file.read(path).events for path in file.paths(out / ".run" / "checkpoints"))


# Text keys; many operators with keys; windows; sessions; joins; a join with two flushes in a row.
@pytest.mark.parametrize(
    ("app", "events", "executor"),
    [
        ("wc", 500, "pooled"),
        ("lr", 2000, "morsel"),
        ("wordcount", 300, "pinned"),
        ("nexmark_q11", 2000, "pinned"),
        ("q3", 3000, "pooled"),
        ("hedge", 200, "pinned"),
        ("nexmark_q4", 2000, "pinned"),
    ],
)
@pytest.mark.slow
def test_run_of_another_executor_continues_on_spark(spark, write_case, tmp_path, app, events, executor):
    source, expected = write_case(app, events)
    options = {"app": app, "sink": "parquet", "repetitions": 0, "seconds": 0}
    spec = RunSpec.parse({**options, "executor": executor, "threads": 2, "checkpoint": str(events // 8)})
    reached = interrupt(spec, source, tmp_path / "run", events // 2)
    assert reached >= events // 2 - events // 8
    lines = []
    on_spark = RunSpec.parse({**options, "executor": "spark", "threads": 3})
    report = cluster.run_cell(spark, on_spark, source, tmp_path / "run", lines.append)
    assert_equal(tmp_path / "run", expected)
    assert (report.resumed, lines[0]) == ([reached], f"resuming from the checkpoint at event {reached}")
    (sample,) = report.samples
    whole = workload.read(source, registry.load(app)).rows
    assert (sample.events, sample.outputs) == (whole, Parts.of(expected / "outputs").rows)
    left = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert left == ["outputs", "report.json", "spec.json", "state"]


@pytest.mark.slow
def test_run_without_outputs_does_not_continue_on_spark(spark, write_case, tmp_path):
    source, _ = write_case("wc", 500)
    options = {"app": "wc", "sink": "digest", "repetitions": 0, "seconds": 0}
    interrupt(RunSpec.parse({**options, "executor": "pooled", "checkpoint": "100"}), source, tmp_path / "run", 300)
    with pytest.raises(BadInput, match=r"^executor spark resumes runs with sink parquet only, got digest"):
        cluster.run_cell(spark, RunSpec.parse({**options, "executor": "spark"}), source, tmp_path / "run")


# Text keys; a join of two streams; a flush and two operators with keys in a row; windows with several keys. Then
# a join with two flushes in a row, and states with texts.
@pytest.mark.parametrize(
    ("app", "events"),
    [("wc", 500), ("hedge", 200), ("q3", 3000), ("wordcount", 300), ("nexmark_q4", 2000), ("nexmark_q19", 2000)],
)
@pytest.mark.slow
def test_cell_on_spark_equals_the_oracle(spark, write_case, tmp_path, app, events):
    source, expected = write_case(app, events)
    options = {"executor": "spark", "threads": 2, "repetitions": 1, "seconds": 0, "sink": "parquet"}
    spec = RunSpec.parse({"app": app, **options})
    report = cluster.run_cell(spark, spec, source, tmp_path / "run")
    assert_equal(tmp_path / "run", expected)
    assert [sample.kind for sample in report.samples] == ["verified", "peak"]
    assert len({sample.digest for sample in report.samples}) == 1
    left = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert left == ["outputs", "report.json", "spec.json", "state"]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 50, 10))
def test_drawn_programs_on_spark_equal_the_oracle(spark, tmp_path, first):
    for number in range(first, first + 10):
        kind = random.Random(number).choice(KINDS)
        folder = tmp_path / str(number)
        folder.mkdir()
        drawn = Drawn.of(kind, number, folder)
        if drawn.outputs is None:
            with pytest.raises(RunFailed, match=r"operator \w+ failed at event \d+"):
                cluster.run_pass(spark, drawn.pass_.prepared, drawn.pass_)
            continue
        cluster.run_pass(spark, drawn.pass_.prepared, drawn.pass_)
        figures = [figures for _, figures in cluster.figures(drawn.pass_)]
        difference = drawn.difference(shared_outputs(drawn.pass_), shared_states(drawn.pass_), figures)
        assert difference is None, f"{kind} {number}: {difference}"


@pytest.mark.parametrize("fields", [1, 2])
def test_states_of_shares_merge_by_key(tmp_path, fields):
    r = random.Random(3)
    names = ["key"] if fields == 1 else ["key_0", "key_1"]
    numbers = r.sample(range(-5000, 5000), 2000)
    keys = [(n,) if fields == 1 else (n // 50, bytes([n % 7, n % 3]) + b"%d" % n) for n in numbers]
    paths = []
    for share in range(3):
        own = sorted(key for key, number in zip(keys, numbers, strict=True) if number % 3 == share)
        paths.append(tmp_path / f"{share}.parquet")
        pq.write_table(pa.table(list(map(list, zip(*own, strict=True))), names), paths[-1])
    tables = list(cluster.merged([Parts([path]).slices(64) for path in paths]))
    assert max(table.num_rows for table in tables) <= 3 * 64
    merged = pa.concat_tables(tables)
    assert [tuple(row.values()) for row in merged.to_pylist()] == sorted(keys)
