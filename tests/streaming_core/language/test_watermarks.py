"""Watermarks of windows over several streams, whose rows come in any order."""

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, i64, record
from tests.streaming_core.language.windowed import interpreted
from tests.support import by_hand
from tests.support.draws import seeds
from tests.support.windows import declare_window


@record
class Event:
    ts: i64
    stream: i64
    key: i64


@record
class Row:
    ts: i64
    key: i64


@record
class Count:
    n: i64


@record
class Counts:
    ts: i64
    key: i64
    lefts: i64
    rights: i64


def to_left(event, out):
    if event.stream != 1:
        out.emit(ts=event.ts, key=event.key)


def to_right(event, out):
    if event.stream != 0:
        out.emit(ts=event.ts - event.stream // 2, key=event.key)


def count_left(row, window, lefts, rights, out):
    lefts.n += 1


def count_right(row, window, lefts, rights, out):
    rights.n += 1
    out.emit(ts=window.start, key=window.key.key, lefts=-1, rights=rights.n)


def counts(window, lefts, rights, out):
    out.emit(ts=window.end, key=window.key.key, lefts=lefts.n, rights=rights.n)


def counting(**declared):
    app = App("watermarks")
    source = app.source(Event)
    declare_window(
        app,
        source.flat_map(to_left, Row),
        source.flat_map(to_right, Row),
        key="key",
        state=(Count, Count),
        update=(count_left, count_right),
        result=counts,
        output=Counts,
        **declared,
    ).sink()
    return app


def expiries(outputs):
    """(event, end, counts) of each window that expired."""
    return [(row["seq"], row["ts"], row["lefts"], row["rights"]) for row in outputs if row["lefts"] >= 0]


# Streams 0 and 1, tumbling windows of 10.
ROWS = [(1, 0, 0), (25, 0, 0), (3, 1, 0), (14, 1, 0), (8, 0, 0), (31, 1, 0), (90, 1, 0)]


@pytest.mark.slow
def test_the_slowest_stream_holds_windows_open():
    outputs, interpreter = interpreted(counting(advance=10, size=10), ROWS)
    # The row at 8 is late: both streams have passed 10 by then.
    assert expiries(outputs) == [(3, 10, 1, 1), (5, 20, 0, 1), (7, 30, 1, 0), (7, 40, 0, 1), (7, 100, 0, 1)]
    assert interpreter.dropped_late == 1


@pytest.mark.slow
def test_nothing_expires_and_nothing_is_late_before_each_stream_has_a_row():
    outputs, interpreter = interpreted(counting(advance=10, size=10), [(ts, 0, 0) for ts in (50, 3, 70, 12)])
    assert [(seq, ts) for seq, ts, _, _ in expiries(outputs)] == [(4, 10), (4, 20), (4, 60), (4, 80)]
    assert interpreter.dropped_late == 0


def test_an_idle_stream_delays_no_window():
    outputs, interpreter = interpreted(counting(advance=10, size=10, idle=20), ROWS)
    assert expiries(outputs) == [(1, 10, 1, 0), (6, 30, 1, 0), (6, 40, 0, 1), (7, 100, 0, 1)]
    assert interpreter.dropped_late == 3


@pytest.mark.parametrize("seed", seeds(1, of=40))
def test_all_readers_agree_on_streams_in_any_order(seed):
    rng = np.random.default_rng(seed)
    events = 90
    ts = np.cumsum(rng.choice([0, 1, 2, 40], events)) - rng.choice([0, 0, 1, 5, 60], events) - 30
    # One stream can be silent for long or for ever; an event can be a row of both.
    streams = rng.choice(3, events, p=[[0.45, 0.45, 0.1], [0.9, 0.1, 0], [0, 1, 0]][int(rng.integers(3))])
    advance = int(rng.integers(1, 8))
    declared = {"advance": advance, "size": advance * int(rng.integers(1, 4)) + int(rng.integers(3))}
    declared |= {"delay": int(rng.choice([0, 3, 50])), "idle": [None, 0, 4, 80][int(rng.integers(4))]}
    rows = list(zip(ts.tolist(), streams.tolist(), rng.integers(0, 5, events).tolist(), strict=True))
    app = counting(**declared)
    outputs, _ = interpreted(app, rows)
    columns = dict(zip(("ts", "stream", "key"), zip(*rows, strict=True), strict=True))
    expected = by_hand.run(app, {}, pa.table({"seq": range(events), **columns}))
    assert outputs == expected.outputs
