"""Aggregates of windows: declarations that become windowed operators (language/windowed.py).

    clicks.key_by("user").window(tumbling("1m")).count()
    orders.key_by("shop").window(sliding("1h", every="5m")).sum("price")
    clicks.key_by("user").window(session("30s")).count()
    clicks.key_by("user").window(count_window(100)).count()

Windows of a number of rows know no time, so they become a partitioned operator.

The functions of such an operator are written here, as text, for the fields that it takes. Everything that reads an
application reads them as if they stood in its file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from streaming_core.errors import BadInput, did_you_mean, unknown
from streaming_core.language import generated
from streaming_core.language.declaration import declares
from streaming_core.language.extent import CountWindow, Extent, in_units
from streaming_core.language.record import Array, Counter, FieldType, Record, Scalar, TopK, boolean, f64, i64

# The field that counts the rows of a state, where an aggregate needs to know.
_ROWS = "rows_so_far"
# The field of a row that says how far the watermark was, where windows take late rows.
_WATERMARK = "watermark_at_row"
# The state that knows the highest `ts` so far, and the statements that raise it at a row.
_MARKS: dict[str, FieldType] = {"is_started": boolean, "highest": i64}
_HIGHEST = """\
    if not state.is_started or row.ts > state.highest:
        state.is_started = True
        state.highest = row.ts
"""


class Windowing(Protocol):
    """The stream that is aggregated."""

    _app: Any

    @property
    def _record(self) -> Record:
        """The record of its rows."""

    @property
    def _module(self) -> str:
        """The module of its application."""

    def window(self, *, size: int | str, advance: int | str | None, kind: str, delay: int | str | None) -> Any:
        """Begin a windowed operator over the stream."""

    def process(self, fn: Callable, state: Record, output: Record) -> Any:
        """Declare a stateful operator over the stream."""

    def key_by(self, key: str) -> Any:
        """Key the stream by a field."""


class WindowedStream:
    """The rows of a keyed stream, by key and window. Each method declares what leaves when a window expires.

    A row leaves for each key of the window: `ts`, the end of the window; the key, under its own name; and the result.
    The operator is called after the method and its field: `sum_price`. `name` gives it another name.

    With `early`, the result so far also leaves after each `early` rows of a key and window. Its `ts` is the end of the
    window too.

    With `lateness`, windows still take rows for so long after their result has left. Each such row makes the result so
    far leave again. A second operator keeps the windows for it, so this doubles their memory. Rows are marked with the
    watermark in one state for all keys, on one thread.

    Of a window of a number of rows, a result leaves when its last row comes, with the `ts` of that row. Nothing leaves
    for a window that lacks rows at the end of the stream.
    """

    def __init__(
        self,
        stream: Windowing,
        key: str,
        extent: Extent | CountWindow,
        early: int | str | None = None,
        lateness: int | str | None = None,
    ):
        if isinstance(extent, CountWindow) and early is not None:
            raise BadInput(
                f"app {stream._app.name}: early does not go with count_window; choose a smaller window instead"
            )
        what, rows = ("count_window", extent.rows) if isinstance(extent, CountWindow) else ("early", early)
        self._stream, self._key, self._extent = stream, key, extent
        # A result leaves after so many rows, as the functions write it.
        self._every = None if rows is None else self._rows(stream, f"{what}: the number of rows", rows)
        # The delay of windows that take late rows, in units of `ts`.
        self._whole_delay = None if lateness is None else self._delays(lateness)

    def _delays(self, lateness: int | str) -> int:
        """The delay of the extent and `lateness`, together."""
        app, extent = self._stream._app, self._extent
        if isinstance(extent, CountWindow) or extent.kind != "multi" or self._every is not None:
            raise BadInput(f"app {app.name}: lateness goes with tumbling and sliding windows, without early")
        delays = [in_units(lateness, app), self._delay]
        if not all(type(delay) is int and delay >= 0 for delay in delays):
            raise BadInput(
                f"app {app.name}: lateness and delay must be durations such as '30s', or numbers from 0, "
                f"not {lateness!r} and {self._delay!r}"
            )
        return sum(delay for delay in delays if isinstance(delay, int))

    @property
    def _delay(self) -> int | str:
        """The delay of the extent, in units of `ts`, or a parameter."""
        assert isinstance(self._extent, Extent)
        return self._stream._app._delay(self._extent.delay)

    @staticmethod
    def _rows(stream: Windowing, what: str, rows: int | str) -> str:
        """A number of rows, as the text of a function."""
        app = stream._app
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
        """Raise AttributeError, with the known methods."""
        near = did_you_mean(name, ("count", "sum", "min", "max", "top_k", "aggregate", "late"))
        raise AttributeError(
            f"a windowed stream has no method {name!r}{near}; it has count, sum, min, max, top_k, aggregate and late"
        )

    @declares
    def count(self, name: str = "count") -> Any:
        """The number of rows: field `count`."""
        return self._declared(name, {"rows": i64}, "state.rows += 1", {"count": (i64, "state.rows")})

    @declares
    def sum(self, field: str, name: str | None = None) -> Any:
        """The sum of a field: field `sum`."""
        kind = self._number("sum", field)
        value = f64 if kind.is_float else i64
        return self._declared(
            name or f"sum_{field}", {"total": value}, f"state.total += row.{field}", {"sum": (value, "state.total")}
        )

    @declares
    def min(self, field: str, name: str | None = None) -> Any:
        """The least value of a field: field `min`. NaN is greater than every number, and -0.0 counts as 0.0."""
        return self._extreme("min", field, name)

    @declares
    def max(self, field: str, name: str | None = None) -> Any:
        """The greatest value of a field: field `max`. NaN is greater than every number, and -0.0 counts as 0.0."""
        return self._extreme("max", field, name)

    @declares
    def top_k(self, field: str, k: int | str, name: str | None = None) -> Any:
        """The `k` most frequent values of an integer field: fields `rank` from 0, `value` and `count`.

        Of equally frequent values, the smaller one comes first. `k` may be the name of a parameter.
        """
        kind = self._number("top_k", field)
        if kind.is_float:
            raise BadInput(f"top_k({field!r}): {self._stream._record!r} needs an integer field {field}")
        return self._declared(
            name or f"top_{field}",
            {"counts": Counter(i64), "best": TopK(k)},
            f"state.best.offer(row.{field}, state.counts.add(row.{field}, 1))",
            {
                "rank": (i64, "i"),
                "value": (i64, "state.best.key_at(i)"),
                "count": (i64, "state.best.score_at(i)"),
            },
            "for i in range(len(state.best)):",
        )

    @declares
    def aggregate(self, update: Callable, state: Record, result: Callable, output: Record) -> Any:
        """An aggregate of your own: `update(row, window, state, out)` and `result(window, state, out)`.

        Of a window of a number of rows: `update(row, state, out)` and `result(row, state, out)`, with the last row.
        """
        name = update.__name__
        names = {"_update": update, "_result": result}
        call, emission = "_update(row, window, state, out)", ["_result(window, state, out)"]
        if self._every is None:
            return self._windowed(update, state, result, output, self._again(name, call, emission, names))
        if isinstance(self._extent, CountWindow):
            emission = ["_result(row, state, out)"]
            return self._of_rows(name, "_update(row, state, out)", emission, state, output, names)
        return self._windowed(self._early(name, call, emission, names), _counted(name, state), result, output)

    def _windowed(
        self, update: Callable, state: Record, result: Callable, output: Record, again: Callable | None = None
    ) -> Any:
        """Declare the windowed operator; with `again`, unite it with a second one, which also takes late rows."""
        extent = self._extent
        assert isinstance(extent, Extent)
        size, advance, kind = extent.size, extent.advance, extent.kind
        windows = self._stream.window(size=size, advance=advance, kind=kind, delay=extent.delay)
        results = windows.key_by(self._key).apply(update, state, output, result)
        if again is None:
            return results
        marked = self._marked(update.__name__)
        late = marked.window(size=size, advance=advance, kind=kind, delay=self._whole_delay)
        return results.union(late.key_by(self._key).apply(again, state, output))

    def _again(self, name: str, update: str, emission: list[str], names: dict[str, Any]) -> Callable | None:
        """Return the update function that emits the result again for a late row; None if windows take no late rows."""
        if self._whole_delay is None:
            return None
        body = "\n        ".join(emission)
        return self._written(
            f"def {name}_again(row, window, state, out):\n    {update}\n"
            f"    if window.end <= row.{_WATERMARK}:\n        {body}\n",
            names,
        )

    def _marked(self, name: str) -> Any:
        """Return the stream with, in each row, the watermark that decides when results leave."""
        fields = self._stream._record.fields
        if _WATERMARK in fields:
            raise BadInput(f"{name}: the field name {_WATERMARK!r} is reserved; rename the field")
        emitted = ", ".join(f"{field}=row.{field}" for field in fields)
        text = (
            f"def {name}_rows(row, state, out):\n{_HIGHEST}"
            f"    out.emit({emitted}, {_WATERMARK}=state.highest - {self._units(self._delay)})\n"
        )
        output = Record(f"{name}_row", {**fields, _WATERMARK: i64}, None)
        return self._stream.process(self._written(text, {}), Record(f"{name}_marks", _MARKS, None), output)

    def _units(self, duration: int | str) -> str:
        """A duration in units of `ts`, as the text of a function."""
        return as_text(in_units(duration, self._stream._app))

    @declares
    def late(self, name: str = "late") -> Any:
        """The rows that came after all of their windows had expired: those that the aggregates leave out.

        One state serves all keys, because the watermark does. So these rows are found on one thread.
        """
        extent = self._extent
        if isinstance(extent, CountWindow):
            raise BadInput(f"app {self._stream._app.name}: no row is late for count_window; remove late()")
        advance, size = self._units(extent.advance or 1), self._units(extent.size)
        delay = self._units(self._delay if self._whole_delay is None else self._whole_delay)
        return late_rows(self._stream, name, f"row.ts // {advance} * {advance} + {size}", delay)

    def _number(self, method: str, field: str) -> Scalar:
        record = self._stream._record
        kind = record.fields.get(field)
        if not isinstance(kind, Scalar):
            numbers = ", ".join(name for name, kind in record.fields.items() if isinstance(kind, Scalar))
            raise BadInput(f"{method}({field!r}): {record.name} has the number fields {numbers}")
        return kind

    def _extreme(self, method: str, field: str, name: str | None) -> Any:
        kind = self._number(method, field)
        value, taken, sign = i64, f"row.{field}", "<" if method == "min" else ">"
        is_better = f"{taken} {sign} state.best"
        if kind.is_float:
            greatest = "state.best" if method == "min" else taken  # NaN, which alone differs from itself
            value, is_better = f64, f"{is_better} or {greatest} != {greatest}"
            taken += " + 0.0"  # 0.0 of -0.0
        return self._declared(
            name or f"{method}_{field}",
            {"rows": i64, "best": value},
            f"if state.rows == 0 or {is_better}:\n        state.best = {taken}\n    state.rows += 1",
            {method: (value, "state.best")},
        )

    def _declared(
        self,
        name: str,
        state: dict[str, FieldType],
        update: str,
        fields: dict[str, tuple[FieldType, str]],
        loop: str = "",
    ) -> Any:
        """Declare an operator from its state, the statement that runs for a row, and the fields of the result."""
        record = self._stream._record
        if clash := sorted({self._key} & {"ts", *fields}):
            raise BadInput(f"{name}: the key {clash[0]} has the name of a field of the result; rename it with flat_map")
        is_of_rows = isinstance(self._extent, CountWindow)
        # The end of a window can lie beyond the type of its rows' ts.
        kinds = {"ts": record.fields["ts"] if is_of_rows else i64, self._key: record.fields[self._key]}
        output = Record(f"{name}_result", kinds | {field: kind for field, (kind, _) in fields.items()}, None)
        values = ", ".join(f"{field}={value}" for field, (_, value) in fields.items())
        place = (
            f"ts=row.ts, {self._key}=row.{self._key}"
            if is_of_rows
            else (f"ts=window.end, {self._key}=window.key.{self._key}")
        )
        emit = f"out.emit({place}, {values})"
        emission = [loop, f"    {emit}"] if loop else [emit]
        kept = Record(f"{name}_state", state, None)
        if is_of_rows:
            return self._of_rows(name, update, emission, kept, output, {})
        body = "\n    ".join(emission)
        result = self._written(f"def {name}_result(window, state, out):\n    {body}\n", {})
        if self._every is None:
            function = self._written(f"def {name}(row, window, state, out):\n    {update}\n", {})
            return self._windowed(function, kept, result, output, self._again(name, update, emission, {}))
        return self._windowed(self._early(name, update, emission, {}), _counted(name, kept), result, output)

    def _early(self, name: str, update: str, emission: list[str], names: dict[str, Any]) -> Callable:
        """Return the update function of a window that also emits results after every few rows."""
        body = "\n        ".join(emission)
        return self._written(
            f"def {name}(row, window, state, out):\n    {update}\n    state.{_ROWS} += 1\n"
            f"    if state.{_ROWS} % {self._every} == 0:\n        {body}\n",
            names,
        )

    def _of_rows(
        self, name: str, update: str, emission: list[str], state: Record, output: Record, names: dict[str, Any]
    ) -> Any:
        """Declare the partitioned operator of a window of rows; its state starts again after the last row."""
        kept = _counted(name, state)
        body = "\n        ".join(
            [*emission, *(line for field, kind in kept.fields.items() for line in _zero(field, kind))]
        )
        function = self._written(
            f"def {name}(row, state, out):\n    {update}\n    state.{_ROWS} += 1\n"
            f"    if state.{_ROWS} == {self._every}:\n        {body}\n",
            names,
        )
        return self._stream.key_by(self._key).process(function, state=kept, output=output)

    def _written(self, text: str, names: dict[str, Any]) -> Callable:
        """Compile a function from this source, which can use these names and `app`."""
        return generated.function(self._stream._module, text, {**names, "app": self._stream._app})


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
    if _ROWS in state.fields:
        raise BadInput(f"{name}: {state!r}: the field name {_ROWS!r} is reserved; rename the field")
    return Record(f"{name}_state", {**state.fields, _ROWS: i64}, None)


def _zero(field: str, kind: FieldType) -> list[str]:
    """Return the statements that reset a field of a state to zero or empty."""
    if isinstance(kind, Scalar):
        return [f"state.{field} = {_nothing(kind)}"]
    if isinstance(kind, Array):
        return [f"for i in range(len(state.{field})):", f"    state.{field}[i] = {_nothing(kind.item)}"]
    return [f"state.{field}.clear()"]


def _nothing(kind: Scalar) -> bool | int:
    return False if kind.name == "boolean" else 0
