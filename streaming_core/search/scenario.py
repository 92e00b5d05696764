"""What a property of an author sees: the oracle's result on some events, and on changed events.

    @app.property
    def ties_may_change_places(stream):
        '''Events of one ts may come in any order.'''
        assert stream.permute_ties().state("work") == stream.state("work")

A property is a plain function of a `Scenario`. It fails if it raises AssertionError or returns False. If the oracle
does not take the changed events, the property says nothing about them.

Values are those that operators see: bytes for texts, integers for decimals. All NaNs are one object, so rows with NaN
can be equal.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from functools import cached_property
from itertools import groupby
from random import Random
from types import FrameType
from typing import Any

import pyarrow as pa

from streaming_core.conformance.workloads import fresh
from streaming_core.data import workload
from streaming_core.data.arrow import of_units, unit_type
from streaming_core.errors import BadInput, RunFailed, unknown
from streaming_core.language.application import App
from streaming_core.language.record import NAN, Scalar, Text
from streaming_core.language.source import place
from streaming_core.oracle.interpreter import Interpreter
from streaming_core.oracle.interpreter.arithmetic import wrap
from streaming_core.oracle.interpreter.branches import counted

Row = dict[str, Any]
_SHOWN = 200  # characters of a value in a reason


class Unfit(Exception):
    """Why a transformation of some events does not exist."""


class Scenario:
    """Events of an application, and the oracle's result on them.

    Every method that changes the events returns another scenario. Its choices are random, but depend on nothing except
    the events.

    Attributes:
        app: The application.
        params: The value of each parameter.
        events: The events in order, without `seq`.
        new_key: The value that `add_key` added; None for other scenarios.
    """

    def __init__(self, app: App, params: dict[str, Any], events: list[Row], new_key: Any = None):
        self.app, self.params, self.events, self.new_key = app, app.bind(params), events, new_key

    # --- the result ----------------------------------------------------------------------------------------------

    @property
    def outputs(self) -> list[Row]:
        """The outputs in order, with `seq` and `sub`."""
        return _rows(self._result[0])

    @property
    def rows(self) -> list[Row]:
        """The outputs in order, without `seq` and `sub`."""
        return _rows(self._result[0].drop_columns(["seq", "sub"]))

    def state(self, name: str) -> dict[Any, Any]:
        """The final rows of a table or of an operator, by key.

        The key is an integer or bytes; several fields make a tuple; without a key it is None.
        """
        tables = self._result[1]
        if name not in tables:
            raise BadInput(f"app {self.app.name}: {unknown('state', name, tables)}")
        keys = ["key"] if name in {table.name for table in self.app.tables} else self.app.operator(name).key_columns
        result = {}
        for row in _rows(tables[name]):
            values = tuple(row.pop(key) for key in keys)
            result[values[0] if len(values) == 1 else values or None] = row
        return result

    @property
    def rejected(self) -> int:
        """The number of rejected transactions."""
        return self._result[2]

    @property
    def dropped(self) -> int:
        """The number of inputs that operators dropped as invalid."""
        return self._result[3]

    @property
    def late(self) -> int:
        """The number of rows that came too late for any window."""
        return self._result[4]

    @staticmethod
    def wrap(value: int) -> int:
        """An integer as operators have it: modulo 2^64, with sign."""
        return wrap(value)

    @cached_property
    def _result(self) -> tuple[pa.Table, dict[str, pa.Table], int, int, int]:
        machine = fresh(self.app, self.params)
        table = _table(self.app, self.params, self.events)
        outputs = pa.concat_tables([machine.process(table), machine.finish(table.num_rows)])
        return outputs, machine.state(), machine.rejected, machine.dropped_invalid, machine.dropped_late

    # --- other scenarios -----------------------------------------------------------------------------------------

    def run(self, events: Sequence[Row], **params: Any) -> Scenario:
        """Other events, perhaps with other parameters. Rows of several sources get the order that Lockstep gives them.

        Args:
            events: The events, each with a value for every field.
            params: The parameters that change.
        """
        rows = list(events) if self.app.streams is None else self.app.streams.in_order(events)
        return Scenario(self.app, self.params | params, rows)

    def where(self, holds: Callable[[Row], object]) -> Scenario:
        """The events for which a function returns true."""
        return self.run([row for row in self.events if holds(row)])

    def permute(self) -> Scenario:
        """The events in any order."""
        return self.run(self._random("permute").sample(self.events, len(self.events)))

    def permute_ties(self) -> Scenario:
        """Neighbouring events with the same `ts` in any order among themselves."""
        random = self._random("permute_ties")
        ties = [list(rows) for _, rows in groupby(self.events, lambda row: row["ts"])]
        return self.run([row for rows in ties for row in random.sample(rows, len(rows))])

    def split(self, *fields: str) -> tuple[Scenario, Scenario]:
        """Two scenarios, each with some of the events in order. Events with the same values of `fields` stay together.

        Args:
            fields: The fields, of a key for example; without any, each event goes alone.
        """
        random, sides = self._random(f"split{fields}"), dict[Any, int]()
        parts: tuple[list[Row], list[Row]] = [], []
        for number, row in enumerate(self.events):
            key = tuple(row[field] for field in fields) if fields else number
            parts[sides.setdefault(key, random.randrange(2))].append(row)
        return self.run(parts[0]), self.run(parts[1])

    def cut(self) -> tuple[Scenario, Scenario]:
        """Two scenarios: the first events, and the others."""
        at = self._random("cut").randint(0, len(self.events))
        return self.run(self.events[:at]), self.run(self.events[at:])

    def add_key(self, field: str) -> Scenario:
        """The events, with some of them again behind themselves, with a value of `field` that is new: `new_key`."""
        random = self._random(f"add_key({field})")
        key = _other(self.app.event.fields[field], {row[field] for row in self.events}, random)
        events = [
            new for row in self.events for new in ((row, row | {field: key}) if random.random() < 0.5 else (row,))
        ]
        scenario = self.run(events)
        scenario.new_key = key
        return scenario

    def scale(self, field: str, by: float) -> Scenario:
        """The events with a multiple of one field."""
        return self.run([row | {field: None if row[field] is None else row[field] * by} for row in self.events])

    def shift(self, by: int) -> Scenario:
        """The events at other times, each later by so much."""
        return self.run([row | {"ts": row["ts"] + by} for row in self.events])

    def repeat(self, after: int = 0) -> Scenario:
        """The events twice, one time after the other; the second time, `ts` is later by `after`."""
        return self.run([*self.events, *(self.shift(after).events if after else self.events)])

    def duplicate(self) -> Scenario:
        """The events, some of them twice in a row."""
        random = self._random("duplicate")
        return self.run([row for row in self.events for _ in range(random.randint(1, 2))])

    def _random(self, purpose: str) -> Random:
        content = repr((purpose, self.params, self.events)).encode()
        return Random(hashlib.blake2b(content, digest_size=8).digest())


def _other(kind: Any, known: set[Any], random: Random) -> Any:
    """Return a value of a field that is not yet there, and looks like those that are."""
    values = sorted(value for value in known if value is not None)
    some: Any = random.choice(values) if values else b"" if isinstance(kind, Text) else 0
    if isinstance(kind, Text):
        near: list[Any] = [b"", some[:-1], some + b"x", b"x" + some, some.swapcase()]
    elif isinstance(kind, Scalar) and not kind.is_float and kind.name != "boolean":
        near = [some ^ 1 << random.randrange(16), some + 10 ** random.randrange(5), some + 1, *range(len(values) + 1)]
        near = [value for value in near if kind.bounds[0] <= value <= kind.bounds[1]]
    else:
        raise BadInput(f"a key is an integer or a text, not {getattr(kind, 'name', kind)}")
    fresh = [value for value in near if value not in known]
    if not fresh:
        raise Unfit("there is no other key")
    # The first ones share bits, digits or letters with a known key; the last one is the smallest number.
    return random.choice(fresh[:3] + fresh[-1:])


def _table(app: App, params: dict[str, Any], rows: list[Row]) -> pa.Table:
    """Return rows as events.

    Raises:
        Unfit: A value does not fit its field.
    """
    schema, columns = workload.schema(app, params), list[Any]()
    for field in schema:
        values = range(len(rows)) if field.name == "seq" else [row[field.name] for row in rows]
        try:
            columns.append(of_units(pa.array(values, unit_type(field.type)), field.type))
        except (OverflowError, pa.ArrowInvalid) as error:
            raise Unfit(f"{field.name}: {error}") from None
    return pa.Table.from_arrays(columns, schema=schema)


def _rows(table: pa.Table) -> list[Row]:
    """Return a table as dicts, with values as operators see them."""
    return [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if value == value else NAN
    if isinstance(value, Decimal):
        return int(value.scaleb(-int(value.as_tuple().exponent)))
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {name: _plain(item) for name, item in value.items()} if isinstance(value, dict) else value


# --- properties ------------------------------------------------------------------------------------------------------


def broken(app: App, params: dict[str, Any], events: pa.Table, names: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield the properties that do not hold: the name and the reason, in one line.

    A name is that of the property. If it does not end by AssertionError, the name of the exception follows.

    Args:
        app: The application.
        params: Its parameters.
        events: Events at which no operator fails.
        names: The names to try, as this function yields them; all if empty.
    """
    labels = {name.partition(":")[0] for name in names}
    for name, holds in app.properties.items():
        if names and name not in labels:
            continue
        stream = Scenario(app, params, _rows(events.drop_columns(["seq"])))
        try:
            if holds(stream) is False:
                yield name, f"{name} returns False"
        except (RunFailed, Unfit):
            continue
        except AssertionError as error:
            yield name, f"{_reason(error)} ({_place(error, holds)})"
        except Exception as error:  # a fault of the property
            kind = type(error).__name__
            yield f"{name}: {kind}", f"{kind}: {' '.join(str(error).split())} ({_place(error, holds)})"


def _place(error: Exception, function: Any) -> str:
    """Return file and line of a property that fails."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code is function.__code__]
    return place(function.__code__.co_filename, lines[0])


def _reason(error: AssertionError) -> str:
    """Return the message of an assertion; without one, its text and the first difference of the values it compares."""
    if error.args:
        return " ".join(str(error.args[0]).split())
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    match _statement(frame.f_code.co_filename, line):
        case ast.Assert(ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
            # Scenarios are deterministic, so the operands have the same values again, unless they use up an iterator.
            with suppress(Exception):
                value, other_value = (_value(operand, frame) for operand in (left, right))
                return f"{ast.unparse(left)} is not {ast.unparse(right)}: {difference(value, other_value)}"
            return f"{ast.unparse(left)} is not {ast.unparse(right)}"
        case ast.Assert(test):
            return f"not {ast.unparse(test)}"
    return "an assertion fails"


def _statement(file: str, line: int) -> ast.stmt | None:
    """Return the assertion that covers a line of a file."""
    tree = ast.parse("".join(linecache.getlines(file)))
    inside = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or 0)
    )
    return next(inside, None)


def _value(operand: ast.expr, frame: FrameType) -> Any:
    code = compile(ast.Expression(operand), frame.f_code.co_filename, "eval")
    return eval(code, frame.f_globals | frame.f_locals)  # comprehensions see globals only


def difference(left: Any, right: Any, where: str = "") -> str:
    """Return where two values first differ, and how; both are dicts, lists, or anything that can be compared."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in {**left, **right}:
            if key not in right or key not in left:
                side = "left" if key in left else "right"
                return f"{where}[{key!r}] is only on the {side}: {_short((left if key in left else right)[key])}"
            if left[key] != right[key]:
                return difference(left[key], right[key], f"{where}[{key!r}]")
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        for number, pair in enumerate(zip(left, right, strict=False)):
            if pair[0] != pair[1]:
                return difference(*pair, f"{where}[{number}]")
        if len(left) != len(right):
            number, longer = min(len(left), len(right)), max(left, right, key=len)
            side = "left" if len(left) > len(right) else "right"
            return f"{where}[{number}] is only on the {side}: {_short(longer[number])}"
    return f"{where}{': ' if where else ''}{_short(left)} is not {_short(right)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# --- branches --------------------------------------------------------------------------------------------------------


@contextmanager
def counted_branches() -> Iterator[set[int]]:
    """Count the branches that the interpreters of a block reach."""
    with counted() as branches:
        yield branches.reached


def branches(app: App, params: dict[str, Any]) -> dict[int, str]:
    """Return all branches of an application by number, each as a line with its place, sorted by place."""
    with counted() as result:
        Interpreter(app, params)
    return {number: str(value) for number, value in sorted(result.known.items(), key=lambda item: item[1].place)}
