"""Tables whose rows have keys of their own: every lookup, every type of key, in every way of executing."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest

from streaming_core import _runtime
from streaming_core.api import App, Counter, Map, Param, boolean, i8, i16, i32, i64, record, text, u8, u16, u32
from streaming_core.data.rows import encode
from streaming_core.errors import BadInput, RunFailed
from streaming_core.kernels.program import compile_app
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run import one_pass
from streaming_core.run.blocks import Blocks
from streaming_core.run.one_pass import final_state, load_tables
from streaming_core.run.way import RunSpec
from tests.differential.case import Case, Events, images_of, resume
from tests.support.draws import some

LOW, HIGH = -(1 << 63), (1 << 63) - 1
NUMBERS = [LOW, LOW + 1, -(1 << 32), -1, 0, 1, 7, 1 << 31, 1 << 32, HIGH]
# Around the lengths at which a key is kept in another way; one is the start of another; one differs in its zeros.
NAMES = [b"", b"\0", b"\0\0", b"a", b"ab", b"a" * 8, b"a" * 16, b"a" * 17, b"a" * 18, b"b" + b"a" * 17, b"long" * 2000]


@record
class Order:
    source: i64
    target: i64
    name: text
    amount: i64


@record
class Account:
    balance: i64
    moves: u32


@record
class Holder:
    total: i64
    counts: Counter[i64]
    last: Map[i64, i64]


@record
class Seen:
    ok: boolean
    balance: i64
    total: i64


ledger = App(
    "ledger",
    params={
        "size": Param(len(NUMBERS)),
        "names": Param(len(NAMES)),
        "numbers": Param("hash", choices=("hash", "insert")),
        "texts": Param("insert", choices=("hash", "insert")),
    },
)
p = ledger.params
accounts = ledger.table(
    "accounts", Account, "size", lambda key, params: {"balance": 500 if key is None else 1000 * key}, key=i64,
    lookup="numbers", keys=None,
)  # fmt: skip
fixed = ledger.table(
    "fixed", Account, len(NUMBERS), lambda key, params: {"balance": key // 4}, key=i64,
    keys=lambda params: NUMBERS[::-1],
)  # fmt: skip
holders = ledger.table("holders", Holder, "names", lambda key, params: {"total": 3}, key=text, lookup="insert")
listed = ledger.table(
    "listed", Holder, len(NAMES), lambda key, params: {"total": [len(name) for name in key]}, key=text,
    keys=lambda params: NAMES,
)  # fmt: skip
ledger.generates(lambda *arguments: {})


def covered(account, order):
    return account.balance >= order.amount


def covered_by_both(account, holder, order):
    return account.balance + holder.total >= order.amount


def take(account, order):
    account.balance -= order.amount
    account.moves += 1


def put(account, other, order):
    account.balance += order.amount + other.balance % 3
    account.moves += 1


def note(holder, order):
    holder.total += order.amount
    holder.counts.add(order.amount % 5, 1)
    holder.last.put(order.amount % 3, order.source)


@ledger.transaction(input=Order, output=Seen)
def move(order, txn):
    holder = txn.row(holders, order.name)
    if order.amount % 11 == 3:
        txn.drop()
        return
    source = txn.row(accounts, order.source & 7)
    target = txn.row(fixed, order.target)
    if order.amount % 7 == 1:  # a prefix of the name, which exists as a name because of this alone
        holder = txn.row(holders, order.name[0:3])
    txn.require(covered, source)
    txn.require(covered_by_both, target, holder)
    txn.modify(source, take)
    txn.modify(target, put, source)
    txn.modify(txn.row(listed, order.name), note)
    txn.modify(holder, note)
    txn.read(source)
    txn.read(holder)


@move.post
def tell(order, txn, out):
    out.emit(ok=txn.accepted, balance=txn.result(accounts, 0).balance, total=txn.result(holders, 1).total)


def orders(count, seed=1):
    r = np.random.default_rng(seed)
    names = [NAMES[i] for i in r.integers(len(NAMES), size=count)]
    columns = {
        "seq": pa.array(np.arange(count)),
        "source": pa.array(r.integers(LOW, HIGH, count)),
        "target": pa.array(r.choice(NUMBERS, count)),
        "name": pa.array(names, pa.binary()),
        "amount": pa.array(r.integers(0, 60, count)),
    }
    return pa.table(columns, schema=Order.resolve({}).arrow(("seq",)))


LOOKUPS = {lookup: ledger.bind({"numbers": lookup, "names": 2 * len(NAMES)}) for lookup in ("hash", "insert")}


@pytest.fixture(scope="module")
def cases():
    return {lookup: Case(ledger, params, orders(2000)) for lookup, params in LOOKUPS.items()}


def test_row_exists_once_an_event_names_it():
    """Also if the event is dropped or rejected afterwards, and whether or not anything changes the row."""
    columns = {
        "target": pa.array([1] * 5),
        "name": pa.array([b"dropped", b"", b"a", b"a", b"a"], pa.binary()),
        "amount": pa.array([3, 14, 1000, 0, 0]),  # dropped, dropped, rejected, accepted, accepted
    }
    events = orders(5)
    for name, column in columns.items():
        events = events.set_column(events.schema.get_field_index(name), events.schema.field(name), column)
    case = Case(ledger, LOOKUPS["insert"], events)
    case.check(RunSpec.parse({"app": "ledger", "executor": "transactional", "threads": 2, "scheme": "owners"}))
    assert case.state["holders"]["key"].to_pylist() == [b"", b"a", b"dropped"]
    assert (case.rejected, case.dropped) == (1, 2)
    untouched = case.state["holders"].to_pylist()[2]
    assert (untouched["total"], untouched["counts"]) == (3, [])


@pytest.mark.parametrize(
    ("changed", "key", "error"),
    [
        ({"numbers": "insert", "size": 3}, None, "OverflowError"),
        ({"numbers": "insert", "names": 4}, None, "OverflowError"),
        ({"numbers": "hash", "size": 4}, None, "KeyError"),
        ({}, 12345, "KeyError"),
    ],
)
@pytest.mark.slow
def test_key_without_a_row_fails_on_every_machine(changed, key, error):
    params = ledger.bind({"names": 2 * len(NAMES), **changed})
    events = orders(300)
    if key is not None:
        events = events.set_column(2, "target", pa.array([key] * 300))
    program = compile_app(ledger, params)
    for attempt in (Interpreter(ledger, params), Loop(ledger, params)):
        with pytest.raises(
            RunFailed, match=rf"operator move, event \d+: {error}: .*table.*\(test_keyed_tables.py:\d+\)"
        ):
            attempt.process(events)
    for scheme in ("serial", "owners", "tstream", "pat", "mvlk", "lock"):
        spec = RunSpec.parse({"app": "ledger", "executor": "transactional", "threads": 2, "scheme": scheme})
        with pytest.raises(RunFailed, match=rf"operator move failed at event \d+: {error}: .*table"):
            one_pass.run(spec, program, Blocks(Events([events]), program, 100))


@pytest.mark.parametrize("lookup", some(LOOKUPS))
@pytest.mark.slow
def test_run_continues_from_an_image_by_another_scheme(lookup, cases):
    case = cases[lookup]
    rows, content, _ = encode(case.events.tables[0], case.program.bound.event)
    images, standing, ends = None, None, (0, 700, 701, 2000)
    for scheme, threads, begin, end in zip(("owners", "serial", "tstream"), (3, 1, 2), ends, ends[1:], strict=False):
        options = {"executor": "transactional", "scheme": scheme, "threads": threads, "punctuation": 50}
        running = _runtime.Engine(case.program.json(), json.dumps(options))
        if images is None:
            load_tables(running, case.program)
        else:
            resume(running, case.program, standing, images)
            assert (running.standing(), images_of(running)) == (standing, images)
        running.process(rows[begin:end].view(np.uint8), end - begin, content)
        standing, images = running.standing(), images_of(running)
        state = final_state(running, case.program)
        running.stop()
    for name, table in case.state.items():
        compare("ledger", table, state[name], name)


@pytest.mark.parametrize("kind", some([i8, i64, u32, i16, i32, u8, u16]), ids=lambda kind: kind.name)
@pytest.mark.slow
def test_integer_keys_of_every_width_have_their_whole_range(kind):
    app, low, high = App("widths"), *kind.bounds
    keys = sorted({low, low + 1, high - 1, high, 0, 5})
    known = app.table("known", Account, len(keys), key=kind, keys=lambda params: keys)
    new = app.table("new", Account, 10, key=kind, lookup="insert")

    @app.transaction(input=Order, output=Seen)
    def count(order, txn):
        if order.amount > 0:
            txn.modify(txn.row(known, order.source), add)
        txn.modify(txn.row(new, order.source), add)

    @count.post
    def after(order, txn, out):
        out.emit(ok=txn.accepted, balance=0, total=0)

    app.generates(lambda *arguments: {})
    events = orders(50)
    drawn = np.random.default_rng(3).choice(keys, 50)
    events = events.set_column(1, "source", pa.array(drawn)).set_column(4, "amount", pa.array([1] * 50))
    case = Case(app, {}, events)
    case.check(RunSpec.parse({"app": "widths", "executor": "transactional", "threads": 2}))
    assert case.state["known"]["key"].to_pylist() == keys
    assert case.state["new"]["key"].to_pylist() == sorted(set(drawn.tolist()))
    if kind == i64:
        return
    for beyond in (low - 1, high + 1):
        events = orders(1).set_column(1, "source", pa.array([beyond])).set_column(4, "amount", pa.array([0]))
        for attempt in (Interpreter(app, {}), Loop(app, {})):
            with pytest.raises(RunFailed, match="event 0: OverflowError"):
                attempt.process(events)
        spec = RunSpec.parse({"app": "widths", "executor": "transactional"})
        with pytest.raises(RunFailed, match=rf"event 0: OverflowError: table new: the key does not fit {kind.name}"):
            one_pass.run(spec, case.program, Blocks(Events([events]), case.program, 100))


def add(account, order):
    account.balance += order.amount


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"key": None, "lookup": "hash"}, "lookup hash needs the type of the keys; write key=u32, for example"),
        ({"key": boolean}, "a key is an integer or a text, not boolean"),
        ({"key": int}, "table: key must be a type such as u32, text or None, got int"),
        ({"key": i64, "lookup": "tree"}, "lookup must be one of dense, hash, insert, or the name of a parameter, got"),
        ({"key": i64, "lookup": "insert", "keys": lambda params: []}, "keys must be a function, and goes only with"),
        ({"key": i64, "keys": [1]}, "table: keys must be a plain def or None, got a list"),
        ({"key": text}, "texts are no numbers of rows; add keys=function, or use lookup insert"),
        ({"key": text, "lookup": "dense"}, "texts are no numbers of rows; add keys=function, or use lookup insert"),
    ],
)
def test_contradictory_declaration_is_refused(declared, reason):
    with pytest.raises(BadInput, match=re.escape(reason)) as refused:
        App("wrong").table("table", Account, 3, **declared)
    assert "\n" not in str(refused.value)


def raises(params):
    return [1 // (len(params) - 1)]


@pytest.mark.parametrize(
    ("declared", "params", "reason"),
    [
        ({"keys": lambda params: [1, 2]}, {},
         r"keys \(.*py:\d+\): must return as many keys as the table has rows, 3, got"),
        ({"keys": lambda params: [1, 2, 1]}, {}, r"keys \(.*py:\d+\): must return every key once; 1 of 3 occur again"),
        ({"keys": lambda params: [1, 2, 300]}, {},
         r"keys \(.*py:\d+\): must be 0 to 255 \(u8\), got 300|between 0 and 255"),
        ({"keys": lambda params: [1.0, 2, 3]}, {},
         r"keys \(.*py:\d+\): must return a 1-D array of integers, got a 1-D"),
        ({"keys": lambda params: ["a"]}, {}, r"keys \(.*py:\d+\): must return a 1-D array of integers"),
        ({"keys": raises}, {}, r"keys \(.*py:\d+\): ZeroDivisionError"),
        ({"key": text, "keys": lambda params: [1, 2, 3]}, {},
         r"keys \(.*py:\d+\): must return a list of texts, got list"),
        ({"keys": lambda params: [1, 2, 3], "lookup": "how"}, {"how": "insert"},
         r"keys goes only with lookup hash, got"),
        ({"lookup": "how"}, {"how": "tree"}, r"\(.*py:\d+\): parameter how must be one of dense, hash, insert, got"),
        ({"key": text, "lookup": "how"}, {"how": "dense"}, r"texts are no numbers of rows"),
        ({"lookup": "insert", "init": lambda key, params: {"balance": key}}, {}, r"init \(.*py:\d+\): balance: cannot"),
        ({"lookup": "insert", "init": lambda key, params: {"balance": [1, 2]}}, {}, r"init \(.*py:\d+\): balance: "),
    ],
)  # fmt: skip
def test_mismatched_table_access_is_refused_with_file_and_line(declared, params, reason):
    app = App("unfit", params={"how": Param("hash")})
    app.table("table", Account, 3, **{"key": u8, **declared})

    @app.transaction(input=Order, output=Seen)
    def nothing(order, txn):
        pass

    @nothing.post
    def after(order, txn, out):
        out.emit(ok=txn.accepted, balance=0, total=0)

    app.generates(lambda *arguments: {})
    for attempt in (compile_app, Interpreter, Loop):
        with pytest.raises(BadInput, match=rf"app unfit: table table.*{reason}") as refused:
            attempt(app, app.bind(params))
        assert "\n" not in str(refused.value)
