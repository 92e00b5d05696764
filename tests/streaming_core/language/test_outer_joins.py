"""Left, full and unbounded joins, and several in a row, against plain Python written from the documentation."""

from collections import Counter
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, Array, agg, f64, global_window, i64, record, text, tumbling
from streaming_core.cluster.task import Prepared, SparkPass
from streaming_core.data import workload
from streaming_core.errors import BadInput
from streaming_core.language.record import Record
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import Pinned
from tests.differential import shuffle
from tests.differential.case import Case
from tests.differential.streams import SEED
from tests.support.draws import some

SPAN = 6
WORDS = [b"", b"a", b"\0", "ü".encode() * 40, b"x" * 3000]


@record
class Order:
    ts: i64
    shop: text
    words: text
    price: f64


@record
class Payment:
    ts: i64
    shop: text
    words: text
    number: i64


@record
class Refund:
    ts: i64
    number: i64
    words: text


def events(app, number, n, disorder, late=0.0):
    """Rows of all streams, which are up to `disorder` behind the latest row, and a few of them further behind."""
    r = np.random.default_rng([SEED, number])
    latest = np.cumsum(r.choice([0, 0, 1, 2, 5, 30], n, p=[0.3, 0.2, 0.2, 0.2, 0.08, 0.02]))
    ts = latest - r.integers(0, disorder + 1, n) - r.choice([0, 7, 25], n) * (r.random(n) < late)
    columns = {
        "seq": range(n), "ts": ts, "shop": [(b"", b"shop", b"b" * 40)[i] for i in r.integers(0, 3, n)],
        "words": [WORDS[i] for i in r.integers(0, 5, n)], "price": r.integers(0, 9, n) / 2,
        "number": r.integers(0, 4, n), "stream": r.integers(0, len(app.streams.records), n),
    }  # fmt: skip
    schema = app.event.resolve({}).arrow(("seq",))
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema)


class Model:
    """What leaves a join: seq, ts, the left and the right row; and the number of late rows."""

    def __init__(self, how, delay, span=None, ttl=None, key="shop"):
        self.outer = {"inner": (), "left": (0,), "full": (0, 1)}[how]
        self.delay, self.span, self.ttl, self.key = delay, span, ttl, key
        self.gap = span + 1 if ttl is None else ttl
        self.highest, self.keys, self.outputs, self.late = -(1 << 61), {}, [], 0

    def alone(self, seq, ts, side, row):
        if not row["is_met"] and side in self.outer:
            self.outputs.append((seq, ts, *((row, None) if side == 0 else (None, row))))

    def end(self, seq, key, ts):
        for side, kept in enumerate(self.keys.pop(key)["sides"]):
            for row in kept:
                self.alone(seq, ts, side, row)

    def expire(self, seq):
        for key, state in list(self.keys.items()):
            if state["latest"] + self.gap + self.delay <= self.highest:
                self.end(seq, key, state["latest"] + self.gap)

    def take(self, row):
        key, ts = row[self.key], row["ts"]
        self.highest = max(self.highest, ts)
        self.expire(row["seq"])
        if ts + self.gap + self.delay <= self.highest:
            self.late += 1
            return
        if self.ttl is not None and key in self.keys and ts - self.keys[key]["latest"] >= self.ttl:
            self.end(row["seq"], key, ts)
        state = self.keys.setdefault(key, {"latest": ts, "sides": ([], [])})
        state["latest"] = max(state["latest"], ts)
        self.meet({**row, "is_met": False}, state)

    def meet(self, row, state):
        least = -(1 << 61) if self.span is None else state["latest"] - self.span - self.delay
        for number, kept in enumerate(state["sides"]):
            while kept and kept[0]["ts"] < least:
                self.alone(row["seq"], row["ts"], number, kept.pop(0))
        for other in state["sides"][1 - row["stream"]]:
            if other["ts"] >= least and (self.span is None or abs(other["ts"] - row["ts"]) <= self.span):
                row["is_met"] = other["is_met"] = True
                pair = (row, other) if row["stream"] == 0 else (other, row)
                self.outputs.append((row["seq"], max(row["ts"], other["ts"]), *pair))
        state["sides"][row["stream"]].append(row)


def expected(rows, end, how, delay, **time):
    model = Model(how, delay, **time)
    for row in rows:
        model.take(row)
    model.highest = 1 << 61
    model.expire(end)
    return model.outputs, model.late


def shown(seq, ts, left, right):
    """An expected row, as the application emits it."""
    shop = (left or right)["shop"]
    left_row, right_row = left or {}, right or {}
    return (
        seq,
        ts,
        shop,
        left_row.get("words"),
        left_row.get("price"),
        right_row.get("words"),
        right_row.get("number"),
    )


def produced(rows):
    """The rows of an output, without their place among those of an event."""
    return [tuple(value for name, value in row.items() if name != "sub") for row in rows]


@cache
def app_of(how, time, delay):
    app = App(f"joined_{how}")
    orders, payments = app.sources(Order, Payment, delay=delay)
    app.join(orders, payments, on="shop", how=how, **dict(time)).sink()
    app.generates(*[lambda *arguments: {}] * 2)
    return app


@cache
def loop_of(how, time, delay):
    return Loop(app_of(how, time, delay), {})


JOINS = [
    (how, time, delay)
    for delay in (0, 5)
    for how in ("full", "left", "inner")
    for time in ((("within", SPAN),), (("ttl", SPAN),), (("ttl", None),))
    if how != "inner" or time != (("within", SPAN),)  # test_joining.py
]


def numbers(time):
    """The span, the time to live and the gap of a join, as `expected` takes them."""
    [(option, value)] = time
    return {"span": value} if option == "within" else {"ttl": 10**6 if value is None else value}


@pytest.mark.parametrize(("how", "time", "delay"), some([*JOINS[::2], *JOINS[1::2]], 8))
def test_joins_of_random_streams_match_their_definition(how, time, delay):
    app, total, late = app_of(how, time, delay), 0, 0
    for number in range(12):
        table = events(app, number, (0, 1, 30, 60)[number % 4], delay if number % 3 else 0, 0.1 * (number % 2))
        oracle = Interpreter(app, {})
        outputs = pa.concat_tables([oracle.process(table), oracle.finish(len(table))])
        wanted, dropped = expected(table.to_pylist(), len(table), how, delay, **numbers(time))
        if time == (("ttl", None),):  # the rows of the end have the `ts` of the latest row of their key
            wanted = [(seq, ts - 10**6 if seq == len(table) else ts, *pair) for seq, ts, *pair in wanted]
        assert Counter(produced(outputs.to_pylist())) == Counter(shown(*row) for row in wanted), f"stream {number}"
        assert oracle.dropped_late == dropped
        total, late = total + len(wanted), late + dropped
    assert total > 100
    assert late > 0 or dict(time).get("ttl", 1) is None


@pytest.mark.parametrize("how", ["left", "full"])
@pytest.mark.parametrize("delay", [0, 5])
def test_rows_within_the_delay_meet_as_in_sql(how, delay):
    """As a join in SQL, which knows no order: pairs of close rows, and the rows that are in none."""
    app = app_of(how, (("within", SPAN),), delay)
    for number in range(10):
        table = events(app, number, 60, delay)
        rows = table.to_pylist()
        sides = [[row for row in rows if row["stream"] == side] for side in range(2)]
        pairs = [
            (row, other)
            for row in sides[0]
            for other in sides[1]
            if row["shop"] == other["shop"] and abs(row["ts"] - other["ts"]) <= SPAN
        ]
        met = [{row["seq"] for row in side} for side in zip(*pairs, strict=True)] if pairs else [set(), set()]
        pairs += [(row, None) for row in sides[0] if row["seq"] not in met[0]]
        pairs += [(None, row) for row in sides[1] if row["seq"] not in met[1] and how == "full"]
        oracle = Interpreter(app, {})
        outputs = pa.concat_tables([oracle.process(table), oracle.finish(60)])
        assert oracle.dropped_late == 0
        wanted = Counter(shown(0, 0, *pair)[2:] for pair in pairs)
        assert Counter(row[2:] for row in produced(outputs.to_pylist())) == wanted


WAYS = [
    {"threads": 1, "batch": 64, "parallelism": "vsn"},
    {"threads": 3, "batch": 7, "parallelism": "vsn"},
    {"threads": 2, "batch": 7, "parallelism": "sn"},
    {"threads": 3, "batch": 16, "parallelism": "vsn_esg"},
]


@dataclass(frozen=True)
class Pass(SparkPass):
    """A pass of one of these applications."""

    key: tuple = ()

    @property
    def prepared(self) -> Prepared:
        return prepared_of(self.key)


@cache
def prepared_of(key):
    return Prepared.of(app_of(*key), {})


@pytest.mark.parametrize(("how", "time", "delay"), some(JOINS))
def test_every_parallelism_equals_the_interpreter(how, time, delay):
    app = app_of(how, time, delay)
    case = Case(app, {}, events(app, 50, 400, delay, 0.05))
    moved = [{"event": event, "owners": {"join": [event // 30 % 2]}} for event in range(0, 400, 30)]
    for way in WAYS:
        case.check(Pinned(app=app.name, schedule=moved if way["threads"] > 1 else [], **way), 100)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "time", "delay"), JOINS)
def test_loop_and_spark_equal_the_interpreter(how, time, delay, tmp_path):
    app, key = app_of(how, time, delay), (how, time, delay)
    table = events(app, 50, 400, delay, 0.05)
    oracle = Interpreter(app, {})
    expected_outputs = pa.concat_tables([oracle.process(table), oracle.finish(400)])
    loop = loop_of(*key)
    loop.reset()
    compare(app.name, expected_outputs, pa.concat_tables([loop.process(table), loop.finish(400)]), "outputs")
    workload.write(app, {}, 400, 0, tmp_path / "workload", [table])
    pass_ = Pass(app.name, (), str(tmp_path / "workload"), 400, 400, 3, str(tmp_path / "pass"), True, key=key)
    shuffle.run(pass_)
    outputs = shuffle.outputs(pass_)
    assert outputs.equals(expected_outputs.cast(outputs.schema))


def with_refunds(paid, refunds):
    names = ("ts", "shop", "order_words", "price", "payment_words")
    refund = (i64, lambda row: row.number if row.number is not None else 0)
    return paid._app.join(paid.select(*names, number=refund), refunds, on="number", within=SPAN, how="left")


COUNTS = {"n": agg.count(), "paid": agg.count("payment_words"), "refunds": agg.count("words")}
ENDS = {
    "pairs": with_refunds,
    "global": lambda *both: with_refunds(*both).window(global_window()).aggregate(**COUNTS),
    "time": lambda *both: with_refunds(*both).window(tumbling(10)).aggregate(n=agg.count()),
}


def in_a_row(delay, end="pairs"):
    """Orders with payments, and these with the refunds of the payment."""
    app = App("in_a_row")
    orders, payments, refunds = app.sources(Order, Payment, Refund, delay=delay)
    ENDS[end](app.join(orders, payments, on="shop", within=SPAN, how="left"), refunds).sink()
    app.generates(*[lambda *arguments: {}] * 3)
    return app


def test_a_join_takes_the_rows_of_another_one():
    apps, kinds = {end: in_a_row(0, end) for end in ENDS}, Counter()
    apps["first"] = apps["pairs"].through("join")
    for number in range(10):
        table, outputs, late = events(apps["pairs"], number, 80, 0), {}, {}
        for end, app in apps.items():
            oracle = Interpreter(app, {})
            outputs[end] = pa.concat_tables([oracle.process(table), oracle.finish(80)]).to_pylist()
            late[end] = oracle.dropped_late
        refunds = [{**row, "stream": 1} for row in table.to_pylist() if row["stream"] == 2]
        pairs = [{**row, "stream": 0, "number": row["number"] or 0} for row in outputs["first"]]
        rows = sorted([*pairs, *refunds], key=lambda row: row["seq"])
        pairs, dropped = expected(rows, 80, "left", 0, span=SPAN, key="number")
        wanted = Counter(
            (seq, ts, pair["number"], pair["shop"], pair["order_words"], pair["price"], pair["payment_words"],
             refund and refund["words"])
            for seq, ts, pair, refund in pairs
        )  # fmt: skip
        assert Counter(produced(outputs["pairs"])) == wanted
        assert late["pairs"] == dropped
        [counts] = outputs["global"]
        numbers = [sum(n for row, n in wanted.items() if row[at] is not None) for at in (0, 6, 7)]
        assert [counts["n"], counts["paid"], counts["refunds"]] == numbers
        # Windows behind a join take the rows without a match in time.
        assert late["time"] == dropped
        assert sum(row["n"] for row in outputs["time"]) == wanted.total()
        kinds.update((row[6] is None, row[7] is None) for row in wanted)
    assert len(kinds) == 4


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0, 5])
def test_joins_in_a_row_are_equal_on_every_machine(delay):
    app = in_a_row(delay)
    case = Case(app, {}, events(app, 60, 400, delay, 0.05))
    for way in WAYS:
        case.check(Pinned(app=app.name, **way), 100)


def test_several_joins_have_names_of_their_own():
    app = App("names")
    orders, payments, refunds = app.sources(Order, Payment, Refund)
    pairs = app.join(orders, payments, on="shop", within=1)
    assert [*pairs._record.fields] == ["ts", "shop", "order_words", "price", "payment_words", "number"]
    again = app.join(pairs, app.join(payments, refunds, on="number", ttl=None), on=("shop", "number"), within=1)
    assert [*again._record.fields] == [
        "ts", "shop", "number", "order_words", "price", "join_payment_words", "join_2_payment_words",
        "refund_words",
    ]  # fmt: skip
    assert [operator.name for operator in app.operators if operator.kind == "windowed"] == ["join", "join_2", "join_3"]


@record
class Many:
    ts: i64
    shop: text
    items: Array[i64, 3]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, 'join: say how long rows wait for others: within="10m", or ttl="1h", or ttl=None for ever'),
        ({"within": 1, "ttl": 1}, "say how long rows wait for others"),
        ({"within": 1, "ttl": None}, "say how long rows wait for others"),
        ({"ttl": -1}, "ttl must be a duration such as '10s', or a number from 1 to below 2^61, not -1"),
        ({"ttl": 1 << 61}, "ttl must be a duration"),
        ({"ttl": "soon"}, "unknown duration or parameter 'soon'"),
        ({"ttl": 1.5}, "join: ttl must be an integer, a text or None, got 1.5"),
        ({"within": 1, "how": "right"}, "join: unknown how 'right'; known: inner, left, full"),
        ({"within": 1, "how": None}, "join: how must be a text, got None"),
        ({"within": 1, "how": "left", "band": {"price": ("number", 1)}}, "band goes with within and how='inner'"),
        ({"ttl": 1, "band": {"price": ("number", 1)}}, "band goes with within and how='inner'; filter the pairs"),
    ],
)
def test_an_invalid_join_is_refused(arguments, why):
    app = App("pairs")
    with pytest.raises(BadInput) as refused:
        app.join(*app.sources(Order, Payment), on="shop", **arguments)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


def same(row, out):
    out.emit(row)


def test_names_that_clash_are_refused():
    app = App("pairs")
    orders, payments, many = app.sources(Order, Payment, Many)
    with pytest.raises(
        BadInput, match="join on 'number': a key cannot be null; give it a value; convert it with flat_map"
    ):
        app.join(app.join(orders, payments, on="shop", within=1, how="left"), payments, on="number", within=1)
    with pytest.raises(BadInput, match="two fields of the result are called payment_words; rename one"):
        app.join(payments, payments, on="shop", within=1)
    with pytest.raises(BadInput, match="items is a Array, but a join keeps numbers and texts only"):
        app.join(payments, many, on="shop", ttl=None, how="left")
    other = payments.flat_map(same, Record("other", dict(Payment.fields), None))
    assert "other_words" in app.join(payments, other, on="shop", within=1)._record.fields
