"""Adversarial workloads of any application: small, deterministic, each with one kind of difficulty.

A workload begins with events of the application's generator. If the application has windows, their `ts` are spread
over several windows. A kind then changes the events, or the parameters. Its changes follow from the declarations: the
types of the fields, the keys, the windows, the streams and the parameters.

The oracle decides which events are valid. A workload omits events that the oracle refuses. A workload without events
does not exist.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming_core import storage
from streaming_core.conformance.texts import BLANKS, BYTES, variants
from streaming_core.data import workload
from streaming_core.errors import BadInput, RunFailed, unknown
from streaming_core.language.application import App
from streaming_core.language.bound import BoundApp
from streaming_core.language.record import Array, Nullable, Scalar, Text
from streaming_core.language.sources import TAG
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.run.way import MAX_BATCH

SEED = 41
EVENTS = 250  # of most workloads
MOST = 2_000  # events of any workload
BATCH = 16  # of most workloads: threads take turns on few events, and the last batch is not full
SPAN = 8  # windows that the events of most workloads cover
FEW = 7  # different events, where events repeat
NEAR = 24  # numbers of several streams are below it, so that rows of different streams meet
TRIAL = 20  # events that show whether parameters work
ROUNDS = 8  # rounds of removing refused events

Row = dict[str, Any]
Make = Callable[["Material"], list[Row]]


@dataclass(frozen=True)
class Case:
    """A workload, and how an engine takes it.

    Attributes:
        name: The name of its kind.
        about: Its difficulty.
        params: The parameters that differ from their defaults.
        events: The events, with `seq`.
        refused: Events that are left out, because the oracle refuses them.
        batch: Events in a batch, for engines that have batches.
    """

    name: str
    about: str
    params: dict[str, Any]
    events: pa.Table
    refused: int
    batch: int


@dataclass(frozen=True)
class Kind:
    """A kind of workload.

    Attributes:
        about: Its difficulty, in one line.
        make: Makes the rows. Raises `Unfit` where the application has nothing to make it from.
        params: The parameters that it sets.
        batch: Events in a batch.
        size: Events of the generator that it begins with.
    """

    about: str
    make: Make
    params: Callable[[App], dict[str, Any]] = lambda app: {}
    batch: int = BATCH
    size: int = EVENTS


class Unfit(Exception):
    """Why a kind of workload does not exist for an application."""


# --- the material of workloads --------------------------------------------------------------------------------------


class Material:
    """Events of an application's generator, or of a user, under some parameters, and the declarations about them.

    Attributes:
        app: The application.
        params: All its parameters.
        rows: The events as dicts, without `seq`.
    """

    def __init__(self, app: App, params: dict[str, Any], rows: list[Row]):
        self.app = app
        self.params = app.bind(params)
        self.rows = rows
        bounds = BoundApp(app, self.params).windows.values()
        # The longest window says how far apart events must be.
        self.advance, self.size = max(((bound.advance, bound.size) for bound in bounds), key=max, default=(1, 0))
        self.is_session = any(
            operator.window is not None and operator.window.kind == "session" for operator in app.operators
        )

    @classmethod
    def first(cls, app: App, params: dict[str, Any], events: int, source: Path | None = None) -> Material:
        """The first events of the generator or of a user, spread so that rows meet in windows and in streams."""
        if source is not None:
            table = next(workload.read(source, app, app.bind(params)).blocks(events))
        else:
            table = workload.generate_chunk(app, params, events, SEED, 0, events)
        return cls(app, params, table.drop_columns(["seq"]).to_pylist()).spread()

    def spread(self) -> Material:
        """The rows with small numbers, if there are several streams; with `ts` over several windows, if there are any.

        Without windows, `ts` stays as it is.
        """
        rows = self.rows
        if self.app.streams is not None:
            numbers = ({name: row[name] % NEAR for name, kind in self.fields(row) if _is_number(kind)} for row in rows)
            rows = [row | small for row, small in zip(rows, numbers, strict=True)]
        if self.size and self.has_time and rows:
            first, count = rows[0]["ts"] + self.advance // 3, len(rows)
            rows = self.at(rows, (first + number * SPAN * self.size // count for number in range(count)))
        return Material(self.app, self.params, rows)

    @property
    def has_time(self) -> bool:
        """Whether events have an integer field `ts`."""
        kind = self.app.event.fields.get("ts")
        return isinstance(kind, Scalar) and kind.low is not None

    def at(self, rows: list[Row], times: Iterable[int]) -> list[Row]:
        """The rows with other `ts`, within the bounds of its type.

        Raises:
            Unfit: The events have no time.
        """
        if not self.has_time:
            raise Unfit("no integer field ts")
        kind = self.app.event.fields["ts"]
        assert isinstance(kind, Scalar)
        low, high = kind.bounds
        return [row | {"ts": min(max(ts, low), high)} for row, ts in zip(rows, times, strict=False)]

    def fields(self, row: Row) -> Iterator[tuple[str, Any]]:
        """The columns of a row that have a meaning in its stream, without `ts`; and their types."""
        streams = self.app.streams
        own = streams.columns[row[TAG]].values() if streams else self.app.event.fields
        return ((name, self.app.event.fields[name]) for name in own if name not in ("ts", TAG))

    def times(self, steps: Iterable[int], start: int | None = None) -> Iterator[int]:
        """Times that begin with that of the first event, or with `start`, and grow by these steps, over and over."""
        now, steps = self.rows[0].get("ts", 0) if start is None else start, [*steps]
        for number in range(MOST):
            yield now
            now += steps[number % len(steps)]

    def like(self, chosen: Callable[[int], int]) -> list[Row]:
        """The rows, each with all but the `ts` of the row of the chosen number."""
        return [self.rows[chosen(n)] | {k: v for k, v in row.items() if k == "ts"} for n, row in enumerate(self.rows)]

    def table(self, rows: list[Row]) -> pa.Table:
        """The rows as events. Rows of several streams are put in the order that Lockstep gives them."""
        if self.app.streams is not None:
            rows = self.app.streams.in_order(rows)
        numbered = [{"seq": seq} | row for seq, row in enumerate(rows)]
        return pa.Table.from_pylist(numbered, workload.schema(self.app, self.params))


# --- kinds ----------------------------------------------------------------------------------------------------------


def _ties(material: Material) -> list[Row]:
    rows = material.rows
    return material.at(rows, (rows[n - n % 20].get("ts", 0) for n in range(len(rows))))


def _windowed(material: Material) -> None:
    if not material.size:
        raise Unfit("no windows")


def _boundaries(material: Material) -> list[Row]:
    _windowed(material)
    few, advance, size = material.like(lambda n: n % FEW), material.advance, material.size
    if material.is_session:
        return material.at(few, material.times([0, 1, size - 1, size, size + 1]))
    first = (material.rows[0]["ts"] // advance + 1) * advance
    starts = range(first, first + len(few) * size, -(-size // advance) * advance)
    instants = {start + edge + near for start in starts for edge in (0, advance, size) for near in (-1, 0, 1)}
    return material.at(few, (instant for instant in sorted(instants) for _ in range(3)))


def _last_instant(material: Material) -> list[Row]:
    _windowed(material)
    rows = material.rows[: FEW * FEW]
    if material.is_session:
        return material.at(rows, [*(row["ts"] for row in rows[:-1]), rows[-2]["ts"] + material.size])
    start = (rows[-1]["ts"] // material.advance + 1) * material.advance
    return material.at(rows, [*(row["ts"] for row in rows[:-1]), start])


def _gaps(material: Material) -> list[Row]:
    unit = material.size or 1_000
    steps = [0, 1, unit // 3, unit, 0, 1, 5 * unit, unit // 2, 2, 100 * unit]
    return material.at(material.rows, material.times(steps))


def _negative_time(material: Material) -> list[Row]:
    unit = material.size or len(material.rows)
    step = max(1, SPAN * unit // len(material.rows))
    return material.at(material.rows, material.times([step], -SPAN * unit // 2))


def _late(material: Material) -> list[Row]:
    app, delay = material.app, material.app.delay
    if delay is None:
        raise Unfit("ts never goes back, as the source declares no delay")
    by = material.params[delay] if isinstance(delay, str) else delay
    backs = [0, by, 0, by + 1, 0, 1, by + 2 * material.size]
    assert app.delay is not None
    return material.at(material.rows, (row["ts"] - backs[n % len(backs)] for n, row in enumerate(material.rows)))


def _one_key(material: Material) -> list[Row]:
    declared = {field for operator in material.app.operators for field in operator.key}
    declared |= {
        name
        for operator in material.app.operators
        if operator.window is not None
        for name in operator.window.key.fields
    }
    kinds = {name: {n for n, _ in material.fields(row)} & declared for name, row in enumerate(material.rows)}
    half, firsts = len(material.rows) // 2, dict[Any, Row]()

    def skewed(number: int, row: Row) -> Row:
        first = firsts.setdefault(row.get(TAG), row)
        if number > half and number % 10 == 0:
            return row
        # If no field is a key, keys are computed from whole rows.
        names = kinds[number] or {name for name, _ in material.fields(row)}
        return row | {name: first[name] for name in names}

    return [skewed(number, row) for number, row in enumerate(material.rows)]


def _repeats(material: Material) -> list[Row]:
    third = len(material.rows) // 3
    thrice = [row for row in material.rows[:third] for _ in range(3)]
    few = material.like(lambda n: n % FEW)
    return thrice[: len(few) // 2] + few[len(few) // 2 :]


def _blanks(material: Material) -> list[Row]:
    return _with_texts(material, BLANKS, 0)


def _bytes(material: Material) -> list[Row]:
    return _with_texts(material, BYTES, 1)


def _with_texts(material: Material, usual: list[bytes], which: int) -> list[Row]:
    def texts(row: Row, name: str) -> list[bytes]:
        return usual + [text for source in material.rows[:3] for text in variants(source[name] or row[name])[which]]

    return _with_values(material, Text, texts, "no texts")


INTEGERS = (0, 1, -1, 2, 127, 128, -128, 255, 256, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, -(2**53) - 1)
FLOATS = (
    *(0.0, -0.0, 1.0, -1.0, 0.1, 0.5, 2.0**53 + 2, math.nan, math.inf, -math.inf),
    *(5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -1e300),
)


def _numbers(material: Material) -> list[Row]:
    def values(row: Row, name: str) -> list[Any]:
        kind = material.app.event.fields[name]
        item = kind.item if isinstance(kind, Array) else kind
        assert isinstance(item, Scalar)
        items = edges(item)
        if isinstance(kind, Array):
            return [column for v in items for column in ([v] * len(row[name]), [v, *row[name][1:]])]
        return items

    return _with_values(material, (Scalar, Array), values, "no numbers but ts")


def _nulls(material: Material) -> list[Row]:
    return _with_values(material, Nullable, lambda row, name: [None, row[name]], "no field may be null")


def _is_number(kind: Any) -> bool:
    return isinstance(kind, Scalar) and kind.name != "boolean"


def edges(kind: Scalar, numbers: Iterable[int] | None = None) -> list[Any]:
    """Values of a scalar that programs get wrong: its bounds, and those of other types; or its bounds and `numbers`."""
    if kind.is_float:
        return sorted(FLOATS if numbers is None else map(float, numbers), key=str)
    low, high = kind.bounds
    fitting = [number for number in {*(INTEGERS if numbers is None else numbers), low, high} if low <= number <= high]
    values: list[Any] = sorted(fitting, key=str)
    if kind.name == "boolean":
        return [bool(value) for value in values]
    return values if kind.scale is None else [Decimal(value).scaleb(-kind.scale) for value in values]


def _with_values(material: Material, kinds: Any, values: Callable[[Row, str], list[Any]], unfit: str) -> list[Row]:
    """The rows over and over, every second of them with another value of one field."""
    rows, result = material.rows, list[Row]()
    fields = {row.get(TAG): [n for n, kind in material.fields(row) if isinstance(kind, kinds)] for row in rows}
    if not any(fields.values()):
        raise Unfit(unfit)
    places = {tag: [(n, i) for n in names for i in range(len(values(rows[0], n)))] for tag, names in fields.items()}
    used = dict.fromkeys(fields, 0)
    size = min(MOST, max(len(rows), 2 * sum(map(len, places.values()))))
    last = rows[-1].get("ts", 0) - rows[0].get("ts", 0) + 1
    for number in range(size):
        again, at = divmod(number, len(rows))
        row = dict(rows[at])
        if "ts" in row:
            row["ts"] += again * last
        tag = row.get(TAG)
        if number % 4 in (1, 2) and places[tag]:  # of several streams that alternate, each has its turn
            name, index = places[tag][used[tag] % len(places[tag])]
            used[tag] += 1
            row[name] = values(row, name)[index]
        result.append(row)
    return result


def _minimum(app: App) -> dict[str, Any]:
    lowest = {name: param.minimum for name, param in app.declared.items() if param.minimum is not None}
    return _workable(app, {name: type(app.declared[name].default)(value) for name, value in lowest.items()})


def _uneven(app: App) -> dict[str, Any]:
    """Parameters with which the size of windows is no multiple of their advance."""
    windows = [operator.window for operator in app.operators if operator.window is not None]
    names = {
        window.size: window.advance
        for window in windows
        if isinstance(window.advance, str) and isinstance(window.size, str)
    }
    if not names:
        raise Unfit("no parameters for both advance and size of windows")
    default = app.bind()
    return _workable(app, {size: int(default[size]) + int(default[advance]) // 3 for size, advance in names.items()})


def _choices(nth: int) -> Callable[[App], dict[str, Any]]:
    def chosen(app: App) -> dict[str, Any]:
        others = {}
        for name, param in app.declared.items():
            choices = (True, False) if isinstance(param.default, bool) else param.choices or ()
            rest = [choice for choice in choices if choice != param.default]
            if nth < len(rest):
                others[name] = rest[nth]
        return _workable(app, others)

    return chosen


def _workable(app: App, choice: dict[str, Any]) -> dict[str, Any]:
    """As many of these parameters as work together, the first ones first.

    Raises:
        Unfit: None of them works, or none differs from its default.
    """
    choice = {name: value for name, value in choice.items() if value != app.declared[name].default}
    if choice and _works(app, choice):
        return choice
    params: dict[str, Any] = {}
    for name, value in choice.items():
        if _works(app, params | {name: value}):
            params[name] = value
    if not params:
        raise Unfit("no such parameters")
    return params


def _works(app: App, params: dict[str, Any]) -> bool:
    try:
        material = Material.first(app, params, TRIAL)
        return accepted(app, material.params, material.table(material.rows)).num_rows > 0
    except (BadInput, RunFailed):
        return False


def _silent(material: Material) -> list[Row]:
    streams = material.app.streams
    if streams is None:
        raise Unfit("one stream")
    # The first stream is silent at the start, the last one at the end.
    count, rows = len(streams.records), material.rows
    return [row for number, row in enumerate(rows) if row[TAG] != number * count // len(rows)]


def _first(count: int) -> Make:
    return lambda material: material.rows[:count]


KINDS: dict[str, Kind] = {
    "empty": Kind("no events", _first(0)),
    "single": Kind("one event", _first(1)),
    "plain": Kind("events of the generator, in one batch", _first(MOST), batch=MAX_BATCH, size=MOST),
    "batch_of_one": Kind("one event a batch", _first(EVENTS // 2), batch=1),
    "ties": Kind("many events with the same ts", _ties),
    "boundaries": Kind("ts at the first and the last instant of windows, and beside them", _boundaries),
    "uneven": Kind("windows whose size is no multiple of their advance", _first(EVENTS), _uneven),
    "last_instant": Kind("the last event opens a window, or closes one", _last_instant),
    "gaps": Kind("ts stands still, or jumps over many windows", _gaps),
    "negative_time": Kind("ts from below zero on", _negative_time),
    "late": Kind("ts goes back: within the delay, just beyond it, and far beyond it", _late),
    "one_key": Kind("nearly all events have the key of the first one", _one_key),
    "repeats": Kind("events that repeat, and few different ones", _repeats),
    "blanks": Kind("texts that are empty, or have unusual whitespace", _blanks),
    "bytes": Kind("texts that are not UTF-8, look alike, are long, or do not parse", _bytes),
    "numbers": Kind("the bounds of each type, 0, -1, values beyond 2^53; -0.0, NaN, infinities", _numbers),
    "nulls": Kind("nulls in every field that may be null", _nulls),
    "minimum": Kind("parameters at their minimum", _first(EVENTS), _minimum),
    "choices": Kind("another choice of each parameter that has choices", _first(EVENTS), _choices(0)),
    "choices_2": Kind("a third choice of each parameter that has one", _first(EVENTS), _choices(1)),
    "silent": Kind("each stream in turn has no events for long", _silent),
}


# --- workloads of an application -------------------------------------------------------------------------------------


def cases(app: App, names: Iterable[str] = (), source: Path | None = None) -> Iterator[Case | tuple[str, str]]:
    """The adversarial workloads of an application; the name and the reason of each that there is not.

    Args:
        app: The application.
        names: The kinds to make; all if empty.
        source: A workload or an import, whose events replace those of the generator.

    Raises:
        BadInput: There is no kind of such a name, or the generator fails.
    """
    chosen = [*names] or [*KINDS]
    for name in chosen:
        if name not in KINDS:
            raise BadInput(unknown("workload", name, KINDS))
    plain = Material.first(app, {}, EVENTS, source)
    for name in chosen:
        try:
            yield _case(app, name, KINDS[name], plain, source)
        except (Unfit, BadInput, RunFailed) as error:
            yield name, str(error)


def _case(app: App, name: str, kind: Kind, plain: Material, source: Path | None) -> Case:
    params = kind.params(app)
    material = Material.first(app, params, kind.size, source) if params or kind.size != EVENTS else plain
    rows = kind.make(material)
    events = accepted(app, material.params, material.table(rows))
    if rows and not events.num_rows:
        raise Unfit("the oracle refuses all of its events")
    return Case(name, kind.about, params, events, len(rows) - events.num_rows, kind.batch)


def fresh(app: App, params: dict[str, Any]) -> Interpreter:
    """An interpreter in its first state, valid until the next call."""
    machine, start = _machine(app, tuple(params.items()))
    machine.load(io.BytesIO(start))
    return machine


@lru_cache(4)
def _machine(app: App, params: tuple[tuple[str, Any], ...]) -> tuple[Interpreter, bytes]:
    """An interpreter and its first state: making one takes longer than interpreting a few events."""
    machine, start = Interpreter(app, dict(params)), io.BytesIO()
    machine.save(start)
    return machine, start.getvalue()


def accepted(app: App, params: dict[str, Any], events: pa.Table, keep: int = 0) -> pa.Table:
    """The events without those at which an operator fails in the oracle, numbered anew.

    Args:
        app: The application.
        params: All its parameters.
        events: The events.
        keep: The number of such events that stay.

    Raises:
        RunFailed: An operator still fails after several rounds, or fails at the end of the stream.
    """
    for _ in range(ROUNDS):
        machine = fresh(app, params)
        failures: list[int] = []
        done, error = 0, None
        while done < events.num_rows:
            before = machine.events
            try:
                machine.process(events.slice(done))
                done = events.num_rows
            except RunFailed as failure:
                done, error = done + machine.events - before + 1, failure
                failures.append(done - 1)
        if len(failures) <= keep:
            if not failures:
                machine.finish(events.num_rows)
            return events
        good = pa.array(sorted({*range(events.num_rows)}.difference(failures[keep:])), pa.int64())
        events = events.take(good)
        events = events.set_column(0, events.schema.field(0), pa.array(range(len(good)), pa.int64()))
    raise RunFailed(f"the oracle refuses it: {error}")


def write(app: App, case: Case, folder: Path, events: int | None = None) -> None:
    """Write the workload, or its first `events` events, to a new folder."""
    table = case.events if events is None else case.events.slice(0, events)
    with storage.appearing(folder) as temporary:
        part = workload.write_part(temporary, 0, table)
        workload.seal_imported(temporary, app, case.params, [part], {"conformance": case.name})
