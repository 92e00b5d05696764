"""Aggregates of windows: declarations that become windowed operators (language/window.py).

    clicks.key_by("user").window(tumbling("1m")).count()
    orders.key_by("shop").window(sliding("1h", every="5m")).sum("price")

The functions of such an operator are written here, as text, for the fields that it takes. Everything that reads an
application reads them as if they stood in its file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from streaming_core.errors import BadInput, did_you_mean
from streaming_core.language import generated
from streaming_core.language.extent import Extent, in_units
from streaming_core.language.parameters import Params
from streaming_core.language.record import Counter, FieldType, Record, Scalar, TopK, boolean, f64, i64


class Application(Protocol):
    """The application of the stream."""

    time: str
    params: Params
    delay: int | str | None


class Windowing(Protocol):
    """The stream that is aggregated."""

    _app: Any
    _record: Record
    _module: str

    def window(self, **declared: Any) -> Any: ...

    def process(self, fn: Callable, state: Record, output: Record) -> Any: ...


class WindowedStream:
    """The rows of a keyed stream, by key and window. Each method declares what leaves when a window expires.

    A row leaves for each key of the window: `ts`, the end of the window; the key, under its own name; and the result.
    The operator is called after the method and its field: `sum_price`. `name` gives it another name.
    """

    def __init__(self, stream: Windowing, key: str, extent: Extent):
        if not isinstance(extent, Extent):
            raise BadInput(f'window takes tumbling("1m") or sliding("1h", every="5m"), not {extent!r}')
        self._stream, self._key, self._extent = stream, key, extent

    def __getattr__(self, name: str) -> Any:
        near = did_you_mean(name, ("count", "sum", "min", "max", "top_k", "aggregate", "late"))
        raise AttributeError(
            f"a windowed stream has no method {name!r}{near}; it has count, sum, min, max, top_k, aggregate and late"
        )

    def count(self, name: str = "count") -> Any:
        """The number of rows: field `count`."""
        return self._declared(name, {"rows": i64}, "state.rows += 1", {"count": (i64, "state.rows")})

    def sum(self, field: str, name: str | None = None) -> Any:
        """The sum of a field: field `sum`."""
        kind = self._number("sum", field)
        value = f64 if kind.is_float else i64
        return self._declared(
            name or f"sum_{field}", {"total": value}, f"state.total += row.{field}", {"sum": (value, "state.total")}
        )

    def min(self, field: str, name: str | None = None) -> Any:
        """The least value of a field: field `min`."""
        return self._extreme("min", "<", field, name)

    def max(self, field: str, name: str | None = None) -> Any:
        """The greatest value of a field: field `max`."""
        return self._extreme("max", ">", field, name)

    def top_k(self, field: str, k: int | str, name: str | None = None) -> Any:
        """The `k` most frequent values of an integer field: fields `rank` from 0, `value` and `count`.

        Of equally frequent values, the smaller one comes first. `k` may be the name of a parameter.
        """
        kind = self._number("top_k", field)
        if kind.is_float:
            raise BadInput(f"top_k({field!r}): {self._stream._record!r} needs an integer field {field}")
        return self._declared(
            name or f"top_{field}",
            {"counts": Counter[i64], "best": TopK[k]},
            f"state.best.offer(row.{field}, state.counts.add(row.{field}, 1))",
            {
                "rank": (i64, "i"),
                "value": (i64, "state.best.key_at(i)"),
                "count": (i64, "state.best.score_at(i)"),
            },
            "for i in range(len(state.best)):",
        )

    def aggregate(self, update: Callable, state: Record, result: Callable, output: Record) -> Any:
        """An aggregate of your own: `update(row, window, state, out)` and `result(window, state, out)`."""
        extent = self._extent
        return self._stream.window(
            key=self._key, advance=extent.advance, size=extent.size, delay=extent.delay,
            state=state, update=update, result=result, output=output,
        )  # fmt: skip

    def late(self, name: str = "late") -> Any:
        """The rows that came after all of their windows had expired: those that the aggregates leave out.

        One state serves all keys, because the watermark does. So these rows are found on one thread.
        """
        app: Application = self._stream._app
        extent, fields = self._extent, self._stream._record.fields

        def value(duration: int | str) -> str:
            units = in_units(duration, app.time)
            return f"params.{units}" if isinstance(units, str) else str(units)

        advance, size = value(extent.advance), value(extent.size)
        delay = value((app.delay or 0) if extent.delay is None else extent.delay)
        emitted = ", ".join(f"{field}=row.{field}" for field in fields)
        text = (
            f"def {name}(row, state, out):\n"
            "    if not state.is_started or row.ts > state.highest:\n"
            "        state.is_started = True\n"
            "        state.highest = row.ts\n"
            f"    if row.ts // {advance} * {advance} + {size} <= state.highest - {delay}:\n"
            f"        out.emit({emitted})\n"
        )
        state = Record(f"{name}_state", {"is_started": boolean, "highest": i64}, None)
        function = generated.function(self._stream._module, text, app.params)
        return self._stream.process(function, state, self._stream._record)

    def _number(self, method: str, field: str) -> Scalar:
        record = self._stream._record
        kind = record.fields.get(field)
        if not isinstance(kind, Scalar):
            numbers = ", ".join(name for name, kind in record.fields.items() if isinstance(kind, Scalar))
            raise BadInput(f"{method}({field!r}): {record.name} has the number fields {numbers}")
        return kind

    def _extreme(self, method: str, sign: str, field: str, name: str | None) -> Any:
        kind = self._number(method, field)
        value = f64 if kind.is_float else i64
        return self._declared(
            name or f"{method}_{field}",
            {"rows": i64, "best": value},
            f"if state.rows == 0 or row.{field} {sign} state.best:\n"
            f"        state.best = row.{field}\n"
            "    state.rows += 1",
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
        """The operator: its state, the statement that a row executes, and the fields that leave, with their values."""
        record = self._stream._record
        if clash := sorted({self._key} & {"ts", *fields}):
            raise BadInput(f"{name}: the key {clash[0]} has the name of a field of the result; rename it with flat_map")
        kinds = {"ts": record.fields["ts"], self._key: record.fields[self._key]}
        output = Record(f"{name}_result", kinds | {field: kind for field, (kind, _) in fields.items()}, None)
        values = ", ".join(f"{field}={value}" for field, (_, value) in fields.items())
        emit = f"out.emit(ts=window.end, {self._key}=window.key.{self._key}, {values})"
        module = self._stream._module
        rows = generated.function(module, f"def {name}(row, window, state, out):\n    {update}\n")
        body = f"    {loop}\n        {emit}\n" if loop else f"    {emit}\n"
        result = generated.function(module, f"def {name}_result(window, state, out):\n{body}")
        return self.aggregate(rows, Record(f"{name}_state", state, None), result, output)
