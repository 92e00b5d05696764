"""The interpreter of an application: its operators as steps, which pass on the rows of one event at a time."""

from __future__ import annotations

import gc
import pickle
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

import pyarrow as pa

from streaming_core import interruption
from streaming_core.data.arrow import of_units, unit_type
from streaming_core.errors import BadInput, RunFailed
from streaming_core.language.application import App
from streaming_core.language.operator import Operator
from streaming_core.language.record import VALID, Array, Scalar, Text
from streaming_core.language.source import place
from streaming_core.language.tables import BoundTable
from streaming_core.language.typed import Program
from streaming_core.oracle.interpreter import containers
from streaming_core.oracle.interpreter.rows import Inserting, Keyed, decode, export, row_class, with_nones, zero
from streaming_core.oracle.interpreter.steps import Shared, Stateful, Stateless, Step, Transaction
from streaming_core.oracle.interpreter.windows import windowed

_STEPS: dict[str, Callable[[Shared, Operator, bool], Step]] = {
    "stateless": Stateless, "stateful": Stateful, "partitioned": Stateful, "transaction": Transaction,
    "windowed": windowed,
}  # fmt: skip


class Interpreter:
    """A bound application, interpreted.

    Args:
        app: The application.
        params: Its bound parameters.

    Raises:
        BadInput: An operator breaks a rule of the language, or a table has invalid initial rows.
    """

    def __init__(self, app: App, params: dict[str, Any]):
        self.app = app
        self.program = Program(app.check(), params)
        self.event, self.output = self.program.event, self.program.output
        self.output_schema = self.output.arrow(("seq", "sub"))
        self.events = 0
        self._last = (0, 0)  # the seq of the last output, and the next `sub` of that seq
        self._make = row_class(self.event, header=True)
        self.tables = {table.declared: initial_rows(table) for table in self.program.tables}
        self.shared = Shared(self.program, self.tables)
        steps: dict[Operator, Step] = {}
        for operator in app.operators:
            if operator.kind in ("source", "sink"):
                continue
            takers = [other for other in app.operators if operator in other.inputs]
            steps[operator] = _STEPS[operator.kind](self.shared, operator, takers == app.operators[-1:])
        # The producers of the sink (None: the source), and whether their rows are tuples already.
        self._sinks = [(steps.get(o), o in steps and steps[o].is_last) for o in app.operators[-1].inputs]
        names = list(self.output.event[0])
        self._values = lambda row: [getattr(row, name) for name in names]
        self._steps = list(steps.values())
        # Each operator with the producers of its inputs.
        self._edges = [(s, [steps.get(i) for i in o.inputs]) for o, s in steps.items()]
        # A single operator, with one input from the source and one output to the sink.
        self._is_alone = [(s, [None]) for s, _ in self._sinks] == self._edges and self._sinks[0][1]

    def functions(self) -> list[tuple[str, int, str]]:
        """Return file, first line and code name of each function that takes rows, in order of operators."""
        return [place for step in self._steps for place in step.places()]

    # --- input -------------------------------------------------------------------------------------------------------

    def process(self, events: pa.Table) -> pa.Table:
        """Interpret a chunk of events, in order; returns its outputs, in order.

        Raises:
            BadInput: A column is missing, has another type or nulls.
            RunFailed: An operator raised; the line names operator, event, error, file and line.
        """
        rows_in = decode(self.event, events, self._make)
        # No object here is cyclic, and scanning the outputs for cycles takes longer than computing them.
        collecting = gc.isenabled()
        gc.disable()
        try:
            return self._alone(rows_in) if self._is_alone else self._several(rows_in)
        finally:
            if collecting:
                gc.enable()

    def _several(self, events: Any) -> pa.Table:
        """Run `process` for any graph of operators."""
        rows: list[tuple] = []
        last = self._last
        edges = [
            (s.rows, [(s.taker(n), None if source is None else source.rows) for n, source in enumerate(inputs)])
            for s, inputs in self._edges
        ]
        request: Any = None
        step = None
        try:
            for request in events:
                interruption.check()
                for step in edges:
                    step_rows, sources = step
                    step_rows.clear()
                    for take, source in sources:
                        if source is None:
                            take(request)
                        else:
                            for row in source:
                                take(row)
                last = self._collect(rows, request.seq, [request], last)
                self.events += 1
        except _ERRORS as error:
            raise self._failure(self._steps[edges.index(step)] if step else None, request.seq, error) from error
        self._last = last
        return self._table(rows)

    def _alone(self, events: Any) -> pa.Table:
        """Run `process` for an application of a single operator, a transaction for example."""
        [(step, _)] = self._edges
        rows: list[tuple] = []
        step_rows, take = step.rows, step.taker(0)
        request: Any = None
        last, sub = self._last
        try:
            for request in events:
                interruption.check()
                step_rows.clear()
                take(request)
                if request.seq != last:
                    last, sub = request.seq, 0
                for row in step_rows:
                    rows.append((last, sub, *row))
                    sub += 1
                self.events += 1
        except _ERRORS as error:
            raise self._failure(step, request.seq, error) from error
        self._last = last, sub
        return self._table(rows)

    def finish(self, seq: int) -> pa.Table:
        """End the stream: flush operators in topological order, keys ascending; returns the outputs."""
        rows: list[tuple] = []
        for step, inputs in self._edges:
            step.rows.clear()
            step.set_seq(seq)
            try:
                for n, source in enumerate(inputs):
                    if source is not None:
                        take = step.taker(n)
                        for row in source.rows:
                            take(row)
                step.flush()
            except _ERRORS as error:
                raise self._failure(step, seq, error) from error
        self._last = self._collect(rows, seq, [], self._last)
        return self._table(rows)

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def save(self, file: BinaryIO) -> None:
        """Write the state between two chunks of events."""
        tables = [dict(rows) if isinstance(rows, dict) else rows for rows in self.tables.values()]
        counts = [getattr(self.shared, count) for count in _COUNTS]
        steps = [step.snapshot() for step in self._steps]
        pickle.dump((self.events, self._last, counts, tables, steps), file, protocol=5)

    def load(self, file: BinaryIO) -> None:
        """Take over the state that an interpreter of the same application and parameters saved.

        Raises:
            BadInput: The file is no such state.
        """
        self.events, self._last, counts, tables, steps = _Unpickler(file).load()
        for count, value in zip(_COUNTS, counts, strict=True):
            setattr(self.shared, count, value)
        for rows, saved in zip(self.tables.values(), tables, strict=True):
            rows.clear()
            if isinstance(rows, dict):
                rows.update(saved)
            else:
                rows.extend(saved)
        for step, saved in zip(self._steps, steps, strict=True):
            step.restore(saved)

    # --- results -----------------------------------------------------------------------------------------------------

    @property
    def dropped_invalid(self) -> int:
        """Inputs declared invalid so far."""
        return self.shared.dropped_invalid

    @property
    def dropped_late(self) -> int:
        """Rows so far that came after all of their windows had expired."""
        return self.shared.dropped_late

    @property
    def rejected(self) -> int:
        """Transactions rejected so far."""
        return self.shared.rejected

    def state(self) -> dict[str, pa.Table]:
        """Return final tables by name, then keyed states by operator, ascending by key."""
        states = {}
        for table, rows in self.tables.items():
            keys = sorted(rows) if isinstance(rows, dict) else range(len(rows))
            column = pa.array(keys, pa.binary() if isinstance(table.key, Text) else pa.int64())
            states[table.name] = export(self.program.records[table.row], [rows[key] for key in keys], {"key": column})
        for step in self._steps:
            states |= step.state()
        return states

    def _collect(self, rows: list[tuple], seq: int, events: list, last: tuple[int, int]) -> tuple[int, int]:
        """Append the rows that reached the sink for this event, numbered by `sub`; returns the new `last`."""
        sub = last[1] if seq == last[0] else 0
        for step, is_tuple in self._sinks:
            for row in events if step is None else step.rows:
                rows.append((seq, sub, *(row if is_tuple else self._values(row))))
                sub += 1
        return seq, sub

    def _table(self, rows: list[tuple]) -> pa.Table:
        names = ["seq", "sub", *self.output.event[0]]
        columns = dict(zip(names, zip(*rows, strict=True) if rows else [()] * len(names), strict=True))
        arrays = []
        for f in self.output_schema:
            values = with_nones(columns[f.name], columns[VALID + f.name]) if f.nullable else columns[f.name]
            arrays.append(of_units(pa.array(values, unit_type(f.type)), f.type))
        return pa.Table.from_arrays(arrays, schema=self.output_schema)

    def _failure(self, step: Any, seq: int, error: Exception) -> RunFailed:
        """Describe an error in one line: operator, event, error, line of the application."""
        files = step.printer.files if step else set()
        where, frame = "", sys.exc_info()[2]
        while frame is not None:
            if frame.tb_frame.f_code.co_filename in files:
                where = f" ({place(frame.tb_frame.f_code.co_filename, frame.tb_lineno)})"
            frame = frame.tb_next
        name = step.operator.name if step else "source"
        reason = "division by zero" if isinstance(error, ZeroDivisionError) else error  # Python has many texts for it
        return RunFailed(f"operator {name}, event {seq}: {type(error).__name__}: {reason}{where}")


def initial_rows(table: BoundTable) -> list | dict:
    """Return the initial rows of a table, by number; of an indexed one, by key."""
    new = zero(table.row)
    columns = []
    for name, column in table.initial().items():
        kind = table.row.state[0][name].type
        item = kind.item if isinstance(kind, Array) else kind
        assert isinstance(item, Scalar)
        columns.append((name, column.astype(bool).tolist() if item.name == "boolean" else column.tolist()))

    def initial(number: int) -> Any:
        row = new()
        for name, values in columns:
            value = values[number]
            setattr(row, name, value[:] if isinstance(value, list) else value)
        return row

    if table.index is None:
        return [initial(number) for number in range(table.size)]
    keys = table.keys()
    if keys is None:
        return Inserting(table.name, table.size, lambda: initial(0))
    return Keyed(table.name, {key: initial(number) for number, key in enumerate(_plain(keys))})


def _plain(keys: Any) -> list:
    """Return keys as values of operators."""
    return keys if isinstance(keys, list) else keys.tolist()


# What state consists of, by module.
_STATE = {
    containers.__name__: {"PlainRing", "PlainMap", "PlainSet", "PlainCounter", "PlainTopK", "PlainQueue"},
    row_class.__module__: {"row_of"},
    windowed.__module__: {"_Set", "_View"},
    Scalar.__module__: {"Scalar", "Text"},
    "numpy": {"dtype"},
    "types": {"SimpleNamespace"},
}
_COUNTS = ("dropped_invalid", "rejected", "dropped_late")


class _Unpickler(pickle.Unpickler):
    """Reads what `save` writes, and makes no other objects than those of an interpreter's state."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a part of the state."""
        if name not in _STATE.get(module, ()):
            raise BadInput(f"this is no state of an interpreter: it names {module}.{name}")
        return super().find_class(module, name)


# The errors of the language; any other is a defect of the oracle and keeps its traceback.
_ERRORS = (ArithmeticError, LookupError, ValueError, UnboundLocalError)
