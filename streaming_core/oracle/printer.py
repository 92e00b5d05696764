"""Prints typed functions as Python source: the common part of the interpreter and the compiled loop.

A subclass defines the source of each operation: a method `e_<op>` returns an expression, a method `s_<op>` adds lines.
Each printed line remembers its line in the application file.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from streaming_core.language.typed.kinds import INT
from streaming_core.language.typed.tree import Function, Node

LOW, HIGH = -(1 << 63), (1 << 63) - 1


class Printer:
    """Prints functions into one namespace.

    Attributes:
        lines: Indentation, text and line of the application file.
        names: The printed name of a typed function.
        function: The function that the printer is in.
        indent: The present indentation.
        line: The line of the present statement in the application file.
    """

    def __init__(self) -> None:
        self.lines: list[tuple[int, str, int]] = []
        self.names: dict[Hashable, str] = {}
        self.function: Function | None = None
        self.indent = 0
        self.line = 0

    def add(self, text: str, line: int = 0) -> None:
        """Add one line of source."""
        self.lines.append((self.indent, text, line))

    def source(self) -> str:
        """Return all lines printed so far."""
        return "".join(f"{'    ' * indent}{text}\n" for indent, text, _ in self.lines)

    # --- statements --------------------------------------------------------------------------------------------------

    def block(self, body: list[Node]) -> None:
        """Print statements, one level deeper."""
        self.indent += 1
        before = len(self.lines)
        for node in body:
            self.line = node.line
            getattr(self, f"s_{node.op}")(node)
            if node.op in ("return", "break", "continue"):
                break  # the rest can never run
        if len(self.lines) == before:
            self.add("pass")
        self.indent -= 1

    def s_pass(self, node: Node) -> None:
        """Add nothing: `block` adds `pass` to an empty block."""
        pass

    def s_break(self, node: Node) -> None:
        """Add `break`."""
        self.add("break", node.line)

    def s_continue(self, node: Node) -> None:
        """Add `continue`."""
        self.add("continue", node.line)

    def s_assign(self, node: Node) -> None:
        """Add the assignment of a variable."""
        self.add(f"{node.data} = {self.expression(node.args[0])}", node.line)

    def s_if(self, node: Node) -> None:
        """Add an `if`; a constant condition leaves only its branch."""
        if node.args[0].op == "const":  # a parameter's value decides it
            self.indent -= 1
            self.block(node.args[1] if node.args[0].data else node.args[2])
            self.indent += 1
            return
        self.add(f"if {self.condition(node.args[0])}:", node.line)
        self.block(node.args[1])
        if node.args[2]:
            self.add("else:")
            self.block(node.args[2])

    def s_while(self, node: Node) -> None:
        """Add a `while` loop."""
        self.add(f"while {self.condition(node.args[0])}:", node.line)
        self.block(node.args[1])

    def s_for(self, node: Node) -> None:
        """Add a `for` loop over a range."""
        assert self.function is not None
        bounds = ", ".join(self.expression(b) for b in node.args[0])
        numbers = self.decided(node, f"range({bounds})")
        if self.function.variables[node.data] == INT:
            self.add(f"for {node.data} in {numbers}:", node.line)
        else:
            self.add(f"for _i in {numbers}:", node.line)
            self.indent += 1
            self.add(f"{node.data} = {self.convert('_i', INT, self.function.variables[node.data])}", node.line)
            self.indent -= 1
        self.block(node.args[1])

    def s_effect(self, node: Node) -> None:
        """Add an expression for its effect."""
        self.add(self.expression(node.args[0]), node.line)

    # --- expressions -------------------------------------------------------------------------------------------------

    def expression(self, node: Node) -> str:
        """Return the source of an expression."""
        return getattr(self, f"e_{node.op}")(node)

    def condition(self, node: Node) -> str:
        """Return the source of a condition; the parts of an `and` or `or` are conditions of their own."""
        value = self.expression(node)
        return value if node.op in ("all", "any", "const") else self.decided(node, value)

    def decided(self, node: Node, value: str) -> str:
        """Return the source of what decides which branch runs. A subclass may observe it."""
        return value

    def operands(self, node: Node) -> list[str]:
        """Return the source of every operand."""
        return [self.expression(a) for a in node.args]

    def convert(self, value: str, kind: Any, wanted: Any) -> str:
        """Return the source of a conversion between two types."""
        raise NotImplementedError

    def e_const(self, node: Node) -> str:
        """Return a literal."""
        value = node.data
        if isinstance(value, bytes):
            return repr(value)
        if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
            return "_nan" if value != value else "_inf" if value > 0 else "(-_inf)"
        return f"({value!r})" if not isinstance(value, bool) and (value < 0 or str(value)[0] == "-") else repr(value)

    def e_var(self, node: Node) -> str:
        """Return the name of a variable."""
        return node.data

    def e_cast(self, node: Node) -> str:
        """Return a conversion to another type."""
        return self.convert(self.expression(node.args[0]), node.args[0].kind, node.kind)

    def e_truth(self, node: Node) -> str:
        """Return a comparison with zero."""
        return f"({self.expression(node.args[0])} != 0)"

    def e_not(self, node: Node) -> str:
        """Return a negation."""
        return f"(not {self.expression(node.args[0])})"

    def e_all(self, node: Node) -> str:
        """Return a conjunction."""
        return self.logical(node, " and ", False)

    def e_any(self, node: Node) -> str:
        """Return a disjunction."""
        return self.logical(node, " or ", True)

    def logical(self, node: Node, sign: str, deciding: bool) -> str:
        """Return an `and` or `or` without the constants that do not matter."""
        kept: list[Node] = []
        for i, part in enumerate(node.args):
            known = part.op == "const"
            if known and bool(part.data) != deciding and i + 1 < len(node.args):
                continue
            kept.append(part)
            if known and bool(part.data) == deciding:
                break
        return f"({sign.join(self.condition(k) for k in kept)})"

    def e_ifexp(self, node: Node) -> str:
        """Return a conditional expression."""
        condition, then, otherwise = node.args
        return f"({self.expression(then)} if {self.condition(condition)} else {self.expression(otherwise)})"

    def e_compare(self, node: Node) -> str:
        """Return a comparison."""
        left, right = self.operands(node)
        return f"({left} {node.data} {right})"

    def e_and(self, node: Node) -> str:
        """Return a bitwise and."""
        left, right = self.operands(node)
        return f"({left} & {right})"

    def e_or(self, node: Node) -> str:
        """Return a bitwise or."""
        left, right = self.operands(node)
        return f"({left} | {right})"

    def e_xor(self, node: Node) -> str:
        """Return a bitwise exclusive or."""
        left, right = self.operands(node)
        return f"({left} ^ {right})"

    def e_invert(self, node: Node) -> str:
        """Return a bitwise complement."""
        return f"(~{self.expression(node.args[0])})"

    def e_min(self, node: Node) -> str:
        """Return a minimum."""
        return f"min({', '.join(self.operands(node))})"

    def e_max(self, node: Node) -> str:
        """Return a maximum."""
        return f"max({', '.join(self.operands(node))})"
