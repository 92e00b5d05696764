"""Writes an application that calls every method of every container, one per event.

`declared` lists the methods from the language's own tables. FIELDS alone selects the container types to try.
"""

import importlib.util
import inspect
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numba.core.typing.templates import builtin_registry

from streaming_core.api import Counter, Map, Queue, Ring, Set, TopK, boolean, f64, i8, i16, i64, record, text, u8, u32
from streaming_core.kernels.values import GrowingType, QueueType, RingType
from streaming_core.language.record import CONTAINERS, Record, Scalar, Text, texts_in
from streaming_core.language.typed.expressions import METHODS
from streaming_core.oracle.interpreter import containers as plain


@record
class Narrow:
    n: i8
    x: f64
    p: boolean


@record
class Wide:
    few: u8
    w: i64
    h: u32


@record
class Noted:
    word: text
    n: i8
    other: text


# One field of a state each: narrow and wide integers, floats, truth values, texts; and small enough to be full soon.
FIELDS = [
    Ring[i8, 3], Ring[u32, 1], Ring[i64, 4], Ring[f64, 3], Ring[boolean, 2],
    Set[i8], Set[i64], Set[boolean],
    Map[i8, i16], Map[i64, f64], Map[boolean, boolean], Map[u32, i64],
    Counter[u8], Counter[i64], Counter[boolean],
    TopK[1], TopK[3],
    Queue[Narrow], Queue[Wide],
    Set[text], Map[text, i16], Map[text, text], Map[i8, text], Counter[text], Queue[Noted], Map[text, f64],
]  # fmt: skip
# What the language says without a method's name, and which containers say it.
WORDS = {"len": CONTAINERS, "in": (Set, Map), "not in": (Set, Map), "[]": (Ring, Queue)}
EDGES = [-(1 << 63), -(1 << 31), -129, -128, -1, 0, 1, 2, 3, 127, 128, 255, 256, 32768, (1 << 32) - 1, 1 << 32]
EDGES += [(1 << 62) + 1, (1 << 63) - 1]
# Many keys, so that a container builds an index; some begin others, and some are long.
TEXTS = [b"", b"\0", b"abcdefgh" * 20, *(b"abcdefgh"[:n] * k for n in range(1, 9) for k in range(1, 5))]
REALS = [0.0, -0.0, 1.5, -2.25, float("inf"), float("-inf"), float("nan"), 5e-324]
HEAD = """
from streaming_core.api import App, Counter, Map, Queue, Ring, Set, TopK, boolean, f64, i8, i16, i64, record, text, u8
from streaming_core.api import u32

app = App("containers")


@record
class Event:
    what: i64
    group: i64
    k: i64
    v: i64
    x: f64
    p: boolean
    t: text
    u: text


@record
class Answer:
    i: i64
    x: f64
    p: boolean
    t: text


"""


@dataclass(frozen=True)
class Use:
    """One use of a container: a method or an operator, on the state's field of that number."""

    field: int
    name: str
    kind: str  # of its value: none, bool, int, real or text
    expression: str

    @property
    def statement(self) -> str:
        """The statement that stores the value of the expression in a variable of its kind."""
        place = {"none": "", "bool": "p = ", "int": "i = ", "real": "x = ", "text": "t = "}[self.kind]
        return f"{place}{self.expression}"


def declared() -> dict[type, set[str]]:
    """Every method that the oracle's types, the interpreter's containers or the kernels know."""
    methods: dict[type, set[str]] = {kind: set(METHODS[kind]) for kind in CONTAINERS}
    samples = {Ring: i64, Set: i64, Map: (i64, i64), Counter: i64, TopK: 2, Queue: Wide}
    for kind in CONTAINERS:
        sample = kind(i64, 2) if kind is Ring else kind(*np.atleast_1d(np.array(samples[kind], object)))
        box = type(plain.empty(sample, 2, "field"))
        own = {name for name, value in inspect.getmembers(box, inspect.isfunction) if not name.startswith("_")}
        # Names of the interpreter for operators, and methods of its base class that a set and a counter lack.
        own -= {"export", "stored", "length", "contains", "item", "copy"} | (INHERITED.get(kind, set()))
        methods[kind] |= own
    for template in builtin_registry.attributes:
        name = getattr(template, "_attr", None)
        if getattr(template, "key", None) is RingType:
            methods[Ring].add(name)
        if getattr(template, "key", None) is QueueType:
            methods[Queue].add(name)
        if getattr(template, "key", None) is GrowingType and not any(name in methods[kind] for kind in CONTAINERS):
            raise AssertionError(f"kernels know a method {name} that the language does not")
    return methods


INHERITED = {Set: {"put", "get", "key_at", "value_at"}, Counter: {"put"}}


@cache
def uses() -> list[Use]:
    """Every method and word, on every field that has it, once for each kind of value that it takes."""
    entries = []
    for number, field in enumerate(FIELDS):
        at, value = f"state.f{number}", _value(field)
        if isinstance(field, Queue):
            entries += [Use(number, "append", "none", f"{at}.append({row})") for row in _rows(field)]
            for name, scalar in field.fields.items():
                kind = _KINDS[_sort(scalar)]
                entries.append(Use(number, "[]", kind, f"{at}[row.k].{name}"))
        for name, (arguments, result) in METHODS[type(field)].items():
            if arguments == "r":
                continue
            key = "text" if isinstance(_key(field), Text) else "int"
            kind = {"v": _KINDS[_sort(value)], "k": key}.get(result, result)
            for chosen in _value_arguments(value) if "v" in arguments else [""]:
                # Keys and positions are the first integer or text, other integers the second.
                first = "row.t" if key == "text" and arguments[:1] == "k" else "row.k"
                call_arguments = ", ".join(
                    chosen if wanted == "v" else value
                    for wanted, value in zip(arguments, (first, "row.v"), strict=False)
                )
                entries.append(Use(number, name, kind, f"{at}.{name}({call_arguments})"))
        for word, kinds in WORDS.items():
            if isinstance(field, kinds) and not (word == "[]" and isinstance(field, Queue)):
                key = "row.t" if isinstance(_key(field), Text) else "row.k"
                expression = {"len": f"len({at})", "[]": f"{at}[row.k]"}.get(word, f"{key} {word} {at}")
                item = _KINDS[_sort(value)]
                kind = {"len": "int", "[]": item}.get(word, "bool")
                entries.append(Use(number, word, kind, expression))
    return entries


def _key(field: Any) -> Scalar | Text | None:
    return field.item if isinstance(field, Set) else getattr(field, "key", None)


def _value(field: Any) -> Scalar | Text | None:
    return field.item if isinstance(field, Ring) else getattr(field, "value", None)


# Of values, by their sort.
_KINDS = {"": "int", "i": "int", "f": "real", "b": "bool", "t": "text"}


def _sort(value: Scalar | Text | None) -> str:
    if isinstance(value, Text):
        return "t"
    return "" if value is None else "f" if value.is_float else "b" if value == boolean else "i"


def _value_arguments(value: Scalar | Text | None) -> list[str]:
    """The arguments to try as a value: also an integer for a float or a truth value."""
    return {"f": ["row.x", "row.v"], "b": ["row.p", "row.v"], "t": ["row.u"]}.get(_sort(value), ["row.v"])


def _rows(field: Queue) -> list[str]:
    """The arguments of `append`: a value of each field's kind in order, and integers for all in reverse order."""
    whole, texts = iter(("row.k", "row.v", "row.k")), iter(("row.t", "row.u"))
    sorts = {name: _sort(kind) for name, kind in field.fields.items()}
    draw = {"f": lambda: "row.x", "b": lambda: "row.p", "t": lambda: next(texts)}
    by_kind = {name: draw.get(sort, lambda: next(whole))() for name, sort in sorts.items()}
    others = {name: "row.v" if sorts[name] in ("f", "b") else by_kind[name] for name in reversed(by_kind)}
    return [", ".join(f"{name}={value}" for name, value in changes.items()) for changes in (by_kind, others)]


def declaration(field: Any) -> str:
    """The field's type as an application writes it."""
    parts = [field.capacity] if isinstance(field, TopK) else [getattr(field, n) for n in field.__dataclass_fields__]
    named = [p.name if isinstance(p, Scalar | Text | Record) else str(p) for p in parts]
    return f"{type(field).__name__}[{', '.join(named)}]"


def source(is_transaction: bool, fields: Collection[int]) -> str:
    """The application: as an operator with one state per group, or as modifications of a table's rows."""
    lines = []
    for held in (Narrow, Wide, Noted):
        lines += [f"@record\nclass {held.name}:\n"]
        lines += [f"    {name}: {scalar.name}\n" for name, scalar in held.fields.items()] + ["\n\n"]
    lines += ["@record\nclass State:\n"]
    # A table has neither queues nor texts: operations on them are left out there.
    left_out = [is_transaction and (isinstance(field, Queue) or bool(texts_in(field))) for field in FIELDS]
    is_in = [n in fields and not left_out[n] for n in range(len(FIELDS))]
    lines += [f"    f{number}: {declaration(field)}\n" for number, field in enumerate(FIELDS) if is_in[number]]
    lines += ["    i: i64\n    x: f64\n    p: boolean\n\n\n"]
    owner = "state, row" if is_transaction else "row, state, out"
    lines += [f"def work({owner}):\n    i = 0\n    x = 0.0\n    p = False\n    t = row.t\n"]
    for number, use in enumerate(uses()):
        if is_in[use.field]:
            lines += [f"    if row.what == {number}:\n        {use.statement}\n"]
    if is_transaction:
        lines += ["    state.i = i\n    state.x = x\n    state.p = p\n\n\n"]
        lines += [
            'rows = app.table("rows", State, 5)\n\n\n'
            "@app.transaction(input=Event, output=Answer)\n"
            "def plan(event, txn):\n"
            "    txn.modify(txn.row(rows, event.group), work)\n"
            "    txn.read(txn.row(rows, event.group))\n\n\n"
            "@plan.post\n"
            "def post(event, txn, out):\n"
            "    seen = txn.result(rows, 0)\n"
            "    out.emit(i=seen.i, x=seen.x, p=seen.p, t=event.t)\n\n\n"
        ]
    else:
        lines += ["    out.emit(i=i, x=x, p=p, t=t)\n\n\n", "IS_KEYED\n"]
    return HEAD + "".join(lines) + "app.generates(lambda *arguments: {})\n"


def application(folder: Path, how: str, fields: Collection[int] = range(len(FIELDS))) -> Any:
    """The application `alone` (one state), `keyed` (one per group) or `transaction`, with some of the fields."""
    stream = {"alone": "app.source(Event)", "keyed": 'app.source(Event).key_by("group")'}.get(how, "")
    text = source(how == "transaction", fields).replace("IS_KEYED", f"{stream}.process(work, State, Answer).sink()")
    path = folder / f"containers_{how}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.app.check()


def events(seed: int, rounds: int) -> pa.Table:
    """Every use in a drawn order, `rounds` times: with small keys and positions mostly, else with values at the edges.

    Before it, each one on an empty container.
    """
    r, listed = np.random.default_rng(seed), uses()
    count = len(listed)
    what = np.concatenate([np.arange(count), *(r.permutation(count) for _ in range(rounds))])
    n = len(what)
    # A container that is emptied often never gets large.
    rare = np.array([listed[number].name == "clear" for number in what]) & (r.random(n) < 0.8)
    what = np.where(rare, r.integers(0, count, n), what)

    def whole(smallest: list[int]) -> np.ndarray:
        return np.where(r.random(n) < 0.12, r.choice(np.array(EDGES), n), r.integers(0, np.array(smallest)[what]))

    return pa.table(
        {
            "seq": np.arange(n),
            "what": what,
            "group": r.integers(0, 5, n),
            "k": whole([_span(use) for use in listed]),
            "v": whole([3 if _value(FIELDS[use.field]) == boolean else 9 for use in listed]),
            "x": np.where(r.random(n) < 0.4, r.choice(np.array(REALS), n), r.normal(size=n)),
            "p": r.random(n) < 0.5,
            **{
                name: pa.array([TEXTS[number] for number in r.integers(0, len(TEXTS), n)], pa.binary()) for name in "tu"
            },
        }
    )


def _span(use: Use) -> int:
    """The range of the first argument: few positions, or many keys, so that the container builds an index."""
    field = FIELDS[use.field]
    if use.name in ("at", "key_at", "value_at", "score_at", "[]"):
        return 4
    return 3 if boolean in (getattr(field, "item", None), getattr(field, "key", None)) else 40
