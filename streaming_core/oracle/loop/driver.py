"""The driver of a loop, printed: takes slices of events through all operators, and ends the stream.

Python calls the end of the stream once for each operator (`Loop.finish`). The keys of an operator are complete only
when it has taken the rows that earlier operators flushed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_core.language.operator import Operator
from streaming_core.oracle.loop import layout

if TYPE_CHECKING:
    from streaming_core.oracle.loop.functions import Functions

_SLICE = 512  # events that an operator takes before the next one runs
_NOTHING = ("0", "0")  # the rows of the source at the end of the stream

Rows = tuple[str, str]  # address and number, in printed code
Line = tuple[int, str, int]  # indentation, text, line of the application file


class Driver:
    """Prints the functions that Python calls: `_run` for events, and `_flush` for the end of the stream.

    Args:
        printer: Knows the memory of the loop.
        calls: The function of each operator for a slice of events.
        flushes: The function of each operator for its flush; empty if it has none.
    """

    def __init__(self, printer: Functions, calls: list[str], flushes: list[str]):
        work = printer.work
        records = work.program.records
        self._work, self._emitter_of, self._calls, self._flushes = work, printer.emitter_of, calls, flushes
        self._operators = work.operators
        self._source, self._sink = work.app.operators[0], work.app.operators[-1]
        self._source_stride = records[self._source.emitted].event[1]
        # The emitter with the outputs, and the stride of every emitter's rows.
        has_union = self._sink in work.unions
        self._last = len(work.operators) + (work.unions.index(self._sink) if has_union else -1)
        self._outputs = self._emitter_of(self._last)
        self._strides = [records[o.emitted].event[1] for o in work.operators]
        self._strides += [records[o.input].event[1] for o in work.unions]

    def lines(self) -> list[Line]:
        """Return the driver's lines."""
        return [*_MORE_SUBS, *self._run(), *self._flush()]

    def _run(self) -> list[Line]:
        """Print the loop over slices of events."""
        slice_ = (f"rows + first * {self._source_stride}", "n")
        body: list[Line] = [(2, self._reset(i), 0) for i in range(len(self._strides)) if i != self._last]
        body += [
            (2, "if keep != 0:", 0),
            (3, f"kept = _get({self._outputs} + {layout.NEXT}) - _get({self._outputs} + {layout.BEGIN})", 0),
            (2, "else:", 0),
            (3, self._reset(self._last), 0),
        ]
        for operator, call in zip(self._operators, self._calls, strict=True):
            merge, inputs = self._inputs(operator, slice_)
            body += [*((2, line, 0) for line in merge), (2, f"{call}(_ctx, {_words(inputs)})", 0)]
        body += [(2, line, 0) for line in self._inputs(self._sink, slice_)[0]]
        return [
            (0, "@_compiled", 0),
            (0, "def _run(_ctx, rows, events, keep):", 0),
            *((1, self._reset(i), 0) for i in range(len(self._strides))),
            (1, "total, digest, kept = 0, _u64(0), 0", 0),
            (1, f"for first in range(0, events, {_SLICE}):", 0),
            (2, f"n = min({_SLICE}, events - first)", 0),
            *body,
            *self._end(2),
            *self._closing(),
        ]

    def _flush(self) -> list[Line]:
        """Print the end of the stream, one operator a call."""
        lines: list[Line] = [
            (0, "@_compiled", 0),
            (0, "def _flush(_ctx, at, states, n):", 0),
            (1, "if at == 0 and states == 0:", 0),
            *((2, self._reset(i), 0) for i in range(len(self._strides))),
        ]
        for i, (operator, call) in enumerate(zip(self._operators, self._calls, strict=True)):
            body, inputs = self._inputs(operator, _NOTHING)
            if any(rows != _NOTHING for rows in inputs):
                # The loop over rows takes its seq from them.
                body = [*body, f"{call}(_ctx, {_words(inputs)})"]
            lines += [(1, f"if at == {i}:", 0), (2, "if states == 0:", 0)]
            lines += [(3, line, 0) for line in body or ["pass"]]
            if self._flushes[i]:
                lines += [(2, "else:", 0), (3, f"{self._flushes[i]}(_ctx, states, n)", 0)]
        lines += [
            (1, f"if at < {len(self._operators)}:", 0),
            (2, "return 0", 0),
            (1, "total, digest, kept, keep = 0, _u64(0), 0, 1", 0),
            *((1, line, 0) for line in self._inputs(self._sink, _NOTHING)[0]),
        ]
        return [*lines, *self._end(1), *self._closing()]

    def _reset(self, i: int) -> str:
        """Return the line that empties an emitter."""
        emitter = self._emitter_of(i)
        return f"_put({emitter} + {layout.NEXT}, _get({emitter} + {layout.BEGIN}))"

    def _emitted(self, i: int, skip: str = "0") -> Rows:
        """Return the rows of an emitter, without the first `skip` bytes."""
        emitter = self._emitter_of(i)
        begin = f"_get({emitter} + {layout.BEGIN})"
        return f"{begin} + {skip}", f"(_get({emitter} + {layout.NEXT}) - {begin} - {skip}) // {self._strides[i]}"

    def _inputs(self, operator: Operator, source: Rows) -> tuple[list[str], list[Rows]]:
        """Return the lines that merge an operator's streams, if it needs that, and its input rows.

        A windowed operator takes the rows of each input, any other one stream.
        """
        work = self._work
        streams = [source if o is self._source else self._emitted(self._operators.index(o)) for o in operator.inputs]
        if operator not in work.unions:
            return [], streams
        i = work.unions.index(operator)
        return [f"_union_{i}(_ctx, {_words(streams)})"], [self._emitted(len(self._operators) + i)]

    def _end(self, indent: int) -> list[Line]:
        """Return the lines that pass the outputs to the sink."""
        begin, n = self._emitted(self._last, "kept")
        subs = f"_get(_ctx + {layout.SUBS}) + 4 * (total if keep != 0 else 0)"
        return [
            (indent, f"m = {n}", 0),
            (indent, f"if 4 * (total + m) > _get(_ctx + {layout.SUBS_CAPACITY}):", 0),
            (indent + 1, "_more_subs(_ctx, total + m)", 0),
            (indent, f"digest += _sink(_ctx, {begin}, m, {subs})", 0),
            (indent, "total += m", 0),
        ]

    def _closing(self) -> list[Line]:
        """Return the lines that leave the results in the context."""
        return [
            (1, f"_put(_ctx + {layout.ROWS}, _get({self._outputs} + {layout.BEGIN}))", 0),
            (1, f"_put(_ctx + {layout.COUNT}, total)", 0),
            (1, f"_put(_ctx + {layout.DIGEST}, _int(digest))", 0),
            (1, "return 0", 0),
        ]


def _words(streams: list[Rows]) -> str:
    """Return the arguments for the rows of these streams."""
    return ", ".join(word for rows in streams for word in rows)


# Makes room for more values of `sub`.
_MORE_SUBS: list[Line] = [
    (0, "@_compiled", 0),
    (0, "def _more_subs(_ctx, n):", 0),
    (1, f"_put(_ctx + {layout.SUBS}, _more_buffer(_get(_ctx + {layout.SUBS}), 8 * n + 4096))", 0),
    (1, f"_put(_ctx + {layout.SUBS_CAPACITY}, 8 * n + 4096)", 0),
]
