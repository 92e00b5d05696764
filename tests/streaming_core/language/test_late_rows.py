"""Rows too late for their windows, as a separate output next to the aggregate."""

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, Param, Record, count_window, f64, i64, record, session, sliding, text, tumbling
from streaming_core.errors import BadInput
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import Pinned, RunSpec
from tests.differential.case import Case
from tests.support.draws import seeds, some


@record
class Click:
    ts: i64
    user: text
    page: i64


def same(row, out):
    out.emit(ts=row.ts, user=row.user, page=row.page)


@pytest.mark.parametrize("seed", seeds(1, of=12))
def test_late_rows_are_the_rows_outside_the_aggregate(seed):
    rng = np.random.default_rng(seed)
    size, delay = int(rng.integers(1, 30)), int(rng.choice([0, 5]))
    extent = [tumbling("size"), sliding("size", every=3, delay=2) if size >= 3 else tumbling(size)][seed % 2]
    app = App("clicks", params={"size": Param(size)})
    clicks = app.source(Click, delay=delay).key_by("user").window(extent)
    clicks.count().sink("counts")
    clicks.late().sink("late")
    ts = np.cumsum(rng.choice([0, 1, 9], 80)) - rng.choice([0, 3, 40], 80)
    rows = list(zip(ts.tolist(), rng.choice([b"a", b"b", b"c"], 80).tolist(), range(80), strict=True))
    app.generates(lambda *arguments: {})
    columns = dict(zip(("ts", "user", "page"), zip(*rows, strict=True), strict=True))
    table = pa.table({"seq": range(80), **columns})
    case, loop = Case(app, app.bind(), table), Loop(app, app.bind())
    parts = [loop.process(table[:30]), loop.process(table[30:]), loop.finish(80)]
    compare("clicks", case.outputs, pa.concat_tables(parts), "outputs")
    for threads, parallelism in ((1, "vsn"), (2, "vsn"), (3, "sn")):
        case.check(Pinned(app="clicks", threads=threads, batch=7, parallelism=parallelism), 20)
    outputs = case.outputs.to_pylist()
    advance, wait = (size, delay) if extent.advance == "size" else (extent.advance, extent.delay)
    wait = delay if wait is None else wait
    highest = np.maximum.accumulate(ts)
    expected = [i for i, t in enumerate(ts.tolist()) if t // advance * advance + size <= highest[i] - wait]
    late = [row for row in outputs if row["sink"] == 1]
    assert [(row["seq"], row["ts"], row["user"], row["page"]) for row in late] == [(i, *rows[i]) for i in expected]
    assert case.late == loop.dropped_late == len(late) > 0
    assert all(row["count"] == 0 for row in late)
    assert all(row["page"] == 0 for row in outputs if row["sink"] == 0)


def priced(row, out):
    out.emit(ts=row.ts, user=row.user, page=row.page / 2)


def test_sinks_share_columns_of_one_name_and_type():
    app = App("sinks")
    clicks = app.source(Click)
    clicks.flat_map(same, Click).sink("clicks")
    clicks.flat_map(priced, Record("Priced", {"ts": i64, "user": text, "page": f64}, None)).sink("prices")
    assert list(app.outputs.fields) == ["sink", "ts", "user", "clicks_page", "prices_page"]
    app.generates(lambda *arguments: {})
    case = Case(app, {}, pa.table({"seq": [0], "ts": [5], "user": [b"a"], "page": [7]}))
    for executor in ("pooled", "pinned", "morsel"):
        case.check(RunSpec.parse({"app": "sinks", "executor": executor, "threads": 2}), 1)
    assert [tuple(row.values()) for row in case.outputs.to_pylist()] == [
        (0, 0, 0, 5, b"a", 7, 0.0),
        (0, 1, 1, 5, b"a", 0, 3.5),
    ]


def timed(row, out):
    out.emit(ts=row.ts)


def test_a_sink_needs_a_value_for_each_column():
    app = App("sinks")
    clicks = app.source(Click)
    clicks.flat_map(same, Click).sink()

    with pytest.raises(BadInput, match="sinks: sink times has nothing for column user; let its rows have a field user"):
        clicks.flat_map(timed, Record("Timed", {"ts": i64}, None)).sink("times")


def drawn(seed):
    """Clicks out of order: their times, and a table of them."""
    rng = np.random.default_rng(seed)
    ts = np.cumsum(rng.choice([0, 1, 9], 120)) - rng.choice([0, 3, 40], 120)
    users = rng.choice([b"a", b"b"], 120).tolist()
    return ts.tolist(), users, pa.table({"seq": range(120), "ts": ts, "user": users, "page": rng.integers(0, 9, 120)})


def counted(row, window, state, out):
    state.n += 1


def halved(window, state, out):
    out.emit(ts=window.end, user=window.key.user, half=state.n / 2)


Halves = Record("Halves", {"ts": i64, "user": text, "half": f64}, None)


@pytest.mark.parametrize(
    ("extent", "is_own"),
    some([(tumbling(20), False), (sliding(30, every=10, delay=2), True)]),
    ids=["tumbling", "sliding"],
)
def test_windows_accept_late_rows_and_repeat_the_result(extent, is_own):
    delay, lateness = 2, 25
    app = App("clicks")
    windows = app.source(Click, delay=delay).key_by("user").window(extent, lateness=lateness)
    count = Record("Counted", {"n": i64}, None)
    (windows.aggregate(counted, count, halved, Halves) if is_own else windows.count()).sink("results")
    windows.late().sink("late")
    app.generates(lambda *arguments: {})
    times, users, table = drawn(3)
    case, loop = Case(app, app.bind(), table), Loop(app, app.bind())
    compare("clicks", case.outputs, pa.concat_tables([loop.process(table), loop.finish(120)]), "outputs")
    for threads, parallelism in ((1, "vsn"), (2, "vsn_esg"), (3, "sn")):
        case.check(Pinned(app="clicks", threads=threads, batch=7, parallelism=parallelism), 20)
    # By definition: a result at the end of each window, and again for each late row that it accepts.
    rows, again, late, highest = {}, [], [], None
    for seq, (ts, user) in enumerate(zip(times, users, strict=True)):
        highest = ts if highest is None else max(highest, ts)
        first, last = (ts - extent.size) // extent.advance + 1, ts // extent.advance
        ends = [number * extent.advance + extent.size for number in range(first, last + 1)]
        taken = [end for end in ends if end > highest - delay - lateness]
        for end in taken:
            rows[end, user] = rows.get((end, user), 0) + 1
            if end <= highest - delay:
                again.append((seq, end, user, rows[end, user]))
        if not taken:
            late.append(seq)
    outputs, scale = case.outputs.to_pylist(), 2 if is_own else 1
    value = "half" if is_own else "count"
    results = [(row["seq"], row["ts"], row["user"], int(scale * row[value])) for row in outputs if row["sink"] == 0]
    on_time = set(results) - set(again)
    assert [one for one in results if one in set(again)] == again
    assert again
    assert {(end, user) for _, end, user, _ in on_time} <= rows.keys()
    # The last result of a window counts all its rows.
    final = {}
    for _, end, user, n in results:
        final[end, user] = max(n, final.get((end, user), 0))
    assert final == rows
    assert [row["seq"] for row in outputs if row["sink"] == 1] == late


@pytest.mark.parametrize(
    ("extent", "more", "why"),
    [
        (session(5), {"lateness": 5}, "lateness goes with tumbling and sliding windows"),
        (count_window(5), {"lateness": 5}, "lateness goes with tumbling and sliding windows"),
        (tumbling(5), {"lateness": 5, "early": 3}, "without early"),
        (tumbling(5), {"lateness": -1}, "must be durations such as '30s', or numbers from 0, not -1 and 0"),
        (tumbling(5, delay="wait"), {"lateness": 1}, "not 1 and 'wait'"),
    ],
)
def test_an_invalid_lateness_is_refused(extent, more, why):
    clicks = App("clicks", params={"wait": Param(3)}).source(Click).key_by("user")
    with pytest.raises(BadInput) as refusal:
        clicks.window(extent, **more)
    assert why in str(refusal.value)
