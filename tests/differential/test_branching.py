"""Pipelines that branch and merge: oracle, compiled loop and engine agree."""

import itertools

import pyarrow as pa
import pytest

from streaming_core.data.digest import state_digest
from streaming_core.kernels.program import compile_app
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import RunSpec
from tests.differential import branching
from tests.differential.case import Case, strategies

EVENTS = 3000
QUICK = ((1, 7), (2, 1), (3, 256), (8, 7))  # threads and batches


@pytest.fixture(scope="module")
def case():
    return Case(branching.app.check(), {}, branching.table(EVENTS), compile_app(branching.app, {}))


def test_one_event_matches_the_calculation_by_hand():
    oracle = Interpreter(branching.app.check(), {})
    event = branching.table(1).set_column(3, "value", [[7]]).set_column(2, "key", [[4]])
    outputs = oracle.process(event).to_pydict()
    # tally sees what twice made (keys 5 and 4), then the event (key 4), then its parity (key 1).
    totals = [(1, 14), (1, 21), (2, 21 * 3 + 7), (1, 1)]
    traced, state = [], 0
    for n, _ in totals:
        state = state * 5 + n
        traced.append((n, state))
    assert list(zip(outputs["n"], outputs["sum"], strict=True)) == traced + totals
    assert outputs["sub"] == list(range(8))


@pytest.mark.slow
def test_loop_equals_the_interpreter(case):
    loop = Loop(branching.app, {})
    parts = [loop.process(case.events.tables[0].slice(at, 700)) for at in range(0, EVENTS, 700)]
    compare("branching", case.outputs, pa.concat_tables([*parts, loop.finish(EVENTS)]), "outputs")
    assert state_digest(loop.state()) == state_digest(case.state)
    assert loop.dropped_invalid == case.dropped > 0


@pytest.mark.parametrize("executor", ["pooled", "pinned"])
@pytest.mark.parametrize(
    "way",
    [
        way if way in QUICK else pytest.param(way, marks=pytest.mark.slow)
        for way in itertools.product((1, 2, 3, 8), (1, 7, 256))
    ],
    ids=str,
)
def test_engine_equals_the_interpreter(case, executor, way):
    threads, batch = way
    for fields in strategies(executor):
        case.check(RunSpec.parse({"app": "branching", "threads": threads, "batch": batch, **fields}))


@pytest.mark.slow
def test_reset_loop_repeats_its_result(case):
    loop = Loop(branching.app, {})
    rows, text = loop.decode(case.events.tables[0])
    digests = set()
    for _ in range(2):
        loop.run(rows, text, keep=False)
        loop.finish(EVENTS)
        digests.add(loop.digest)
        loop.reset()
    assert len(digests) == 1
