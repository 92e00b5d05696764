"""Joins within a span of event time, against all pairs of rows."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, f64, i64, record, text
from streaming_core.errors import BadInput
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
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
    paid: i64


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
        "number": rng.integers(-30, 100, n) * (stream[order] == 0),
        "paid": rng.integers(-30, 100, n) * (stream[order] == 1), "stream": stream[order],
    }  # fmt: skip
    return columns


def table_of(app, columns):
    return pa.table(columns).cast(app.event.resolve({}).arrow(("seq",)))


def pairs(columns, within, price, number, same=True):
    """All pairs by definition, ordered by the later row, then by the earlier one."""
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*(c.tolist() for c in columns.values()), strict=True)
    ]
    matches = []
    for at, row in enumerate(rows):
        for other in rows[:at]:
            left, right = (row, other) if row["stream"] == 0 else (other, row)
            if (
                row["stream"] != other["stream"]
                and (row["shop"] == other["shop"] or not same)
                and row["ts"] - other["ts"] <= within
                and (price is None or abs(left["price"] - right["price"]) <= price)
                and (number is None or abs(left["number"] - right["paid"]) <= number)
            ):
                shops = (row["shop"],) if same else (left["shop"], right["shop"])
                matches.append((row["seq"], *shops, left["price"], left["number"], right["price"], right["paid"]))
    return matches


# Whether rows need the same shop, and the largest differences of prices and numbers.
BANDS = {
    "key": (True, None, None),
    "key and floats": (True, 1.5, None),
    "key and equal integers": (True, None, 0),
    "integers": (False, None, 7.5),
}


@pytest.mark.parametrize(
    ("band", "within", "span"),
    [("key", "1s", 1000), ("key and floats", 0, 0), ("key and equal integers", "1s", 1000), ("integers", 50, 50)],
)
def test_a_join_emits_every_pair_once(band, within, span):
    app = App("pairs")
    same, price, number = BANDS[band]
    close = {"price": ("price", price)} if price is not None else {}
    close |= {"number": ("paid", number)} if number is not None else {}
    app.join(*app.sources(Order, Payment), on="shop" if same else None, within=within, band=close).sink()
    app.generates(*[lambda *arguments: {}] * 2)
    columns = events()
    case = Case(app, app.bind(), table_of(app, columns))
    shops = ("shop",) if same else ("order_shop", "payment_shop")
    names = ("seq", *shops, "order_price", "number", "payment_price", "paid")
    outputs = list(zip(*(case.outputs[name].to_pylist() for name in names), strict=True))
    wanted = pairs(columns, span, price, number, same)
    if not close:
        assert outputs == wanted
    assert Counter(outputs) == Counter(wanted)
    assert outputs
    compare("pairs", case.outputs, Loop(app, app.bind()).process(case.events.tables[0]), "outputs")
    for threads in (1, 3):
        case.check(RunSpec.parse({"app": "pairs", "executor": "pinned", "threads": threads, "batch": 7}), 100)


@pytest.mark.parametrize("distance", [0.0, 5e-324, 0.1, 1e300])
def test_close_floats_lie_in_adjacent_buckets(distance):
    """The index loses no pair among values at a distance and their neighbours, of all magnitudes."""
    rng = np.random.default_rng(11)
    first = np.concatenate([rng.normal(size=80) * 10.0 ** rng.integers(-300, 300, 80), [np.nan, np.inf, -np.inf, 0.0]])
    with np.errstate(over="ignore", invalid="ignore"):
        near = [first, first + distance, first - distance, np.nextafter(first + distance, np.inf)]
    values = np.concatenate([first, *near])
    app = App("pairs")
    app.join(*app.sources(Order, Payment), within=10**6, band={"price": ("price", distance)}).sink()
    app.generates(*[lambda *arguments: {}] * 2)
    n = len(values)
    columns = {
        "seq": np.arange(n), "ts": np.zeros(n, int), "shop": np.zeros(n, int), "price": values,
        "number": np.zeros(n, int), "paid": np.zeros(n, int), "stream": (np.arange(n) >= len(first)).astype(int),
    }  # fmt: skip
    case = Case(app, app.bind(), table_of(app, columns))
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = np.abs(first[:, None] - np.concatenate(near)[None, :]) <= distance
    assert len(case.outputs) == wanted.sum()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"on": "user", "within": "1s"}, "join on 'user': record Order"),
        ({"on": "shop", "within": "soon"}, "within must be a duration"),
        ({"on": "shop", "within": -1}, "within must be a duration"),
        ({"on": "shop", "within": "1s", "band": {"price": ("amount", 1)}}, "has no number field 'amount'"),
        ({"within": "1s"}, "say which rows meet"),
        ({"on": "shop", "within": "1s", "band": {"price": ("price", float("inf"))}}, "must be a number from 0"),
        ({"on": "shop", "within": "1s", "band": {"price": ("price", -1)}}, "the distance of price must be a number"),
    ],
)
def test_an_invalid_join_is_refused(arguments, why):
    app = App("pairs")
    with pytest.raises(BadInput) as refused:
        app.join(*app.sources(Order, Payment), **arguments)
    assert why in str(refused.value)


def test_a_join_keeps_numbers_only():
    app = App("pairs")
    with pytest.raises(BadInput, match=r"words is no number"):
        app.join(*app.sources(Order, Note), on="shop", within="1s")
