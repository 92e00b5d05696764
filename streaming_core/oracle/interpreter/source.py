"""Prints typed functions as plain Python with the lines of the application."""

from __future__ import annotations

import ast
import collections
import itertools
from collections.abc import Callable
from typing import Any

from streaming_core.language.record import Scalar
from streaming_core.language.typed import Program
from streaming_core.language.typed.kinds import FLOAT, INT, POST, TEXT, ArrayKind, RowKind
from streaming_core.language.typed.tree import Function, Node
from streaming_core.oracle.printer import HIGH, LOW, Printer


class Source(Printer):
    """Prints typed functions into the namespace of one operator."""

    def __init__(self, program: Program, namespace: dict[str, Any], is_last: bool):
        super().__init__()
        self.program, self.namespace, self.is_last = program, namespace, is_last
        self.files: set[str] = set()  # of the printed functions
        self.counter = itertools.count()
        self.read_fields: dict[int, set[str]] = collections.defaultdict(set)  # of results, by table

    def make(self, function: Function) -> Callable:
        """Return the Python function for a typed one."""
        if function not in self.names:
            name = f"_f{next(self.counter)}_{function.name}"
            self.names[function] = name
            outer = self.lines, self.function, self.indent, self.line
            self.lines, self.function, self.indent = [], function, 0
            self.add(f"def {name}({', '.join(n for n, _ in function.parameters)}):", function.line)
            self.indent = 1
            for parameter, kind in function.parameters:
                wanted = function.variables[parameter]
                if wanted != kind:
                    self.add(f"{parameter} = {self.convert(parameter, kind, wanted)}", function.line)
            self.indent = 0
            self.block(function.body)
            tree = ast.parse(self.source())
            places = [line for _, _, line in self.lines]
            node: Any  # only some have a line
            for node in ast.walk(tree):
                if hasattr(node, "lineno"):
                    node.lineno = node.end_lineno = places[node.lineno - 1] or function.line
                    node.col_offset = node.end_col_offset = 0
            self.lines, self.function, self.indent, self.line = outer
            exec(compile(tree, function.file, "exec"), self.namespace)
            self.files.add(function.file)
        return self.namespace[self.names[function]]

    def convert(self, value: str, kind: Any, wanted: Any) -> str:
        """Return the conversion of a value to the wanted type."""
        return f"_float({value})" if wanted == FLOAT else f"(+{value})"

    def kept(self, node: Node, declared: Any) -> str:
        """Return a value as a field of this type stores it: all NaNs are one."""
        value = self.expression(node)
        if not isinstance(declared, Scalar) or not declared.is_float or node.op == "const":
            return value
        return f"(_t if (_t := {value}) == _t else _nan)"

    def keep(self, value: Any) -> str:
        """Add an object to the namespace; returns its name."""
        name = f"_k{next(self.counter)}"
        self.namespace[name] = value
        return name

    # --- statements

    def s_return(self, node: Node) -> None:
        """Add a `return`."""
        self.add(f"return {self.expression(node.args[0])}" if node.args else "return", node.line)

    def s_setfield(self, node: Node) -> None:
        """Add a store to a field of a row."""
        row, value = node.args
        self.add(f"{self.expression(row)}.{node.data.name} = {self.kept(value, node.data.type)}", node.line)

    def s_setitem(self, node: Node) -> None:
        """Add a store to an item of an array."""
        array, position, value = node.args
        operands = self.kept(value, array.kind.item), self.expression(array), self.expression(position)
        self.add(f"_set_item({', '.join(operands)})", node.line)

    def s_emit(self, node: Node) -> None:
        """Add the emission of a row."""
        # A copy of an array: the operator may write to the array afterwards.
        slots = zip(node.args, node.data.event[0].values(), strict=True)
        values = ", ".join(
            f"{self.expression(n)}[:]" if isinstance(n.kind, ArrayKind) else self.kept(n, slot.type)
            for n, slot in slots
        )
        row = f"({values},)" if self.is_last else f"_Out(_seq[0], {values})"
        self.add(f"_append({row})", node.line)

    def s_split(self, node: Node) -> None:
        """Add a loop over the parts of a text."""
        text, *separator = (self.expression(part) for part in node.args[0])
        parts = self.decided(node, f"{text}.split({', '.join(separator)})")
        self.add(f"for {node.data} in {parts}:", node.line)
        self.block(node.args[1])

    def s_append(self, node: Node) -> None:
        """Add an append to a queue."""
        queue, *values = node.args
        fields = ", ".join(f"{slot.name}={self.kept(n, slot.type)}" for n, slot in zip(values, node.data, strict=True))
        self.add(f"{self.expression(queue)}.append({fields})", node.line)

    def s_key(self, node: Node) -> None:
        """Add a key of the row."""
        self.add(f"_key(({''.join(f'{value}, ' for value in self.operands(node))}))", node.line)

    def s_drop(self, node: Node) -> None:
        """Add the drop of an input."""
        self.add("_count_dropped()", node.line)

    def s_require(self, node: Node) -> None:
        """Add a condition of the transaction."""
        condition, extra = node.data
        self.make(condition)
        if not node.args:  # a condition on the event alone has its value at once
            assert self.function is not None
            request = next(n for n, k in self.function.parameters if isinstance(k, RowKind) and k.role == "event")
            self.add(f"_require((None, {self.names[condition]}({request}), None))", node.line)
            return
        places, arguments = ("".join(f"{self.expression(v)}, " for v in values) for values in (node.args, extra))
        self.add(f"_require(({self.names[condition]}, ({places}), ({arguments})))", node.line)

    def s_modify(self, node: Node) -> None:
        """Add a modification of a row."""
        function, extra = node.data
        self.make(function)
        row, *others = self.operands(node)
        # Operations take effect after the plan, so these copies are of the state before the transaction.
        tables = (other.kind.table.index for other in node.args[1:])
        copies = "".join(f"_copy_{table}({other}), " for table, other in zip(tables, others, strict=True))
        arguments = "".join(f"{self.expression(e)}, " for e in extra)
        self.add(f"_operate(({self.names[function]}, {row}, ({copies}), ({arguments})))", node.line)

    def s_read(self, node: Node) -> None:
        """Add a read of a row."""
        [row] = node.args
        self.add(f"_operate((None, {self.expression(row)}, (), {row.kind.table.index}))", node.line)

    # --- arithmetic

    def wrapped(self, value: str) -> str:
        """Return an integer modulo 2^64, as a signed one."""
        return f"(_t if {LOW} <= (_t := {value}) <= {HIGH} else _wrap(_t))"

    def arithmetic(self, node: Node, sign: str, can_wrap: bool = True) -> str:
        """Return an operation; an integer one wraps around."""
        left, right = self.operands(node)
        plain = f"({left} {sign} {right})"
        return self.wrapped(plain) if node.kind == INT and can_wrap else plain

    def e_add(self, node: Node) -> str:
        """Return a sum."""
        return self.arithmetic(node, "+")

    def e_sub(self, node: Node) -> str:
        """Return a difference."""
        return self.arithmetic(node, "-")

    def e_mul(self, node: Node) -> str:
        """Return a product."""
        return self.arithmetic(node, "*")

    def e_div(self, node: Node) -> str:
        """Return a quotient of doubles."""
        return self.arithmetic(node, "/")

    def e_floordiv(self, node: Node) -> str:
        """Return a floor division."""
        divisor = node.args[1]
        return self.arithmetic(node, "//", not (divisor.op == "const" and divisor.data != -1))

    def e_mod(self, node: Node) -> str:
        """Return a remainder."""
        return self.arithmetic(node, "%", False)

    def e_neg(self, node: Node) -> str:
        """Return a negated number."""
        [value] = self.operands(node)
        return self.wrapped(f"-{value}") if node.kind == INT else f"(-{value})"

    def e_abs(self, node: Node) -> str:
        """Return an absolute value."""
        [value] = self.operands(node)
        return self.wrapped(f"abs({value})") if node.kind == INT else f"abs({value})"

    def e_shl(self, node: Node) -> str:
        """Return a left shift."""
        left, right = self.operands(node)
        count = node.args[1]
        if count.op == "const" and 0 <= count.data <= 63:
            return self.wrapped(f"({left} << {right})")
        return f"_shift_left({left}, {right})"

    def e_shr(self, node: Node) -> str:
        """Return a right shift."""
        left, right = self.operands(node)
        count = node.args[1]
        if count.op == "const" and 0 <= count.data <= 63:
            return f"({left} >> {right})"
        return f"_shift_right({left}, {right})"

    def e_truncate(self, node: Node) -> str:
        """Return the integer part of a double."""
        return f"_truncate({self.expression(node.args[0])})"

    def e_fit(self, node: Node) -> str:
        """Return a check that a value fits a scalar type."""
        scalar, where = node.data
        keep = self.keep((scalar, where))
        value = self.expression(node.args[0])
        checked = f"(_t if {scalar.low} <= (_t := {value}) <= {scalar.high} else _narrow(_t, *{keep}))"
        return f"_bool({checked})" if scalar.name == "boolean" else checked

    # --- rows, text, containers

    def e_field(self, node: Node) -> str:
        """Return a field of a row."""
        kind = node.args[0].kind
        if kind.role == "result":
            self.read_fields[kind.table.index].add(node.data.name)
        return f"{self.expression(node.args[0])}.{node.data.name}"

    e_part = e_field

    def e_present(self, node: Node) -> str:
        """Return a field that must not be null."""
        value, valid = self.operands(node)
        return f"({value} if {valid} else _null({node.data!r}))"

    def e_item(self, node: Node) -> str:
        """Return an item of an array."""
        array, index = node.args
        if array.op == "part" and array.args[0].op == "var":
            return f"({self.expression(array)}[_t] if (_t := {self.expression(index)}) >= 0 else _negative())"
        return f"_item({', '.join(self.operands(node))})"

    def e_textitem(self, node: Node) -> str:
        """Return a byte of a text."""
        text, index = self.operands(node)
        return f"{text}[{index}]"

    def e_constant(self, node: Node) -> str:
        """Return a side table."""
        return self.keep(self.program.constants[node.data].tolist())

    def e_constantitem(self, node: Node) -> str:
        """Return an item of a side table."""
        table, index = node.args
        return f"({self.expression(table)}[_t] if (_t := {self.expression(index)}) >= 0 else _negative())"

    def e_textlength(self, node: Node) -> str:
        """Return the length of a text."""
        return f"len({self.expression(node.args[0])})"

    e_textcompare = Printer.e_compare

    def e_among(self, node: Node) -> str:
        """Return whether a value is one of several."""
        value, *options = self.operands(node)
        return f"({value} in ({', '.join(options)},))"

    def e_contains(self, node: Node) -> str:
        """Return whether a text contains a part or a byte."""
        part, text = self.operands(node)
        return f"({part} in {text})" if node.args[0].kind == TEXT else f"(_find({text}, {part}, 0) >= 0)"

    def e_slice(self, node: Node) -> str:
        """Return a slice of a text."""
        text, low, high = self.operands(node)
        return f"{text}[{low}:{high}]"

    def e_find(self, node: Node) -> str:
        """Return the search for a part or a byte in a text."""
        text, wanted, start = self.operands(node)
        [_, known, _] = node.args
        if known.kind == TEXT or (known.op == "const" and 0 <= known.data <= 255):
            return f"{text}.find({wanted}, {start})"
        return f"_find({text}, {wanted}, {start})"

    def e_startswith(self, node: Node) -> str:
        """Return the call of a method of bytes that means the same."""
        text, *values = self.operands(node)
        return f"{text}.{node.op}({', '.join(values)})"

    e_endswith = e_strip = e_lower = e_upper = e_startswith

    def e_concat(self, node: Node) -> str:
        """Return the concatenation of two texts."""
        left, right = self.operands(node)
        return f"({left} + {right})"

    def e_decimal(self, node: Node) -> str:
        """Return the decimal digits of an integer."""
        return f"(b'%d' % {self.expression(node.args[0])})"

    def e_parse(self, node: Node) -> str:
        """Return the number that a text stands for."""
        return f"_{'integer' if node.kind == INT else 'float'}_of({self.expression(node.args[0])})"

    def e_method(self, node: Node) -> str:
        """Return the call of a container's method."""
        box, *values = self.operands(node)
        return f"{box}.{node.data}({', '.join(values)})"

    def e_queued(self, node: Node) -> str:
        """Return a row of a queue."""
        queue, index = self.operands(node)
        return f"{queue}.item({index})"

    def e_call(self, node: Node) -> str:
        """Return the call of a function; print it if it is new."""
        self.make(node.data)
        return f"{self.names[node.data]}({', '.join(self.operands(node))})"

    # --- windows

    def e_windowstart(self, node: Node) -> str:
        """Return the start of a window."""
        return f"{self.expression(node.args[0])}.start"

    def e_windowend(self, node: Node) -> str:
        """Return the end of a window."""
        return f"{self.expression(node.args[0])}.end"

    def e_windowkey(self, node: Node) -> str:
        """Return the key of a window."""
        return f"{self.expression(node.args[0])}.key"

    # --- transactions

    def e_accepted(self, node: Node) -> str:
        """Return whether the transaction was accepted."""
        assert self.function is not None
        return next(name for name, kind in self.function.parameters if kind == POST)

    def e_row(self, node: Node) -> str:
        """Return the row of a key."""
        table = f"_table_{node.data.index}"
        if self.program.tables[node.data.index].index is not None:
            return f"{table}[{self.expression(node.args[0])}]"
        return f"({table}[_t] if (_t := {self.expression(node.args[0])}) >= 0 else _negative())"

    def e_result(self, node: Node) -> str:
        """Return the result of a read."""
        return f"_result({self.expression(node.args[0])}, {node.data.index})"
