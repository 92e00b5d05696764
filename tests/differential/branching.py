"""A pipeline that branches and merges in every possible way, as a reference for the engine's ways of executing.

events -+-> twice --------+-> tally (by key, flushes) -+-> trace (one state) -> sink
        |                 |                            |                         |
        +-> parity -------+ (and the events themselves) +-------------------------+
"""

import numpy as np
import pyarrow as pa

from streaming_core.api import App, i64, record

app = App("branching")


@record
class Event:
    ts: i64
    key: i64
    value: i64


@record
class Total:
    n: i64
    sum: i64


def twice(row, out):
    if row.value % 3 != 0:
        out.emit(ts=row.ts, key=row.key + 1, value=row.value * 2)
        out.emit(ts=row.ts, key=row.key, value=row.value * 3)


def parity(row, out):
    if row.value % 101 == 100:
        out.drop()
    out.emit(ts=row.ts, key=row.value % 2, value=1)


def tally(row, state, out):
    state.n += 1
    state.sum = state.sum * 3 + row.value
    out.emit(n=state.n, sum=state.sum)


def remainder(state, out):
    out.emit(n=-state.n, sum=state.sum)


def trace(row, state, out):
    state.sum = state.sum * 5 + row.n
    out.emit(n=row.n, sum=state.sum)


events = app.source(Event)
doubled = events.flat_map(twice, Event)
parities = events.flat_map(parity, Event)
totals = doubled.union(events, parities).key_by("key").process(tally, state=Total, output=Total, flush=remainder)
totals.process(trace, state=Total, output=Total).union(totals).sink()


@app.generates
def draw(params, seed, start, stop):
    values = (np.arange(start, stop) + seed).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)
    return {
        "ts": np.arange(start, stop),
        "key": (values % 23).astype(np.int64),
        "value": (values % 1009).astype(np.int64),
    }


def table(count: int) -> pa.Table:
    """`count` events."""
    return pa.table({"seq": np.arange(count), **draw({}, 1, 0, count)})
