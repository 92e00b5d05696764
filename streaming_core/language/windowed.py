"""The declaration of a windowed operator, in three steps: the windows, the keys of a row, and the functions.

    app.window(left, right, size="1m", advance="10s").key_by("user").apply(
        update=(of_left, of_right), state=(Lefts, Rights), output=Pair, result=total
    )

`App.window` and `Stream.window` begin a declaration. Its last step, `apply`, checks the whole and adds the operator to
the application. What windows, keys and functions mean is in language/window.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from streaming_core.errors import BadInput, did_you_mean, unknown
from streaming_core.language import generated
from streaming_core.language.declaration import declares
from streaming_core.language.extent import in_units
from streaming_core.language.operator import Operator
from streaming_core.language.record import Queue, Record, Scalar, Text
from streaming_core.language.window import EVERY, KINDS, Window


class Input(Protocol):
    """One of the streams that a windowed operator takes."""

    _app: Any
    _operators: list[Operator]

    @property
    def _record(self) -> Record:
        """The record of its rows."""


@dataclass(frozen=True)
class Windows:
    """Windows over one or several streams; `key_by` continues the declaration."""

    app: Any
    streams: tuple[Input, ...]
    size: int | str
    advance: int | str | None
    kind: str
    delay: int | str | None
    idle: int | str | None

    @declares
    def key_by(
        self,
        key: Record | str | None = None,
        keys: Callable | tuple[Callable, ...] | None = None,
        every: int | str | None = None,
        multiplicity: str = "set",
    ) -> KeyedWindows:
        """Declare the keys of a row, in one of three ways.

        - `key_by("field")`: the value of a field.
        - `key_by(Record, keys=fn)`: each key that `fn(row, keys)` adds with `keys.add(field=value, ...)`.
        - `key_by(every=n)`: the keys 0..n-1 for every row; a function reads `window.key.index`.

        Args:
            key: The field, or the record of a key.
            keys: The function that adds the keys of a row; a tuple has one for each stream.
            every: The number of keys that every row has, or the parameter that holds it.
            multiplicity: Whether a key that a row adds twice counts once (`set`) or twice (`bag`), or the parameter
                that says so.
        """
        return KeyedWindows(self, Keys(key, keys, every, multiplicity))

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError, with the step that comes next."""
        raise AttributeError(f"windows have no method {name!r}; declare the keys of a row next, with key_by")


@dataclass(frozen=True)
class Keys:
    """The keys of a row, as `Windows.key_by` takes them."""

    key: Record | str | None
    keys: Callable | tuple[Callable, ...] | None
    every: int | str | None
    multiplicity: str


@dataclass(frozen=True)
class KeyedWindows:
    """The windows of each key; `apply` adds the operator."""

    windows: Windows
    keys: Keys

    @declares
    def apply(
        self,
        update: Callable | tuple[Callable, ...],
        state: Record | tuple[Record, ...],
        output: Record,
        result: Callable | None = None,
        slide: Callable | None = None,
    ) -> Any:
        """Add the operator, which has the name of its (first) `update` function.

        The functions can read `window.start`, `window.end` and `window.key`. A row that is emitted for a window belongs
        to its end: `out.emit(ts=window.end, ...)`.

        Args:
            update: `update(row, window, *states, out)` runs when a row meets a window of one of its keys. A tuple has
                one for each stream.
            state: The record of a state. A tuple has one for each stream; then all functions take all states.
            output: The record of the rows that leave.
            result: `result(window, *states, out)` runs when a window has expired.
            slide: `slide(window, *states)` runs when a window of kind `single` has advanced.

        Returns:
            The stream of the rows that leave.
        """
        updates = update if isinstance(update, tuple) else (update,)
        states = state if isinstance(state, tuple) else (state,)
        declaration = _Declaration(self.windows, self.keys, updates, states)
        declaration.check_streams()
        declaration.check_kind(slide)
        functions = declaration.functions()
        functions |= {role: fn for role, fn in (("result", result), ("slide", slide)) if fn is not None}
        if self.windows.kind == "session" and self.windows.app._delay(self.windows.delay) != 0:
            in_order = replace(self.windows, streams=(declaration.in_order(),), delay=0)
            declaration = replace(declaration, windows=in_order)
        return declaration.added(functions, output)

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError, with the step that comes next."""
        near = did_you_mean(name, ("apply",))
        raise AttributeError(f"keyed windows have no method {name!r}{near}; declare the functions next, with apply")


@dataclass(frozen=True)
class _Declaration:
    """A whole declaration, whose parts must fit together."""

    windows: Windows
    keys: Keys
    updates: tuple[Callable, ...]
    states: tuple[Record, ...]

    def refusal(self, why: str) -> BadInput:
        """The error that names application and operator."""
        name = getattr(self.updates[0], "__name__", "window") if self.updates else "window"
        return BadInput(f"app {self.windows.app.name}: window {name}: {why}")

    def check_streams(self) -> None:
        """Raise BadInput unless each stream has event time, an update function and a state."""
        app, streams = self.windows.app, self.windows.streams
        for stream in streams:
            if stream._app is not app:
                raise self.refusal(f"cannot use a stream of app {stream._app.name}")
            ts = stream._record.fields.get("ts")
            if not isinstance(ts, Scalar) or ts.is_float or ts.name == "boolean":
                raise self.refusal(f"{stream._record!r} needs an integer field ts")
        if not streams or not len(streams) == len(self.updates) == len(self.states):
            counts = f"got {len(self.updates)} updates and {len(self.states)} states for {len(streams)} streams"
            raise self.refusal(f"each stream needs one update function and one state; {counts}")
        keys = self.keys
        if (keys.key is None) == (keys.every is None) or (keys.keys is None) == isinstance(keys.key, Record):
            raise self.refusal(
                'declare the keys in one way: key="field", or key=Record and keys=function, or every=number'
            )

    def check_kind(self, slide: Callable | None) -> None:
        """Raise BadInput unless a window of this kind has the arguments that it needs, and no others."""
        kind, advance = self.windows.kind, self.windows.advance
        if kind not in KINDS:
            raise self.refusal(unknown("kind", kind, KINDS))
        if slide is not None and kind != "single":
            raise self.refusal('slide works only with kind="single"; remove slide, or change the kind')
        if (advance is None) != (kind == "session"):
            raise self.refusal(f'kind "{kind}" {"has no" if advance is not None else "needs an"} advance')

    def functions(self) -> dict[str, Callable]:
        """The update and key functions, by their roles in the operator."""
        functions: dict[str, Callable] = {f"update_{i}": fn for i, fn in enumerate(self.updates)}
        if self.keys.keys is not None:
            key_functions = self.keys.keys if isinstance(self.keys.keys, tuple) else (self.keys.keys,)
            streams = len(self.windows.streams)
            if len(key_functions) != streams:
                raise self.refusal(
                    f"each stream needs one keys function; got {len(key_functions)} for {streams} streams"
                )
            functions |= {f"keys_{i}": fn for i, fn in enumerate(key_functions)}
        return functions

    def key_record(self) -> Record:
        """The record of a key."""
        key = self.keys.key
        if key is None:
            return EVERY
        if isinstance(key, str):
            kind, *others = (stream._record.fields.get(key) for stream in self.windows.streams)
            if kind is None or any(other != kind for other in others):
                raise self.refusal(f"all streams need a field {key!r} of the same type")
            key = Record("Key", {key: kind}, None)
        for name, kind in key.fields.items():
            if not isinstance(kind, Scalar | Text) or (isinstance(kind, Scalar) and kind.is_float):
                raise self.refusal(f"key field {name} must be an integer or a text")
        return key

    def in_order(self) -> Any:
        """Return the stream of a session in the order of `ts`, and of arrival where that is equal.

        A state cannot become one with another, as those of two sessions would when a row comes between them. So a row
        waits as a session of its own, whose key is its `ts`. Texts are in the key, because a state holds none.
        """
        if len(self.windows.streams) > 1:
            raise self.refusal("sessions with a delay take one stream; unite the streams with union")
        [stream], app, name = self.windows.streams, self.windows.app, f"{self.updates[0].__name__}_in_order"
        fields = stream._record.fields
        texts = {field: kind for field, kind in fields.items() if isinstance(kind, Text)}
        kept = {field: kind for field, kind in fields.items() if field not in texts}
        if other := next((field for field, kind in kept.items() if not isinstance(kind, Scalar)), None):
            raise self.refusal(f"sessions with a delay keep numbers and texts only; leave {other} out with flat_map")

        def written(role: str, body: str) -> Callable:
            return generated.function(app._module, f"def {name}{role}:\n    {body}\n")

        def values(fields: Iterable[str], row: str) -> str:
            return ", ".join(f"{field}={row}{field}" for field in fields)

        emitted = ", ".join(filter(None, [values(texts, "window.key."), values(kept, "state.rows[i].")]))
        key = Record(f"{name}_key", {"ts": fields["ts"], **texts}, None)
        state = Record(f"{name}_state", {"rows": Queue(Record(f"{name}_row", kept, None))}, None)
        update = written("(row, window, state, out)", f"state.rows.append({values(kept, 'row.')})")
        functions = {
            "update_0": update,
            "keys_0": written("_keys(row, keys)", f"keys.add({values(key.fields, 'row.')})"),
            "result": written(
                "_result(window, state, out)", f"for i in range(len(state.rows)):\n        out.emit({emitted})"
            ),
        }
        waiting = _Declaration(self.windows, Keys(key, functions["keys_0"], None, "set"), (update,), (state,))
        return waiting.added(functions, stream._record)

    def added(self, functions: dict[str, Callable], output: Record) -> Any:
        """Add the operator to the application, and return its stream."""
        windows, keys, app = self.windows, self.keys, self.windows.app
        for state in self.states:
            app._refuse("state", state, Text)
        window = Window(
            windows.kind,
            1 if windows.advance is None else in_units(windows.advance, app),
            in_units(windows.size, app),
            app._delay(windows.delay),
            None if windows.idle is None else in_units(windows.idle, app),
            self.key_record(),
            keys.key if isinstance(keys.key, str) else None,
            keys.every,
            keys.multiplicity,
            tuple(i for i, stream in enumerate(windows.streams) for _ in stream._operators),
            self.states,
            not functions.keys().isdisjoint(("result", "slide")),
        )
        inputs = [operator for stream in windows.streams for operator in stream._operators]
        name = getattr(self.updates[0], "__name__", "")
        return app._add(Operator("windowed", name, inputs, output, functions, window=window))
