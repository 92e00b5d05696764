"""The meaning of an application: one event at a time, operators in topological order, in plain Python.

Operator functions run as Python functions again, printed from their typed tree so that every operation means exactly
what the language says (64-bit wrap-around, IEEE doubles, checked stores). They keep the file and line numbers of the
application, so an error points into it. Rows are slotted objects; text is bytes; containers are plain Python twins.

Costs a few microseconds an event.
"""

from __future__ import annotations

import ast
import collections
import gc
import itertools
import math
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_core.api.app import App, Operator
from streaming_core.api.record import Array, Resolved, Scalar, Text
from streaming_core.errors import BadInput, RunFailed
from streaming_core.oracle import twins
from streaming_core.oracle.printer import BOOL, FLOAT, HIGH, INT, LOW, Printer
from streaming_core.oracle.typed import POST, TEXT, ArrayKind, BoxKind, Function, Node, Program, RowKind


class Interpreter:
    """A bound application being interpreted.

    Args:
        app: the application.
        params: its bound parameters.

    Raises:
        BadInput: an operator does not keep to the language, or the application needs what no oracle offers yet.
    """

    def __init__(self, app: App, params: dict[str, Any]):
        self.app = app
        self.program = Program(app.check(), params)
        self.event = self.program.resolved(app.event)
        self.output = self.program.resolved(app.outputs)
        self.output_schema = self.output.arrow(("seq", "sub"))
        self.dropped_invalid = self.rejected = self.events = 0
        self._last = (0, 0)  # the seq of the last output, and the next `sub` of that seq
        self._make = row_class(self.event, header=True)
        self.tables = {table: self._rows(table) for table in app.tables}
        steps: dict[Operator, _Step] = {}
        for operator in app.operators:
            if operator.kind == "windowed":
                raise BadInput(f"operator {operator.name}: windowed operators have no oracle yet")
            if operator.kind in ("source", "sink"):
                continue
            takers = [other for other in app.operators if operator in other.inputs]
            steps[operator] = _STEPS[operator.kind](self, operator, takers == app.operators[-1:])
        # What reaches the sink: whose rows (None: the events), and whether they are tuples already.
        self._sinks = [(steps.get(o), o in steps and steps[o].is_last) for o in app.operators[-1].inputs]
        names = list(app.outputs.fields)
        self._values = lambda row: [getattr(row, name) for name in names]
        self._steps = list(steps.values())
        self._edges = [(s, [steps.get(i) for i in o.inputs]) for o, s in steps.items()]

    # --- input -------------------------------------------------------------------------------------------------------

    def process(self, events: pa.Table) -> pa.Table:
        """Interprets a chunk of events, in order; returns its outputs, in order.

        Raises:
            BadInput: a column is missing, has another type or nulls.
            RunFailed: an operator raised; the line names operator, event, error, file and line.
        """
        rows_in = decode(self.event, events, self._make)
        # Nothing here is cyclic, and scanning the outputs for cycles over and over takes longer than making them.
        collecting = gc.isenabled()
        gc.disable()
        try:
            is_alone = len(self._steps) == 1 and self._sinks == [(self._steps[0], True)]
            return self._alone(rows_in) if is_alone else self._several(rows_in)
        finally:
            if collecting:
                gc.enable()

    def _several(self, events: Any) -> pa.Table:
        """`process` for any graph of operators."""
        rows: list[tuple] = []
        last = self._last
        edges = [(s.take, s.rows, [None if i is None else i.rows for i in inputs]) for s, inputs in self._edges]
        request, step = None, None
        try:
            for request in events:
                for step in edges:
                    take, made, sources = step
                    made.clear()
                    for source in sources:
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
        """`process` for an application of a single operator, a transaction for example."""
        [(step, _)] = self._edges
        rows: list[tuple] = []
        made, take, request = step.rows, step.take, None
        last, sub = self._last
        try:
            for request in events:
                made.clear()
                take(request)
                if request.seq != last:
                    last, sub = request.seq, 0
                for row in made:
                    rows.append((last, sub, *row))
                    sub += 1
                self.events += 1
        except _ERRORS as error:
            raise self._failure(step, request.seq, error) from error
        self._last = last, sub
        return self._table(rows)

    def finish(self, seq: int) -> pa.Table:
        """The end of the stream: flushes in topological order, keys ascending; returns what that put out."""
        rows: list[tuple] = []
        for step, inputs in self._edges:
            step.rows.clear()
            step.set_seq(seq)
            try:
                for source in inputs:
                    if source is not None:
                        for row in source.rows:
                            step.take(row)
                step.flush()
            except _ERRORS as error:
                raise self._failure(step, seq, error) from error
        self._last = self._collect(rows, seq, [], self._last)
        return self._table(rows)

    # --- results -----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, pa.Table]:
        """Final tables by name, then keyed states by operator, ascending by key."""
        found = {}
        for table, rows in self.tables.items():
            found[table.name] = export(self.program.resolved(table.row), rows, range(len(rows)), pa.int64())
        for step in self._steps:
            found |= step.state()
        return found

    def _collect(self, rows: list[tuple], seq: int, events: list, last: tuple[int, int]) -> tuple[int, int]:
        """What reached the sink for this event; `sub` counts it. Returns what `last` is behind it."""
        sub = last[1] if seq == last[0] else 0
        for step, is_tuple in self._sinks:
            for row in events if step is None else step.rows:
                rows.append((seq, sub, *(row if is_tuple else self._values(row))))
                sub += 1
        return seq, sub

    def _table(self, rows: list[tuple]) -> pa.Table:
        columns = list(zip(*rows, strict=True)) or [()] * len(self.output_schema)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, self.output_schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.output_schema)

    def _rows(self, table: Any) -> list:
        resolved = self.program.resolved(table.row)
        new, size = zero(resolved), self.program.size(table)
        rows = [new() for _ in range(size)]
        for name, column in self.program.initial(table).items():
            kind = resolved.state[0][name].type
            item = kind.item if isinstance(kind, Array) else kind
            values = column.astype(bool).tolist() if item.name == "boolean" else column.tolist()
            for row, value in zip(rows, values, strict=True):
                setattr(row, name, value)
        return rows

    def _failure(self, step: Any, seq: int, error: Exception) -> RunFailed:
        """One line: operator, event, error, where in the application."""
        files = {f.file for f in step.printed} if step else set()
        place, frame = "", sys.exc_info()[2]
        while frame is not None:
            if frame.tb_frame.f_code.co_filename in files:
                place = f" ({os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno})"
            frame = frame.tb_next
        name = step.operator.name if step else "source"
        return RunFailed(f"operator {name}, event {seq}: {type(error).__name__}: {error}{place}")


# What the language can raise; anything else is a defect of the oracle and keeps its traceback.
_ERRORS = (ArithmeticError, LookupError, ValueError, UnboundLocalError)


# --- rows ------------------------------------------------------------------------------------------------------------


def row_class(resolved: Resolved, header: bool) -> type:
    """A class with one slot per field (and `seq`), made from the values in order."""
    names = [*(["seq"] if header else []), *resolved.record.fields]
    body = [f"    {'__slots__'} = {tuple(names)!r}", f"    def __init__(self, {', '.join(names)}):"]
    body += [f"        self.{name} = {name}" for name in names]
    namespace: dict[str, Any] = {}
    exec(f"class Row:\n{chr(10).join(body)}\n", namespace)
    return namespace["Row"]


def zero(resolved: Resolved) -> Callable[[], Any]:
    """A maker of rows whose fields are zero, or empty."""
    cls, values, makers = row_class(resolved, header=False), [], {}
    for name, slot in resolved.state[0].items():
        match slot.type:
            case Scalar():
                values.append("0.0" if slot.type.is_float else "False" if slot.type.name == "boolean" else "0")
            case Array(item):
                one = "0.0" if item.is_float else "False" if item.name == "boolean" else "0"
                values.append(f"[{one}] * {slot.count}")
            case Text():
                raise BadInput(f"record {resolved.name}.{name}: states and tables hold no text")
            case _:
                makers[f"_new_{name}"] = lambda slot=slot: twins.twin(
                    slot.type, slot.count, f"{resolved.name}.{slot.name}"
                )
                values.append(f"_new_{name}()")
    return eval(f"lambda: _Row({', '.join(values)})", {"_Row": cls, **makers})


def checked_column(events: pa.Table, name: str, wanted: pa.DataType) -> pa.Array:
    """One column as a single array of the wanted type.

    Raises:
        BadInput: it is missing, has another type or nulls.
    """
    if name not in events.column_names:
        raise BadInput(f"events have no column {name!r}; there are: {', '.join(events.column_names)}")
    column = events.column(name)
    if column.type != wanted:
        if pa.types.is_binary(wanted) and (pa.types.is_string(column.type) or pa.types.is_large_binary(column.type)):
            column = column.cast(pa.binary())
        elif not (pa.types.is_fixed_size_list(wanted) and _same_list(column.type, wanted)):
            raise BadInput(f"events: column {name} has type {column.type}, must be {wanted}")
    if column.null_count:
        raise BadInput(f"events: column {name} has {column.null_count} nulls")
    column = column.combine_chunks()
    return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)


def _same_list(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two fixed-size lists differ in nothing but the name of their item."""
    return (
        pa.types.is_fixed_size_list(given)
        and given.list_size == wanted.list_size
        and given.value_type == wanted.value_type
    )


def decode(resolved: Resolved, events: pa.Table, make: Callable) -> Any:
    """The events as row objects, lazily."""
    seq = checked_column(events, "seq", pa.int64()).to_numpy()
    # Events of one seq are what one event has become on the way to an operator that is replayed alone.
    if len(seq) and (seq[0] < 0 or (np.diff(seq) < 0).any()):
        raise BadInput("events: seq must ascend from 0 or above")
    columns: list[Any] = [seq.tolist()]
    for name, slot in resolved.event[0].items():
        wanted = slot.type.arrow(slot.count) if isinstance(slot.type, Array) else slot.type.arrow()
        column = checked_column(events, name, wanted)
        if isinstance(slot.type, Array):
            columns.append(column.flatten().to_numpy(zero_copy_only=False).reshape(-1, slot.count).tolist())
        elif isinstance(slot.type, Text):
            columns.append(column.to_pylist())
        else:
            columns.append(column.to_numpy(zero_copy_only=False).tolist())
    return map(make, *columns)


def export(resolved: Resolved, rows: list, keys: Any, key: pa.DataType | None) -> pa.Table:
    """Table rows or states as a table: `key` (unless None), then the fields."""
    fields = list(resolved.arrow())
    arrays = []
    for field in fields:
        values = [getattr(row, field.name) for row in rows]
        if not isinstance(resolved.state[0][field.name].type, Scalar | Array):
            values = [v.export() for v in values]
        arrays.append(pa.array(values, field.type))
    if key is not None:
        fields.insert(0, pa.field("key", key, nullable=False))
        arrays.insert(0, pa.array(keys, key))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


# --- operators -------------------------------------------------------------------------------------------------------


class _Step:
    """An operator at work: `take(row)` appends to `rows` what the operator makes of one input."""

    def __init__(self, owner: Interpreter, operator: Operator, is_last: bool):
        self.owner, self.operator, self.is_last = owner, operator, is_last
        self.rows: list = []
        self.printed: list[Function] = []
        output = owner.program.resolved(operator.output)
        # What goes to the sink alone is made a plain tuple; what an operator reads is a row, which knows its event.
        self.seq = [0]
        make: Any = row_class(output, header=True)
        self.namespace: dict[str, Any] = {
            "_append": self.rows.append, "_Out": make, "_seq": self.seq, "_count_dropped": self._count_dropped,
            "_wrap": twins.wrap, "_shift_left": twins.shift_left, "_shift_right": twins.shift_right,
            "_truncate": twins.truncate, "_narrow": twins.narrow, "_item": twins.item, "_slice": twins.text_slice,
            "_find": twins.text_find, "_nan": math.nan, "_inf": math.inf, "_negative": _negative, "_float": float,
            "_set_item": _set_item, "_bool": bool, "len": len, "min": min, "max": max, "abs": abs, "range": range,
        }  # fmt: skip
        self.printer = _Source(self, is_last)

    def compiled(self, role: str) -> Callable:
        """The operator's function of this role."""
        return self.printer.make(self.owner.program.operator(self.operator, role))

    def take(self, row: Any) -> None:
        raise NotImplementedError

    def set_seq(self, seq: int) -> None:
        """The seq that outputs of a flush carry."""
        self.seq[0] = seq

    def flush(self) -> None:
        """The end of the stream."""

    def state(self) -> dict[str, pa.Table]:
        """Final states, by the operator's name."""
        return {}

    def _count_dropped(self) -> None:
        self.owner.dropped_invalid += 1


class _Stateless(_Step):
    def __init__(self, owner: Interpreter, operator: Operator, is_last: bool):
        super().__init__(owner, operator, is_last)
        function, seq = self.compiled("map"), self.seq
        new = zero(owner.program.resolved(operator.scratch)) if operator.scratch else None

        def take(row: Any) -> None:
            seq[0] = row.seq
            if new is None:
                function(row, None)
            else:
                function(row, new(), None)

        self.take = take


class _Stateful(_Step):
    def __init__(self, owner: Interpreter, operator: Operator, is_last: bool):
        super().__init__(owner, operator, is_last)
        self.resolved = owner.program.resolved(operator.state)
        self.new, function, seq = zero(self.resolved), self.compiled("process"), self.seq
        self.flush_one = self.compiled("flush") if "flush" in operator.functions else None
        self.states: dict[Any, Any] = {}
        if operator.key is None:
            only = self.states[None] = self.new()

            def take(row: Any) -> None:
                seq[0] = row.seq
                function(row, only, None)
        else:
            key, states, new = operator.key, self.states, self.new
            namespace = {"states": states, "new": new, "seq": seq, "function": function}
            exec(_TAKE.format(key=key), namespace)
            take = namespace["take"]
        self.take = take

    def flush(self) -> None:
        if self.flush_one is not None:
            for key in sorted(self.states) if self.operator.key else [None]:
                self.flush_one(self.states[key], None)

    def state(self) -> dict[str, pa.Table]:
        if self.operator.key is None:
            return {self.operator.name: export(self.resolved, [self.states[None]], None, None)}
        slot = self.owner.program.resolved(self.operator.input).event[0][self.operator.key]
        keys = sorted(self.states)
        kind = pa.binary() if isinstance(slot.type, Text) else pa.int64()
        rows = [self.states[k] for k in keys]
        return {
            self.operator.name: export(self.resolved, rows, [k if kind == pa.binary() else int(k) for k in keys], kind)
        }


_TAKE = """
def take(row):
    key = row.{key}
    state = states.get(key)
    if state is None:
        state = states[key] = new()
    seq[0] = row.seq
    function(row, state, None)
"""


class _Transaction(_Step):
    """Conditions read the state before the event; then its operations take effect in program order, or none does."""

    def __init__(self, owner: Interpreter, operator: Operator, is_last: bool):
        super().__init__(owner, operator, is_last)
        self.dropped = False
        requires: list = []
        operations: list = []
        results: list = []
        self.namespace |= {"_require": requires.append, "_operate": operations.append, "_result": _result(results)}
        for table, rows in owner.tables.items():
            self.namespace[f"_table_{table.index}"] = rows
        plan, post, seq = self.compiled("plan"), self.compiled("post"), self.seq
        used = self.printer.read_fields
        copiers = {t.index: _copier(owner.program.resolved(t.row), used[t.index]) for t in owner.tables}

        def take(request: Any) -> None:
            requires.clear()
            operations.clear()
            results.clear()
            self.dropped = False
            seq[0] = request.seq
            plan(request, None)
            if self.dropped:
                return
            accepted = True
            for condition, places, extra in requires:  # every one is evaluated, also after one has failed
                if not (places if condition is None else condition(*places, request, *extra)):
                    accepted = False
            for change, row, extra in operations:
                if change is None:
                    results.append((extra, copiers[extra](row)))
                elif accepted:
                    change(row, request, *extra)
            if not accepted:
                owner.rejected += 1
            post(request, accepted, None)

        self.take = take

    def _count_dropped(self) -> None:
        super()._count_dropped()
        self.dropped = True


_STEPS = {"stateless": _Stateless, "stateful": _Stateful, "partitioned": _Stateful, "transaction": _Transaction}


def _copier(resolved: Resolved, used: set[str]) -> Callable:
    """Copies the fields of a row that somebody looks at afterwards: scalars and arrays."""
    cls, parts = row_class(resolved, header=False), []
    for name, slot in resolved.state[0].items():
        copied = f"row.{name}[:]" if isinstance(slot.type, Array) else f"row.{name}"
        parts.append(copied if name in used else "None")
    return eval(f"lambda row: _Row({', '.join(parts)})", {"_Row": cls})


def _result(results: list) -> Callable:
    def result(index: int, table: int) -> Any:
        if not 0 <= index < len(results):
            raise IndexError(f"txn.result: index {index} out of range 0..{len(results) - 1}")
        found, row = results[index]
        if found != table:
            raise ValueError(f"txn.result: read {index} was of another table")
        return row

    return result


def _negative() -> Any:
    raise IndexError("index is negative")


def _set_item(items: list, index: int, value: Any) -> None:
    if not 0 <= index < len(items):
        raise IndexError(f"index {index} out of range 0..{len(items) - 1}")
    items[index] = value


# --- printing --------------------------------------------------------------------------------------------------------


class _Source(Printer):
    """Prints typed functions for one step's namespace."""

    def __init__(self, step: _Step, is_last: bool):
        super().__init__()
        self.step, self.namespace, self.is_last = step, step.namespace, is_last
        self.counter = itertools.count()
        self.read_fields: dict[int, set[str]] = collections.defaultdict(set)  # of results, by table

    def make(self, function: Function) -> Callable:
        """The Python function for a typed one."""
        if function not in self.names:
            name = f"_f{next(self.counter)}_{function.name}"
            self.names[function] = name
            outer = self.lines, self.function, self.indent
            self.lines, self.function, self.indent = [], function, 0
            self.add(f"def {name}({', '.join(n for n, _ in function.parameters)}):", function.line)
            self.indent = 1
            for parameter, given in function.parameters:
                wanted = function.variables[parameter]
                if wanted != given:
                    self.add(f"{parameter} = {self.convert(parameter, given, wanted)}", function.line)
            self.indent = 0
            self.block(function.body)
            tree = ast.parse(self.source())
            places = [line for _, _, line in self.lines]
            for node in ast.walk(tree):
                if hasattr(node, "lineno"):
                    node.lineno = node.end_lineno = places[node.lineno - 1] or function.line
                    node.col_offset = node.end_col_offset = 0
            self.lines, self.function, self.indent = outer
            exec(compile(tree, function.file, "exec"), self.namespace)
            self.step.printed.append(function)
        return self.namespace[self.names[function]]

    def convert(self, value: str, given: Any, wanted: Any) -> str:
        return f"_float({value})" if wanted == FLOAT else f"(+{value})"

    def keep(self, value: Any) -> str:
        """The name under which the printed code finds an object."""
        name = f"_k{next(self.counter)}"
        self.namespace[name] = value
        return name

    # --- statements

    def s_return(self, node: Node) -> None:
        self.add(f"return {self.expression(node.args[0])}" if node.args else "return", node.line)

    def s_setfield(self, node: Node) -> None:
        row, value = self.operands(node)
        self.add(f"{row}.{node.data.name} = {value}", node.line)

    def s_setitem(self, node: Node) -> None:
        self.add(f"_set_item({', '.join(self.operands(node))})", node.line)

    def s_emit(self, node: Node) -> None:
        # An array is emitted as it is now; who has it may go on writing to it.
        given = zip(node.args, self.operands(node), strict=True)
        values = ", ".join(f"{value}[:]" if isinstance(n.kind, ArrayKind) else value for n, value in given)
        made = f"({values},)" if self.is_last else f"_Out(_seq[0], {values})"
        self.add(f"_append({made})", node.line)

    def s_drop(self, node: Node) -> None:
        self.add("_count_dropped()", node.line)

    def s_require(self, node: Node) -> None:
        condition, extra = node.data
        self.make(condition)
        if not node.args:  # on the event alone: evaluated where it stands
            request = next(n for n, k in self.function.parameters if isinstance(k, RowKind) and k.role == "event")
            self.add(f"_require((None, {self.names[condition]}({request}), None))", node.line)
            return
        places, given = ("".join(f"{self.expression(v)}, " for v in values) for values in (node.args, extra))
        self.add(f"_require(({self.names[condition]}, ({places}), ({given})))", node.line)

    def s_modify(self, node: Node) -> None:
        self.make(node.data)
        row, *extra = self.operands(node)
        self.add(f"_operate(({self.names[node.data]}, {row}, ({''.join(f'{e},' for e in extra)})))", node.line)

    def s_read(self, node: Node) -> None:
        [row] = node.args
        self.add(f"_operate((None, {self.expression(row)}, {row.kind.table.index}))", node.line)

    # --- arithmetic

    def wrapped(self, value: str) -> str:
        return f"(_t if {LOW} <= (_t := {value}) <= {HIGH} else _wrap(_t))"

    def arithmetic(self, node: Node, sign: str, can_wrap: bool = True) -> str:
        left, right = self.operands(node)
        plain = f"({left} {sign} {right})"
        return self.wrapped(plain) if node.kind == INT and can_wrap else plain

    def e_add(self, node: Node) -> str:
        return self.arithmetic(node, "+")

    def e_sub(self, node: Node) -> str:
        return self.arithmetic(node, "-")

    def e_mul(self, node: Node) -> str:
        return self.arithmetic(node, "*")

    def e_div(self, node: Node) -> str:
        return self.arithmetic(node, "/")

    def e_floordiv(self, node: Node) -> str:
        divisor = node.args[1]
        return self.arithmetic(node, "//", not (divisor.op == "const" and divisor.data != -1))

    def e_mod(self, node: Node) -> str:
        return self.arithmetic(node, "%", False)

    def e_neg(self, node: Node) -> str:
        [value] = self.operands(node)
        return self.wrapped(f"-{value}") if node.kind == INT else f"(-{value})"

    def e_abs(self, node: Node) -> str:
        [value] = self.operands(node)
        return self.wrapped(f"abs({value})") if node.kind == INT else f"abs({value})"

    def e_shl(self, node: Node) -> str:
        left, right = self.operands(node)
        count = node.args[1]
        if count.op == "const" and 0 <= count.data <= 63:
            return self.wrapped(f"({left} << {right})")
        return f"_shift_left({left}, {right})"

    def e_shr(self, node: Node) -> str:
        left, right = self.operands(node)
        count = node.args[1]
        if count.op == "const" and 0 <= count.data <= 63:
            return f"({left} >> {right})"
        return f"_shift_right({left}, {right})"

    def e_truncate(self, node: Node) -> str:
        return f"_truncate({self.expression(node.args[0])})"

    def e_fit(self, node: Node) -> str:
        scalar, where = node.data
        keep = self.keep((scalar, where))
        value = self.expression(node.args[0])
        checked = f"(_t if {scalar.low} <= (_t := {value}) <= {scalar.high} else _narrow(_t, *{keep}))"
        return f"_bool({checked})" if scalar.name == "boolean" else checked

    # --- rows, text, containers

    def e_field(self, node: Node) -> str:
        kind = node.args[0].kind
        if kind.role == "result":
            self.read_fields[kind.table.index].add(node.data.name)
        return f"{self.expression(node.args[0])}.{node.data.name}"

    e_part = e_field

    def e_item(self, node: Node) -> str:
        array, index = node.args
        if array.op == "part" and array.args[0].op == "var":
            return f"({self.expression(array)}[_t] if (_t := {self.expression(index)}) >= 0 else _negative())"
        return f"_item({', '.join(self.operands(node))})"

    e_textitem = e_item

    def e_constant(self, node: Node) -> str:
        return self.keep(self.step.owner.program.constant(node.data).tolist())

    def e_constantitem(self, node: Node) -> str:
        table, index = node.args
        return f"({self.expression(table)}[_t] if (_t := {self.expression(index)}) >= 0 else _negative())"

    def e_textlength(self, node: Node) -> str:
        return f"len({self.expression(node.args[0])})"

    def e_textequal(self, node: Node) -> str:
        left, right = self.operands(node)
        return f"({left} == {right})"

    def e_slice(self, node: Node) -> str:
        text, low, high = self.operands(node)
        if all(n.op in ("var", "const") for n in node.args[1:]):
            return f"({text}[{low}:{high}] if {low} >= 0 <= {high} else _negative())"
        return f"_slice({text}, {low}, {high})"

    def e_find(self, node: Node) -> str:
        text, byte, start = self.operands(node)
        constant = node.args[1].op == "const" and 0 <= node.args[1].data <= 255
        if constant and node.args[2].op in ("var", "const"):
            return f"({text}.find({byte}, {start}) if {start} >= 0 else _negative())"
        return f"_find({text}, {byte}, {start})"

    def e_method(self, node: Node) -> str:
        box, *values = self.operands(node)
        return f"{box}.{node.data}({', '.join(values)})"

    def e_call(self, node: Node) -> str:
        self.make(node.data)
        return f"{self.names[node.data]}({', '.join(self.operands(node))})"

    # --- transactions

    def e_accepted(self, node: Node) -> str:
        assert self.function is not None
        return next(name for name, kind in self.function.parameters if kind == POST)

    def e_row(self, node: Node) -> str:
        table = f"_table_{node.data.index}"
        return f"({table}[_t] if (_t := {self.expression(node.args[0])}) >= 0 else _negative())"

    def e_result(self, node: Node) -> str:
        return f"_result({self.expression(node.args[0])}, {node.data.index})"


__all__ = ["BOOL", "TEXT", "ArrayKind", "BoxKind", "Interpreter"]
