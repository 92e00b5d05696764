"""Loops over queues that act on few rows: all machines agree, and the right loops are scans."""

import ast
import inspect

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, Param, Queue, boolean, f64, i16, i64, record
from streaming_core.kernels import scan
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import RunSpec
from tests.differential.case import Case


@record
class Reading:
    key: i64
    n: i64
    x: f64
    flag: boolean


@record
class Item:
    n: i64
    x: f64
    small: i16
    flag: boolean


@record
class Kept:
    rows: Queue[Item]
    hits: i64
    limit: i64


@record
class Total:
    n: i64
    x: f64
    small: i64


app = App("scans", params={"band": Param(3)})
p = app.params


def keep(row, state):
    while len(state.rows) > 150:
        state.rows.popleft()
    state.rows.append(n=row.n, x=row.x, small=row.n % 100, flag=row.flag)


def near(row, state, out):
    """A join: few rows meet the condition, which reads several columns, the row and a parameter."""
    rows = state.rows
    for i in range(len(rows)):
        if abs(row.n - rows[i].n) <= p.band and abs(row.x - rows[i].x) <= p.band * 0.5 + 1.0:
            out.emit(n=rows[i].n, x=rows[i].x, small=rows[i].small)
    keep(row, state)


def close(row, state, out):
    rows = state.rows
    for i in range(len(rows)):
        if abs(row.n - rows[i].n) <= p.band and (rows[i].x < row.x or rows[i].flag != row.flag):
            out.emit(n=rows[i].n, x=rows[i].x, small=rows[i].small)
    keep(row, state)


def counted(row, state, out):
    """The body has variables, branches and a field of its own."""
    rows = state.rows
    total = 0
    limit = max(row.n, 5) * 2
    for i in range(len(rows)):
        if rows[i].small + 1 < limit or rows[i].n == row.n:
            total = total + rows[i].small
            state.hits += 1
            if total % 7 == 0:
                out.emit(n=total, x=rows[i].x, small=i)
    keep(row, state)


def left_early(row, state, out):
    """A function that returns from within the loop."""
    rows = state.rows
    for i in range(len(rows)):
        if rows[i].n > row.n:
            out.emit(n=rows[i].n, x=rows[i].x, small=i)
            break
    keep(row, state)


def moving(row, state, out):
    """The condition reads a value that the body changes."""
    rows = state.rows
    for i in range(len(rows)):
        if rows[i].n >= state.limit:
            state.limit = rows[i].n
            out.emit(n=state.limit, x=rows[i].x, small=i)
    state.limit = 0
    keep(row, state)


def divided(row, state, out):
    """The second comparison fails for rows that the first one rules out."""
    rows = state.rows
    for i in range(len(rows)):
        if rows[i].small != 0 and 100 // rows[i].small == row.n % 10:
            out.emit(n=rows[i].n, x=rows[i].x, small=rows[i].small)
    keep(row, state)


def shrinking(row, state, out):
    """The body takes rows out."""
    rows = state.rows
    for i in range(len(rows)):
        if len(rows) > i and rows[0].n < row.n:
            rows.popleft()
    out.emit(n=len(rows), x=row.x, small=0)
    keep(row, state)


SCANS, OTHERS = (near, close, counted), (left_early, moving, divided, shrinking)


def readings(n=1_500):
    rng = np.random.default_rng(3)
    columns = {
        "seq": np.arange(n),
        "key": rng.integers(0, 3, n),
        "n": rng.integers(-20, 60, n),
        "x": rng.choice([-0.0, 0.5, 3.25, np.nan, np.inf, 17.0], n),
        "flag": rng.integers(0, 2, n).astype(bool),
    }
    return pa.table(columns).cast(Reading.resolve({}).arrow(("seq",)))


@pytest.mark.parametrize("function", [*SCANS, *OTHERS], ids=lambda scan: scan.__name__)
@pytest.mark.parametrize("band", [3, 0, 100])
@pytest.mark.slow
def test_loops_over_queues_agree_everywhere(function, band):
    scans = App("scans", params={"band": Param(3)})
    scans.source(Reading).key_by("key").process(function, state=Kept, output=Total).sink()
    scans.generates(lambda *arguments: {})
    params, table = scans.bind({"band": band}), readings()
    case, loop = Case(scans, params, table), Loop(scans, params)
    assert len(case.outputs) > 10
    compare("scans", case.outputs, loop.process(table), "outputs")
    for threads in (1, 2):
        case.check(RunSpec.parse({"app": "scans", "executor": "pooled", "threads": threads, "batch": 64}))


def loop_of(function):
    [definition] = ast.parse(inspect.getsource(function)).body
    return next(node for node in ast.walk(definition) if isinstance(node, ast.For))


def test_kernels_scan_in_chunks_only_where_the_result_is_equal():
    assert all(scan.matched(loop_of(function)) for function in SCANS)
    assert not any(scan.matched(loop_of(function)) for function in OTHERS)
