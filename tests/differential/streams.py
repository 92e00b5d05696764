"""Short random streams of events and ways to execute them, and the properties that hold for both.

Hypothesis draws an event as bytes: it generates them quickly and shrinks them to few and small ones. A test decodes
them for its application. A stream may repeat several times, so a few bytes give many events.

PROPERTY_SEED (default: 0) determines all draws: the same tests on every machine, and others on demand.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st

from streaming_core.data.digest import digest_table, format_digest, state_digest
from streaming_core.errors import RunFailed
from streaming_core.kernels.program import compile_app
from streaming_core.language.application import App
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.interpreter.interpreter import initial_rows
from streaming_core.run import one_pass
from streaming_core.run.blocks import Blocks
from streaming_core.run.way import RunSpec
from tests.differential.case import Events, strategies

SEED = int(os.environ.get("PROPERTY_SEED", "0"))
ROUNDS = (1, 1, 2, 7, 30)


def examine(examples: int) -> Callable:
    """Decorator of a property: try a number of examples, the same ones each time."""

    def decorate(test: Callable) -> Callable:
        quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.differing_executors]
        phases = (Phase.generate, Phase.shrink)  # no explaining: where the fault is, no Python line tells
        options = {"max_examples": examples, "deadline": None, "database": None, "phases": phases}
        return seed(SEED)(settings(suppress_health_check=quiet, **options)(test))

    return decorate


@dataclass(frozen=True)
class Stream:
    """Events as bytes, repeated `rounds` times; `span` rows of each table; whether events may fail."""

    events: list[bytes]
    rounds: int
    span: int
    fails: bool


@dataclass(frozen=True)
class Way:
    """One way of executing, in blocks of `block` events."""

    strategy: tuple[tuple[str, Any], ...]
    threads: int
    punctuation: int
    batch: int
    block: int
    idle: str

    def spec(self, app: App) -> RunSpec:
        """As the engine takes it."""
        chosen = dict(self.strategy)
        cut = {"punctuation": self.punctuation, "batch": self.batch}
        return RunSpec.parse({"app": app.name, "threads": self.threads, "idle": self.idle, **cut, **chosen})


def streams(smallest: int, largest: int) -> st.SearchStrategy[Stream]:
    """Streams of events of `smallest` to `largest` bytes."""
    event = st.binary(min_size=smallest, max_size=largest)
    events = st.lists(event, min_size=1, max_size=10) | st.lists(event, min_size=10, max_size=40)
    fails = st.sampled_from((False, False, False, False, True))
    return st.builds(Stream, events, st.sampled_from(ROUNDS), st.sampled_from((1, 2, 3, 64)), fails)


def ways() -> st.SearchStrategy[list[Way]]:
    """A few ways of executing a transactional application, of all those that are listed."""
    # Who yields to seven others on few cores takes its time.
    crews = [(threads, idle) for threads in (1, 2, 3, 8) for idle in ("yield", "park") if threads < 8 or idle == "park"]
    way = st.builds(
        lambda strategy, crew, *cut: Way(strategy, crew[0], *cut, crew[1]),
        st.sampled_from([tuple(s.items()) for s in strategies("transactional")]),
        st.sampled_from(crews),
        st.sampled_from((1, 7, 500, 100_000)),
        st.sampled_from((1, 7, 256)),
        st.sampled_from((1000, 64, 3)),
    )
    return st.lists(way, min_size=1, max_size=5, unique=True)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a stream. `failed` is the event at which a run failed; then all else is unknown."""

    failed: int | None = None
    outputs: str = ""
    rejected: int = 0
    dropped: int = 0
    state: dict[str, list] | None = None

    @staticmethod
    def of(outputs: str, rejected: int, dropped: int, state: dict[str, pa.Table]) -> "Outcome":
        """With the state digested, and shown where it is small."""
        shown = {name: table.to_pylist() for name, table in state.items() if table.num_rows < 4}
        return Outcome(None, outputs, rejected, dropped, {"digest": [state_digest(state)], **shown})


class Subject:
    """A bound application, compiled, and interpreted, for any number of streams.

    Args:
        encode: makes a stream a table of events.
    """

    def __init__(self, app: App, params: dict, encode: Callable[[Stream], pa.Table]):
        self.app, self.encode = app, encode
        self.params = app.bind(params)
        self.program = compile_app(app, self.params)
        self.oracle = Interpreter(app, self.params)

    def interpreted(self, events: pa.Table, oracle: Interpreter | None = None) -> Outcome:
        """The outcome of the oracle, or of another interpreter, on the events from fresh tables."""
        oracle = oracle or self.oracle
        oracle.shared.dropped_invalid = oracle.shared.rejected = oracle.events = 0
        oracle._last = (0, 0)
        for table in oracle.program.tables:
            rows = oracle.tables[table.declared]
            if isinstance(rows, dict):
                rows.clear()
                rows.update(initial_rows(table))
            else:
                rows[:] = initial_rows(table)
        try:
            outputs = pa.concat_tables([oracle.process(events), oracle.finish(events.num_rows)])
        except RunFailed as failure:
            return Outcome(failed_at(failure))
        digest = format_digest(*digest_table(outputs, ("seq", "sub")))
        return Outcome.of(digest, oracle.rejected, oracle.dropped_invalid, oracle.state())

    def executed(self, events: pa.Table, way: Way) -> Outcome:
        """The outcome of the engine on the events."""
        blocks = Blocks(Events([events]), self.program, way.block)
        try:
            sample, state, _ = one_pass.run(way.spec(self.app), self.program, blocks)
        except RunFailed as failure:
            return Outcome(failed_at(failure))
        assert sample.in_order
        return Outcome.of(sample.digest, sample.rejected, sample.dropped_invalid, state)

    def agrees(self, stream: Stream, ways: list[Way], executed: Callable | None = None) -> Outcome:
        """Fails unless each way's outcome (or that of `executed`) is the oracle's, which it returns."""
        events = self.encode(stream)
        expected = self.interpreted(events)
        for way in ways:
            actual = (executed or self.executed)(events, way)
            by_chain = dict(way.strategy).get("scheme") == "tstream"
            if expected.failed is not None and (way.threads > 1 or by_chain):
                # One thread may fail at a later event before another thread reaches the first failure. So may a single
                # thread that walks one chain of operations after the other.
                assert actual.failed is not None, f"event {expected.failed} fails, but the run does not"
                assert actual.failed >= expected.failed
            else:
                assert actual == expected, f"{way} differs over {events.num_rows} events"
        return expected


def failed_at(failure: RunFailed) -> int:
    """The event that a failure's line names."""
    return int(re.search(r"event (\d+): ", str(failure)).group(1))
