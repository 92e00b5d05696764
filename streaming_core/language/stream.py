"""Streams: an application builds its pipeline by declaring each operator on the stream that it takes."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, Protocol

from streaming_core.errors import BadInput, NoSuchName, did_you_mean, unknown
from streaming_core.language import generated, lookup
from streaming_core.language.aggregation import WindowedStream
from streaming_core.language.declaration import check_field, declares
from streaming_core.language.extent import CountWindow, Extent
from streaming_core.language.keys import check_fields, is_key, with_key
from streaming_core.language.lifetime import expiring
from streaming_core.language.lookup import LookupTable
from streaming_core.language.operator import Operator
from streaming_core.language.record import FieldType, Record, Scalar, Text, boolean
from streaming_core.language.windowed import ONE, Keys


def _name(fn: Callable) -> str:
    """The name of an operator with this function; empty if it is no function, which the application rejects."""
    return getattr(fn, "__name__", "")


class Pipeline(Protocol):
    """The application that the streams belong to."""

    name: str
    _module: str

    def _add(self, operator: Operator) -> Stream:
        """Add an operator to the application."""

    def _free(self, base: str) -> str:
        """A name that no operator has."""

    def _sink(self, stream: Stream, name: str) -> None:
        """Add a sink to the application."""


class Connected:
    """One or several streams, as windows take them (App.connect)."""

    def __init__(self, streams: tuple[Stream, ...]):
        self._streams = streams

    @declares
    def key_by(
        self,
        *key: str | Record | Callable,
        keys: Callable | tuple[Callable, ...] | None = None,
        every: int | str | None = None,
        multiplicity: str = "set",
    ) -> KeyedStream:
        """The key of a row, in one of four ways. Windows take all of them, `process` takes the first two.

        - `key_by("field", ...)`: the values of integer and text fields, which all streams have.
        - `key_by(fn)`: the integer or text that `fn(row)` returns, or a tuple of these; `fn` may be a lambda. The rows
          get the values as fields: `key`, or `key_0`, `key_1`, ... for a tuple (language/keys.py).
        - `key_by(Record, keys=fn)`: each key that `fn(row, keys)` adds with `keys.add(field=value, ...)`.
        - `key_by(every=n)`: the keys 0..n-1 for every row; a function reads `window.key.index`.

        Args:
            *key: The fields, the function, or the record of a key.
            keys: The function that adds the keys of a row; a tuple has one for each stream.
            every: The number of keys that every row has, or the parameter that holds it.
            multiplicity: Whether a key that a row adds twice counts once (`set`) or twice (`bag`), or the parameter
                that says so.
        """
        functions = () if keys is None else keys if isinstance(keys, tuple) else (keys,)
        fields = tuple(part for part in key if isinstance(part, str))
        record = next((part for part in key if isinstance(part, Record)), None)
        several = len(key) > 1 and len(fields) < len(key)
        if several or bool(key) == (every is not None) or (record is None) == bool(functions):
            ways = '"field", ..., or a function, or Record and keys=function, or every=number'
            raise BadInput(f"key_by takes the key in one way: {ways}")
        if key and isinstance(key[0], FunctionType):
            return self._key_by(key[0])
        for stream in self._streams if fields else ():
            check_fields(stream._record, fields)
            for field in fields:
                if stream._record.fields[field] != self._streams[0]._record.fields[field]:
                    raise BadInput(f"key_by({field!r}): all streams need the field {field} with the same type")
        if functions and len(functions) != len(self._streams):
            counts = f"got {len(functions)} for {len(self._streams)} streams"
            raise BadInput(f"key_by: each stream needs one keys function; {counts}")
        for name, kind in record.fields.items() if record else ():
            if not is_key(kind):
                raise BadInput(f"key_by: key field {name} must be an integer or a text")
        return KeyedStream(self._streams, Keys(fields, record, functions, every, multiplicity))

    def _key_by(self, function: Callable) -> KeyedStream:
        """The streams, whose rows have the key that a function computes as fields."""
        keyed: list[Stream] = []
        fields: tuple[str, ...] = ()
        for stream in self._streams:
            name = stream._app._free("keyed" if function.__name__ == "<lambda>" else function.__name__)
            operator, output, fields = with_key(generated.named(function, name), stream._record, name)
            keyed.append(stream.flat_map(operator, output))
        return Connected(tuple(keyed)).key_by(*fields)

    @declares
    def window(
        self,
        extent: Extent | CountWindow,
        *,
        delay: int | str | None = None,
        idle: int | str | None = None,
        early: int | str | None = None,
        lateness: int | str | None = None,
    ) -> WindowedStream:
        """Windows of all rows together, as if they had one key: one replica works. See KeyedStream.window."""
        return KeyedStream(self._streams, ONE).window(extent, delay=delay, idle=idle, early=early, lateness=lateness)

    def __getattr__(self, name: str) -> Any:
        """Raise NoSuchName, with the step that comes next."""
        near = did_you_mean(name, ("key_by", "window"))
        raise NoSuchName(f"connected streams have no method {name!r}{near}; they have key_by and window")


class Stream(Connected):
    """The output of one operator, or of several with the same record."""

    def __init__(self, app: Pipeline, operators: list[Operator]):
        super().__init__((self,))
        self._app, self._operators = app, operators

    @property
    def _record(self) -> Record:
        return self._operators[0].emitted

    @property
    def _module(self) -> str:
        return self._app._module

    def __getattr__(self, name: str) -> Any:
        known = ("filter", "select", "lookup", "flat_map", "key_by", "process", "window", "union", "sink")
        near = " (did you mean 'select' or 'flat_map'?)" if name == "map" else did_you_mean(name, known)
        raise NoSuchName(f"a stream has no method {name!r}{near}; it has {', '.join(known[:-1])} and {known[-1]}")

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
    def filter(self, fn: Callable) -> Stream:
        """The rows for which `fn(row)` is true; `fn` may be a lambda."""
        name = self._app._free("filter" if fn.__name__ == "<lambda>" else fn.__name__)
        text = f"def {name}(row, out):\n    if _is_wanted(row):\n        out.emit(row)\n"
        names = {"_is_wanted": generated.named(fn, name)}
        return self.flat_map(generated.function(self._module, text, names), self._record)

    @declares
    def select(self, *fields: str, **columns: str | tuple) -> Stream:
        """Rows with these fields, as SELECT has them: `select("user", cents="price", euros=(f64, fn))`.

        The operator is called `select`; the next one of the application `select_2`, and so on.

        Args:
            *fields: Fields of the row, which keep their names.
            **columns: By its new name, a field of the row, or a type and a function: `fn(row)` returns the value, and
                may be a lambda.
        """
        name, record = self._app._free("select"), self._record
        if repeated := next((field for n, field in enumerate(fields) if field in (*fields[:n], *columns)), None):
            raise BadInput(f"select: two fields of the result are called {repeated}; rename one")
        kinds: dict[str, FieldType] = {}
        values, names = [], {}
        for column, value in [*((field, field) for field in fields), *columns.items()]:
            check_field("select", column)
            if isinstance(value, str):
                if value not in record.fields:
                    raise BadInput(f"select: {unknown('field', value, record.fields)}")
                kinds[column], text = record.fields[value], f"row.{value}"
            else:
                kind, fn = value if len(value) == 2 else (None, None)
                if not isinstance(kind, Scalar | Text) or not isinstance(fn, FunctionType):
                    raise BadInput(
                        f"select: {column} must be a field, or a type and a function such as "
                        "(f64, lambda row: row.price / 2)"
                    )
                kinds[column], text = kind, f"_{column}(row)"
                names[f"_{column}"] = generated.named(fn, column)
            values.append(f"{column}={text}")
        if not kinds:
            raise BadInput('select needs a field; write for example select("ts", "price")')
        text = f"def {name}(row, out):\n    out.emit({', '.join(values)})\n"
        return self.flat_map(generated.function(self._module, text, names), Record(name, kinds, None))

    @declares
    def lookup(self, table: LookupTable, on: str, how: str = "inner") -> Stream:
        """The rows with the other fields of the row that a table has for their key.

        A field that the stream has too gets the name of the table's record in front: `seller_name`. The operator is
        called `lookup`; the next one of the application `lookup_2`, and so on.

        Args:
            table: The table (App.lookup_table).
            on: The field of the stream with the key.
            how: `inner`: without rows whose key the table lacks. `left`: with null in the fields of the table for them.
        """
        return self._app._add(lookup.operator(self._app, self._operators, table, on, how))

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
    def sink(self, name: str = "outputs") -> None:
        """End the pipeline: the rows that arrive here are the output of the application.

        Several sinks give one output, whose column `sink` numbers them from 0 as they are declared (language/sinks.py).
        """
        self._app._sink(self, name)


class KeyedStream:
    """Streams with a key. Each key has its own state, so operators can process keys in parallel."""

    def __init__(self, streams: tuple[Stream, ...], keys: Keys):
        self._streams, self._keys = streams, keys

    @declares
    def process(
        self,
        fn: Callable,
        state: Record,
        output: Record,
        flush: Callable | None = None,
        ttl: int | str | None = None,
        timer: Callable | None = None,
        every: int | str | None = None,
    ) -> Stream:
        """A partitioned stateful operator: `fn(row, state, out)`, one state per key, zero before its first event.

        Args:
            fn: runs for each row.
            state: the record of a state.
            output: the record of the rows that leave.
            flush: `flush(state, out)` runs for each key at the end of the stream.
            ttl: the time to live. A row whose `ts` is so long after the latest row of its key, or longer, has a new
                state. Executor `pinned` runs such operators. They have no final states.
            timer: `timer(ts, key, state, out)` runs when `state.timer` is due, a field of type `i64`; 0 means no timer.
                `ts` is that time, and the field is 0 again. It needs `ttl` and `every`.
            every: the time between two looks at the timers; `ttl` is a multiple of it. A timer is also due before the
                next row of its key.
        """
        if len(self._streams) > 1 or not self._keys.fields:
            raise BadInput('process takes one stream whose key is fields; write stream.key_by("field").process(...)')
        [stream] = self._streams
        if ttl is not None:
            if flush is not None:
                raise BadInput(f"app {stream._app.name}: flush does not go with ttl; remove one of them")
            return expiring(stream, self._keys, fn, state, output, ttl, timer, every)
        if timer is not None or every is not None:
            raise BadInput(f"app {stream._app.name}: timer and every go with ttl, after which a state ends")
        functions = {"process": fn} | ({"flush": flush} if flush else {})
        key = self._keys.fields
        return stream._app._add(
            Operator("partitioned", _name(fn), stream._operators, output, functions, key=key, state=state)
        )

    @declares
    def distinct(self, ttl: int | str | None = None) -> Stream:
        """The first row of each key. Without a time to live, the memory grows with the number of keys."""
        [stream, *_] = self._streams
        name = stream._app._free("distinct")
        text = f"def {name}(row, state, out):\n    if not state.is_known:\n        out.emit(row)\n"
        text += "    state.is_known = True\n"
        state = Record(f"{name}_state", {"is_known": boolean}, None)
        return self.process(generated.function(stream._module, text), state, stream._record, ttl=ttl)

    def __getattr__(self, name: str) -> Any:
        """Raise NoSuchName, with the method that was probably meant."""
        near = did_you_mean(name, ("process", "window", "distinct"))
        raise NoSuchName(f"a keyed stream has no method {name!r}{near}; it has process, window and distinct")

    @declares
    def window(
        self,
        extent: Extent | CountWindow,
        *,
        delay: int | str | None = None,
        idle: int | str | None = None,
        early: int | str | None = None,
        lateness: int | str | None = None,
    ) -> WindowedStream:
        """The windows of each key: where `extent` says that they begin and end.

        All durations may be text such as "1m", or names of parameters.

        Args:
            extent: `tumbling(size)`, `sliding(size, every)`, `rolling(size)`, `session(gap)`, `count_window(rows)` or
                `global_window()`.
            delay: How far the `ts` of a row may lie behind that of the latest row. With several streams, the latest row
                is that of the stream that is furthest behind. Default: the `delay` of the sources.
            idle: A stream that is further behind the others than this, or that has had no row, delays no window.
                None: tumbling and sliding windows wait for every stream. Others go by the latest row of any stream.
            early: The result so far of a key and window also leaves after each `early` rows; may be the name of a
                parameter.
            lateness: Windows take late rows for so long, and each of these makes the result leave again.
        """
        return WindowedStream(self._streams, self._keys, extent, delay, idle, early, lateness)
