"""States with a time to live, and timers, against their definition in docs/explanation/windows.md, in plain Python."""

import re

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, Param, Set, f64, i64, record
from streaming_core.errors import BadInput
from streaming_core.language.bound import BoundApp
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import Pinned
from tests.differential.case import Case
from tests.support.draws import some

TTL, EVERY = 20, 5


@record
class Row:
    ts: i64
    key: i64
    wait: i64


@record
class State:
    n: i64
    seen: Set[i64]
    timer: i64


@record
class Output:
    ts: i64
    key: i64
    n: i64
    seen: i64


def step(row, state, out):
    state.n += 1
    state.seen.add(row.ts)
    state.seen.remove(row.ts - 7)
    if row.wait > 0:
        state.timer = row.ts + row.wait
    elif row.wait < 0:
        state.timer = 0
    out.emit(ts=row.ts, key=row.key, n=state.n, seen=len(state.seen))


def due(ts, key, state, out):
    out.emit(ts=ts, key=key.key, n=-state.n, seen=len(state.seen))
    if state.n % 2 == 0:
        state.timer = ts + state.n - 2


def app(delay, with_timer=False):
    declared = App("lifetime", params={"ttl": Param(TTL), "every": Param(EVERY), "lag": Param(delay)})
    more = {"timer": due, "every": "every"} if with_timer else {}
    declared.source(Row, delay="lag").key_by("key").process(step, State, Output, ttl="ttl", **more).sink()
    declared.generates(lambda *arguments: {})
    return declared.check()


def drawn(seed, disorder):
    rng = np.random.default_rng(seed)
    ts = rng.choice([0, 0, 1, 2, 3, 30], 900, p=[0.4, 0.2, 0.2, 0.1, 0.08, 0.02]).cumsum() - 500
    return pa.table(
        {
            "seq": np.arange(900),
            "ts": ts - rng.integers(0, disorder + 1, 900),
            "key": rng.integers(0, 12, 900),
            "wait": rng.choice([-1, 0, 0, 1, 4, 11, 40], 900),
        }
    )


class Expected:
    """The outputs as tuples with the number of their event first, and the number of late rows."""

    def __init__(self, table, delay, with_timer):
        self.delay, self.with_timer, self.outputs, self.late = delay, with_timer, [], 0
        self.states = {}  # by key: latest ts, number of rows, timer, times seen
        self.highest = None
        for row in table.to_pylist():
            self.take(row)
        if with_timer and self.states:
            self.advance(max(state["latest"] for state in self.states.values()) + TTL + delay + EVERY, len(table))

    def take(self, row):
        seq, ts, key = row["seq"], row["ts"], row["key"]
        self.advance(max(ts, self.highest if self.highest is not None else ts), seq)
        first_open = (self.highest - TTL - self.delay) + 1
        if self.with_timer:
            first_open = ((self.highest - TTL - self.delay) // EVERY + 1) * EVERY
        if ts < first_open:
            self.late += 1
            return
        if key in self.states:
            self.fire(key, ts - self.delay, seq)
            if ts - self.states[key]["latest"] >= TTL:
                del self.states[key]
        state = self.states.setdefault(key, {"latest": ts, "n": 0, "timer": 0, "seen": set()})
        state["latest"] = max(state["latest"], ts)
        state["n"] += 1
        state["seen"] |= {ts}
        state["seen"] -= {ts - 7}
        if row["wait"]:
            state["timer"] = ts + row["wait"] if row["wait"] > 0 else 0
        self.outputs.append((seq, ts, key, state["n"], len(state["seen"])))

    def advance(self, highest, seq):
        """Let the watermark rise, tick by tick."""
        life = TTL + self.delay
        if not self.with_timer:
            self.states = {key: state for key, state in self.states.items() if state["latest"] + life > highest}
        elif self.highest is not None:
            for tick in range(self.highest + 1, highest + 1):
                if (tick - life) % EVERY == 0:
                    for key in list(self.states):
                        self.fire(key, tick - self.delay, seq)
                        if self.states[key]["latest"] + life < tick + EVERY:
                            del self.states[key]
        self.highest = highest

    def fire(self, key, until, seq):
        state, fired = self.states[key], -(1 << 62)
        while self.with_timer and state["timer"] and fired < state["timer"] <= until:
            fired, state["timer"] = state["timer"], 0
            self.outputs.append((seq, fired, key, -state["n"], len(state["seen"])))
            if state["n"] % 2 == 0:
                state["timer"] = fired + state["n"] - 2


@pytest.mark.parametrize("with_timer", some([True, False]))
@pytest.mark.parametrize(("delay", "disorder"), some([(3, 40), (7, 7), (0, 0)]))
@pytest.mark.parametrize(("seed", "in_loop"), some([(0, False), *((seed, True) for seed in range(20))]))
def test_states_end_and_timers_fire_as_defined(seed, delay, disorder, with_timer, in_loop):
    table = drawn(seed, disorder)
    case = Case(app(delay, with_timer), {"ttl": TTL, "every": EVERY, "lag": delay}, table)
    expected = Expected(table, delay, with_timer)
    rows = [(row["seq"], row["ts"], row["key"], row["n"], row["seen"]) for row in case.outputs.to_pylist()]
    assert sorted(rows) == sorted(expected.outputs)
    assert case.late == expected.late
    assert (case.late > 0) == (disorder > delay)
    assert case.state == {}
    if in_loop:
        loop = Loop(case.app, case.app.bind({"lag": delay}))
        compare("lifetime", case.outputs, pa.concat_tables([loop.process(table), loop.finish(len(table))]), "outputs")
    moves = [{"event": event, "owners": {"step": [event % 2]}} for event in range(0, len(table), 31)]
    for threads, parallelism, schedule in ((1, "vsn", None), (3, "vsn", None), (2, "vsn_esg", moves), (2, "sn", moves)):
        how = {"threads": threads, "batch": 7, "parallelism": parallelism, "schedule": schedule}
        case.check(Pinned(app="lifetime", **how), 100)


@record
class Untimed:
    key: i64


@record
class Named:
    latest_row: i64


@record
class Real:
    timer: f64


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"flush": due}, "app refused: flush does not go with ttl; remove one of them"),
        ({"ttl": None}, "app refused: timer and every go with ttl, after which a state ends"),
        ({"ttl": None, "timer": None}, "app refused: timer and every go with ttl, after which a state ends"),
        ({"every": None}, 'app refused: process step: a timer needs both: timer=function, and every="1s"'),
        ({"timer": None}, 'app refused: process step: a timer needs both: timer=function, and every="1s"'),
        ({"state": Named}, "Named(latest_row) needs a field `timer: i64`, the time of the timer; 0 means none"),
        ({"state": Real}, "Real(timer) needs a field `timer: i64`, the time of the timer; 0 means none"),
        ({"state": Named, "timer": None, "every": None}, "the field name 'latest_row' is reserved; rename the field"),
        ({"ttl": "1 hour"}, "'1 hour' is not a duration; write for example 90s, 1h30m or 250ms"),
        ({"ttl": 0}, ": window: size must be between 1 and"),
        ({"timer": 3}, "process: timer must be a plain def or None, got 3"),
    ],
)
def test_invalid_lifetimes_are_refused(changed, message):
    declared = App("refused")
    options = {"state": State, "ttl": TTL, "timer": due, "every": EVERY} | changed
    declared.generates(lambda *arguments: {})
    with pytest.raises(BadInput, match=re.escape(message)):
        bind(declared, options)


def bind(declared, options):
    declared.source(Row).key_by("key").process(step, output=Output, **options).sink()
    return BoundApp(declared.check(), {}).windows


def test_a_lifetime_needs_rows_with_time():
    with pytest.raises(BadInput, match="needs an integer field ts"):
        App("untimed").source(Untimed).key_by("key").process(step, State, Output, ttl=TTL)
