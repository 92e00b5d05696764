"""Tasks of a cluster engine, with one of a single process (`shuffle.py`): drawn programs, and those of the registry."""

import dataclasses
import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.apps import registry
from streaming_core.cluster import task
from streaming_core.cluster.ranks import Ranks
from streaming_core.cluster.stages import stages
from streaming_core.cluster.task import Figures, sortable
from streaming_core.data import rows as row_format
from streaming_core.data import workload
from streaming_core.errors import BadInput, RunFailed
from streaming_core.run.checkpoint import file
from streaming_core.run.checkpoint.file import Checkpoint
from streaming_core.run.failure import runtime_failures
from streaming_core.run.one_pass import PassEngine
from streaming_core.run.way import RunSpec
from tests.differential import campaign, shuffle
from tests.differential.clustered import Drawn, DrawnPass, shared_outputs, shared_states
from tests.support.draws import seeds, some

BLOCK = 61  # events


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Cut shares and events anywhere."""
    monkeypatch.setattr(task, "EVENTS", 97)
    monkeypatch.setattr(task, "ROWS", 23)


def figures(drawn: Drawn) -> list[Figures]:
    paths = sorted(Path(drawn.pass_.folder, "tasks").glob("*.json"))
    return [Figures.of(json.loads(path.read_text())) for path in paths]


@pytest.mark.parametrize("number", seeds(1, 40))
@pytest.mark.parametrize("kind", ["windowed", "dataflow"])
@pytest.mark.slow
def test_drawn_program_in_shares_equals_the_oracle(tmp_path, kind, number):
    drawn = Drawn.of(kind, number, tmp_path)
    if drawn.outputs is None:
        with pytest.raises(RunFailed, match=r"operator .* failed at event"):
            shuffle.run(drawn.pass_)
        return
    shuffle.run(drawn.pass_)
    assert drawn.difference(shared_outputs(drawn.pass_), shared_states(drawn.pass_), figures(drawn)) is None


AGAIN = """
from streaming_core.api import App, i64, record

app = App("again")


@record
class Event:
    ts: i64
    n: i64


def twice(event, out):
    out.emit(event)
    out.emit(event, n=event.n + 1000)


events = app.source(Event)
events.union(events).flat_map(twice, Event).sink()
app.generates(lambda params, seed, start, stop: {"ts": range(start, stop), "n": range(start, stop)})
"""


def test_stateless_operator_keeps_the_order_of_the_streams_that_it_joins(tmp_path):
    file = tmp_path / "again.py"
    file.write_text(AGAIN)
    workload.write(campaign.load(file).app.check(), {}, 100, 0, tmp_path / "workload")
    pass_ = DrawnPass(
        app="again", params=(), workload=str(tmp_path / "workload"), events=100, end=100, shares=2,
        folder=str(tmp_path / "pass"), writes=True, file=str(file),
    )  # fmt: skip
    shuffle.run(pass_)
    expected = [(seq, n) for seq in range(100) for n in (seq, seq + 1000) * 2]
    outputs = shared_outputs(pass_)
    assert list(zip(outputs["seq"].to_pylist(), outputs["n"].to_pylist(), strict=True)) == expected


PINNED = [
    {"executor": "pinned", "threads": 3},
    {"executor": "pinned", "threads": 1, "batch": 16},
]
OTHERS = [{"executor": "pooled", "threads": 3, "batch": 16}, {"executor": "morsel", "threads": 2}]
WAYS = {"windowed": [*PINNED, {**PINNED[0], "parallelism": "sn"}], "dataflow": [*PINNED, *OTHERS]}


def checkpoint_of(drawn: Drawn, spec: RunSpec, first: int) -> tuple[pa.Table, DrawnPass, int]:
    """Run a program on an executor up to an event.

    Returns:
        The outputs so far, the pass that goes on from its checkpoint, and the number of events that were dropped.
    """
    program = drawn.pass_.prepared.program
    table = workload.read(Path(drawn.pass_.workload), program.app).parts.read()
    path = Path(drawn.pass_.folder).with_name(f"checkpoint-{first:015d}")
    options = spec.runtime_options | {"sink": "parquet", "rate": 0.0}
    with runtime_failures(), PassEngine(program, options) as engine:
        outputs = [engine.schema.empty_table()]
        for begin in range(0, first, BLOCK):
            rows, text, _ = row_format.encode(table.slice(begin, min(BLOCK, first - begin)), program.bound.event)
            engine.process(rows, text)
            outputs.extend(engine.outputs())
        standing = engine.runtime.standing()
        checkpoint = Checkpoint((first, 0), 0, standing, 0.0, [], {}, {}, 0.0, {})
        file.write(path, checkpoint, engine.runtime.images)
    pass_ = dataclasses.replace(drawn.pass_, first=first, checkpoint=str(path))
    return pa.concat_tables(outputs), pass_, json.loads(standing)["counters"]["dropped"]


@pytest.mark.parametrize("number", seeds(1, 30))
@pytest.mark.parametrize("kind", some(["windowed", "dataflow"]))
def test_shares_continue_from_a_checkpoint_of_any_executor(tmp_path, kind, number):
    drawn = Drawn.of(kind, number, tmp_path)
    app, r = drawn.pass_.prepared.program.app, random.Random(f"checkpoint {kind} {number}")
    spec = RunSpec.parse({"app": app.name, **r.choice(WAYS[kind])})
    if drawn.outputs is None:
        pytest.skip("this program fails")
    first = r.randrange(drawn.pass_.events + 1)
    before, pass_, dropped = checkpoint_of(drawn, spec, first)
    try:
        shuffle.run(pass_)
    except RunFailed as error:
        if "too many rows to keep their order" in str(error):
            pytest.skip("an event becomes too many rows for shares")
        raise
    outputs = pa.concat_tables([before, shared_outputs(pass_).cast(before.schema)])
    known = [*figures(drawn), Figures(dropped=dropped)]
    assert drawn.difference(outputs, shared_states(pass_), known) is None, first


def test_damaged_checkpoint_stops_the_task_that_reads_it(tmp_path):
    drawn = Drawn.of("dataflow", 0, tmp_path)
    _, pass_, _ = checkpoint_of(drawn, RunSpec.parse({"app": "any", **OTHERS[0]}), drawn.pass_.events // 2)
    path = Path(pass_.checkpoint)
    data = bytearray(path.read_bytes())
    data[len(file.FIRST)] ^= 1  # of the first image
    path.write_bytes(data)
    with pytest.raises(BadInput, match=r"checkpoint-\d+ is damaged: part \d+ of \w+ in checkpoint-\d+ was changed$"):
        shuffle.run(pass_)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_failing_program_names_the_operator_and_the_event(tmp_path, number):
    drawn = Drawn.of("failing", number, tmp_path)
    if drawn.outputs is not None:
        pytest.skip("this program does not fail")
    with pytest.raises(RunFailed, match=r"operator .* failed at event"):
        shuffle.run(drawn.pass_)


def test_stages_split_an_application_at_stateful_operators():
    lr = stages(registry.load("lr"))
    assert lr[0].name == "events"
    with_state = [stage.operator.kind for stage in lr[1:]]
    assert set(with_state) <= {"partitioned", "stateful", "windowed"}
    wc = stages(registry.load("wc"))
    assert [(stage.name, len(stage.steps), len(stage.exits)) for stage in wc] == [("events", 1, 1), ("count", 1, 1)]


def test_keys_as_ranks_keep_their_order_and_are_no_prefixes():
    texts = [b"", b"\x00", b"\x00\x00", b"\x00a", b"a", b"a\x00", b"a\x00b", b"ab", b"b", b"\xff", b"\xff\xff"]
    numbers = [-(1 << 63), -300, -1, 0, 1, 255, 256, (1 << 63) - 1]
    for keys in (texts, numbers):
        paths = bits_of(sortable(pa.chunked_array([pa.array(keys)])))
        assert paths == sorted(paths)
        assert not any(other.startswith(path) for path in paths for other in paths if path != other)


def bits_of(ranks: Ranks) -> list[str]:
    """Each rank as its digits."""
    return [
        "".join(f"{word:064b}" for word in words)[:bits]
        for words, bits in zip(ranks.words.tolist(), ranks.bits.tolist(), strict=True)
    ]


@pytest.mark.parametrize("number", seeds(3, 60))
def test_ranks_are_paths_that_sort_rows(number):
    r = np.random.default_rng([7, number])
    n, paths, ranks = 50, [""] * 50, Ranks.empty(50)
    for _ in range(r.integers(1, 6)):
        bits = int(r.choice([1, 3, 8, 64]))
        numbers = r.integers(0, 2**63, n, dtype=np.uint64) >> np.uint64(64 - bits)
        ranks = ranks.then(Ranks.number(numbers, bits, n))
        paths = [path + f"{part:0{bits}b}" for path, part in zip(paths, numbers.tolist(), strict=True)]
    assert bits_of(ranks) == paths
    assert bits_of(Ranks.of_columns(*ranks.columns())) == paths
    seqs = r.integers(-2, 2, n) * int(r.choice([1, 1 << 40]))
    order = ranks.sort(seqs)
    rows = list(zip(seqs.tolist(), paths, strict=True))
    assert [rows[at] for at in (range(n) if order is None else order)] == sorted(rows)
