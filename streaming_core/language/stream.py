"""Streams: an application builds its pipeline by declaring each operator on the stream that it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from streaming_core.errors import BadInput, did_you_mean
from streaming_core.language.aggregation import WindowedStream
from streaming_core.language.declaration import declares
from streaming_core.language.extent import CountWindow, Extent
from streaming_core.language.operator import Operator
from streaming_core.language.record import FieldType, Record, Scalar, Text
from streaming_core.language.windowed import Windows


def _is_key(kind: FieldType | None) -> bool:
    """Whether a stream can have a field of this type as its key."""
    return isinstance(kind, Text) or (isinstance(kind, Scalar) and not kind.is_float)


def _name(fn: Callable) -> str:
    """The name of an operator with this function; empty if it is no function, which the application rejects."""
    return getattr(fn, "__name__", "")


class Pipeline(Protocol):
    """The application that the streams belong to."""

    name: str
    _module: str

    def _add(self, operator: Operator) -> Stream:
        """Add an operator to the application."""

    def _sink(self, stream: Stream, name: str) -> None:
        """Add a sink to the application."""


class Stream:
    """The output of one operator, or of several with the same record."""

    def __init__(self, app: Pipeline, operators: list[Operator]):
        self._app, self._operators = app, operators

    @property
    def _record(self) -> Record:
        return self._operators[0].emitted

    @property
    def _module(self) -> str:
        return self._app._module

    def __getattr__(self, name: str) -> Any:
        near = did_you_mean(name, ("flat_map", "key_by", "process", "window", "union", "sink"))
        raise AttributeError(
            f"a stream has no method {name!r}{near}; it has flat_map, key_by, process, window, union and sink"
        )

    @declares
    def union(self, *others: Stream) -> Stream:
        """Unite this stream with others of the same record; for each event, the rows of this stream come first."""
        for other in others:
            if other._app is not self._app:
                raise BadInput(f"union: app {self._app.name} cannot use a stream of app {other._app.name}")
            if other._record is not self._record:
                raise BadInput(
                    f"union: all streams must have one record, got {self._record.name} and {other._record.name}; "
                    "convert one of them with flat_map"
                )
        return Stream(self._app, [operator for stream in (self, *others) for operator in stream._operators])

    @declares
    def flat_map(self, fn: Callable, output: Record, scratch: Record | None = None) -> Stream:
        """A stateless operator: `fn(row, out)`, or `fn(row, scratch, out)`.

        The scratch row has scalars, arrays and rings. It is zero and empty at each event.
        """
        return self._app._add(Operator("stateless", _name(fn), self._operators, output, {"map": fn}, scratch=scratch))

    @declares
    def process(self, fn: Callable, state: Record, output: Record, flush: Callable | None = None) -> Stream:
        """A stateful operator: `fn(row, state, out)`, one state for all events."""
        functions = {"process": fn} | ({"flush": flush} if flush else {})
        return self._app._add(Operator("stateful", _name(fn), self._operators, output, functions, state=state))

    @declares
    def key_by(self, key: str) -> KeyedStream:
        """This stream, keyed by an integer or text field."""
        kind = self._record.fields.get(key)
        if not _is_key(kind):
            keys = [name for name, kind in self._record.fields.items() if _is_key(kind)]
            raise BadInput(f"key_by({key!r}): {self._record.name} has the integer and text fields {', '.join(keys)}")
        return KeyedStream(self, key)

    @declares
    def window(
        self,
        *,
        size: int | str,
        advance: int | str | None = None,
        kind: str = "multi",
        delay: int | str | None = None,
        idle: int | str | None = None,
    ) -> Windows:
        """Begin the declaration of a windowed operator over this stream alone; see App.window."""
        return Windows(self._app, (self,), size, advance, kind, delay, idle)

    @declares
    def sink(self, name: str = "outputs") -> None:
        """End the pipeline: the rows that arrive here are the output of the application.

        Several sinks give one output, whose column `sink` numbers them from 0 as they are declared (language/sinks.py).
        """
        self._app._sink(self, name)


class KeyedStream:
    """A stream with a key. Each key has its own state, so operators can process keys in parallel."""

    def __init__(self, stream: Stream, key: str):
        self._stream, self._key = stream, key

    @declares
    def process(self, fn: Callable, state: Record, output: Record, flush: Callable | None = None) -> Stream:
        """A partitioned stateful operator: `fn(row, state, out)`, one state per key, zero before its first event."""
        functions = {"process": fn} | ({"flush": flush} if flush else {})
        stream = self._stream
        return stream._app._add(
            Operator("partitioned", _name(fn), stream._operators, output, functions, key=self._key, state=state)
        )

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError, with the method that was probably meant."""
        near = did_you_mean(name, ("process", "window"))
        raise AttributeError(f"a keyed stream has no method {name!r}{near}; it has process and window")

    @declares
    def window(
        self, extent: Extent | CountWindow, early: int | str | None = None, lateness: int | str | None = None
    ) -> WindowedStream:
        """The windows of each key: `tumbling(size)`, `sliding(size, every)`, `session(gap)` or `count_window(rows)`.

        Args:
            extent: where windows begin and end.
            early: the result so far of a key and window also leaves after each `early` rows; may be the name of a
                parameter.
            lateness: windows take late rows for so long, and each of these makes the result leave again.
        """
        return WindowedStream(self._stream, self._key, extent, early, lateness)
