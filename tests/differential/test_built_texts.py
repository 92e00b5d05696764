"""Built texts and literals as keys, in windows, in transactions and at the end of the stream, in all ways."""

import random

import pyarrow as pa
import pytest

from streaming_core.api import App, i64, record, text, tumbling
from streaming_core.kernels.program import compile_app
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import RunSpec
from tests.differential.case import Case, strategies
from tests.support.draws import some

SEPARATOR = ":"


@record
class Event:
    ts: i64
    a: text
    n: i64


@record
class Word:
    ts: i64
    word: text
    n: i64


@record
class Key:
    word: text
    kind: text


@record
class Count:
    n: i64


@record
class Answer:
    word: text
    n: i64


def spell(row, out):
    """The word of an event depends on texts of the event, literals and numbers."""
    for part in row.a.split():
        out.emit(ts=row.ts, word=part.lower() + SEPARATOR + str(row.n % 3), n=len(part))
    if row.n % 5 == 0:
        out.emit(ts=row.ts, word="five", n=5)


def count(row, state, out):
    state.n += row.n
    out.emit(word="<" + row.word + ">", n=state.n)


def end(state, out):
    out.emit(word="end " + str(state.n), n=int(str(state.n)))


def spelled(row, keys):
    for part in row.a.split(b" "):
        keys.add(word=part.upper() + "!", kind="long" if len(part) > 3 else "short")


def add(row, window, state, out):
    if window.key.kind == "long" and row.a.startswith("q"):
        out.emit(word=window.key.word + row.a[:1], n=0)
    state.n += 1


def result(window, state, out):
    out.emit(word=window.key.kind + "/" + window.key.word.lower() + str(window.end), n=state.n)


def pipeline():
    app = App("pipeline")
    words = app.source(Event).flat_map(spell, Word)
    words.key_by("word").process(count, state=Count, output=Answer, flush=end).sink()
    return app


def windows():
    app = App("windows")
    keyed = app.source(Event).key_by(Key, keys=spelled).window(tumbling(16))
    keyed.apply(add, Count, Answer, result).sink()
    return app


transactions = App("transactions")
people = transactions.table("people", Count, 1000, key=text, lookup="insert")


def is_open(person, event):
    return event.a.lower() != "closed" and person.n < 40


def pay(person, event):
    person.n += len(event.a + "x") if "o" in event.a else 1


@transactions.transaction(Event, Answer)
def visit(request, txn):
    person = txn.row(people, request.a.lower() + "-" + str(request.n % 2))
    txn.require(is_open, person)
    txn.modify(person, pay)
    txn.read(person)


@visit.post
def visited(request, txn, out):
    if txn.accepted:
        out.emit(word="yes " + request.a.upper(), n=txn.result(people, 0).n)
    else:
        out.emit(word="no", n=0)


for app in (APPS := [pipeline(), windows(), transactions]):
    app.generates(lambda params, seed, start, stop: {})


def events(count):
    r = random.Random(3)
    words = ["one", "Two", "three four", "", "closed", "Quick  brown fox", "o" * 70, "Öl"]
    rows = [(seq, seq // 3, r.choice(words).encode(), r.randrange(-9, 9)) for seq in range(count)]
    schema = pa.schema([("seq", pa.int64()), ("ts", pa.int64()), ("a", pa.binary()), ("n", pa.int64())])
    return pa.Table.from_arrays(
        [pa.array(c, f.type) for c, f in zip(zip(*rows, strict=True), schema, strict=True)], schema=schema
    )


@pytest.fixture(scope="module", params=some(APPS), ids=lambda app: app.name)
def case(request):
    app = request.param
    return Case(app, {}, events(900), compile_app(app, {}))


def test_plain_python_spells_the_same(case):
    expected = []
    for row in case.events.tables[0].to_pylist():
        if case.app.name == "pipeline":
            parts = [part.lower() + b":%d" % (row["n"] % 3) for part in row["a"].split()]
            expected += [b"<" + part + b">" for part in parts] + [b"<five>"] * (row["n"] % 5 == 0)
    outputs = case.outputs["word"].to_pylist()
    if expected:
        assert outputs[: len(expected)] == expected
        assert all(
            word == b"end %d" % n
            for word, n in zip(outputs[len(expected) :], case.outputs["n"].to_pylist()[len(expected) :], strict=True)
        )
    else:
        assert {b"no", b"yes ONE", b"long/three!16", b"short/!32"} & set(outputs)


@pytest.mark.slow
def test_loop_equals_the_interpreter(case):
    loop = Loop(case.app, {})
    table = case.events.tables[0]
    outputs = pa.concat_tables(
        [loop.process(table.slice(0, 500)), loop.process(table.slice(500)), loop.finish(table.num_rows)]
    )
    compare(case.app.name, case.outputs, outputs, "outputs")
    for name, rows in case.state.items():
        compare(case.app.name, rows, loop.state()[name], name)


@pytest.mark.parametrize(("threads", "batch", "block"), [(1, 256, 1000), (2, 1, 64), (3, 7, 333)])
def test_engine_equals_the_interpreter(case, threads, batch, block):
    executors = ["transactional"] if case.app.kind == "transaction" else ["pooled", "pinned", "morsel"]
    ways = [fields for executor in executors for fields in strategies(executor, case.app)]
    for fields in ways[threads - 1 :: 5]:
        cut = {"punctuation": batch} if case.app.kind == "transaction" else {"batch": batch}
        case.check(RunSpec.parse({"app": case.app.name, "threads": threads, **cut, **fields}), block)
