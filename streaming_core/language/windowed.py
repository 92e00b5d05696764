"""The windowed operator behind `stream.key_by(...).window(...)`: its streams, the keys of a row, and its functions.

What windows, keys and functions mean is in language/window.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from streaming_core.errors import BadInput
from streaming_core.language import generated
from streaming_core.language.extent import Extent, in_units
from streaming_core.language.operator import Operator
from streaming_core.language.record import FieldType, Nullable, Queue, Record, Scalar, Text
from streaming_core.language.window import EVERY, Window


class Input(Protocol):
    """One of the streams that a windowed operator takes."""

    _app: Any
    _operators: list[Operator]

    @property
    def _record(self) -> Record:
        """The record of its rows."""


@dataclass(frozen=True)
class Keys:
    """The keys of a row: fields of it, those that functions add, or as many for every row.

    Attributes:
        fields: The fields whose values are the only key.
        record: The record of the keys that `functions` add, one function for each stream.
        functions: See `record`.
        every: Every row has the keys 0..every-1; may be the name of a parameter.
        multiplicity: Whether a key that a row adds twice counts once (`set`) or twice (`bag`), or a parameter.
    """

    fields: tuple[str, ...] = ()
    record: Record | None = None
    functions: tuple[Callable, ...] = ()
    every: int | str | None = None
    multiplicity: str = "set"

    def kinds(self, stream: Input) -> dict[str, FieldType]:
        """The fields of a key, which a result has."""
        if self is ONE:
            return {}
        if self.fields:
            return {field: stream._record.fields[field] for field in self.fields}
        return (EVERY if self.record is None else self.record).fields


# The key of all rows, where the stream has none.
ONE = Keys(every=1)


@dataclass(frozen=True)
class Windows:
    """Windows over one or several streams: all that an operator needs but its functions."""

    app: Any
    streams: tuple[Input, ...]
    keys: Keys
    extent: Extent
    delay: int | str | None
    idle: int | str | None
    merge: tuple[str | None, ...] = ()

    def declared(
        self,
        updates: tuple[Callable, ...],
        states: tuple[Record, ...],
        output: Record,
        result: Callable | None,
        slide: Callable | None,
    ) -> Any:
        """Add the operator to the application, and return its stream.

        Raises:
            BadInput: The streams, the keys and the functions do not fit together.
        """
        name = getattr(updates[0], "__name__", "window") if updates else "window"
        streams = self.streams
        if len({len(streams), len(updates), len(states)}) > 1:
            counts = f"got {len(updates)} updates and {len(states)} states for {len(streams)} streams"
            raise self.refusal(name, f"each stream needs one update function and one state; {counts}")
        self.check_time(name)
        if slide is not None and self.extent.kind != "single":
            raise self.refusal(name, "slide goes only with rolling windows; remove slide, or write rolling(size)")
        functions: dict[str, Callable] = {f"update_{i}": fn for i, fn in enumerate(updates)}
        functions |= {f"keys_{i}": fn for i, fn in enumerate(self.keys.functions)}
        functions |= {role: fn for role, fn in (("result", result), ("slide", slide)) if fn is not None}
        windows = self
        if self.extent.kind == "session" and self.app._delay(self.delay) != 0:
            windows = replace(self, streams=(self.in_order(name),), delay=0)
        return windows.added(name, functions, states, output)

    def check_time(self, name: str) -> None:
        """Raise BadInput unless the rows have event time."""
        for stream in self.streams:
            ts = stream._record.fields.get("ts")
            if not isinstance(ts, Scalar) or ts.is_float or ts.name == "boolean":
                raise self.refusal(name, f"{stream._record!r} needs an integer field ts")

    def refusal(self, name: str, why: str) -> BadInput:
        """The error that names application and operator."""
        return BadInput(f"app {self.app.name}: window {name}: {why}")

    def in_order(self, name: str) -> Any:
        """Return the stream of a session in the order of `ts`, and of arrival where that is equal.

        A state cannot become one with another, as those of two sessions would when a row comes between them. So a row
        waits as a session of its own, whose key is its `ts`.
        """
        if len(self.streams) > 1:
            raise self.refusal(name, "sessions with a delay take one stream; unite the streams with union")
        [stream], app, name = self.streams, self.app, f"{name}_in_order"
        fields = stream._record.fields
        if other := next(
            (field for field, kind in fields.items() if not isinstance(kind, Scalar | Text | Nullable)), None
        ):
            reason = f"sessions with a delay keep numbers and texts only; leave {other} out with select"
            raise self.refusal(name.removesuffix("_in_order"), reason)

        def written(role: str, body: str) -> Callable:
            return generated.function(app._module, f"def {name}{role}:\n    {body}\n")

        def values(fields: Iterable[str], row: str) -> str:
            return ", ".join(f"{field}={row}{field}" for field in fields)

        emitted = values(fields, "state.rows[i].")
        key = Record(f"{name}_key", {"ts": fields["ts"]}, None)
        state = Record(f"{name}_state", {"rows": Queue(Record(f"{name}_row", dict(fields), None))}, None)
        functions = {
            "update_0": written("(row, window, state, out)", f"state.rows.append({values(fields, 'row.')})"),
            "keys_0": written("_keys(row, keys)", "keys.add(ts=row.ts)"),
            "result": written(
                "_result(window, state, out)", f"for i in range(len(state.rows)):\n        out.emit({emitted})"
            ),
        }
        keys = Keys(record=key, functions=(functions["keys_0"],))
        waiting = replace(self, extent=replace(self.extent, most=None), keys=keys)
        return waiting.added(name, functions, (state,), stream._record)

    def added(self, name: str, functions: dict[str, Callable], states: tuple[Record, ...], output: Record) -> Any:
        """Add the operator to the application, and return its stream."""
        app, keys, extent = self.app, self.keys, self.extent
        key = EVERY if keys.record is None else keys.record
        if keys.fields:
            key = Record("Key", keys.kinds(self.streams[0]), None)
        if len(keys.fields) > 1:
            values = ", ".join(f"{field}=row.{field}" for field in keys.fields)
            text = f"def {name}_keys(row, keys):\n    keys.add({values})\n"
            functions |= {f"keys_{i}": generated.function(app._module, text) for i in range(len(self.streams))}
        window = Window(
            extent.kind,
            in_units(extent.advance, app),
            in_units(extent.size, app),
            app._delay(self.delay),
            None if self.idle is None else in_units(self.idle, app),
            key,
            keys.fields[0] if len(keys.fields) == 1 else None,
            keys.every,
            keys.multiplicity,
            tuple(i for i, stream in enumerate(self.streams) for _ in stream._operators),
            states,
            not functions.keys().isdisjoint(("result", "slide")),
            None if self.extent.most is None else in_units(self.extent.most, app),
            self.merge,
        )
        inputs = [operator for stream in self.streams for operator in stream._operators]
        return app._add(Operator("windowed", name, inputs, output, functions, window=window))
