"""An application for these tests: it has fields of all types, windows, a delay, and an operator that may fail."""

from typing import Literal

import numpy as np

from streaming_core.api import App, Array, Decimal, Param, f64, i32, i64, record, sliding, text
from streaming_core.generator import Draws

app = App(
    "hits",
    params={
        "size": Param(60, minimum=1),
        "advance": Param(20, minimum=1),
        "delay": Param(15, minimum=0),
        "width": Param(2, minimum=1, maximum=4),
    },
)


@record
class Hit:
    """A hit of a page."""

    ts: i64
    page: text
    user: i32
    guest: i32
    seconds: f64
    price: Decimal[2]
    rank: i64 | None
    places: Array[i64, Literal["width"]]


@record
class Count:
    """The hits of a window."""

    n: i64


@record
class Counted:
    """A page and its hits."""

    page: text
    n: i64


def sound(row, out):
    """Pass a hit on; user 255 fails."""
    out.emit(
        ts=row.ts + 0 // (row.user - 255),
        page=row.page,
        user=row.user,
        guest=row.guest,
        seconds=row.seconds,
        price=row.price,
        rank=row.rank,
        places=row.places,
    )


def add(row, window, state, out):
    """Count a hit."""
    state.n += 1


def counted(window, state, out):
    """Emit the hits of a window."""
    out.emit(page=window.key.page, n=state.n)


hits = app.source(Hit, delay="delay").flat_map(sound, Hit)
hits.key_by("page").window(sliding("size", "advance")).apply(
    update=add, state=Count, output=Counted, result=counted
).sink()


@app.generates
def generated(params, seed, start, stop):
    """Draw hits in order."""
    draws, count = Draws(seed, "hits", start, stop), stop - start
    user = draws.below(1, 6)
    return {
        "ts": np.arange(start, stop),
        "page": [b"page%d" % number for number in user],
        "user": user,
        "guest": draws.below(2, 6),
        "seconds": user / 2,
        "price": user * 100,
        "rank": [int(number) for number in user],
        "places": np.ones((count, params["width"]), np.int64),
    }
