"""Windowed operators that raise while they are reconfigured: every run reports the failure that the oracle reports."""

import random
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, Ring, i64, record
from streaming_core.errors import RunFailed
from streaming_core.kernels.program import compile_app
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.run import one_pass
from streaming_core.run.blocks import Blocks
from streaming_core.run.way import AXES, Pinned
from streaming_core.search.ways import draw_schedule
from tests.differential.case import Events
from tests.support.draws import seeds, some
from tests.support.windows import declare_window

EVENTS = 80
DRAWS = 12  # data sets of a seed
WAYS = 4  # schedules of a data set

# What a row's `fault` makes raise.
IN_KEYS, IN_UPDATE, IN_RESULT, IN_SLIDE = 1, 2, 3, 4


@record
class Event:
    ts: i64
    count: i64
    value: i64
    fault: i64


@record
class Pair:
    a: i64
    b: i64


@record
class Sum:
    n: i64
    fault: i64
    values: Ring[i64, 4]


def spread(row, out):
    """Several rows of an event. Only the second has its fault."""
    for i in range(row.value % 4):
        fault = 0
        if i == 1:
            fault = row.fault
        out.emit(ts=row.ts, count=row.count, value=row.value + i, fault=fault)


def pairs(row, keys):
    for i in range(row.count):
        keys.add(a=(row.value + i) % 7, b=i % 2)
    if row.fault == 1:
        keys.add(a=1 << (row.fault + 63), b=0)


def summed(row, window, state, out):
    state.n += 1
    state.values.append(row.value)
    if row.fault == 2 and window.key.a % 2 == 0:
        state.n = 1 // (row.fault - 2)
    if row.fault == 2 and window.key.a % 2 == 1:
        state.n = state.values[row.fault + 10]
    if row.fault > 2 and window.key.a > 1:
        state.fault = row.fault


def totals(window, state, out):
    if state.fault == 3 and window.key.a % 2 == 0:
        state.n = state.values[state.fault + 10]
    if state.fault == 3 and window.key.a % 2 == 1:
        state.n = 1 // (state.fault - 3)
    out.emit(ts=window.end, count=state.n % 3, value=window.key.a + window.key.b, fault=state.fault)


def slid(window, state):
    if state.fault == 4 and window.key.a % 2 == 0:
        state.n = 1 << (state.fault + 60)
    if state.fault == 4 and window.key.a % 2 == 1:
        state.n = 1 // (state.fault - 4)


def summed_again(row, window, state, out):
    summed(row, window, state, out)


def totals_again(window, state, out):
    totals(window, state, out)


def multi(app):
    declare_window(app.source(Event), **MULTI).sink()


def sliding(app):
    declare_window(app.source(Event), **SLIDING).sink()


def silent(app):
    """A single window whose expiry calls no function."""
    declare_window(
        app.source(Event), **{name: SLIDING[name] for name in SLIDING if name not in ("result", "slide")}
    ).sink()


def sessions(app):
    again = {"update": summed_again, "result": totals_again}
    declare_window(declare_window(app.source(Event), **SESSION), **(SESSION | again)).sink()


def chained(app):
    again = {**MULTI, "update": summed_again, "result": totals_again, "delay": 40}
    declare_window(declare_window(app.source(Event).flat_map(spread, Event), **MULTI), **again).sink()


MULTI = {
    "keys": pairs, "key": Pair, "advance": 3, "size": 8, "delay": 4, "state": Sum, "update": summed, "result": totals,
    "output": Event,
}  # fmt: skip
SLIDING = {
    "keys": pairs, "key": Pair, "advance": 2, "size": 7, "kind": "single", "state": Sum, "update": summed,
    "result": totals, "slide": slid, "output": Event,
}  # fmt: skip
SESSION = {name: MULTI[name] for name in MULTI if name not in ("advance", "delay")} | {"kind": "session"}
PIPELINES = (multi, sliding, silent, sessions, chained)


@dataclass(frozen=True)
class Failure:
    """The parts of a failure: operator, event, type of the exception, and the window if the function has one."""

    operator: str
    event: int
    exception: str
    window: tuple[int, int] | None


def drawn_events(rng):
    """Events with gaps, late rows and rows without keys. Some carry faults."""
    ts = np.cumsum(rng.choice([0, 0, 1, 2, 9], EVENTS)) - rng.choice([0, 0, 0, 2, 30], EVENTS)
    faults = np.zeros(EVENTS, np.int64)
    some = rng.choice(EVENTS, rng.integers(2, 10), replace=False)
    faults[some] = rng.choice([IN_KEYS, IN_UPDATE, IN_RESULT, IN_SLIDE], len(some))
    columns = {"seq": np.arange(EVENTS), "ts": ts, "count": rng.integers(0, 6, EVENTS)}
    columns |= {"value": rng.integers(0, 50, EVENTS), "fault": faults}
    return pa.table({name: pa.array(column, pa.int64()) for name, column in columns.items()})


def oracle_failure(app, table):
    """The failure that the interpreter reports; None if the events raise nothing."""
    interpreter = Interpreter(app, {})
    try:
        interpreter.process(table)
        interpreter.finish(table.num_rows)
    except RunFailed as error:
        operator, event, exception = re.match(r"operator (\w+), event (\d+): (\w+):", str(error)).groups()
        window, frame = None, error.__cause__.__traceback__
        while frame is not None:
            local = frame.tb_frame.f_locals.get("window")
            window = (local.start, local.end) if hasattr(local, "start") else window
            frame = frame.tb_next
        return Failure(operator, int(event), exception, window)
    return None


def engine_failure(spec, program, table, block):
    """The failure that a run reports; None if it succeeds."""
    try:
        one_pass.run(spec, program, Blocks(Events([table]), program, block))
    except RunFailed as error:
        pattern = r"operator (\w+) failed at event (\d+)(?: in window \[(-?\d+), (-?\d+)\))?: (\w+)"
        operator, event, start, end, exception = re.match(pattern, str(error)).groups()
        return Failure(operator, int(event), exception, start and (int(start), int(end)))
    return None


@pytest.mark.parametrize("seed", seeds(1, of=40))
@pytest.mark.parametrize("pipeline", some(PIPELINES), ids=lambda pipeline: pipeline.__name__)
def test_run_reports_the_failure_of_the_oracle(pipeline, seed):
    app = App(pipeline.__name__)
    pipeline(app)
    app.generates(lambda *arguments: {})
    program = compile_app(app.check(), {})
    failures = 0
    for draw in range(DRAWS):
        table = drawn_events(np.random.default_rng([seed, draw, len(pipeline.__name__)]))
        expected = oracle_failure(app, table)
        failures += expected is not None
        for way in range(WAYS):
            rng = random.Random(f"{seed} {draw} {way}")
            threads, batch, block = rng.choice([1, 2, 2, 3, 8]), rng.choice([1, 3, 16]), rng.choice([7, 40, 1000])
            how = {"threads": threads, "batch": batch, "parallelism": rng.choice(AXES["parallelism"])}
            how["schedule"] = draw_schedule(app, threads, {}, EVENTS, rng)
            spec = Pinned(app=app.name, sink="digest", **how)
            assert engine_failure(spec, program, table, block) == expected, (draw, block, how)
    assert failures > DRAWS // 4
