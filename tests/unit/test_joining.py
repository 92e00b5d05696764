"""Joins within a span of event time, against all pairs of rows."""

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, f64, i64, record, text
from streaming_core.errors import BadInput
from streaming_core.run.way import RunSpec
from tests.differential.case import Case


@record
class Order:
    ts: i64
    shop: i64
    price: f64
    number: i64


@record
class Payment:
    ts: i64
    shop: i64
    price: f64


@record
class Note:
    ts: i64
    shop: i64
    words: text


def events(n=900):
    """Both streams in one sequence, as the engine takes them (language/sources.py)."""
    rng = np.random.default_rng(9)
    ts = np.cumsum(rng.choice([0, 1, 7, 400], n))
    stream = rng.integers(0, 2, n)
    order = np.lexsort((stream, ts))
    columns = {
        "seq": np.arange(n), "ts": ts[order], "shop": rng.integers(0, 3, n), "price": rng.integers(0, 50, n) / 2,
        "number": rng.integers(0, 1000, n) * (stream[order] == 0), "stream": stream[order],
    }  # fmt: skip
    return columns


def table_of(app, columns):
    return pa.table(columns).cast(app.event.resolve({}).arrow(("seq",)))


def pairs(columns, within, band):
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*(c.tolist() for c in columns.values()), strict=True)]
    found = []
    for at, row in enumerate(rows):
        for other in rows[:at]:
            close = row["shop"] == other["shop"] and row["ts"] - other["ts"] <= within
            if row["stream"] != other["stream"] and close and abs(row["price"] - other["price"]) <= band:
                left, right = (row, other) if row["stream"] == 0 else (other, row)
                pair = (row["seq"], row["ts"], row["shop"], left["price"], left["number"], right["price"])
                found.append(pair)
    return found


@pytest.mark.parametrize(("within", "span"), [("1s", 1000), (0, 0), (50, 50)])
@pytest.mark.parametrize(("band", "distance"), [(None, np.inf), ({"price": ("price", 1.5)}, 1.5)])
def test_a_join_meets_every_pair_once(within, span, band, distance):
    app = App("pairs")
    app.join(*app.sources(Order, Payment), on="shop", within=within, band=band).sink()
    app.generates(*[lambda *arguments: {}] * 2)
    columns = events()
    case = Case(app, app.bind(), table_of(app, columns))
    names = ("seq", "ts", "shop", "order_price", "number", "payment_price")
    made = list(zip(*(case.outputs[name].to_pylist() for name in names), strict=True))
    assert made == pairs(columns, span, distance)
    assert made
    for threads in (1, 2, 3):
        case.check(RunSpec.parse({"app": "pairs", "executor": "pinned", "threads": threads, "batch": 7}), 100)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"on": "user", "within": "1s"}, "join on 'user': record Order"),
        ({"on": "shop", "within": "soon"}, "within must be a duration"),
        ({"on": "shop", "within": -1}, "within must be a duration"),
        ({"on": "shop", "within": "1s", "band": {"price": ("amount", 1)}}, "has no number field 'amount'"),
        ({"on": "shop", "within": "1s", "band": {"price": ("price", -1)}}, "the distance of price must be a number"),
    ],
)
def test_a_join_that_does_not_fit_is_refused(arguments, why):
    app = App("pairs")
    with pytest.raises(BadInput) as refused:
        app.join(*app.sources(Order, Payment), **arguments)
    assert why in str(refused.value)


def test_a_join_keeps_numbers_only():
    app = App("pairs")
    with pytest.raises(BadInput, match=r"words is no number"):
        app.join(*app.sources(Order, Note), on="shop", within="1s")
