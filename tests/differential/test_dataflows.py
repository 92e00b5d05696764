"""Random dataflow applications, each compiled, over random events in random ways."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_core.data.agreement import outputs_digest
from streaming_core.data.digest import format_digest
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run import one_pass
from streaming_core.run.blocks import Blocks
from streaming_core.run.way import ENGINE_EXECUTORS, RunSpec
from tests.differential.case import Events, strategies
from tests.differential.dataflows import STREAMS, write
from tests.differential.faulty import restore
from tests.differential.streams import SEED, Outcome, Stream, Subject, examine, streams
from tests.support.draws import seeds

EVENT = 12  # bytes of a drawn event
WORDS = [b"", b"a", b"an", b"the word", b"a word of some more letters", b"\xc3\xa9t\xc3\xa9", b"one", b"two"]
DATAFLOW = [name for name, executor in ENGINE_EXECUTORS.items() if "dataflow" in executor.application_kinds]
ORDERED = [tuple(strategy.items()) for name in DATAFLOW for strategy in strategies(name)]


@dataclass(frozen=True)
class Way:
    """One way of executing, in blocks of `block` events; `places` assigns replicas to threads."""

    strategy: tuple
    threads: int
    batch: int
    block: int
    idle: str
    places: tuple[tuple[int, ...], ...]

    def spec(self, app) -> RunSpec:
        """As the engine takes it."""
        chosen, plan = dict(self.strategy), {}
        if chosen["executor"] == "pinned":
            names = ["source", *(o.name for o in app.operators if o.kind in ("stateless", "partitioned"))]
            dealt = zip(names, self.places, strict=False)
            plan = {name: [place % self.threads for place in places] for name, places in dealt if places}
        cut = {"threads": self.threads, "batch": self.batch, "idle": self.idle}
        return RunSpec.parse({"app": app.name, "plan": plan, **cut, **chosen})


def ways(listed: list[tuple] = ORDERED) -> st.SearchStrategy[list[Way]]:
    """A few ways of executing a dataflow application, of those that are listed."""
    places = st.lists(st.integers(0, 7), max_size=3).map(tuple)
    way = st.builds(
        Way, st.sampled_from(listed), st.sampled_from((1, 2, 3, 8)), st.sampled_from((1, 7, 256)),
        st.sampled_from((1000, 64, 3)), st.sampled_from(("yield", "park")), st.lists(places, max_size=6).map(tuple),
    )  # fmt: skip
    return st.lists(way, min_size=1, max_size=4, unique=True)


class Dataflow(Subject):
    """A random application."""

    def interpreted(self, events: pa.Table, oracle: Interpreter | None = None) -> Outcome:
        for step in (oracle or self.oracle)._steps:
            if step.operator.kind == "partitioned":
                step.states.clear()
            elif step.operator.kind == "stateful":
                restore(step.states[None], step.new())
        return super().interpreted(events, oracle)


def encode(app) -> Callable[[Stream], pa.Table]:
    """Reads events in a stream's bytes. Most are at the time of the one before; of one time, those of the first logical
    stream come first."""
    layout = np.dtype([("a", "u1"), ("b", "u1"), ("n", "<i2"), ("m", "<i4"), ("x", "<i2"), ("p", "u1"), ("rest", "u1")])
    resolved = app.event.resolve({})
    schema = resolved.arrow(("seq",))

    def events(stream: Stream) -> pa.Table:
        drawn = np.frombuffer(b"".join(stream.events) * stream.rounds, layout)
        ts, of = np.cumsum(drawn["rest"] % 4 == 3), drawn["p"] % STREAMS
        order = np.lexsort((of, ts))
        drawn, ts, of = drawn[order], ts[order], of[order]
        turn = np.repeat(np.arange(stream.rounds), len(stream.events))
        few = drawn["m"].view("<u4")
        columns = {
            "seq": np.arange(len(drawn)),
            "ts": ts,
            "stream": of,
            "a": (drawn["a"] + turn) % stream.span,
            "b": drawn["b"],
            # Between -500 and 499, unless the stream may fail: then every so often one more.
            "n": drawn["n"] % (502 if stream.fails else 500) * np.where(drawn["rest"] % 2, 1, -1 + 2 * stream.fails),
            "m": drawn["m"] & 0x7FFFFFFF,
            "x": drawn["x"] / 8,
            "p": drawn["p"] % 2 == 1,
            "few": [[int(word & 255), int(word >> 8 & 255), int(word >> 16 & 255)] for word in few],
            "gap": [None if n % 3 == 0 else int(n) for n in drawn["n"]],
            "word": [WORDS[int(a + t) % min(stream.span, len(WORDS))] for a, t in zip(drawn["a"], turn, strict=True)],
        }
        arrays = [pa.array(columns[name], kind) for name, kind in zip(schema.names, schema.types, strict=True)]
        return pa.table(arrays, schema=schema)

    return events


def subject(folder, number: int, seed: int = SEED, is_stateless: bool = False, is_flushing: bool = False) -> Dataflow:
    """Application `number` of a seed. Odd numbers have text keys, unless the application must flush."""
    path = write(folder, f"{seed}_{number}", number % 2 == 1 and not is_flushing, is_stateless, is_flushing)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Dataflow(module.app.check(), {}, encode(module.app))


def examine_one(folder, number: int, examples: int) -> int:
    """How many outputs were compared."""
    some, rows = subject(folder, number), []

    @given(stream=streams(EVENT, EVENT), ways=ways())
    @examine(examples)
    def agree(stream, ways):
        expected = some.agrees(stream, ways)
        if expected.failed is None:
            rows.append(int(expected.outputs.split(":")[0]))

    agree()
    assert len(rows) > examples // 2  # most of them come to an end
    return sum(rows)


@pytest.mark.parametrize("number", seeds(1, of=46))
@pytest.mark.slow
def test_generated_application_equals_the_oracle(tmp_path, number):
    compared = examine_one(tmp_path, number, 150 if number > 1 else 60)
    assert compared > 60 or number > 1


@pytest.mark.parametrize("number", seeds(1, of=2))
@pytest.mark.slow
def test_unordered_run_emits_the_same_rows(tmp_path, number):
    some, rows = subject(tmp_path, number, is_stateless=True), []
    listed = [tuple(strategy.items()) for name in DATAFLOW for strategy in strategies(name, some.app)]
    free = [strategy for strategy in listed if strategy not in ORDERED]
    assert {dict(strategy)["executor"] for strategy in free} == {"pinned", "morsel"}

    @given(stream=streams(EVENT, EVENT).filter(lambda stream: not stream.fails), ways=ways(free))
    @examine(60)
    def agree(stream, ways):
        events = some.encode(stream)
        outputs = some.oracle.process(events)
        rows.append(outputs.num_rows)
        expected = format_digest(*outputs_digest(some.app, "none", outputs))
        for way in ways:
            blocks = Blocks(Events([events]), some.program, way.block)
            sample, _, _ = one_pass.run(way.spec(some.app), some.program, blocks)
            assert sample.digest == expected, way

    agree()
    assert sum(rows) > 60


@pytest.mark.slow
@pytest.mark.parametrize("number", range(6))
def test_compiled_loop_equals_the_oracle(tmp_path, number):
    some = subject(tmp_path, number)
    drawn = np.random.default_rng(number).bytes(300 * EVENT)
    events = [drawn[at : at + EVENT] for at in range(0, len(drawn), EVENT)]
    table = some.encode(Stream(events, rounds=2, span=64, fails=False))
    oracle, loop = Interpreter(some.app, {}), Loop(some.app, {})
    for take in (lambda o: o.process(table), lambda o: o.finish(table.num_rows)):
        compare(some.app.name, take(oracle), take(loop), "outputs")
    for name, rows in oracle.state().items():
        compare(some.app.name, rows, loop.state()[name], name)
    assert loop.dropped_invalid == oracle.dropped_invalid
