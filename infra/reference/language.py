"""The page of the operator language, from streaming_core/language."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields as dataclass_fields

from infra.reference.markdown import block, bullets, code, next_pages, paragraph, table
from infra.reference.markdown import page as whole_page
from streaming_core.language import record, tables, window
from streaming_core.language.aggregation import WindowedStream
from streaming_core.language.application import App, Transaction
from streaming_core.language.record import CONTAINERS, Counter, Map, Queue, Ring, Scalar, Set, TopK
from streaming_core.language.sources import MOST as MOST_SOURCES
from streaming_core.language.stream import KeyedStream, Stream
from streaming_core.language.typed.program import MOST_SCRATCH, MOST_TABLES
from streaming_core.language.typed.reader import MOST_ROWS
from streaming_core.language.windowed import KeyedWindows, Windows

SCALARS = [value for value in vars(record).values() if isinstance(value, Scalar)]
# What each container holds, and what its expressions and methods do.
EFFECTS: dict[type, tuple[str, dict[str, str]]] = {
    Ring: (
        "The last `capacity` values. A full ring drops its oldest value when it gets a new one.",
        {
            "ring[i]": "the value at `i`; 0 is the oldest",
            "append(x)": "adds a value",
        },
    ),
    Set: (
        "Distinct integers, in the order of their insertion.",
        {
            "x in s": "whether the set has the integer",
            "add(x)": "adds an integer; true if it is new",
            "at(i)": "the integer at position `i`",
        },
    ),
    Map: (
        "Integer keys with scalar values, in the order of their insertion.",
        {
            "k in m": "whether the map has the key",
            "get(k, default)": "the value of the key, or the default",
            "put(k, v)": "sets the value of a key",
            "key_at(i)": "the key at position `i`",
            "value_at(i)": "the value at position `i`",
        },
    ),
    Counter: (
        "Integer keys with counts, in the order of their insertion.",
        {
            "add(k, n)": "adds `n` to the count of a key; the new count",
            "get(k)": "the count of the key; 0 if it is absent",
            "key_at(i)": "the key at position `i`",
            "value_at(i)": "the count at position `i`",
        },
    ),
    TopK: (
        "The `capacity` keys with the highest scores, highest first. Among equal scores, the smaller key comes first.",
        {
            "offer(key, score)": "adds a key, or replaces its score",
            "key_at(i)": "the key at rank `i`, from 0",
            "score_at(i)": "the score at rank `i`",
        },
    ),
    Queue: (
        "Rows of a record of scalars, oldest first. Its memory is bounded by the most rows that it has held.",
        {
            "queue[i].field": "a field of the row at `i`; 0 is the oldest. It cannot be assigned",
            "append(field=value, ...)": "adds a row; every field needs a value",
            "popleft()": "removes the oldest row; an error if there is none",
        },
    ),
}
# A call of a declaration -> what it declares.
DECLARATIONS: dict[type, tuple[str, dict[str, str]]] = {
    App: (
        "app",
        {
            "source": "The only input stream.",
            "sources": "Several input streams, one for each record. Each record has an integer field `ts`. Rows are "
            "ordered by `ts`, then by stream. With `delay`, `ts` of a stream may go back.",
            "table": "A shared table for transactions. `init(keys, params)` returns its first values as NumPy columns. "
            "Without `key`, it has the keys 0 to `size` - 1. With `key`, an integer type or `text`, it has a hash "
            "index.",
            "constant": "A decorator. The function returns a read-only array for the operators.",
            "transaction": "A decorator. The function `fn(request, txn)` declares the transaction of one event.",
            "window": "Windows over event time, on one or several streams. Continue with `key_by` and `apply`.",
            "join": "The pairs of rows of two streams with the same key, whose `ts` differ by at most `within`.",
            "generates": "A decorator. The function `fn(params, seed, start, stop)` returns the events `start` to "
            "`stop` - 1 as columns.",
            "invariant": "An SQL query over `events`, `outputs` and `state_TABLE` that selects the rows that break the "
            "invariant. Write `:name` for a parameter.",
            "inherit_invariants": "Invariants of another application with the same events and outputs. Without names: "
            "all of them, which also needs the same states.",
            "agrees_unordered": "The output columns and final states that do not depend on the order of events.",
        },
    ),
    Transaction: ("transaction", {"post": "A decorator. The function `fn(request, txn, out)` emits the outputs."}),
    Stream: (
        "stream",
        {
            "flat_map": "A stateless operator `fn(row, out)`. With `scratch`, `fn(row, scratch, out)`.",
            "process": "A stateful operator `fn(row, state, out)`, with one state for all events.",
            "key_by": "The stream with a key: an integer or text field.",
            "window": "Windows on this stream. Continue with `key_by` and `apply`.",
            "union": "This stream and others of the same record, as one stream.",
            "sink": "An end of the pipeline. Rows that arrive here are outputs. With several sinks, the column `sink` "
            "numbers them from 0.",
        },
    ),
    Windows: (
        "app.window(...)",
        {
            "key_by": "The keys of a row. `key_by(field)`: the value of a field. `key_by(Record, keys=fn)`: each key "
            "that `fn(row, keys)` adds with `keys.add(field=...)`. `key_by(every=n)`: 0 to n - 1 for every row. With "
            "`multiplicity` `bag`, a key that a row adds twice counts twice.",
        },
    ),
    KeyedWindows: (
        "app.window(...).key_by(...)",
        {
            "apply": "The operator. `update(row, window, state, out)` runs for each row, and "
            "`result(window, state, out)` at the end of the window. `slide(window, state)` runs when a window of kind "
            "`single` has advanced. With several streams, `update` and `state` are tuples, and functions take all "
            "states.",
        },
    ),
    KeyedStream: (
        "stream.key_by(key)",
        {
            "process": "A partitioned operator `fn(row, state, out)`, with one state for each key.",
            "window": "The windows of each key. `tumbling(size)`: one after the other. `sliding(size, every)`: they "
            "overlap. `session(gap)`: a window ends when the key has had no row for the gap. `count_window(rows)`: a "
            "window has this number of rows. A size is a number of units of `ts`, a duration such as "
            '`"1h30m"`, or the name of a parameter. `App(..., time=...)` sets the unit; the default is `ms`. With '
            "`early=n`, results so far also leave after every n rows of a key and window. With `lateness`, windows "
            "take late rows for so long, and each of them makes the result leave again.",
        },
    ),
    WindowedStream: (
        "stream.key_by(key).window(extent)",
        {
            "count": "The number of rows of each key and window. All these aggregates emit the end of the window as "
            "`ts`, the key, and the result. Count windows emit the `ts` of their last row. A count window that lacks "
            "rows at the end of the stream emits nothing.",
            "sum": "The sum of a field.",
            "min": "The smallest value of a field.",
            "max": "The largest value of a field.",
            "top_k": "The `k` most frequent values of an integer field: `rank`, `value` and `count`.",
            "aggregate": "An aggregate of your own: `update(row, window, state, out)` for each row, and "
            "`result(window, state, out)` at the end of the window. In a count window, `update(row, state, out)` and "
            "`result(row, state, out)`, with the last row.",
            "late": "The rows that came after all of their windows had expired.",
        },
    ),
}
# Where a field of a type may be declared.
PLACES = (
    ("event, output", "scalars, `text`, `Array`"),
    ("state of an operator or a window", "scalars, `Array`, all containers"),
    ("row of a table", "scalars, `Array`, all containers except `Queue`"),
    ("scratch of a stateless operator", "scalars, `Array`, `Ring`"),
    ("key of an operator", "one integer or `text` field; several with `app.window(...).key_by(Record, keys=function)`"),
)
# How `txn.row(table, key)` finds a row: `lookup`, the rows that exist, and a key without a row.
KEYS_OF_TABLES = (
    ("`dense`", "0 to `size` - 1; the key is the number of the row", "`IndexError`"),
    ("`hash`", "the `size` keys that `keys(params)` returns; default 0 to `size` - 1", "`KeyError`"),
    ("`insert`", "every key that an event has named", "gets a row; `OverflowError` beyond `size` rows"),
)
STATEMENTS = (
    ("assignment", "`x = 1`, `x += 1`, `state.n = 1`, `state.items[i] = 1`"),
    ("branch", "`if`, `elif`, `else`, `x if c else y`"),
    ("loop", "`while`, `for i in range(...)`, `break`, `continue`"),
    ("end of a function", "`return`, `pass`"),
    ("call", "functions of the same file, which take positional arguments and do not call themselves"),
)
EXPRESSIONS = (
    ("arithmetic", "`+ - * / // %`"),
    ("bits", "`& | ^ ~ << >>`"),
    ("logic", "`and or not`, `== != < <= > >=`, `in`"),
    ("functions", "`len min max abs int float bool`, and `burn(value, rounds)` for artificial work"),
    ("text", "`len(t)`, `t[i]` (a byte), `t[a:b]`, `t.find(byte, start)`, `==`, `!=`"),
    ("array", "`len(a)`, `a[i]`"),
    ("event", "`row.seq`, the number of the event"),
    ("output", "`out.emit(field=value, ...)`, `out.drop()`"),
    ("window", "`window.start`, `window.end`, `window.key`"),
    ("transaction", "`txn.row`, `txn.require`, `txn.modify`, `txn.read`, `txn.drop`, `txn.accepted`, `txn.result`"),
    ("names", "`app.params.NAME`, and the numbers, constants, tables and functions of the file"),
)
SEMANTICS = (
    "Integers have 64 bits and wrap around. Floats are IEEE doubles. There is one NaN.",
    "A store into a narrower field that would lose bits is an error of the event's operator.",
    "A division by zero, a shift out of range and an index out of range are errors too.",
    "A variable has one type in a function, and a value before every use.",
    "A field of a state, a table or scratch starts as zero or empty.",
    "The containers `Set`, `Map`, `Counter` and `TopK` have integer keys.",
)


def page() -> str:
    """The text of the page."""
    return whole_page(
        "`streaming_core/language`",
        "The operator language",
        paragraph(
            "This page lists what an application may contain: types, containers, operators and expressions. An "
            "operator is a Python function. Lockstep compiles it, so it can use only a part of Python. A command "
            "rejects an application that uses anything else, and cites the file, the line and what to write instead."
        ),
        "An application imports its names from one module:",
        block(["from streaming_core.api import App, Param, Profile, Ring, i64, record, text"], "python"),
        "## Types of fields",
        paragraph("A record is a class with the decorator `@record`. It declares fields and nothing else."),
        table(("type", "values", "column in Parquet"), [*map(_scalar, SCALARS), *_OTHERS]),
        "A role of a record decides which types it may have:",
        table(("role of the record", "types"), PLACES),
        "## Containers",
        paragraph(
            'A size is a number, the name of a parameter, or a product of such names: `Array[u32, "d*d"]`. Every '
            "container also has `len(c)` and `clear()`."
        ),
        *(part for kind in CONTAINERS for part in _container(kind)),
        "## Declarations",
        table(("call", "what it declares"), [row for kind in DECLARATIONS for row in _calls(kind)]),
        "## Keys of tables",
        "`lookup` says how `txn.row(table, key)` finds a row. It may be the name of a parameter. The default is `hash` "
        "for a table with `key`, and `dense` for any other.",
        table(("lookup", "keys that have a row", "a key without a row"), KEYS_OF_TABLES),
        "With `insert`, a row exists as soon as an event names its key. It stays if the event is rejected or dropped, "
        "or only reads the row. `init(None, params)` returns one value for all rows. A key that its type cannot hold "
        "is an `OverflowError`.",
        "## Statements",
        table(("statement", "form"), STATEMENTS),
        "## Expressions",
        table(("part", "form"), EXPRESSIONS),
        "## Rules of values",
        bullets(SEMANTICS),
        "## Limits",
        table(("limit", "value"), _limits()),
        next_pages(
            "[Write an application](../how-to/write-an-application.md): the steps, with an example.",
            "[Write transactions](../how-to/write-transactions.md): tables, conditions and modifications.",
            "[Applications](applications.md): the applications that come with Lockstep.",
        ),
    )


_OTHERS = (
    ("`text`", "bytes; an operator emits slices of its input", "binary"),
    (
        "`Array[item, length]`",
        "a fixed number of scalars. In a state or a table row, the number may be 0; the array is then no column",
        "fixed-size list",
    ),
)


def _scalar(kind: Scalar) -> tuple[str, ...]:
    values = "IEEE double" if kind.is_float else "true, false" if kind.name == "boolean" else _range(kind)
    return code(kind.name), values, str(kind.arrow())


def _range(kind: Scalar) -> str:
    bits = 8 * kind.width
    low, high = kind.bounds
    return f"-2^{bits - 1} to 2^{bits - 1} - 1" if low < 0 and bits > 16 else f"{low:,} to {high:,}"


def _container(kind: type) -> list[str]:
    sizes = ", ".join(one.name for one in dataclass_fields(kind))
    meaning, effects = EFFECTS[kind]
    rows = [(code(form), effect) for form, effect in effects.items()]
    return [f"### `{kind.__name__}[{sizes}]`", paragraph(meaning), table(("expression", "effect"), rows)]


def _calls(kind: type) -> Iterator[tuple[str, str]]:
    owner, meanings = DECLARATIONS[kind]
    for name, meaning in meanings.items():
        yield code(f"{owner}.{name}({_arguments(getattr(kind, name))})"), meaning


def _arguments(method: Callable) -> str:
    parts = []
    for one in list(inspect.signature(method).parameters.values())[1:]:
        stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        parts.append(f"{stars}{one.name}" + ("" if one.default is one.empty else f"={one.default!r}"))
    return ", ".join(parts)


def _limits() -> list[tuple[str, str]]:
    return [
        ("sources of an application", f"{MOST_SOURCES:,}"),
        ("tables of an application", f"{MOST_TABLES:,}"),
        ("rows of a table", f"{tables.MOST_ROWS:,}"),
        ("items of an array, and capacity of a ring or a top-k", f"{record.MOST_ITEMS:,}"),
        ("other rows that a condition or a modification of a transaction reads", f"{MOST_ROWS:,}"),
        ("bytes of the scratch of a stateless operator", f"{MOST_SCRATCH:,}"),
        ("keys of a row with `every`", f"{window.MOST_KEYS:,}"),
        ("`advance`, `size`, `delay` and `ts`", f"{window.MOST:,}"),
    ]
