"""Rows too late for their windows, as a separate output next to the aggregate."""

import pyarrow as pa
import pytest

from streaming_core.api import App, Param, Record, count_window, f64, i64, record, session, text, tumbling
from streaming_core.errors import BadInput
from streaming_core.run.way import RunSpec
from tests.differential.case import Case


@record
class Click:
    ts: i64
    user: text
    page: i64


def same(row, out):
    out.emit(ts=row.ts, user=row.user, page=row.page)


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


@pytest.mark.parametrize(
    ("extent", "more", "why"),
    [
        (session(5), {"lateness": 5}, "lateness goes with tumbling and sliding windows"),
        (count_window(5), {"lateness": 5}, "lateness does not go with count_window; remove it"),
        (tumbling(5), {"lateness": 5, "early": 3}, "without early"),
        (tumbling(5), {"lateness": -1}, "must be durations such as '30s', or numbers from 0, not -1 and 0"),
        (tumbling(5), {"lateness": 1, "delay": "wait"}, "not 1 and 'wait'"),
    ],
)
def test_an_invalid_lateness_is_refused(extent, more, why):
    clicks = App("clicks", params={"wait": Param(3)}).source(Click).key_by("user")
    with pytest.raises(BadInput) as refusal:
        clicks.window(extent, **more)
    assert why in str(refusal.value)
