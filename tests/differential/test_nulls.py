"""Fields that may be null, in all ways: in events, outputs, states, queues and aggregates, against plain Python."""

import random

import pyarrow as pa
import pytest

from streaming_core.api import App, Queue, agg, boolean, f64, i32, i64, record, text, tumbling, u8
from streaming_core.errors import RunFailed
from streaming_core.kernels.program import compile_app
from streaming_core.language.sources import TAG
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import ENGINE_EXECUTORS, RunSpec
from tests.differential.case import Case, strategies


@record
class Event:
    ts: i64
    key: u8
    price: i32 | None
    rate: f64 | None
    name: text | None
    good: boolean | None
    number: i64


@record
class Answer:
    name: text | None
    price: i32 | None
    good: boolean | None
    total: f64 | None
    number: i64


@record
class Waiting:
    price: i32 | None
    name: text | None
    number: i64


@record
class Best:
    price: i32 | None
    name: text | None
    rate: f64 | None
    seen: i64
    rows: Queue[Waiting]


@record
class Balance:
    total: i64


def change(row, out):
    if row.price is None and row.good is not None:
        out.emit(name=row.name, price=None, good=not row.good, total=row.rate, number=row.number)
    elif row.name is not None and len(row.name) > 2:
        out.emit(row, number=5, price=row.price if row.key > 1 else None, name=row.name[1:], total=row.rate)
    else:
        half = row.price // 2 if row.price is not None else -1
        out.emit(total=None if row.rate is None else row.rate * 2, good=True, number=half, price=half, name="none")


def changed(row):
    """What `change` emits, in plain Python: name, price, good, total, number."""
    price, name, good, rate = row["price"], row["name"], row["good"], row["rate"]
    if price is None and good is not None:
        return name, None, not good, rate, row["number"]
    if name is not None and len(name) > 2:
        return name[1:], price if row["key"] > 1 else None, good, rate, 5
    half = -1 if price is None else price // 2
    return b"none", half, True, None if rate is None else rate * 2, half


def keep(row, state, out):
    if row.price is not None and (state.price is None or row.price > state.price):
        state.price = row.price
        state.name = row.name
    if row.key == 3:
        state.price = None
    if row.rate is not None:
        state.rate = row.rate if state.rate is None else state.rate + row.rate
        state.rate += 1.0
    state.rows.append(name=row.name, number=row.number, price=None if row.number % 3 == 0 else row.price)
    if len(state.rows) > 4:
        state.rows.popleft()
    state.seen += 1
    first = state.rows[0].price if state.rows[0].price is not None else 7
    out.emit(name=state.name, price=state.rows[0].price, good=None, total=state.rate, number=first)


def kept(rows):
    """What `keep` emits, in plain Python."""
    states, outputs = {}, []
    for row in rows:
        state = states.setdefault(row["key"], {"price": None, "name": None, "rate": None, "rows": []})
        if row["price"] is not None and (state["price"] is None or row["price"] > state["price"]):
            state |= {"price": row["price"], "name": row["name"]}
        if row["key"] == 3:
            state["price"] = None
        if row["rate"] is not None:
            state["rate"] = (0.0 if state["rate"] is None else state["rate"]) + row["rate"] + 1.0
        state["rows"] = [*state["rows"], None if row["number"] % 3 == 0 else row["price"]][-4:]
        first = state["rows"][0]
        outputs.append((state["name"], first, None, state["rate"], 7 if first is None else first))
    return outputs, states


def stateless():
    app = App("stateless")
    app.source(Event).flat_map(change, Answer).sink()
    return app


def stateful():
    app = App("stateful")
    app.source(Event).key_by("key").process(keep, Best, Answer).sink()
    return app


def aggregated():
    app = App("aggregated")
    windows = app.source(Event).key_by("key").window(tumbling(3))
    windows.aggregate(
        n=agg.count(), prices=agg.count("price"), total=agg.sum("rate"), mean=agg.avg("price"), least=agg.min("rate"),
        most=agg.max("price"), kinds=agg.count_distinct("price"), first=agg.first("name"), last=agg.last("good"),
    ).sink()  # fmt: skip
    return app


def aggregates(rows):
    """What `aggregated` emits for the rows of a key and window, in plain Python."""
    prices, rates, names, goods = (
        [row[name] for row in rows if row[name] is not None] for name in ("price", "rate", "name", "good")
    )
    total = None
    for rate in rates:
        total = rate if total is None else total + rate
    return (
        len(rows), len(prices), total, sum(prices) / len(prices) if prices else None, min(rates, default=None),
        max(prices, default=None), len({*prices}), next(iter(names), None), goods[-1] if goods else None,
    )  # fmt: skip


@record
class Bid:
    ts: i64
    item: u8
    price: i64 | None
    note: text | None


@record
class Ask:
    ts: i64
    item: u8
    least: f64 | None


def joined():
    """Streams, a join, select, filter and two sinks, over records that may have nulls."""
    app = App("joined")
    bids, asks = app.sources(Bid, Ask)
    pairs = app.join(bids, asks, on="item", within=6)
    chosen = pairs.filter(lambda row: row.least is None or row.price is not None)
    chosen.select("item", "price", "note", lowest="least", double=(i64, double)).sink("pairs")
    bids.key_by("item").window(tumbling(9)).top(2, by="ts").sink("latest")
    return app


def double(row):
    return row.price * 2 if row.price is not None else -1


bank = App("bank")
accounts = bank.table("accounts", Balance, 5)


def has(account, event):
    return event.price is None or account.total + event.price >= 0


def add(account, event):
    if event.price is not None:
        account.total += event.price


@bank.transaction(Event, Answer)
def pay(event, txn):
    account = txn.row(accounts, event.key)
    txn.require(has, account)
    txn.modify(account, add)
    txn.read(account)


@pay.post
def paid(event, txn, out):
    number = txn.result(accounts, 0).total if txn.accepted else -1
    out.emit(event, number=number, total=event.rate, price=event.price if txn.accepted else None)


def nothing(params, seed, start, stop):
    return {}


APPS = [stateless(), stateful(), aggregated(), joined(), bank]
for app in APPS:
    app.generates(*[nothing] * (2 if app.streams else 1))


def events(app, count, seed=1):
    r = random.Random(seed)
    schema = app.event.resolve({}).arrow(("seq",))
    values = {
        "key": lambda: r.randrange(5), "item": lambda: r.randrange(3), "price": lambda: r.randrange(-(2**31), 2**31),
        "rate": lambda: r.choice([0.0, 0.5, -1.25]), "least": lambda: r.choice([0.0, -1.25]),
        "name": lambda: r.choice([b"", b"a", b"abc", b"x" * 70]), "note": lambda: r.choice([b"", b"yes"]),
        "good": lambda: r.random() < 0.5, "number": lambda: r.choice([0, 1, 2, 5, -(2**62)]),
    }  # fmt: skip
    rows = []
    for seq in range(count):
        row = {"seq": seq, "ts": seq // 3, TAG: seq * 7 // 5 % 2}
        own = app.streams.columns[row[TAG]].values() if app.streams else schema.names
        for field in schema:
            is_null = field.nullable and (field.name not in own or r.random() < 0.4)
            value = values[field.name]() if field.name in values and field.name in own else 0
            row.setdefault(field.name, None if is_null else value)
        rows.append(row)
    rows.sort(key=lambda row: (row["ts"], row[TAG] if app.streams else 0))
    return pa.Table.from_pylist([row | {"seq": seq} for seq, row in enumerate(rows)], schema=schema)


# The others take longer to compile.
QUICK = ("stateful",)


@pytest.fixture(
    scope="module",
    params=[pytest.param(app, marks=() if app.name in QUICK else pytest.mark.slow) for app in APPS],
    ids=lambda app: app.name,
)
def case(request):
    return Case(request.param, {}, events(request.param, 700), compile_app(request.param, {}))


def test_interpreter_equals_plain_python(case):
    rows = case.events.tables[0].to_pylist()
    if case.app.name in ("joined", "bank"):
        assert any(None in row.values() for row in case.outputs.to_pylist())
        return
    if case.app.name == "aggregated":
        groups = {}
        for row in rows:
            groups.setdefault((row["ts"] // 3 * 3 + 3, row["key"]), []).append(row)
        names = ["n", "prices", "total", "mean", "least", "most", "kinds", "first", "last"]
        outputs = {(row["ts"], row["key"]): tuple(row[n] for n in names) for row in case.outputs.to_pylist()}
        assert outputs == {key: aggregates(group) for key, group in groups.items()}
        assert any(None in row for row in outputs.values())
        return
    outputs = [tuple(row[name] for name in Answer.fields) for row in case.outputs.to_pylist()]
    if case.app.name == "stateless":
        assert outputs == [changed(row) for row in rows]
        return
    expected, states = kept(rows)
    assert outputs == expected
    for state in case.state["keep"].to_pylist():
        known = states[state["key"]]
        assert [state[name] for name in ("price", "name", "rate")] == [known[n] for n in ("price", "name", "rate")]
        assert [row["price"] for row in state["rows"]] == known["rows"]


@pytest.mark.slow
def test_loop_equals_the_interpreter(case):
    loop, table = Loop(case.app, {}), case.events.tables[0]
    outputs = pa.concat_tables([loop.process(table.slice(0, 300)), loop.process(table.slice(300)), loop.finish(700)])
    compare(case.app.name, case.outputs, outputs, "outputs")
    for name, rows in case.state.items():
        compare(case.app.name, rows, loop.state()[name], name)
    assert f"{loop.digest[0]}:{loop.digest[1]:016x}" == case.expected["total"][0]


def test_engine_equals_the_interpreter(case):
    ways = [fields for executor in ENGINE_EXECUTORS for fields in strategies(executor, case.app)]
    for fields in ways[::5]:
        cut = {"punctuation": 70} if case.app.kind == "transaction" else {"batch": 64}
        case.check(RunSpec.parse({"app": case.app.name, "threads": 2, **cut, **fields}), 333)


def read(row, out):
    out.emit(name=row.name, price=row.price + 1, good=None, total=None, number=0)


def test_reading_a_null_fails_everywhere_at_the_same_event():
    app = App("reading")
    app.source(Event).flat_map(read, Answer).sink()
    app.generates(lambda params, seed, start, stop: {})
    table = events(app, 50)
    first = table["price"].to_pylist().index(None)
    for machine in (Interpreter(app, {}), Loop(app, {})):
        with pytest.raises(
            RunFailed, match=rf"^operator read, event {first}: ValueError: .* is null; test it with `is None` first"
        ):
            machine.process(table)
