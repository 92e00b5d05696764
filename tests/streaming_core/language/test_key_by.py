"""Keys of several fields, and keys that functions compute, against plain Python."""

import itertools
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest

from streaming_core.api import (
    App,
    Array,
    Record,
    agg,
    boolean,
    count_window,
    f64,
    i8,
    i16,
    i64,
    record,
    session,
    sliding,
    text,
    tumbling,
    u32,
)  # fmt: skip
from streaming_core.data.digest import format_digest
from streaming_core.errors import BadInput
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.loop import Loop
from streaming_core.run.way import RunSpec
from tests.differential.case import Case, strategies
from tests.support.draws import some

TEXTS = (
    b"", b"\0", b"\1", b"\0\0", b"\0\xff", b"\1\0", b"\1\1", b"\1\2", b"\2", b"a", b"a\0", b"a\0b",
    b"b" * 17, b"b" * 300,
)  # fmt: skip
EDGES = (-(1 << 63), (1 << 63) - 1, -1, 0, 1)


@record
class Row:
    ts: i64
    a: i64
    b: i8
    c: u32
    p: boolean
    s: text
    t: text
    x: f64
    few: Array[i16, 2]


@record
class Count:
    n: i64
    last: f64


@record
class Counted:
    n: i64
    s: text
    few: Array[i16, 2]


def count(row, state, out):
    state.n += 1
    state.last = row.x
    out.emit(n=state.n, s=row.s, few=row.few)


@record
class Flushed:
    n: i64
    last: f64


def add(row, state, out):
    state.n += row.b
    state.last = row.x


def tell(state, out):
    out.emit(n=state.n, last=state.last)


def half(value):
    return value // 2


def initial(word):
    return word[0:1]


SCALE = 3


def bucket(row):
    return row.b // SCALE


def both(row):
    out = half(row.b)
    if row.p:
        return out, row.s[1:]  # a comment, with (
    elif row.c > 1:
        word = row.t
        return (
            -1,
            word,
        )
    return half(row.b + 1), initial(row.s)


def even(n, word):
    return odd(n - 1, word) if n > 0 else word


def odd(n, word):
    return even(n - 1, word)


def text_of(row):
    if row.p:
        word = row.t
        kept = word
    else:
        kept = row.s
    last = kept
    return last


def short(row): return row.b & 1, row.t  # fmt: skip


def triple(click):
    """A key of three values."""
    kind = click.s
    return (click.p, kind, click.a if click.a < 0 else 0)


def rows(seed, n=60):
    rng = np.random.default_rng(seed)

    def texts():
        return [TEXTS[i] for i in rng.integers(0, rng.integers(2, len(TEXTS) + 1), n)]

    columns = {
        "seq": range(n), "ts": np.cumsum(rng.choice([0, 1, 3, 20], n)) - 50,
        "a": [int(rng.choice(EDGES)) for _ in range(n)], "b": rng.integers(-3, 3, n), "c": rng.integers(0, 3, n),
        "p": rng.integers(0, 2, n).astype(bool), "s": texts(), "t": texts(), "x": rng.integers(0, 9, n) / 4,
        "few": [rng.integers(0, 9, 2).tolist() for _ in range(n)],
    }  # fmt: skip
    schema = Row.resolve({}).arrow(("seq",))
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema)


# The arguments of key_by, the key of a row in plain Python, and whether each of its fields is a text.
KEYS = {
    "integers": (("a", "b"), lambda row: (row["a"], row["b"]), (False, False)),
    "texts": (("s", "t"), lambda row: (row["s"], row["t"]), (True, True)),
    "mixed": (("p", "t", "c"), lambda row: (int(row["p"]), row["t"], row["c"]), (False, True, False)),
    "value": ((bucket,), lambda row: row["b"] // 3, (False,)),
    "pair": (
        (both,),
        lambda row: (
            (row["b"] // 2, row["s"][1:]) if row["p"]
            else (-1, row["t"]) if row["c"] > 1
            else ((row["b"] + 1) // 2, row["s"][:1])
        ),
        (False, True),
    ),
    "variables": ((text_of,), lambda row: row["t"] if row["p"] else row["s"], (True,)),
    "one line": ((short,), lambda row: (row["b"] & 1, row["t"]), (False, True)),
    "lambda": ((lambda row: (row.s[0:2], row.a),), lambda row: (row["s"][:2], row["a"]), (True, False)),
    "triple": ((triple,), lambda row: (int(row["p"]), row["s"], min(row["a"], 0)), (False, True, False)),
}  # fmt: skip


def expected_state(table, key):
    states = {}
    for row in table.to_pylist():
        n, _ = states.get(key(row), (0, None))
        states[key(row)] = n + 1, row["x"]
    return sorted(states.items())


def expected_outputs(table, key):
    counts = Counter()
    for row in table.to_pylist():
        counts[key(row)] += 1
        yield counts[key(row)], row["s"], row["few"]


def check_state(state, table, key, texts):
    names = ["key"] if len(texts) == 1 else [f"key_{number}" for number in range(len(texts))]
    assert state.column_names == [*names, "n", "last"]
    kinds = [pa.binary() if is_text else pa.int64() for is_text in texts]
    assert state.schema.types[: len(names)] == kinds
    rows = [(tuple(row[name] for name in names), (row["n"], row["last"])) for row in state.to_pylist()]
    wanted = expected_state(table, key)
    assert rows == [(key if isinstance(key, tuple) else (key,), values) for key, values in wanted]


@pytest.mark.parametrize(("name", "in_loop"), some([("mixed", False), *((name, True) for name in KEYS)]))
def test_keys_match_plain_python_in_every_executor(name, in_loop):
    arguments, key, texts = KEYS[name]
    app = App("keys")
    app.source(Row).key_by(*arguments).process(count, Count, Counted).sink()
    app.generates(lambda *arguments: {})
    loop, program = Loop(app, app.bind()) if in_loop else None, None
    ways = [way for executor in ("pinned", "pooled", "morsel", "share") for way in ways_of(executor, app)]
    for seed in range(3):
        table = rows(seed)
        case = Case(app, app.bind(), table, program)
        program = case.program
        outputs = [(row["n"], row["s"], row["few"]) for row in case.outputs.to_pylist()]
        assert outputs == list(expected_outputs(table, key))
        check_state(case.state["count"], table, key, texts)
        if loop:
            loop.reset()
            loop.process(table)
            loop.finish(len(table))
            assert format_digest(*loop.digest) == case.expected["total"][0]
            check_state(loop.state()["count"], table, key, texts)
        for way in ways[seed::8]:
            case.check(RunSpec.parse({"app": app.name, "threads": 1 + seed % 3, **way}), (100, 7)[seed % 2])


def ways_of(executor, app):
    try:
        return strategies(executor, app)[::5]
    except KeyError:
        return []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixed", "integers", "pair"])
def test_states_are_flushed_in_the_order_of_their_keys(name):
    arguments, key, _ = KEYS[name]
    app = App("keys")
    app.source(Row).key_by(*arguments).process(add, Count, Flushed, flush=tell).sink()
    app.generates(lambda *arguments: {})
    table = rows(7)
    case = Case(app, app.bind(), table)
    sums = defaultdict(lambda: (0, 0))
    for row in table.to_pylist():
        sums[key(row)] = sums[key(row)][0] + row["b"], row["x"]
    assert [(row["n"], row["last"]) for row in case.outputs.to_pylist()] == [sums[key] for key in sorted(sums)]
    loop = Loop(app, app.bind())
    loop.process(table)
    assert loop.finish(len(table)).equals(case.outputs)
    for executor, threads in (("pinned", 3), ("pooled", 2), ("morsel", 2)):
        case.check(RunSpec.parse({"app": app.name, "executor": executor, "threads": threads}))


def counts_of(table, key, extent):
    """When results leave, their `ts`, the key and the count: of tumbling windows of 10, of sessions, or of two rows."""
    counts, results = {}, []
    for row in table.to_pylist():
        if extent == "session":  # the end of a session is the latest row, plus the gap
            ends = sorted((end, begin, group) for group, (end, begin, _) in counts.items() if end <= row["ts"])
            for end, _, group in ends:
                results.append((row["seq"], end, group, counts.pop(group)[2]))
            _, begin, n = counts.get(key(row), (0, row["seq"], 0))
            counts[key(row)] = row["ts"] + 10, begin, n + 1
        elif extent == "count":
            n = counts[key(row)] = counts.get(key(row), 0) % 2 + 1
            if n == 2:
                results.append((row["seq"], row["ts"], key(row), n))
        else:
            for end, group in sorted(place for place in counts if place[0] <= row["ts"]):
                results.append((row["seq"], end, group, counts.pop((end, group))))
            place = row["ts"] // 10 * 10 + 10, key(row)
            counts[place] = counts.get(place, 0) + 1
    if extent == "session":
        results += [(len(table), end, group, n) for group, (end, _, n) in counts.items()]
    elif extent == "tumbling":
        results += [(len(table), *place, n) for place, n in counts.items()]
    return Counter(results)


@pytest.mark.parametrize("name", ["integers", "mixed", "pair"])
@pytest.mark.parametrize("extent", ["tumbling", "session", "count"])
def test_windows_carry_every_field_of_their_key(name, extent):
    arguments, key, texts = KEYS[name]
    app = App("keys")
    extents = {"tumbling": tumbling(10), "session": session(10), "count": count_window(2)}
    app.source(Row).key_by(*arguments).window(extents[extent]).aggregate(count=agg.count()).sink()
    app.generates(lambda *arguments: {})
    names = arguments if isinstance(arguments[0], str) else tuple(f"key_{i}" for i in range(len(texts)))
    assert tuple(app.outputs.fields) == ("ts", *names, "count")
    for seed in range(10):
        table = rows(seed)
        interpreter = Interpreter(app, app.bind())
        outputs = pa.concat_tables([interpreter.process(table), interpreter.finish(len(table))])
        counted = [
            (row["seq"], row["ts"], tuple(row[field] for field in names), row["count"]) for row in outputs.to_pylist()
        ]
        assert Counter(counted) == counts_of(table, key, extent)
        assert counted
    if (name, extent) == ("mixed", "tumbling"):
        Case(app, app.bind(), table).check(RunSpec.parse({"app": app.name, "executor": "pinned", "threads": 2}), 100)


def test_functions_are_refused_with_the_lines_of_the_user():
    def recursive(row):
        return even(row.b, row.s)

    def mixed(row):
        # The type of the value is that of the helper's argument.
        return (
            0,
            bucket(row) + row.nothing,
        )

    line = mixed.__code__.co_firstlineno + 2
    for function, why in (
        (recursive, "operators do not support recursion; write a loop"),
        (
            mixed,
            f"operator mixed (test_key_by.py:{line}): Row has no field 'nothing'; it has ts, a, b, c, p, s, t, x, few",
        ),
    ):
        app = App("keys")
        app.source(Row).key_by(function).process(count, Count, Counted).sink()
        app.generates(lambda *arguments: {})
        with pytest.raises(BadInput) as refused:
            Interpreter(app, app.bind())
        assert "\n" not in str(refused.value)
        assert why in str(refused.value)


def test_a_function_serves_several_windows():
    app = App("keys")
    source = app.source(Row)
    source.key_by(both).window(tumbling(10)).aggregate(n=agg.count()).sink("count")
    source.key_by(both).window(sliding(10, every=5)).aggregate(n=agg.sum("b")).sink("sum")
    app.generates(lambda *arguments: {})
    assert [operator.name for operator in app.operators[1:5:2]] == ["both", "both_2"]
    app.check()


@record
class Order:
    ts: i64
    shop: i64
    day: text
    price: f64


@record
class Payment:
    ts: i64
    paid_shop: i64
    paid_day: text
    amount: f64


ON = {
    "two": (("shop", "day"), [("shop", "shop"), ("day", "day")]),
    "other": ({"day": "paid_day"}, [("day", "paid_day")]),
    "others": ({"shop": "paid_shop", "day": "paid_day"}, [("shop", "paid_shop"), ("day", "paid_day")]),
}


@pytest.mark.parametrize("band", [None, {"price": ("amount", 1.0)}])
@pytest.mark.parametrize("name", ON)
def test_joins_meet_on_several_fields(name, band):
    on, pairs = ON[name]
    right = Order if name == "two" else Payment
    app = App("pairs")
    second = Record(
        "Second", {{"price": "amount"}.get(field, field): kind for field, kind in right.fields.items()}, None
    )
    app.join(*app.sources(Order, second), on=on, within=20, band=band).sink()
    app.generates(*[lambda *arguments: {}] * 2)
    rng, n = np.random.default_rng(5), 120
    schema = app.event.resolve({}).arrow(("seq",))
    values = {
        "seq": range(n), "ts": np.cumsum(rng.integers(0, 4, n)), "stream": rng.integers(0, 2, n),
        **{field: rng.integers(0, 3, n) for field in ("shop", "paid_shop")},
        **{field: [TEXTS[i] for i in rng.integers(0, 3, n)] for field in ("day", "paid_day")},
        **{field: rng.integers(0, 6, n) / 2 for field in ("price", "amount")},
    }  # fmt: skip
    table = pa.table([pa.array(values[field.name], field.type) for field in schema], schema)
    wanted = Counter()
    for row, other in itertools.product(table.to_pylist(), repeat=2):
        if (row["stream"], other["stream"]) == (0, 1) and abs(row["ts"] - other["ts"]) <= 20:
            is_close = not band or abs(row["price"] - other["amount"]) <= 1.0
            if is_close and all(row[mine] == other[theirs] for mine, theirs in pairs):
                wanted[
                    max(row["seq"], other["seq"]), *(row[mine] for mine, _ in pairs), row["price"], other["amount"]
                ] += 1
    interpreter = Interpreter(app, app.bind())
    outputs = pa.concat_tables([interpreter.process(table), interpreter.finish(n)])
    names = ("seq", *(mine for mine, _ in pairs), "price", "amount")
    assert Counter(tuple(row[field] for field in names) for row in outputs.to_pylist()) == wanted
    assert len(wanted) > 20
    if name == "others" and band:
        Case(app, app.bind(), table).check(RunSpec.parse({"app": app.name, "executor": "pinned", "threads": 2}), 100)


@pytest.mark.parametrize(
    ("on", "why"),
    [
        (("shop", "shop"), "join on ('shop', 'shop'): a field is there twice; name each field once"),
        ({"shop": "shop", "day": "shop"}, "join on ('shop', 'shop'): a field is there twice; name each field once"),
        (("shop", "user"), "join on 'user': record Order"),
        ({"shop": "user"}, "join on 'user': record Order"),
        ({"shop": "day"}, "join on 'shop' and 'day': both streams need a field of the same type"),
        ("price", "join on 'price': a key is an integer or a text; convert it with flat_map"),
        ((), "join: say which rows meet"),
        (["shop"], "join: on must be a text, a tuple, a dict or None, got a list"),
    ],
)
def test_an_invalid_key_of_a_join_is_refused(on, why):
    app = App("pairs")
    orders = app.source(Order)
    with pytest.raises(BadInput) as refused:
        app.join(orders, orders, on=on, within=1)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)
