"""Joins of random streams, against their definition in docs/explanation/windows.md, written in plain Python."""

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, Array, f64, i8, i16, i64, record, text, u8
from streaming_core.errors import BadInput
from streaming_core.language.record import Record
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import Pinned
from tests.differential.case import Case
from tests.support.draws import some

ROWS = 30  # of a stream
MOST = 1 << 61  # the highest `ts`


@record
class Order:
    ts: i64
    shop: i64
    price: f64
    number: i64
    small: u8


@record
class Payment:
    ts: i64
    shop: i64
    price: f64
    paid: i64
    few: i16


@record
class Note:
    ts: i64
    shop: i64
    words: text


def events(rng, streams, within, delay, texts):
    """Rows of many pairs of streams, as the engine takes them (language/sources.py), too far apart in time to meet.

    A stream has disorder up to the delay, or beyond it. Numbers are extremes, equal or close to each other.
    """
    n = streams * ROWS
    steps = rng.choice([0, 0, 1, within // 2, within, within + 1], (streams, ROWS)).cumsum(axis=1)
    reach = delay + rng.choice([0, 0, 1, within, 3 * within + 1], (streams, 1))
    ts = steps - rng.integers(0, reach + 1, (streams, ROWS)) * rng.integers(0, 2, (streams, ROWS))
    ts += -MOST + 200_000 + (2 * MOST - 400_000) // streams * np.arange(streams)[:, None]
    ts[0, 0], ts[-1, -1] = -MOST, MOST
    stream = rng.integers(0, 2, n)
    wide = [-(1 << 63), 1 - (1 << 63), -1, 0, 6, 7, (1 << 63) - 2, (1 << 63) - 1]
    shops = np.array([b"", b"a", "ü".encode() * 20_000], object)
    return {
        "seq": np.arange(n), "ts": ts.ravel(),
        "shop": shops[rng.choice(3, n, p=[0.5, 0.499, 0.001])] if texts else rng.choice(wide[::3], n),
        "price": rng.choice([math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, 1.5, 2.0, 1e300], n),
        "number": rng.choice(wide, n) * (stream == 0), "small": rng.choice([0, 1, 255], n) * (stream == 0),
        "paid": rng.choice(wide, n) * (stream == 1), "few": rng.choice([-(1 << 15), -1, 0, 255], n) * (stream == 1),
        "stream": stream,
    }  # fmt: skip


def joined(rows, within, delay, meet):
    """The pairs, ordered by the later row, then by the earlier one, and the late rows.

    Rows meet in a window of `within` that is open, which means that it ends behind the watermark.
    """
    pairs, late, highest = [], [], -MOST
    for at, row in enumerate(rows):
        highest = max(highest, row["ts"])
        least = highest - delay - within
        if row["ts"] < least:
            late.append(row["seq"])
            continue
        for other in rows[at - at % ROWS : at]:
            left, right = (row, other) if row["stream"] == 0 else (other, row)
            if (
                row["stream"] != other["stream"]
                and other["ts"] >= least
                and abs(row["ts"] - other["ts"]) <= within
                and meet(left, right)
            ):
                pairs.append((row["seq"], max(row["ts"], other["ts"]), left, right))
    return pairs, late


def table_of(app, columns):
    return pa.table(columns).cast(app.event.resolve({}).arrow(("seq",)))


# Whether rows need the same shop, and the largest differences.
BANDS = {
    "key": (True, {}),
    "key and floats": (True, {"price": ("price", 1.5)}),
    "key and equal integers": (True, {"number": ("paid", 0)}),
    "integers": (False, {"number": ("paid", 1), "small": ("few", 7.5)}),
    "narrow integers": (True, {"small": ("few", 1 << 62), "number": ("paid", (1 << 63) - 1)}),
}


def copied(row, out):
    out.emit(ts=row.ts, shop=row.shop, price=row.price, number=row.number, small=row.small)


@pytest.mark.parametrize(
    ("band", "within", "span", "delay", "texts"),
    [
        ("key and floats", 0, 0, 7, True),
        ("integers", 50, 50, 20, False),
        ("key", "1s", 1000, 0, True),
        ("key", 12, 12, 100, False),
        ("key and equal integers", "1s", 1000, 300, False),
        ("narrow integers", 50, 50, 60, True),
    ],
)
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.slow
def test_rows_meet_in_open_windows(seed, band, within, span, delay, texts):
    app = App("pairs")
    same, close = BANDS[band]
    sides = [Record(side.name, {**side.fields, "shop": text if texts else i64}, None) for side in (Order, Payment)]
    orders, payments = app.sources(*sides, delay=delay)
    orders = orders.flat_map(copied, sides[0])
    matches = app.join(orders, payments, on="shop" if same else None, within=within, band=close)
    matches.sink("pairs")
    matches.late().sink("late")
    app.generates(*[lambda *arguments: {}] * 2)
    table = table_of(app, events(np.random.default_rng(seed), 100, span, delay, texts))

    def meet(left, right):
        return (not same or left["shop"] == right["shop"]) and all(
            abs(left[column] - right[other_column]) <= distance for column, (other_column, distance) in close.items()
        )

    pairs, late = joined(table.to_pylist(), span, delay, meet)
    interpreter = Interpreter(app, app.bind())
    outputs = pa.concat_tables([interpreter.process(table), interpreter.finish(len(table))])
    if seed == 0 and delay in (0, 20, 100):
        compare("pairs", outputs, Loop(app, app.bind()).process(table), "outputs")
        case = Case(app, app.bind(), table)
        for threads, parallelism in ((1, "vsn"), (3, "vsn"), (2, "sn"), (3, "vsn_esg")):
            case.check(Pinned(app="pairs", threads=threads, batch=7, parallelism=parallelism), 100)
    outputs = outputs.to_pylist()
    shops = ("shop",) if same else ("order_shop", "payment_shop")
    names = ("seq", "ts", *shops, "order_price", "number", "payment_price", "paid", "small", "few")
    taken = [tuple(repr(row[name]) for name in names) for row in outputs if row["sink"] == 0]
    wanted = []
    for seq, ts, left, right in pairs:
        both = (left["shop"],) if same else (left["shop"], right["shop"])
        values = (left["price"], left["number"], right["price"], right["paid"], left["small"], right["few"])
        wanted.append(tuple(map(repr, (seq, ts, *both, *values))))
    if not close:
        assert taken == wanted
    assert Counter(taken) == Counter(wanted)
    assert taken
    assert [row["seq"] for row in outputs if row["sink"] == 1] == late
    assert interpreter.dropped_late == len(late) > 0


@pytest.mark.parametrize("distance", some([0.1, 0.0, 5e-324, 1e300]))
@pytest.mark.slow
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
    names = app.event.resolve({}).arrow(("seq",)).names
    columns = dict.fromkeys(names, np.zeros(n, int)) | {
        "seq": np.arange(n), "price": values, "stream": (np.arange(n) >= len(first)).astype(int),
    }  # fmt: skip
    case = Case(app, app.bind(), table_of(app, columns))
    with np.errstate(invalid="ignore", over="ignore"):
        wanted = np.abs(first[:, None] - np.concatenate(near)[None, :]) <= distance
    assert len(case.outputs) == wanted.sum()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"on": "user", "within": "1s"}, "join on 'user': record Order"),
        ({"on": "shop", "within": "soon"}, "unknown duration or parameter 'soon'"),
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


@record
class Several:
    ts: i64
    shop: i64
    items: Array[i64, 3]


def test_a_join_keeps_no_arrays():
    app = App("pairs")
    with pytest.raises(BadInput, match=r"items is a Array, but a join keeps numbers and texts only"):
        app.join(*app.sources(Order, Several), on="shop", within="1s")


@pytest.mark.slow  # a quick relay joins texts
@pytest.mark.parametrize("seed", range(3))
def test_a_join_keeps_texts(seed):
    app = App("pairs")
    notes = [Record(name, dict(Note.fields), None) for name in ("Left", "Right")]
    app.join(*app.sources(*notes), on="shop", within=9).sink()
    app.generates(*[lambda *arguments: {}] * 2)
    r = np.random.default_rng(seed)
    words = [b"", b"a", b"ab", "ü".encode() * 40, b"x" * 3000]
    n = 400
    rows = [
        {"seq": seq, "ts": seq // 2, "shop": int(r.integers(0, 3)), "words": words[r.integers(0, 5)],
         "stream": int(r.integers(0, 2))}
        for seq in range(n)
    ]  # fmt: skip
    table = table_of(app, {name: [row[name] for row in rows] for name in app.event.resolve({}).arrow(("seq",)).names})
    case = Case(app, app.bind(), table)
    expected = [
        (row["seq"], row["ts"], row["shop"], *(pair[:: 1 if row["stream"] else -1]))
        for row in rows
        for other in rows[: row["seq"]]
        if (other["shop"], other["stream"]) == (row["shop"], 1 - row["stream"]) and row["ts"] - other["ts"] <= 9
        for pair in [(other["words"], row["words"])]
    ]
    assert [tuple(row[name] for name in row if name != "sub") for row in case.outputs.to_pylist()] == expected
    compare("pairs", case.outputs, Loop(app, app.bind()).process(table), "outputs")
    swapped = [{"event": event, "owners": {"join": [event // 30 % 2]}} for event in range(0, n, 30)]
    for threads, parallelism in ((1, "vsn"), (2, "vsn"), (2, "sn"), (2, "vsn_esg")):
        schedule = swapped if threads > 1 else []
        case.check(Pinned(app="pairs", threads=threads, batch=7, parallelism=parallelism, schedule=schedule), 100)


@record
class Refund:
    ts: i8
    shop: i8
    price: f64


def repaid(row, out):
    out.emit(ts=0, shop=0, price=row.price)


def test_streams_of_a_join_may_differ_in_the_type_of_ts_but_not_of_the_key():
    app = App("pairs")
    orders, payments = app.sources(Order, Payment)
    refunds = payments.flat_map(repaid, output=Refund)
    band = {"price": ("price", 1)}
    assert app.join(refunds, orders, within="1s", band=band)._record.fields["ts"] == i64
    with pytest.raises(BadInput, match="on 'shop': both streams need a field of the same type"):
        app.join(refunds, orders, on="shop", within="1s", band=band)
