"""Visits of users in windows; visits that come too late are counted apart."""

from collections import Counter

import numpy as np

from streaming_core.api import App, Param, i64, record, tumbling, u32
from streaming_core.generator import Draws

app = App(
    "visits",
    params={
        "size": Param(60, "length of a window", minimum=1, maximum=1_000_000),
        "delay": Param(20, "how far visits may come late", minimum=0, maximum=1_000_000),
    },
)
p = app.params


@record
class Visit:
    """A visit of a user."""

    ts: i64
    user: u32


@record
class Count:
    """The visits of a window so far."""

    n: i64


@record
class Counted:
    """The visits of a user in the window that ends at `ts`: those in time, and those too late."""

    ts: i64
    user: u32
    n: i64
    late: i64


def visit(row, window, state, out):
    """Count a visit."""
    if row.ts >= window.start:
        state.n += 1


def counted(window, state, out):
    """Emit the count of a window."""
    out.emit(ts=window.end, user=window.key.user, n=state.n, late=0)


def missed(row, out):
    """Emit a visit that came too late."""
    out.emit(ts=row.ts // p.size * p.size + p.size, user=row.user, n=0, late=1)


windows = app.source(Visit, delay="delay").key_by("user").window(tumbling("size"))
counts = windows.apply(update=visit, state=Count, output=Counted, result=counted)
counts.union(windows.late().flat_map(missed, Counted)).sink()


@app.generates
def visits(params, seed, start, stop):
    """Draw users; visits come up to twice the delay late."""
    draws = Draws(seed, "visits", start, stop)
    return {"ts": 5 * np.arange(start, stop) - draws.below(1, 2 * params["delay"] + 1), "user": draws.below(0, 6)}


@app.property
def every_visit_counts_once(stream):
    """The counts of a user and window add up to the visits."""
    size, counts = stream.params["size"], Counter()
    for row in stream.rows:
        counts[row["user"], row["ts"]] += row["n"] + row["late"]
    assert counts == Counter((event["user"], event["ts"] // size * size + size) for event in stream.events)
