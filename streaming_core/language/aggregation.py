"""What leaves a windowed stream: aggregates, top rows, functions of one's own, and late rows.

    clicks.key_by("user").window(tumbling("1m")).aggregate(n=agg.count())
    orders.key_by("shop").window(sliding("1h", every="5m")).aggregate(total=agg.sum("price"), mean=agg.avg("price"))
    clicks.key_by("user").window(session("30s")).apply(update=seen, state=Visit, output=Visited, result=left)
    orders.window(count_window(100)).top(10, by="price")

Windows of a number of rows know no time, so they become an operator with a state for each key.

The functions of aggregates are written here, as text, for the fields that they take. Everything that reads an
application reads them as if they stood in its file.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from streaming_core.errors import BadInput, NoSuchName, did_you_mean, unknown
from streaming_core.language import generated
from streaming_core.language.agg import ROWS, Aggregate
from streaming_core.language.declaration import check_field, declares
from streaming_core.language.extent import CountWindow, Extent, in_units
from streaming_core.language.generated import indented
from streaming_core.language.record import (
    Array,
    Counter,
    FieldType,
    Nullable,
    Queue,
    Record,
    Scalar,
    Text,
    TopK,
    boolean,
    i64,
    unfit,
)
from streaming_core.language.windowed import ONE, Keys, Windows

# The field of a row that says how far the watermark was, where windows take late rows.
_WATERMARK = "watermark_at_row"
# The state that knows the highest `ts` so far, and the statements that raise it at a row.
_MARKS: dict[str, FieldType] = {"is_started": boolean, "highest": i64}
_HIGHEST = """\
    if not state.is_started or row.ts > state.highest:
        state.is_started = True
        state.highest = row.ts
"""
_METHODS = ("aggregate", "apply", "top", "top_k", "late")


class Windowing(Protocol):
    """A stream with windows."""

    _app: Any
    _operators: Any

    @property
    def _record(self) -> Record:
        """The record of its rows."""

    @property
    def _module(self) -> str:
        """The module of its application."""

    def process(self, fn: Callable, state: Record, output: Record, flush: Callable | None = None) -> Any:
        """Declare a stateful operator over the stream."""

    def key_by(self, *key: str) -> Any:
        """Key the stream by fields."""


class WindowedStream:
    """The rows of one or several streams, by key and window. Each method declares what leaves when a window expires.

    Rows of `aggregate`, `top` and `top_k` have the end of the window as `ts`, then the key, under its own name, and
    the result. A stream without a key has one window for all rows at a time, on one replica.

    With `early`, the result so far also leaves after each `early` rows of a key and window. Its `ts` is the end of the
    window too.

    With `lateness`, windows still take rows for so long after their result has left. Each such row makes the result so
    far leave again. A second operator keeps the windows for it, so this doubles their memory. Rows are marked with the
    watermark in one state for all keys, on one thread.

    Of a window of a number of rows, a result leaves when its last row comes, with the `ts` of that row. Nothing leaves
    for a window that lacks rows at the end of the stream. Results of global windows leave at the end of the stream, by
    ascending key. Each has the `ts` of the last row of its key.
    """

    def __init__(
        self,
        streams: tuple[Windowing, ...],
        keys: Keys,
        extent: Extent | CountWindow,
        delay: int | str | None,
        idle: int | str | None,
        early: int | str | None,
        lateness: int | str | None,
    ):
        self._stream, self._streams, self._keys, self._extent = streams[0], streams, keys, extent
        self._delay, self._idle = delay, idle
        if isinstance(extent, CountWindow):
            options = {"delay": delay, "idle": idle, "lateness": lateness}
            options |= {"early": early} if extent.rows is not None else {}
            if wrong := next((name for name, value in options.items() if value is not None), None):
                raise self._refusal(f"{wrong} does not go with {extent.name}; remove it")
            if len(streams) > 1 or not (keys.fields or keys is ONE):
                raise self._refusal(f"{extent.name} takes one stream, and fields as its key")
        if len(streams) > 1 and (early, lateness) != (None, None):
            raise self._refusal("early and lateness take one stream; unite the streams with union")
        what, rows = "early", early
        if isinstance(extent, CountWindow) and extent.rows is not None:
            what, rows = "count_window", extent.rows
        # A result leaves after so many rows, as the functions write it.
        self._every = None if rows is None else self._rows(what, rows)
        # The delay of windows that take late rows, in units of `ts`.
        self._whole_delay = None if lateness is None else self._delays(lateness)

    def _refusal(self, why: str) -> BadInput:
        return BadInput(f"app {self._stream._app.name}: window: {why}")

    def _delays(self, lateness: int | str) -> int:
        """The delay of the windows and `lateness`, together."""
        app, extent = self._stream._app, self._extent
        if isinstance(extent, CountWindow) or extent.kind != "multi" or self._every is not None:
            raise self._refusal("lateness goes with tumbling and sliding windows, without early")
        delays = [in_units(lateness, app), app._delay(self._delay)]
        if not all(type(delay) is int and delay >= 0 for delay in delays):
            raise self._refusal(
                f"lateness and delay must be durations such as '30s', or numbers from 0, not {delays[0]!r} and "
                f"{delays[1]!r}"
            )
        return sum(delays)

    def _rows(self, what: str, rows: int | str) -> str:
        """A number of rows, as the text of a function."""
        app = self._stream._app
        if isinstance(rows, str):
            if rows not in app.declared:
                raise BadInput(f"app {app.name}: {what}: {unknown('parameter', rows, app.declared)}")
            param = app.declared[rows]
            if type(param.default) is not int or not (param.minimum or 0) >= 1:
                raise BadInput(f"app {app.name}: {what}: parameter {rows} must be an integer with minimum=1")
            return f"app.params.{rows}"
        if type(rows) is not int or not 1 <= rows < 1 << 63:
            raise BadInput(f"app {app.name}: {what} must be at least 1, or the name of a parameter, got {rows!r}")
        return str(rows)

    def __getattr__(self, name: str) -> Any:
        """Raise NoSuchName, with the known methods."""
        if name in ("count", "sum", "avg", "min", "max", "count_distinct", "first", "last"):
            field = "" if name == "count" else '"field"'
            raise NoSuchName(f"a windowed stream has no method {name!r}; write .aggregate(n=agg.{name}({field}))")
        near = did_you_mean(name, _METHODS)
        raise NoSuchName(
            f"a windowed stream has no method {name!r}{near}; it has aggregate, apply, top, top_k and late"
        )

    @declares
    def aggregate(self, **columns: Aggregate) -> Any:
        """Ready-made aggregates of the rows: `n=agg.count(), mean=agg.avg("price")`, each with the name of its field.

        The operator is called `aggregate`; the next one of the application `aggregate_2`, and so on.
        """
        if not columns:
            raise self._refusal("aggregate needs an aggregate; write for example aggregate(n=agg.count())")
        self._check_one("aggregate")
        record = self._stream._record
        for column in columns:
            check_field("aggregate", column)
        if ROWS in columns:
            raise BadInput(f"aggregate: the field name {ROWS!r} is reserved; rename the field")
        parts = {column: aggregate.of(record, column) for column, aggregate in columns.items()}
        update: list[str] = []
        names: dict[str, Any] = {}
        for column, part in parts.items():
            if (where := columns[column].where) is None:
                update += part.update
            else:
                names[f"_{column}_where"] = generated.named(where, f"{column}_where")
                update += [f"if _{column}_where(row):", *indented([*part.update])]
        return self._declared(
            "aggregate",
            {column: part.state for column, part in parts.items() if part.state is not None}
            | {part.own: i64 for part in parts.values() if part.own is not None}
            | ({ROWS: i64} if any(part.counts for part in parts.values()) else {}),
            update,
            {column: (part.kind, part.result) for column, part in parts.items()},
            names=names,
            merge={column: part.merge for column, part in parts.items() if part.state is not None},
        )

    @declares
    def top(self, n: int | str, by: str, ties: bool = False) -> Any:
        """The rows with the `n` greatest values of a number field, greatest first: field `rank` from 0, and the row.

        Among equal values, the row that came first has the lower rank. With `ties`, so do the other rows whose value is
        the `n`-th greatest. NaN is greater than every number. `n` may be the name of a parameter. The `ts` is that of
        the window.
        """
        self._check_one("top")
        kind, record = self._number("top", by), self._stream._record
        most = self._rows("top", n)
        fields = {name: kind for name, kind in record.fields.items() if name != "ts" and name not in self._keys.fields}
        state = Queue(Record(f"{self._free('top')}_row", {**fields, by: kind}, None))
        if "rank" in fields:
            raise BadInput("top: the result has a field rank of its own; rename that of the row with select")
        if reason := unfit(state):
            raise BadInput(f"top: {reason}; leave it out with select")

        def better(place: str) -> str:
            value, other = f"row.{by}", f"rows[{place}].{by}"
            nan = f" or ({value} != {value} and {other} == {other})" if kind.is_float else ""
            return f"{value} > {other}{nan}"

        def values(row: str) -> str:
            return ", ".join(f"{name}={row}.{name}" for name in state.item.fields)

        def same(value: str, place: str) -> str:
            other = f"rows[{place}].{by}"
            return f"{value} == {other}" + (f" or ({value} != {value} and {other} != {other})" if kind.is_float else "")

        # Of the rows of the loop, `size - i` wait in front of those that stay, and have no greater value.
        stays = f"i < size - 1 or size < {most}"
        if ties:  # as one of the first, or because it equals the row before it
            stays = f"len(rows) - size + i < {most} or {same(f'rows[0].{by}', 'len(rows) - 1')}"
        update = f"""
            rows = state.rows
            size = len(rows)
            is_in = size < {most}
            if not is_in:
                is_in = {better("size - 1")}
            if is_in:
                for i in range(size):
                    if is_in:
                        if {better("0")}:
                            rows.append({values("row")})
                            is_in = False
                    if {stays}:
                        rows.append({values("rows[0]")})
                    rows.popleft()
                if is_in:
                    rows.append({values("row")})
        """
        if ties:
            update += f"""
            elif {same(f"row.{by}", "size - 1")}:
                rows.append({values("row")})
        """
        results = {"rank": (i64, "i")} | {name: (kind, f"state.rows[i].{name}") for name, kind in fields.items()}
        lines = textwrap.dedent(update).strip().splitlines()
        return self._declared("top", {"rows": state}, lines, results, "for i in range(len(state.rows)):")

    @declares
    def top_k(self, field: str, k: int | str) -> Any:
        """The `k` most frequent values of an integer field: fields `rank` from 0, `value` and `count`.

        Of equally frequent values, the smaller one comes first. `k` may be the name of a parameter.
        """
        self._check_one("top_k")
        kind = self._number("top_k", field)
        if kind.is_float:
            raise BadInput(f"top_k({field!r}): {self._stream._record!r} needs an integer field {field}")
        return self._declared(
            "top_k",
            {"counts": Counter(i64), "best": TopK(k)},
            [f"state.best.offer(row.{field}, state.counts.add(row.{field}, 1))"],
            {
                "rank": (i64, "i"),
                "value": (kind if kind.scale is not None else i64, "state.best.key_at(i)"),
                "count": (i64, "state.best.score_at(i)"),
            },
            "for i in range(len(state.best)):",
        )

    @declares
    def apply(
        self,
        update: Callable | tuple[Callable, ...],
        state: Record | tuple[Record, ...],
        output: Record,
        result: Callable | None = None,
        slide: Callable | None = None,
    ) -> Any:
        """Functions of your own; the operator has the name of the (first) `update` function.

        The functions can read `window.start`, `window.end` and `window.key`. A row that is emitted for a window belongs
        to its end: `out.emit(ts=window.end, ...)`.

        Args:
            update: `update(row, window, *states, out)` runs when a row meets a window of one of its keys. A tuple has
                one for each stream. In count and global windows, `update(row, state, out)`.
            state: The record of a state. A tuple has one for each stream; then all functions take all states.
            output: The record of the rows that leave.
            result: `result(window, *states, out)` runs when a window has expired. In a count window,
                `result(row, state, out)`, with its last row. In a global window, `result(state, out)`.
            slide: `slide(window, *states)` runs when a rolling window has advanced.
        """
        updates = update if isinstance(update, tuple) else (update,)
        states = state if isinstance(state, tuple) else (state,)
        is_of_rows = isinstance(self._extent, CountWindow)
        if self._every is None and self._whole_delay is None and not is_of_rows:
            return self._windows().declared(updates, states, output, result, slide)
        if slide is not None or len(updates) != 1 or len(states) != 1:
            what = self._extent.name if isinstance(self._extent, CountWindow) else "early or lateness"
            raise self._refusal(f"a window with {what} takes one update function and one state, and no slide")
        [update], [state] = updates, states
        name = update.__name__
        if isinstance(self._extent, CountWindow):
            if result is None and self._extent.rows is None and self._every is not None:
                raise self._refusal("early needs a result function")
            arguments = "state, out" if self._extent.rows is None else "row, state, out"
            emission = [] if result is None else [f"_result({arguments})"]
            names = {"_update": update, "_result": result}
            return self._of_rows(name, ["_update(row, state, out)"], emission, _counted(name, state), output, names)
        if result is None:
            raise self._refusal("early and lateness need a result function")
        call, emission = ["_update(row, window, state, out)"], ["_result(window, state, out)"]
        names = {"_update": update, "_result": result}
        if self._every is not None:
            early = self._early(name, [*call, f"state.{ROWS} += 1"], emission, names)
            return self._windows().declared((early,), (_counted(name, state),), output, result, None)
        return self._twice(name, update, self._again(name, call, emission, names), state, output, result)

    def _windows(self) -> Windows:
        assert isinstance(self._extent, Extent)
        return Windows(self._stream._app, self._streams, self._keys, self._extent, self._delay, self._idle)

    def _twice(
        self, name: str, update: Callable, again: Callable | None, state: Record, output: Record, result: Callable
    ) -> Any:
        """Declare the windowed operator; with `again`, unite it with a second one, which also takes late rows."""
        windows = self._windows()
        results = windows.declared((update,), (state,), output, result, None)
        if again is None:
            return results
        late = replace(windows, streams=(self._marked(name),), delay=self._whole_delay)
        return results.union(late.declared((again,), (state,), output, None, None))

    def _again(self, name: str, update: list[str], emission: list[str], names: dict[str, Any]) -> Callable | None:
        """Return the update function that emits the result again for a late row; None if windows take no late rows."""
        if self._whole_delay is None:
            return None
        body = [*update, f"if window.end <= row.{_WATERMARK}:", *indented(emission)]
        return self._written(f"{name}_again(row, window, state, out)", body, names)

    def _marked(self, name: str) -> Any:
        """Return the stream with, in each row, the watermark that decides when results leave."""
        fields = self._stream._record.fields
        if _WATERMARK in fields:
            raise BadInput(f"{name}: the field name {_WATERMARK!r} is reserved; rename the field")
        emitted = ", ".join(f"{field}=row.{field}" for field in fields)
        text = (
            f"def {name}_rows(row, state, out):\n{_HIGHEST}"
            f"    out.emit({emitted}, {_WATERMARK}=state.highest - {self._units(self._watermark_delay)})\n"
        )
        output = Record(name, {**fields, _WATERMARK: i64}, None)
        written = generated.function(self._stream._module, text, {"app": self._stream._app})
        return self._stream.process(written, Record(f"{name}_marks", _MARKS, None), output)

    @property
    def _watermark_delay(self) -> int | str:
        """The delay of the windows, in units of `ts`, or a parameter."""
        delay: int | str = self._stream._app._delay(self._delay)
        return delay

    def _units(self, duration: int | str) -> str:
        """A duration in units of `ts`, as the text of a function."""
        return as_text(in_units(duration, self._stream._app))

    @declares
    def late(self) -> Any:
        """The rows that came after all of their windows had expired: those that the results leave out.

        One state serves all keys, because the watermark does. So these rows are found on one thread.
        """
        self._check_one("late")
        extent = self._extent
        if isinstance(extent, CountWindow):
            raise self._refusal(f"no row is late for {extent.name}; remove late()")
        advance, size = self._units(extent.advance), self._units(extent.size)
        delay = self._units(self._watermark_delay if self._whole_delay is None else self._whole_delay)
        return late_rows(self._stream, self._free("late"), f"row.ts // {advance} * {advance} + {size}", delay)

    def _free(self, name: str) -> str:
        """The name of an operator, with a number if the application has one of this name."""
        return str(self._stream._app._free(name))

    def _check_one(self, method: str) -> None:
        """Raise BadInput unless there is one stream, and rows stay in their windows."""
        if len(self._streams) > 1:
            raise self._refusal(f"{method} takes one stream; unite the streams with union, or write apply")
        if isinstance(self._extent, Extent) and self._extent.kind == "single":
            raise self._refusal(f"{method} does not go with rolling; write sliding(size, every), or apply")

    def _number(self, method: str, field: str) -> Scalar:
        record = self._stream._record
        kind = record.fields.get(field)
        if not isinstance(kind, Scalar):
            numbers = ", ".join(name for name, kind in record.fields.items() if isinstance(kind, Scalar))
            raise BadInput(f"{method}({field!r}): {record.name} has the number fields {numbers}")
        return kind

    def _declared(
        self,
        base: str,
        state: dict[str, FieldType],
        update: list[str],
        fields: dict[str, tuple[FieldType, str]],
        loop: str = "",
        names: dict[str, Any] | None = None,
        merge: dict[str, str | None] | None = None,
    ) -> Any:
        """Declare an operator from its state, the statements that run for a row, and the fields of the result.

        The statements can use `names`, and need not count the rows in field ROWS. `merge` says how the fields of the
        state in two parts of a window become one.
        """
        names = names or {}
        record, name, keys = self._stream._record, self._free(base), self._keys.kinds(self._stream)
        if clash := next((key for key in keys if key == "ts" or key in fields), None):
            raise BadInput(f"{base}: the key {clash} has the name of a field of the result; rename it with select")
        if "ts" in fields:
            raise BadInput(f"{base}: ts is the end of the window; rename the field")
        of_rows = self._extent if isinstance(self._extent, CountWindow) else None
        if of_rows and "ts" not in record.fields:
            raise BadInput(f"{base}: {record!r} needs a field ts")
        # The end of a window can lie beyond the type of its rows' ts.
        kinds: dict[str, FieldType] = {"ts": record.fields["ts"] if of_rows else i64, **keys}
        output = Record(name, kinds | {field: kind for field, (kind, _) in fields.items()}, None)
        values = {key: f"row.{key}" if of_rows else f"window.key.{key}" for key in kinds}
        values["ts"] = "row.ts" if of_rows else "window.end"
        if of_rows and of_rows.rows is None:
            # At the end of the stream there is no row, so the state has its time and its key.
            place = {f"row_{key}": kind for key, kind in kinds.items()}
            if reserved := sorted(place.keys() & state.keys()):
                raise BadInput(f"{base}: the field name {reserved[0]!r} is reserved; rename the field")
            values, state = {key: f"state.row_{key}" for key in kinds}, {**state, **place}
            update = ["state.row_ts = row.ts", *update]
            if keys:
                copies = [f"state.row_{key} = row.{key}" for key in keys]
                update = [f"if state.{ROWS} == 0:", *indented(copies), *update]
        values |= {field: value for field, (_, value) in fields.items()}
        emit = f"out.emit({', '.join(f'{field}={value}' for field, value in values.items())})"
        emission = [loop, f"    {emit}"] if loop else [emit]
        if of_rows:
            return self._of_rows(
                name, update, emission, Record(f"{name}_state", {**state, ROWS: i64}, None), output, names
            )
        if self._every is not None:
            state = {**state, ROWS: i64}
        if ROWS in state:
            update = [*update, f"state.{ROWS} += 1"]
        own = Record(f"{name}_state", state, None)
        result = self._written(f"{name}_result(window, state, out)", emission, {})
        if self._every is not None:
            early = self._early(name, update, emission, names)
            return self._windows().declared((early,), (own,), output, result, None)
        function = self._written(f"{name}(row, window, state, out)", update, names)
        merges = tuple((merge or {}).get(field, "add" if field == ROWS else None) for field in own.fields)
        # A condition may fail, in the first window of its row.
        if self._whole_delay is None and not names and None not in merges:
            return replace(self._windows(), merge=merges).declared((function,), (own,), output, result, None)
        return self._twice(name, function, self._again(name, update, emission, names), own, output, result)

    def _early(self, name: str, update: list[str], emission: list[str], names: dict[str, Any]) -> Callable:
        """Return the update function of a window that also emits results after every few rows."""
        body = [*update, f"if state.{ROWS} % {self._every} == 0:", *indented(emission)]
        return self._written(f"{name}(row, window, state, out)", body, names)

    def _of_rows(
        self, name: str, update: list[str], emission: list[str], kept: Record, output: Record, names: dict[str, Any]
    ) -> Any:
        """Declare the operator of a window of rows. Its state starts again after the last row, if any row is the last.

        Args:
            name: The name of the operator.
            update: The statements that take a row into the state.
            emission: The statements that emit the result.
            kept: The record of the state, which counts the rows.
            output: The record of the result.
            names: What the statements call.
        """
        is_global = isinstance(self._extent, CountWindow) and self._extent.rows is None
        zeros = [] if is_global else [line for field, kind in kept.fields.items() for line in resets(field, kind)]
        body, flush = [*update, f"state.{ROWS} += 1"], None
        if self._every is not None:
            test = f"state.{ROWS} % {self._every} == 0" if is_global else f"state.{ROWS} == {self._every}"
            body += [f"if {test}:", *indented([*emission, *zeros])]
        if is_global and emission:
            flush = self._written(f"{name}_result(state, out)", [f"if state.{ROWS} > 0:", *indented(emission)], names)
        function = self._written(f"{name}(row, state, out)", body, names)
        stream = self._stream.key_by(*self._keys.fields) if self._keys.fields else self._stream
        return stream.process(function, state=kept, output=output, flush=flush)

    def _written(self, head: str, body: list[str], names: dict[str, Any]) -> Callable:
        """Compile a function from its head and body, which can use these names and `app`."""
        return generated.function(
            self._stream._module, generated.source(head, body), {**names, "app": self._stream._app}
        )


def as_text(units: int | str) -> str:
    """A number or a parameter, as the text of a function."""
    return f"app.params.{units}" if isinstance(units, str) else str(units)


def late_rows(stream: Windowing, name: str, end: str, delay: str) -> Any:
    """The rows of a stream that come when the watermark has reached the end of their last window."""
    emitted = ", ".join(f"{field}=row.{field}" for field in stream._record.fields)
    text = (
        f"def {name}(row, state, out):\n{_HIGHEST}"
        f"    if {end} <= state.highest - {delay}:\n"
        f"        out.emit({emitted})\n"
    )
    written = generated.function(stream._module, text, {"app": stream._app})
    return stream.process(written, Record(f"{name}_state", _MARKS, None), stream._record)


def _counted(name: str, state: Record) -> Record:
    """Return the record of a state that also counts its rows."""
    if ROWS in state.fields:
        raise BadInput(f"{name}: {state!r}: the field name {ROWS!r} is reserved; rename the field")
    return Record(state.name, {**state.fields, ROWS: i64}, None)


def resets(field: str, kind: FieldType) -> list[str]:
    """Return the statements that reset a field of a state to zero or empty."""
    if isinstance(kind, Scalar | Nullable):
        return [f"state.{field} = {'None' if isinstance(kind, Nullable) else _nothing(kind)}"]
    if isinstance(kind, Array):
        return [f"for i in range(len(state.{field})):", f"    state.{field}[i] = {_nothing(kind.item)}"]
    return [f'state.{field} = b""' if isinstance(kind, Text) else f"state.{field}.clear()"]


def _nothing(kind: Scalar) -> bool | int:
    return False if kind.name == "boolean" else 0
