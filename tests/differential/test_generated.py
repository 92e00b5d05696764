"""Random applications, each compiled, over random events in random ways; and planted faults to detect."""

import importlib.util
import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from tests.differential.faulty import FAULTS, Faulty, right
from tests.differential.generated import EVENT, WORDS, write
from tests.differential.streams import SEED, Stream, Subject, Way, examine, streams, ways


def encode(app):
    """Reads events of an application in a stream's bytes; each round names other rows."""
    layout = np.dtype([("a", "u1"), ("b", "u1"), ("n", "<i2"), ("m", "<i4"), ("x", "<i2"), ("p", "u1"), ("rest", "u1")])
    schema = app.event.resolve({}).arrow(("seq",))

    def events(stream: Stream) -> pa.Table:
        drawn = np.frombuffer(b"".join(stream.events) * stream.rounds, layout)
        turn = np.repeat(np.arange(stream.rounds), len(stream.events))
        columns = {
            "seq": np.arange(len(drawn)),
            "a": (drawn["a"] + turn) % stream.span,
            "b": drawn["b"] % stream.span,
            # Between -500 and 499, unless the stream may fail: then every so often one more.
            "n": drawn["n"] % (502 if stream.fails else 500) * np.where(drawn["rest"] % 2, 1, -1 + 2 * stream.fails),
            "m": drawn["m"] & 0x7FFFFFFF,
            "x": drawn["x"] / 8,
            "p": drawn["p"] % 2 == 1,
            "w": [WORDS[i] for i in drawn["p"] // 2 % len(WORDS)],
        }
        arrays = [pa.array(columns[name], kind) for name, kind in zip(schema.names, schema.types, strict=True)]
        return pa.table(arrays, schema=schema)

    return events


def subject(folder, number: str) -> Subject:
    path = write(folder, number)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Subject(module.app, {}, encode(module.app))


def examine_one(folder, number: str, examples: int) -> None:
    some = subject(folder, number)
    met = itertools.count()

    @given(stream=streams(EVENT, EVENT), ways=ways())
    @examine(examples)
    def agree(stream, ways):
        if some.agrees(stream, ways).failed is None:
            next(met)

    agree()
    assert next(met) > examples // 2  # most of them come to an end


@pytest.mark.slow  # test_relay.py has a quick one
@pytest.mark.parametrize("number", range(56))
def test_generated_application_equals_the_oracle(tmp_path, number):
    examine_one(tmp_path, f"{SEED}_{number}", 300 if number > 1 else 50)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(8))
def test_compiled_loop_equals_the_oracle(tmp_path, number):
    some = subject(tmp_path, f"{SEED}_{number}")
    drawn = np.random.default_rng(number).bytes(300 * EVENT)
    events = [drawn[at : at + EVENT] for at in range(0, len(drawn), EVENT)]
    table = some.encode(Stream(events, rounds=7, span=64, fails=False))
    oracle, loop = Interpreter(some.app, {}), Loop(some.app, {})
    compare(some.app.name, oracle.process(table), loop.process(table), "outputs")
    for name, rows in oracle.state().items():
        compare(some.app.name, rows, loop.state()[name], name)
    assert (loop.rejected, loop.dropped_invalid) == (oracle.rejected, oracle.dropped_invalid)


# --- the test of the test -------------------------------------------------------------------------------------------


# Conditions, and modifications by rows that the same transaction changes.
FAULTY = "0_13"
ALONE = Way((("executor", "transactional"),), threads=1, punctuation=1, batch=1, block=1, idle="yield")


@pytest.mark.slow
@pytest.mark.parametrize("fault", [right, *FAULTS])
def test_search_finds_a_planted_fault_and_shrinks_it_to_a_few_events(tmp_path, fault):
    some, failing = subject(tmp_path, FAULTY), []
    faulty = Faulty(some.app, some.params, fault)

    @given(stream=streams(EVENT, EVENT))
    @examine(200)
    def agree(stream):
        try:
            some.agrees(stream, [ALONE], lambda events, way: some.interpreted(events, faulty))
        except AssertionError:
            failing.append(stream)
            raise

    if fault is right:
        return agree()
    with pytest.raises(AssertionError):
        agree()
    assert len(failing[-1].events) * failing[-1].rounds <= 3, failing[-1]
