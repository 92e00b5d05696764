"""Lookup joins against dicts of plain Python."""

import functools
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import App, Array, Param, boolean, f64, i64, record, text, u8
from streaming_core.cluster.task import Prepared, SparkPass
from streaming_core.data import workload
from streaming_core.errors import BadInput
from streaming_core.language.bound import BoundApp
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.oracle.oracle import compare
from streaming_core.run.way import Pinned, Pooled
from tests.differential import shuffle
from tests.differential.case import Case
from tests.differential.streams import SEED

WORDS = [b"", b"a", b"\0", b"\0\0", b"\xff", "ü".encode() * 40, b"x" * 3000, b"x" * 2999]
LOW, HIGH = -(1 << 63), (1 << 63) - 1


@record
class Bid:
    ts: i64
    item: i64
    word: text
    few: Array[u8, 2]


@record
class Item:
    id: i64
    ts: u8
    name: text
    price: f64
    is_hot: boolean


@record
class Word:
    word: text
    meaning: text
    weight: i64


@record
class Nothing:
    id: i64
    nothing: i64


def items(params):
    """Items whose keys have gaps, unless `spread` is 1, and two that are as far apart as possible."""
    r, n = np.random.default_rng(params["seed"]), params["items"]
    keys = np.append(r.permutation(n) * params["spread"] - 7, [LOW, HIGH] if params["spread"] > 1 else [])
    size = len(keys)
    return {
        "id": np.array([int(key) for key in keys], np.int64), "ts": r.integers(0, 256, size),
        "name": [WORDS[i] for i in r.integers(0, len(WORDS), size)],
        "price": r.choice([-0.0, 0.5, np.inf], size), "is_hot": r.random(size) < 0.5,
    }  # fmt: skip


def words(params):
    return {"word": [*WORDS[::2], "é"], "meaning": ["", "second", b"\0", "fourth", "é"], "weight": -3}


def nothing(params):
    return {"id": np.arange(0), "nothing": []}


PARAMS = {"items": Param(20), "spread": Param(3), "seed": Param(SEED)}
CASES = [{"items": 20, "spread": 3}, {"items": 30, "spread": 1}, {"items": 0, "spread": 1}]


def app_of():
    app = App("lookups", params=PARAMS)
    bids, tables = app.source(Bid), [(Item, "id", items), (Word, "word", words), (Nothing, "id", nothing)]
    item, word, none = (app.lookup_table(kind, key=key, rows=rows) for kind, key, rows in tables)
    known = bids.lookup(item, on="item").lookup(word, on="word", how="left")
    known.lookup(none, on="ts", how="left").sink("known")
    worded = bids.lookup(item, on="item", how="left").lookup(word, on="word")
    worded.select("few", "word", "name", "price", "weight").sink("worded")
    app.generates(lambda *arguments: {})
    return app.check()


app = app_of()


def events(number, n):
    r = np.random.default_rng([SEED, number])
    item = np.where(r.random(n) < 0.1, r.choice([LOW, HIGH, LOW + 1, 0], n), r.integers(-12, 60, n))
    word = [[*WORDS, b"second", "é".encode()][i] for i in r.integers(0, len(WORDS) + 2, n)]
    columns = {"seq": range(n), "ts": np.arange(n), "item": item, "word": word, "few": [[i % 256, 1] for i in range(n)]}
    schema = app.event.resolve({}).arrow(("seq",))
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema)


def expected(table, params):
    """The rows of both sinks."""

    def by_key(columns, key):
        size = len(columns[key])
        whole = {name: np.broadcast_to(np.array([*column, None], object)[:-1], size) if isinstance(column, list)
                 else np.broadcast_to(column, size).tolist() for name, column in columns.items()}  # fmt: skip
        rows = [
            {name: value.encode() if isinstance(value := whole[name][i], str) else value for name in whole}
            for i in range(size)
        ]
        return {row.pop(key): row for row in rows}

    item_of, word_of = by_key(items(params), "id"), by_key(words(params), "word")
    known, worded = [], []
    for row in table.to_pylist():
        item, word = item_of.get(row["item"]), word_of.get(row["word"])
        if item:
            known.append((row["seq"], row["few"], item["ts"], item["name"], item["price"], item["is_hot"],
                          word and word["meaning"], word and word["weight"], None))  # fmt: skip
        if word:
            worded.append((row["seq"], item and item["name"], item and item["price"], word["weight"]))
    return known, worded


def produced(outputs):
    names = ("seq", "few", "item_ts", "name", "price", "is_hot", "meaning", "weight", "nothing")
    rows = outputs.to_pylist()
    by_sink = [[row for row in rows if row["sink"] == sink] for sink in range(2)]
    columns = set(rows[0])
    known = [tuple(row[name if name in columns else f"known_{name}"] for name in names) for row in by_sink[0]]
    names = ("seq", "name", "price", "weight")
    return known, [tuple(row[name if name in columns else f"worded_{name}"] for name in names) for row in by_sink[1]]


@pytest.mark.parametrize("params", CASES)
def test_rows_have_the_values_of_their_keys(params):
    params = app.bind({**params, "seed": 5})
    for number in range(5):
        table = events(number, 100)
        oracle = Interpreter(app, params)
        outputs = pa.concat_tables([oracle.process(table), oracle.finish(100)])
        assert produced(outputs) == expected(table, params)


@dataclass(frozen=True)
class Pass(SparkPass):
    """A pass of this application."""

    @property
    def prepared(self):
        return prepared()


@functools.cache
def prepared():
    return Prepared.of(app, app.bind())


@pytest.fixture(scope="module")
def case():
    return Case(app, app.bind(), events(9, 400))


def test_executors_equal_the_interpreter(case):
    for way in ({"threads": 1, "batch": 64}, {"threads": 3, "batch": 7}):
        case.check(Pinned(app=app.name, **way), 100)
        case.check(Pooled(app=app.name, threads=way["threads"]), 100)


@pytest.mark.slow
def test_loop_and_spark_equal_the_interpreter(case, tmp_path):
    [table], params = case.events.tables, app.bind()
    loop = Loop(app, params)
    compare(app.name, case.outputs, pa.concat_tables([loop.process(table), loop.finish(400)]), "outputs")
    workload.write(app, params, 400, 0, tmp_path / "workload", [table])
    pass_ = Pass(app.name, (), str(tmp_path / "workload"), 400, 400, 3, str(tmp_path / "pass"), True)
    shuffle.run(pass_)
    outputs = shuffle.outputs(pass_)
    assert outputs.equals(case.outputs.cast(outputs.schema))


def test_rows_are_part_of_the_parameters():
    first, second = (BoundApp(app, app.bind(case)).constants for case in CASES[:2])
    changed = {table.name for table in first if not np.array_equal(first[table], second[table])}
    assert changed == {f"Item.{field}" for field in Item.fields}


@record
class Odd:
    id: i64
    key: f64
    flag: boolean
    maybe: i64 | None
    few: Array[u8, 2]


@record
class Alone:
    id: i64


@record
class Fields:
    id: u8
    item_name: u8
    name: text


def rows(params):
    return {}


@pytest.mark.parametrize(
    ("declare", "why"),
    [
        (lambda app: app.lookup_table(Item, key="ident", rows=rows),
         "lookup_table Item: key: unknown field 'ident'; known: id, ts, name, price, is_hot"),
        (lambda app: app.lookup_table(Item, key="price", rows=rows),
         "lookup_table Item: key price must be an integer or a text; declare it as i64 or text"),
        (lambda app: app.lookup_table(Item, key="is_hot", rows=rows), "key is_hot must be an integer or a text"),
        (lambda app: app.lookup_table(Odd, key="id", rows=rows),
         "lookup_table Odd: maybe can be null, but its columns have numbers and texts only"),
        (lambda app: app.lookup_table(Alone, "id", rows), "lookup_table Alone: it needs a field beside its key"),
        (lambda app: app.lookup_table(Item, key="id", rows=[]), "lookup_table: rows must be a plain def, got a list"),
        (lambda app: app.source(Bid).lookup(app.lookup_table(Item, "id", rows), on="price"),
         "lookup: on: unknown field 'price'; known: ts, item, word, few"),
        (lambda app: app.source(Bid).lookup(app.lookup_table(Item, "id", rows), on="word"),
         "lookup: on 'word': the key of Item is an integer; convert the field with select"),
        (lambda app: app.source(Bid).lookup(app.lookup_table(Word, "word", rows), on="item"),
         "lookup: on 'item': the key of Word is a text; convert the field with select"),
        (lambda app: app.source(Odd).lookup(app.lookup_table(Item, "id", rows), on="maybe"),
         "lookup: on 'maybe': a key cannot be null; give it a value; convert it with flat_map"),
        (lambda app: app.source(Bid).lookup(app.lookup_table(Item, "id", rows), on="item", how="full"),
         "lookup: unknown how 'full'; known: inner, left"),
        (lambda app: app.source(Fields).lookup(app.lookup_table(Item, "id", rows), on="id"),
         "lookup: two fields of the result are called item_name; rename one"),
        (lambda app: app.source(Bid).lookup(App("other").lookup_table(Item, "id", rows), on="item"),
         "lookup: Item is a table of app other"),
        (lambda app: app.source(Bid).lookup(Item, on="item"), "lookup: table must be"),
    ],
)  # fmt: skip
def test_an_invalid_declaration_is_refused(declare, why):
    with pytest.raises(BadInput) as refused:
        declare(App("shop"))
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "columns", "why"),
    [
        (Word, [], "must return a dict with the columns word, meaning, weight"),
        (Word, {"word": ["a"]}, "must return a dict with the columns word, meaning, weight"),
        (Word, {"word": "a", "meaning": ["b"], "weight": 1}, "word: must return a list of texts, got str"),
        (Word, {"word": ["a", b"a"], "meaning": ["", ""], "weight": 1},
         "word: every row needs a key of its own, but b'a' occurs again"),
        (Word, {"word": ["a"], "meaning": [], "weight": 1},
         "meaning: must have as many values as there are keys, got 0"),
        (Word, {"word": ["a"], "meaning": [""], "weight": [1, 2]}, "weight: "),
        (Nothing, {"id": [1, 7, 7], "nothing": 0}, "id: every row needs a key of its own, but 7 occurs again"),
        (Nothing, {"id": [1.5], "nothing": 0}, "id: must return a 1-D array of integers, got a 1-D float64 array"),
        (Nothing, {"id": 1, "nothing": 0}, "id: must return a 1-D array of integers, got a 0-D int64 array"),
        (Nothing, {"id": [1], "nothing": 0.5}, "nothing: cannot store values of type float64 in a field of type i64"),
        (Nothing, lambda: 1 // 0, "ZeroDivisionError"),
    ],
)  # fmt: skip
def test_invalid_rows_are_refused(kind, columns, why):
    shop = App("shop")

    def rows(params):
        return columns() if callable(columns) else columns

    shop.lookup_table(kind, key=next(iter(kind.fields)), rows=rows)
    shop.source(Bid).filter(lambda row: row.ts > 0).sink()
    with pytest.raises(BadInput) as refused:
        _ = BoundApp(shop, {}).constants
    assert f"app shop: lookup_table {kind.name}: rows (test_lookup.py:" in str(refused.value)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
