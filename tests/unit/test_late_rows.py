"""Rows that come too late for their windows, as an output of their own beside the aggregate."""

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, Param, Record, f64, i64, record, sliding, text, tumbling
from streaming_core.errors import BadInput
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import Pinned, RunSpec
from tests.differential.case import Case
from tests.draws import seeds


@record
class Click:
    ts: i64
    user: text
    page: i64


def same(row, out):
    out.emit(ts=row.ts, user=row.user, page=row.page)


@pytest.mark.parametrize("seed", seeds(3, of=12))
def test_late_rows_are_those_that_the_aggregate_leaves_out(seed):
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
    made = case.outputs.to_pylist()
    advance, wait = (size, delay) if extent.advance == "size" else (extent.advance, extent.delay)
    wait = delay if wait is None else wait
    highest = np.maximum.accumulate(ts)
    expected = [i for i, t in enumerate(ts.tolist()) if t // advance * advance + size <= highest[i] - wait]
    late = [row for row in made if row["sink"] == 1]
    assert [(row["seq"], row["ts"], row["user"], row["page"]) for row in late] == [(i, *rows[i]) for i in expected]
    assert case.late == loop.dropped_late == len(late) > 0
    assert all(row["count"] == 0 for row in late)
    assert all(row["page"] == 0 for row in made if row["sink"] == 0)


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


def test_a_sink_needs_something_for_each_column():
    app = App("sinks")
    clicks = app.source(Click)
    clicks.flat_map(same, Click).sink()

    with pytest.raises(BadInput, match="sinks: sink times has nothing for column user; let its rows have a field user"):
        clicks.flat_map(timed, Record("Timed", {"ts": i64}, None)).sink("times")
