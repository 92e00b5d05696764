"""The engine against the interpreter: every application and way of executing, cut in different ways."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming_core import engine, workload
from streaming_core.api import App, Counter, Map, Param, Ring, Set, TopK, boolean, f64, i64, record, text, u8, u32
from streaming_core.api.kernels import compile_app
from streaming_core.apps import registry
from streaming_core.digest import digest_table, format_digest
from streaming_core.errors import RunFailed
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.runspec.spec import EXECUTORS, RunSpec
from streaming_core.state import state_digest

EVENTS = 3000
# The smallest key spaces an application allows: the most conflicts.
SMALL = {
    "gs": {"n_items": 10, "gen_parts": 1},
    "sl": {"n_items": 2, "partitioned": False},
    "wc": {"vocabulary": 5, "skew": 1.2},
    "fd": {"entities": 3, "invalid_ratio": 0.05},
    "sd": {"devices": 2, "window": 7, "invalid_ratio": 0.05},
}
LARGE = {"gs": {"theta": 1.2}, "sl": {"theta": 0.0, "init_balance": 100}, "wc": {}, "fd": {}, "sd": {}}
# Few hot keys, events that name a key twice, invalid events, transactions over all partitions, many rejections.
HOT = {
    "gs": {"theta": 1.2, "n_items": 500, "gen_parts": 7, "mp_ratio": 1.0, "duplicates": True, "invalid_ratio": 0.05},
    "sl": {"theta": 1.2, "n_items": 200, "gen_parts": 7, "duplicates": True, "invalid_ratio": 0.05},
}
KEYS = {"small": SMALL, "large": LARGE, "hot": HOT}


class Events:
    """Tables of events that play the part of a workload."""

    def __init__(self, tables):
        self.tables = tables
        self.rows = sum(t.num_rows for t in tables)

    def blocks(self, size):
        for table in self.tables:
            for at in range(0, table.num_rows, size):
                yield table.slice(at, size)


class Case:
    """A bound application, its compiled program, its events and what the interpreter makes of them."""

    def __init__(self, app, params, table):
        self.app, self.events = app, Events([table])
        self.program = compile_app(app, params)
        oracle = Interpreter(app, params)
        self.outputs = pa.concat_tables([oracle.process(table), oracle.finish(table.num_rows)])
        self.state = oracle.state()
        self.rejected, self.dropped = oracle.rejected, oracle.dropped_invalid
        self.expected = (format_digest(*digest_table(self.outputs, ("seq", "sub"))), state_digest(self.state))

    def check(self, spec, block=1000, **options):
        """Runs one pass and compares outputs, order, final state and counts."""
        sample, state, _ = engine.one_pass(
            spec, self.program, engine.Blocks(self.events, self.program, block), **options
        )
        assert sample.in_order
        assert (sample.digest, state_digest(state)) == self.expected
        assert (sample.rejected, sample.dropped_invalid) == (self.rejected, self.dropped)
        return sample


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    made = {}

    def case(name, kind):
        if (name, kind) not in made:
            app = registry.load(name)
            params = app.bind(KEYS[kind][name])
            events = EVENTS if name != "wc" else EVENTS // 10
            table = workload.generate_chunk(app, params, events, 7, 0, events)
            made[name, kind] = Case(app, params, table)
        return made[name, kind]

    return case


def ways():
    """Every application on every strategy that is a result, and thread counts."""
    found = []
    for name in ("gs", "sl", "wc", "fd", "sd"):
        kind = registry.load(name).kind
        for executor in EXECUTORS.values():
            if kind not in executor.runs:
                continue
            for scheme in executor.axes.get("scheme", (None,)):
                if scheme != "no_lock":
                    found += itertools.product([name], [executor.name], [scheme], [1, 2, 3, 8])
    return found


# Pairwise: each way meets every punctuation interval, batch size, block size and key space over the list.
CUTS = [(1, 1, 997), (7, 7, 1000), (500, 256, 3000), (100_000, 64, 512)]


@pytest.mark.parametrize(("name", "executor", "scheme", "threads"), ways())
def test_every_way_equals_the_interpreter(cases, name, executor, scheme, threads):
    kinds = [kind for kind in KEYS if name in KEYS[kind]]
    for number, (punctuation, batch, block) in enumerate(CUTS):
        kind = kinds[(number + threads) % len(kinds)]
        spec = RunSpec(
            app=name, executor=executor, scheme=scheme, threads=threads, punctuation=punctuation, batch=batch
        )
        cases(name, kind).check(spec, block)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "executor", "scheme", "threads"), ways())
@pytest.mark.parametrize("kind", list(KEYS))
@pytest.mark.parametrize("idle", ["spin", "yield", "park"])
def test_every_way_in_full(cases, name, executor, scheme, threads, kind, idle):
    if name not in KEYS[kind]:
        pytest.skip("this application has no such keys")
    for punctuation, batch, block in itertools.product((1, 7, 500, 100_000), (1, 7, 256), (512, 3000)):
        spec = RunSpec(
            app=name,
            executor=executor,
            scheme=scheme,
            threads=threads,
            punctuation=punctuation,
            batch=batch,
            idle=idle,
        )
        cases(name, kind).check(spec, block)


@pytest.mark.parametrize("idle", ["spin", "yield", "park"])
@pytest.mark.parametrize(("name", "executor"), [("sl", "transactional"), ("fd", "pooled")])
def test_idle_strategies_and_pinning_change_nothing(cases, name, executor, idle):
    spec = RunSpec(app=name, executor=executor, threads=2, idle=idle, pin=True)
    cases(name, "small").check(spec)


@pytest.mark.parametrize(("name", "executor"), [("sl", "transactional"), ("wc", "pooled")])
def test_an_open_loop_source_changes_times_only(cases, name, executor):
    case = cases(name, "small")
    sample = case.check(RunSpec(app=name, executor=executor, threads=2), rate=100_000.0)
    assert sample.end_to_end is not None
    assert sample.end_to_end.p50 <= sample.end_to_end.p99 <= sample.end_to_end.max
    # The last event arrives at (n - 1) / rate: no clock can be faster.
    assert sample.seconds >= (case.events.rows - 1) / 100_000.0


@pytest.mark.parametrize("name", ["gs", "sl", "wc", "fd", "sd"])
def test_parquet_holds_the_interpreters_rows_in_order(cases, name, tmp_path):
    case = cases(name, "large")
    executor = "transactional" if case.app.kind == "transaction" else "pooled"
    case.check(RunSpec(app=name, executor=executor, threads=2), sink="parquet", folder=tmp_path)
    written = pa.concat_tables([pq.read_table(p) for p in sorted((tmp_path / "outputs").glob("*.parquet"))])
    assert written.equals(case.outputs)
    for table, expected in case.state.items():
        assert pq.read_table(tmp_path / "state" / f"{table}.parquet").equals(expected)


def test_a_bound_is_memory_safe_and_counts_every_event(cases):
    case = cases("sl", "small")
    for threads in (1, 2, 8):
        spec = RunSpec(app="sl", executor="transactional", scheme="no_lock", threads=threads)
        sample, _, _ = engine.one_pass(spec, case.program, engine.Blocks(case.events, case.program, 1000))
        assert sample.outputs == case.events.rows


# --- applications of the tests' own ---------------------------------------------------------------------------------


@record
class Event:
    ts: i64
    key: i64
    value: i64
    line: text


@record
class Memory:
    seen: Set[i64]
    last: Ring[i64, 3]
    counts: Counter[u8]
    halves: Map[i64, f64]
    best: TopK[3]
    total: i64


@record
class Out:
    key: i64
    total: i64
    half: f64
    flag: boolean


@record
class Total:
    n: i64
    total: i64


def spread(row, out):
    for i in range(row.value % 5):
        out.emit(key=row.key + i % 2, total=row.value * (i + 1), half=float(row.value) / 4, flag=i == 2)


def remember(row, state, out):
    new = state.seen.add(row.total)
    state.last.append(row.total)
    state.counts.add(row.total & 255, 1)
    state.halves.put(row.total % 7, row.half + state.halves.get(row.total % 7, 0.0))
    state.best.offer(row.total % 11, state.counts.get(row.total & 255))
    state.total += row.total
    for i in range(len(state.last)):
        if state.last[i] % 2 == 0:
            out.emit(key=row.key, total=state.total, half=state.halves.value_at(0), flag=new)


def last_words(state, out):
    for i in range(len(state.best)):
        out.emit(key=state.best.key_at(i), total=state.best.score_at(i), half=0.5, flag=False)


def add_up(row, state, out):
    state.n += 1
    state.total = state.total * 31 + row.total
    if row.flag or state.n % 3 == 0:
        out.emit(key=state.n, total=state.total, half=row.half, flag=row.flag)


def conclude(state, out):
    out.emit(key=state.n, total=state.total, half=1.0, flag=True)


def chain():
    app = App("chain")
    stream = app.source(Event).flat_map(spread, Out)
    stream = stream.key_by("key").process(remember, state=Memory, output=Out, flush=last_words)
    stream.process(add_up, state=Total, output=Out, flush=conclude).sink()
    app.generates(lambda *arguments: {})
    return app


def event_table(values, keys=None):
    n = len(values)
    columns = [np.arange(n), np.arange(n), keys if keys is not None else np.zeros(n, np.int64), values]
    lines = pa.array([b"x" * (int(v) % 3) for v in values], pa.binary())
    arrays = [pa.array(c, pa.int64()) for c in columns] + [lines]
    schema = Event.resolve({}).arrow(("seq",))
    return pa.Table.from_arrays(arrays, schema=schema)


@record
class Order:
    ts: i64
    kind: u8
    buyer: u32
    other: u32
    item: u32
    amount: i64


@record
class Wallet:
    money: i64


@record
class Item:
    price: i64
    sold: i64
    buyers: Set[i64]


@record
class Receipt:
    kind: u8
    ok: boolean
    first: i64
    second: i64
    price: i64
    sold: i64


def affordable(wallet, item, order):
    return wallet.money > item.price * order.amount


def richer(wallet, other, order):
    return wallet.money > other.money + order.amount


def solvent(wallet, order):
    return wallet.money > order.amount


def pay(wallet, order):
    wallet.money -= order.amount


def earn(wallet, order):
    wallet.money += order.amount


def sell(item, order):
    item.price += 1
    if item.buyers.add(order.buyer):
        item.sold += 1


# Conditions on one row, over rows of one table and of two, some of which the event writes and some it only reads.
shop = App("shop", params={"wallets": Param(2), "items": Param(1)})
wallets = shop.table("wallets", Wallet, "wallets", lambda key, params: {"money": 40 + key})
stock = shop.table("stock", Item, "items", lambda key, params: {"price": 1 + key})
shop.generates(lambda *arguments: {})


@shop.transaction(input=Order, output=Receipt)
def trade(order, txn):
    if order.kind > 4:
        txn.drop()
        return
    buyer = txn.row(wallets, order.buyer)
    other = txn.row(wallets, order.other)
    item = txn.row(stock, order.item)
    if order.kind == 0:
        txn.require(affordable, buyer, item)
    elif order.kind == 1:
        txn.require(affordable, buyer, item)
        txn.modify(buyer, pay)
        txn.modify(item, sell)
    elif order.kind == 2:
        txn.require(richer, buyer, other)
        txn.require(solvent, buyer)
        txn.modify(other, earn)
    elif order.kind == 3:
        txn.require(affordable, other, item)
        txn.modify(buyer, earn)
    else:
        txn.require(solvent, other)
        txn.require(richer, other, buyer)
        txn.modify(other, pay)
        txn.modify(buyer, earn)
    txn.read(buyer)
    txn.read(other)
    txn.read(item)


@trade.post
def receipt(order, txn, out):
    out.emit(
        kind=order.kind,
        ok=txn.accepted,
        first=txn.result(wallets, 0).money,
        second=txn.result(wallets, 1).money,
        price=txn.result(stock, 2).price,
        sold=txn.result(stock, 2).sold,
    )


@pytest.mark.parametrize(("purses", "items"), [(2, 1), (40, 9)])
def test_conditions_over_rows_that_are_written_or_only_read(purses, items):
    random, n = np.random.default_rng(11), 3000
    drawn = {
        "ts": np.arange(n),
        "kind": random.integers(0, 6, n),
        "buyer": random.integers(0, purses, n),
        "other": random.integers(0, purses, n),
        "item": random.integers(0, items, n),
        "amount": random.integers(0, 9, n),
    }
    schema = Order.resolve({}).arrow(("seq",))
    columns = [np.arange(n) if name == "seq" else drawn[name] for name in schema.names]
    table = pa.Table.from_arrays([pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)], schema=schema)
    case = Case(shop, shop.bind({"wallets": purses, "items": items}), table)
    assert 0 < case.rejected < n - case.dropped
    schemes = [scheme for scheme in EXECUTORS["transactional"].axes["scheme"] if scheme != "no_lock"]
    for scheme, threads, batch in itertools.product(schemes, (1, 2, 3, 8), (7, 256)):
        spec = RunSpec(
            app="shop", executor="transactional", scheme=scheme, threads=threads, punctuation=batch, batch=batch
        )
        case.check(spec, block=1700)


@pytest.mark.parametrize("keys", [1, 50])
def test_containers_fan_out_and_flushes_of_a_chain(keys):
    random = np.random.default_rng(5)
    table = event_table(random.integers(0, 1000, 2000), random.integers(0, keys, 2000))
    case = Case(chain(), {}, table)
    for threads, batch in itertools.product((1, 2, 3, 8), (1, 7, 256)):
        case.check(RunSpec(app="chain", executor="pooled", threads=threads, batch=batch), block=700)


def divides(row, state, out):
    state.total += 100 // row.value
    out.emit(key=row.key, total=state.total, half=0.0, flag=True)


def failing():
    app = App("failing")
    app.source(Event).key_by("key").process(divides, state=Total, output=Out).sink()
    app.generates(lambda *arguments: {})
    return app


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_an_operator_that_fails_names_itself_the_event_and_the_reason(threads):
    values = np.ones(1000, np.int64)
    values[[640, 900]] = 0
    app = failing()
    program = compile_app(app, {})
    blocks = engine.Blocks(Events([event_table(values, np.arange(1000) % 7)]), program, 1000)
    with pytest.raises(RunFailed) as failed:
        engine.one_pass(RunSpec(app="failing", executor="pooled", threads=threads), program, blocks)
    message = str(failed.value)
    assert "operator divides failed at event 640" in message
    assert "ZeroDivisionError: integer division by zero" in message


def test_memory_does_not_grow_with_the_number_of_events(cases):
    """Ten times the events through the same blocks: what the process holds stays within a few blocks."""
    import resource

    case = cases("fd", "large")
    spec = RunSpec(app="fd", executor="pooled", threads=2)
    table = case.events.tables[0]

    def peak(times):
        repeated = Events([table] * times)
        engine.one_pass(spec, case.program, engine.Blocks(repeated, case.program, 1000, keep=0))
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    small = peak(20)
    assert peak(200) - small < 20 * 1024  # KiB
