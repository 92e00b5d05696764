"""Streams, of which pipelines are built: each operator is declared on what it takes (application.py says how)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from streaming_core.errors import BadInput
from streaming_core.language.operator import Operator
from streaming_core.language.record import Record, Scalar, Text


class Pipeline(Protocol):
    """What is built: an App, which makes the streams."""

    name: str

    def _add(self, *args: Any, **kwargs: Any) -> Stream: ...

    def _sink(self, stream: Stream, name: str) -> None: ...

    def window(self, *args: Any, **kwargs: Any) -> Stream: ...


class Stream:
    """What one operator puts out, or several of the same record type, to build upon."""

    def __init__(self, app: Pipeline, operators: list[Operator]):
        self._app, self._operators = app, operators

    @property
    def _record(self) -> Record:
        return self._operators[0].emitted

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a stream has no {name!r}: it has flat_map, key_by, process, window, union and sink")

    def union(self, *others: Stream) -> Stream:
        """This stream and others of its record type as one: of each event, this stream's rows come first.

        Raises:
            BadInput: another record type, or a stream of another application.
        """
        for other in others:
            if other._app is not self._app:
                raise BadInput(f"union: a stream of app {other._app.name} in app {self._app.name}")
            if other._record is not self._record:
                raise BadInput(
                    f"union: streams of {self._record.name} and of {other._record.name}; map one to the other first"
                )
        return Stream(self._app, [operator for stream in (self, *others) for operator in stream._operators])

    def flat_map(self, fn: Callable, output: Record, scratch: Record | None = None) -> Stream:
        """A stateless operator: `fn(row, out)`, or `fn(row, scratch, out)` with a row to work in: scalars, arrays and
        rings, zero and empty at each event."""
        return self._app._add("stateless", fn, self, output, {"map": fn}, scratch=scratch)

    def process(self, fn: Callable, state: Record, output: Record, flush: Callable | None = None) -> Stream:
        """A stateful operator: `fn(row, state, out)`, one state for all events."""
        functions = {"process": fn} | ({"flush": flush} if flush else {})
        return self._app._add("stateful", fn, self, output, functions, state=state)

    def key_by(self, key: str) -> KeyedStream:
        """This stream, keyed by an integer or text field."""
        if not isinstance(key, str):
            raise BadInput("key_by takes the name of a field, such as key_by('user')")
        kind = self._record.fields.get(key)
        if not (isinstance(kind, Text) or (isinstance(kind, Scalar) and not kind.is_float)):
            raise BadInput(f"key_by({key!r}): {self._record!r} has no integer or text field of that name")
        return KeyedStream(self, key)

    def window(self, **declared: Any) -> Stream:
        """A windowed operator over this stream alone; the arguments are those of App.window."""
        return self._app.window(self, **declared)

    def sink(self, name: str = "outputs") -> None:
        """Ends the pipeline: what arrives here is the application's output."""
        self._app._sink(self, name)


class KeyedStream:
    """A stream with a key: state below belongs to a key, and keys may be processed in parallel."""

    def __init__(self, stream: Stream, key: str):
        self._stream, self._key = stream, key

    def process(self, fn: Callable, state: Record, output: Record, flush: Callable | None = None) -> Stream:
        """A partitioned stateful operator: `fn(row, state, out)`, one state per key, zero before its first event."""
        functions = {"process": fn} | ({"flush": flush} if flush else {})
        add = self._stream._app._add
        return add("partitioned", fn, self._stream, output, functions, key=self._key, state=state)
