"""Inputs, drawn at random: small, and with what friendly generators never make.

An input begins with events of the generator, of a user, or of the corpus. Changes follow: the kinds of workloads of
`conformance/workloads.py`, and those of this module, which are at random places. Then the events at which the oracle
fails leave, except one in a few inputs.

All draws follow from a `random.Random`.
"""

from __future__ import annotations

import ast
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming_core.conformance.texts import BLANKS, BYTES
from streaming_core.conformance.workloads import KINDS, MOST, Material, Row, Unfit, accepted, edges
from streaming_core.data import workload
from streaming_core.errors import BadInput, RunFailed
from streaming_core.language.application import App
from streaming_core.language.record import Array, Nullable, Scalar, Text
from streaming_core.language.sources import TAG
from streaming_core.run.way import ParamValue

SETS = 8  # of parameters, beside the defaults: kernels are compiled for each
SEEDS = 3  # of the generator
FEW = 400  # events of the generator that most inputs begin with a part of
WINDOWS = 64  # that may hold one event, because the oracle takes each of them
TRIAL = 20  # events that show whether parameters work
SIZES = (8, 16, 32, 64, 100, 128, 256, 300)  # batches, and powers of two
EXAMPLES = 12  # values that hypothesis draws for a field

Change = Callable[[Material, random.Random], list[Row]]


@dataclass(frozen=True)
class Input:
    """Events of an application.

    Attributes:
        params: The parameters that differ from their defaults.
        events: The events, numbered from 0 in `seq`.
        origin: How they were drawn, for people.
        is_usual: Whether the generator makes them just so. Invariants hold for such events.
    """

    params: dict[str, ParamValue]
    events: pa.Table
    origin: str
    is_usual: bool = False


# --- parameters -----------------------------------------------------------------------------------------------------


def parameters(app: App, r: random.Random) -> dict[str, ParamValue]:
    """A set of parameters that differ from their defaults: often the first one, whose numbers are small, or none."""
    chance = r.random()
    if chance < 0.3 or not app.declared:
        return {}
    return dict(_set(app, 0 if chance < 0.7 else r.randrange(SETS)))


@cache
def _set(app: App, number: int) -> Mapping[str, ParamValue]:
    """The set of parameters of a number: as many of its values as work together."""
    r = random.Random(f"parameters {app.name} {number}")
    names = r.sample([*app.declared], len(app.declared))
    drawn = {name: _parameter(app, name, number, r) for name in names}
    drawn = {name: value for name, value in drawn.items() if value != app.declared[name].default}
    if _works(app, drawn):
        return drawn
    params: dict[str, ParamValue] = {}
    for name, value in drawn.items():
        if _works(app, params | {name: value}):
            params[name] = value
    return params


def _parameter(app: App, name: str, number: int, r: random.Random) -> Any:
    """A value of a parameter. The first set has small numbers, so that keys meet."""
    param = app.declared[name]
    default, low = param.default, param.minimum
    if number and r.random() < 0.5:
        return default
    if isinstance(default, bool):
        return r.random() < 0.5
    if param.choices is not None:
        return r.choice(param.choices)
    if isinstance(default, str):
        return default
    numbers = [low, *((1, 2, 3, 5, 8) if isinstance(default, int) else (0.01, 0.1, 0.5, 1.0))]
    if number and isinstance(default, int):
        numbers += [default - 1, default + 1, default // 2, default // 3]
    fitting = [type(default)(number) for number in numbers if number is not None and (low is None or number >= low)]
    return r.choice([number for number in fitting if param.maximum is None or number <= param.maximum] or [default])


def _works(app: App, params: Mapping[str, ParamValue]) -> bool:
    try:
        material = Material(app, dict(params), _generated(app, tuple(params.items()), TRIAL, 0, None))
        if material.size > WINDOWS * material.advance:
            return False
        return accepted(app, material.params, material.table(material.rows)).num_rows > 0
    except (BadInput, RunFailed):
        return False


# --- inputs ---------------------------------------------------------------------------------------------------------


def draw(
    app: App, params: Mapping[str, ParamValue], r: random.Random, corpus: Sequence[Input], source: Path | None = None
) -> Input:
    """An input.

    Args:
        app: The application.
        params: Its parameters that differ from their defaults.
        r: Draws.
        corpus: Earlier inputs. Those with the same parameters may be the beginning.
        source: A workload or an import, whose events replace those of the generator.

    Raises:
        BadInput: The application has no generator, or it fails; or the source does not fit.
    """
    known = [entry for entry in corpus if entry.params == params and entry.events.num_rows]
    if known and r.random() < 0.3:
        table, names = r.choice(known).events, ["corpus"]
        rows = table.drop_columns(["seq"]).to_pylist()
        changes = r.randint(1, 3)
    else:
        count = _count(r)
        most = MOST if count > FEW else FEW
        rows = _generated(app, tuple(params.items()), most, r.randrange(SEEDS), source)
        changes = r.choice((0, 0, 1, 1, 2, 2, 3, 4))
        first = r.randrange(max(len(rows) - count, 0) + 1) if changes and r.random() < 0.3 else 0
        rows, names = rows[first : first + count], ["data" if source else "generator"]
        names += [f"from {first}"] if first else []
    material = Material(app, dict(params), rows)
    is_usual = not changes
    if changes and rows:
        names += _change(material, changes, r)
    events = material.table(in_order(material))[:MOST]
    if VALUES.intersection(names):
        try:
            events = accepted(app, material.params, events, keep=int(r.random() < 0.1))
        except RunFailed:
            names.append("failing")
    return Input(dict(params), events, ", ".join(names), is_usual)


def _count(r: random.Random) -> int:
    """The number of events of an input: mostly 5 to 300, sometimes more."""
    kind = r.random()
    if kind < 0.05:
        return r.randint(0, 4)
    if kind < 0.15:
        return r.choice(SIZES) + r.choice((-1, 0, 1))
    # Threads meet more often where there are many batches.
    return r.randint(600, MOST) if kind > 0.9 else int(5 * 60 ** r.random())


@lru_cache(32)
def _generated(
    app: App, params: tuple[tuple[str, ParamValue], ...], count: int, seed: int, source: Path | None
) -> list[Row]:
    """The first events that the generator makes from a seed, or those of a user. Callers do not change them.

    Parameters may change the records. Then events of a user do not fit, and the generator replaces them.
    """
    schema = workload.schema(app, dict(params))
    table = None
    if source is not None:
        opened = workload.read(source, app)
        table = next(opened.blocks(count), opened.schema.empty_table())
    if table is None or not table.schema.equals(schema):
        table = workload.generate_chunk(app, dict(params), count, seed, 0, count)
    rows: list[Row] = table.drop_columns(["seq"]).to_pylist()
    return rows


def _change(material: Material, count: int, r: random.Random) -> list[str]:
    """Make some changes, one after the other; returns their names."""
    names = []
    if r.random() < 0.5:
        material.rows = material.spread().rows
        names.append("spread")
    for _ in range(count):
        name = r.choice([*CHANGES])
        try:
            rows = CHANGES[name](material, r)
        except Unfit:
            continue
        if rows:
            material.rows = rows[:MOST]
            names.append(name)
    return names


def in_order(material: Material) -> list[Row]:
    """The rows with a `ts` that never goes back in a stream, unless the source declares a delay."""
    if not material.has_time or material.app.delay is not None:
        return material.rows
    marks: dict[Any, int] = {}
    times = []
    for row in material.rows:
        mark = marks[row.get(TAG)] = max(row["ts"], marks.get(row.get(TAG), row["ts"]))
        times.append(mark)
    return material.at(material.rows, times)


# --- changes of rows ------------------------------------------------------------------------------------------------


def _part(rows: Sequence[Any], r: random.Random) -> tuple[int, int]:
    """A range of rows, often a short one."""
    start = r.randrange(len(rows))
    return start, min(len(rows), start + 1 + int(len(rows) * r.random() ** 3))


def _delete(material: Material, r: random.Random) -> list[Row]:
    start, stop = _part(material.rows, r)
    return material.rows[:start] + material.rows[stop:]


def _repeat(material: Material, r: random.Random) -> list[Row]:
    rows, (start, stop) = material.rows, _part(material.rows, r)
    return rows[:stop] + rows[start:stop] * r.choice((1, 1, 2, 20)) + rows[stop:]


def _burst(material: Material, r: random.Random) -> list[Row]:
    rows, (start, _) = material.rows, _part(material.rows, r)
    return rows[:start] + [rows[start]] * r.choice((2, 7, 64, 100)) + rows[start:]


def _swap(material: Material, r: random.Random) -> list[Row]:
    start, stop = _part(material.rows, r)
    order = [*range(len(material.rows))]
    order[start:stop] = r.sample(order[start:stop], stop - start)
    return material.like(order.__getitem__)


def _few(material: Material, r: random.Random) -> list[Row]:
    few = r.choices(range(len(material.rows)), k=r.choice((1, 2, 3, 7)))
    return material.like(lambda number: r.choice(few))


def _splice(material: Material, r: random.Random) -> list[Row]:
    """Rows of another place in between, at the time of that place."""
    rows, (start, stop) = material.rows, _part(material.rows, r)
    others = rows[start:stop]
    at = r.randrange(len(rows))
    if material.has_time:
        others = material.at(others, (row["ts"] - others[0]["ts"] + rows[at]["ts"] for row in others))
    return rows[:at] + others + rows[at:]


# --- changes of time ------------------------------------------------------------------------------------------------


def _same(material: Material, r: random.Random) -> list[Row]:
    if not material.has_time:
        raise Unfit("no integer field ts")
    rows, run = material.rows, r.choice((2, 3, 20, MOST))
    return material.at(rows, [rows[number - number % run]["ts"] for number in range(len(rows))])


def _unit(material: Material, r: random.Random) -> int:
    """A length of time that matters to the application."""
    if not material.has_time:
        raise Unfit("no integer field ts")
    integers = [value for value in material.params.values() if type(value) is int and value > 0]
    return r.choice([material.advance, material.size or 1_000, r.choice(integers or [1])])


def _snap(material: Material, r: random.Random) -> list[Row]:
    unit = _unit(material, r)
    return material.at(material.rows, [row["ts"] // unit * unit + r.choice((-1, 0, 0, 1)) for row in material.rows])


def _steps(material: Material, r: random.Random) -> list[Row]:
    unit = _unit(material, r)
    steps = r.choices((0, 0, 1, 2, unit - 1, unit, unit + 1, unit // 3, 5 * unit, 100 * unit), k=r.choice((1, 2, 5, 9)))
    return material.at(material.rows, material.times(steps))


def _gap(material: Material, r: random.Random) -> list[Row]:
    unit, at = _unit(material, r), r.randrange(len(material.rows))
    gap = unit * r.choice((1, 2, 5, 1_000)) + r.choice((-1, 0, 1))
    return material.at(material.rows, [row["ts"] + gap * (number >= at) for number, row in enumerate(material.rows)])


def _shift(material: Material, r: random.Random) -> list[Row]:
    unit = _unit(material, r)
    by = r.choice((-material.rows[0]["ts"], -material.rows[-1]["ts"], -unit, unit // 2, 1 << 40))
    return material.at(material.rows, [row["ts"] + by for row in material.rows])


def _backwards(material: Material, r: random.Random) -> list[Row]:
    delay = material.app.delay
    if delay is None:
        raise Unfit("ts never goes back, as the source declares no delay")
    by = material.params[delay] if isinstance(delay, str) else delay
    backs = (1, by - 1, by, by + 1, by + material.size, by + 2 * material.size)
    share = r.choice((0.05, 0.3, 0.8))
    return material.at(
        material.rows, [row["ts"] - (r.choice(backs) if r.random() < share else 0) for row in material.rows]
    )


# --- changes of values ----------------------------------------------------------------------------------------------


def _field(material: Material, r: random.Random, kinds: Any = object) -> str:
    """A field of some types."""
    names = sorted({name for row in material.rows for name, kind in material.fields(row) if isinstance(kind, kinds)})
    if not names:
        raise Unfit("no such fields")
    return r.choice(names)


def _replaced(material: Material, name: str, values: Sequence[Any], r: random.Random) -> list[Row]:
    """The rows with values from a few of these in one field of some rows."""
    few, share = r.choices(values, k=r.choice((1, 2, 4, 9))), r.choice((0.03, 0.1, 0.3, 1.0))
    own = [name in dict(material.fields(row)) for row in material.rows]
    return [
        row | {name: r.choice(few)} if is_own and r.random() < share else row
        for row, is_own in zip(material.rows, own, strict=True)
    ]


def _edges(material: Material, r: random.Random) -> list[Row]:
    """Values that programs get wrong: bounds of types, constants of the application, and the numbers beside them."""
    name = _field(material, r, (Scalar, Text, Array))
    kind: Any = material.app.event.fields[name]
    integers, texts = _constants(material.app)
    if isinstance(kind, Text):
        own = [row[name] or b"" for row in r.choices(material.rows, k=3)]
        near = [text[: r.randint(0, len(text))] + bytes([r.randrange(256)]) * r.choice((0, 1, 9)) for text in own]
        return _replaced(material, name, [*r.choice((BLANKS, BYTES, texts or BYTES)), *near], r)
    numbers = {*integers, *(value for value in material.params.values() if type(value) is int)}
    beside = {number + step for number in numbers for step in (-1, 0, 1)}
    item = kind.item if isinstance(kind, Array) else kind
    values = edges(item, r.choice((None, beside)))
    if isinstance(kind, Array):
        row = r.choice([row for row in material.rows if row[name]] or [{name: []}])[name]
        values = [[value] * len(row) for value in values] + [[value, *row[1:]] for value in values]
    return _replaced(material, name, values, r)


def _typed(material: Material, r: random.Random) -> list[Row]:
    """Values that hypothesis draws for the type of a field."""
    name = _field(material, r, (Scalar, Text, Array, Nullable))
    length = next((len(row[name]) for row in material.rows if isinstance(row[name], list)), 0)
    return _replaced(material, name, examples(material.app.event.fields[name], length, r), r)


def _same_value(material: Material, r: random.Random) -> list[Row]:
    """Two fields of one type with the same value in some rows."""
    fields = material.app.event.fields
    name = _field(material, r)
    others = [other for other, kind in fields.items() if kind == fields[name] and other not in (name, "ts", TAG)]
    if not others:
        raise Unfit("no two fields of one type")
    other, share = r.choice(others), r.choice((0.1, 1.0))
    return [
        row | {name: row[other]} if {name, other} <= dict(material.fields(row)).keys() and r.random() < share else row
        for row in material.rows
    ]


def _crossed(material: Material, r: random.Random) -> list[Row]:
    """The values of one field in another order: any, ascending, or descending."""
    name = _field(material, r)
    at = [number for number, row in enumerate(material.rows) if name in dict(material.fields(row))]
    values = [material.rows[number][name] for number in at]
    order = r.choice(("any", "up", "down"))
    values = r.sample(values, len(values)) if order == "any" else sorted(values, key=repr, reverse=order == "down")
    crossed = dict(zip(at, values, strict=True))
    return [row | {name: crossed[number]} if number in crossed else row for number, row in enumerate(material.rows)]


def _null(material: Material, r: random.Random) -> list[Row]:
    return _replaced(material, _field(material, r, Nullable), [None], r)


@cache
def _constants(app: App) -> tuple[list[int], list[bytes]]:
    """The integers and the texts in the file of an application, which often decide about branches."""
    try:
        tree = ast.parse(Path(app.file).read_text())
    except (OSError, SyntaxError, ValueError):
        return [], []
    values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    texts = {
        value if isinstance(value, bytes) else value.encode() for value in values if isinstance(value, bytes | str)
    }
    return sorted({value for value in values if type(value) is int}), sorted(text for text in texts if len(text) < 40)


def examples(kind: Any, length: int, r: random.Random) -> list[Any]:
    """Values of a type, as hypothesis draws them.

    Args:
        kind: The type.
        length: Items of arrays.
        r: Draws.
    """
    # Not a dependency of the wheel: only the checkout searches for faults.
    from hypothesis import HealthCheck, Phase, configuration, given, seed, settings
    from hypothesis import strategies as st

    def strategy(kind: Any) -> Any:
        match kind:
            case Nullable():
                return st.none() | strategy(kind.item)
            case Array():
                return st.lists(strategy(kind.item), min_size=length, max_size=length)
            case Text():
                return st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode(errors="ignore"))
            case _ if kind.is_float:
                return st.floats()
            case _ if kind.name == "boolean":
                return st.booleans()
        if kind.scale is None:
            return st.integers(*kind.bounds)
        return st.integers(*kind.bounds).map(lambda units: Decimal(units).scaleb(-kind.scale))

    configuration.set_hypothesis_home_dir(Path(tempfile.gettempdir()) / "lockstep-hypothesis")
    values: list[Any] = []
    quiet = settings(deadline=None, database=None, suppress_health_check=[*HealthCheck])

    @seed(r.getrandbits(32))
    @settings(quiet, max_examples=EXAMPLES, phases=[Phase.generate])
    @given(strategy(kind))
    def collect(value: Any) -> None:
        values.append(value)

    collect()
    return values


def _kind(name: str) -> Change:
    def change(material: Material, r: random.Random) -> list[Row]:
        if len(material.rows) < 2:
            raise Unfit("one event")
        return KINDS[name].make(material)

    return change


# Changes after which operators may fail.
VALUES = frozenset(
    ("numbers", "bytes", "blanks", "nulls", "edge values", "typed values", "same values", "crossed", "null")
)

CHANGES: dict[str, Change] = {
    **{name: _kind(name) for name, kind in KINDS.items() if kind.make.__name__ != "<lambda>"},
    "delete": _delete,
    "repeat": _repeat,
    "burst": _burst,
    "swap": _swap,
    "few": _few,
    "splice": _splice,
    "same ts": _same,
    "snap": _snap,
    "steps": _steps,
    "gap": _gap,
    "shift": _shift,
    "backwards": _backwards,
    "edge values": _edges,
    "typed values": _typed,
    "same values": _same_value,
    "crossed": _crossed,
    "null": _null,
}
