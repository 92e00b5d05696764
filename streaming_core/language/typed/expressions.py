"""Expressions of the language and their types; every conversion that the language implies becomes a node."""

from __future__ import annotations

import ast
import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from streaming_core.errors import BadInput, did_you_mean, unknown
from streaming_core.language.application import Table
from streaming_core.language.decimals import decimal
from streaming_core.language.extent import Duration, duration, units
from streaming_core.language.lookup import Constant
from streaming_core.language.parameters import ParamRef
from streaming_core.language.record import (
    VALID,
    Array,
    Counter,
    Map,
    Queue,
    Record,
    Ring,
    Scalar,
    Set,
    Slot,
    Text,
    TopK,
    boolean,
    i64,
)
from streaming_core.language.source import text_bytes
from streaming_core.language.typed import advice
from streaming_core.language.typed.kinds import (
    BOOL,
    FLOAT,
    INT,
    NONE,
    NUMBERS,
    OUT,
    PLAN,
    POST,
    TEXT,
    ArrayKind,
    BoxKind,
    KeysKind,
    RowKind,
    TableKind,
    WindowKind,
    join,
    loaded,
)
from streaming_core.language.typed.scope import Scope
from streaming_core.language.typed.tree import Node, within

SEQ = Slot("seq", Scalar("i64", np.dtype("<i8"), -(1 << 63), (1 << 63) - 1), 0, 1, 8)

_BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.LShift: "shl", ast.RShift: "shr", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor",
}  # fmt: skip
_COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}

_DECIDE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}

# Methods of containers: the types of the arguments, and the type of the result. An "i" is an integer, a "k" has the
# type of a key, a "v" the type that a value loads as. An "r" is a row with named fields.
METHODS: dict[type, dict[str, tuple[str, str]]] = {
    Ring: {"append": ("v", "none"), "clear": ("", "none")},
    Set: {"add": ("k", "bool"), "remove": ("k", "bool"), "at": ("i", "k"), "clear": ("", "none")},
    Map: {
        "get": ("kv", "v"),
        "put": ("kv", "none"),
        "remove": ("k", "bool"),
        "key_at": ("i", "k"),
        "value_at": ("i", "v"),
        "clear": ("", "none"),
    },
    Counter: {
        "add": ("ki", "int"),
        "remove": ("k", "bool"),
        "get": ("k", "int"),
        "key_at": ("i", "k"),
        "value_at": ("i", "int"),
        "clear": ("", "none"),
    },
    TopK: {"offer": ("ii", "none"), "key_at": ("i", "int"), "score_at": ("i", "int"), "clear": ("", "none")},
    Queue: {"append": ("r", "none"), "popleft": ("", "none"), "clear": ("", "none")},
}
# The methods that change no container; `len`, `in` and `[i]` become "length", "contains" and "item".
READING = frozenset({"get", "at", "key_at", "value_at", "score_at", "length", "contains", "item"})
# Methods of texts: the types of the arguments, and the type of the result. "t" is a text, "?" a text or a byte.
_TEXT_METHODS = {
    "startswith": ("t", BOOL), "endswith": ("t", BOOL), "find": ("?", INT), "strip": ("", TEXT), "lower": ("", TEXT),
    "upper": ("", TEXT),
}  # fmt: skip


def _key_type(container: Any) -> Scalar | Text:
    """The type of the keys of a set, map, counter or top-k."""
    return container.item if isinstance(container, Set) else getattr(container, "key", i64)


def _acts(node: Node) -> bool:
    return node.op == "call" or (node.op == "method" and node.data not in READING)


def _copied(value: Node) -> list[tuple[str, Scalar]]:
    """The names and types of the numbers in fields that a value may be."""
    match value.op:
        case "field":
            return [(value.data.name, value.data.type)] if isinstance(value.data.type, Scalar) else []
        case "present":
            return _copied(value.args[0])
        case "ifexp":
            return [field for arg in value.args[1:] for field in _copied(arg)]
    return []


class Expressions(Scope):
    """Reads the expressions of a function and finds their types."""

    def expression(self, node: ast.expr) -> Node:
        """A typed expression."""
        typed = self._expression(node)
        typed.line = typed.line or node.lineno
        return typed

    def _expression(self, node: ast.expr) -> Node:
        match node:
            case ast.Constant(value=value):
                return self.literal(node, value)
            case ast.Name(id=name):
                return self.name(node, name)
            case ast.Attribute():
                return self.attribute(node)
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(node, op, self.expression(left), self.expression(right))
            case ast.UnaryOp():
                return self.unary(node)
            case ast.BoolOp(op=op, values=values):
                return self.logical(node, "all" if isinstance(op, ast.And) else "any", values)
            case ast.Compare():
                return self.comparison(node)
            case ast.IfExp():
                return self.choice(node)
            case ast.Subscript():
                return self.subscript(node)
            case ast.Call():
                return self.call(node)
        raise self.foreign(node)

    def unary(self, node: ast.UnaryOp) -> Node:
        """Type an expression with one operand: `not x`, `-x`, `+x`, `~x`."""
        match node.op, node.operand:
            case ast.Not(), operand:
                truth = self.condition(operand)
                return Node("const", BOOL, data=not truth.data) if truth.op == "const" else Node("not", BOOL, [truth])
            case ast.USub(), ast.Constant(value=int() | float() as n) if type(n) is not bool:
                return self.literal(node, -n)
            case ast.Invert(), operand:
                inverted = self.expression(operand)
                if inverted.kind == BOOL:
                    raise self.fail(node, "~ does not work on a boolean; write `not`")
                return Node("invert", INT, [self.integer(node, inverted)])
        signed = self.number(node, self.expression(node.operand))
        signed = self.cast(signed, join(INT, signed.kind))
        return signed if isinstance(node.op, ast.UAdd) else Node("neg", signed.kind, [signed])

    def choice(self, node: ast.IfExp) -> Node:
        """Type `x if condition else y`; if a parameter decides the condition, only one side remains."""
        condition, then, otherwise = self.condition(node.test), self.expression(node.body), self.expression(node.orelse)
        if NONE in (then.kind, otherwise.kind):
            raise self.fail(node, "cannot choose between calls that return nothing; write if and else")
        joined = self.joined(node, then.kind, otherwise.kind)
        if condition.op == "const":
            return self.cast(then if condition.data else otherwise, joined)
        return Node("ifexp", joined, [condition, self.cast(then, joined), self.cast(otherwise, joined)])

    def literal(self, node: ast.AST, value: Any) -> Node:
        """Type a constant: a boolean, an integer of 64 bits, a float, or a text, which is UTF-8."""
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, bool):
            return Node("const", BOOL, data=value)
        if isinstance(value, int):
            if not -(1 << 63) <= value < 1 << 63:
                raise self.fail(node, f"the number {value} does not fit in a 64-bit integer")
            return Node("const", INT, data=value)
        if isinstance(value, float):
            return Node("const", FLOAT, data=value)
        if isinstance(value, str | bytes):
            try:
                return self.new_text("const", [], text_bytes(value))
            except UnicodeEncodeError:
                raise self.fail(node, f'{value!r} is not UTF-8; write its bytes as b"..."') from None
        reason = f"cannot use a value of type {type(value).__name__}"
        raise self.fail(node, reason + advice.of_value(value))

    def parameter(self, node: ast.AST, name: str) -> Node:
        """Type the value of a parameter, which is a constant."""
        if name not in self.program.params:
            raise self.fail(node, unknown("parameter", name, self.program.params))
        return self.literal(node, self.program.params[name])

    def units(self, node: ast.AST, value: Duration) -> Node:
        """Type a duration: a constant number of units of the application's time."""
        try:
            return self.literal(node, units(value, self.program.app))
        except BadInput as error:
            raise self.fail(node, str(error)) from None

    def name(self, node: ast.Name, name: str) -> Node:
        """Type a variable, or a number, parameter or constant of the file."""
        if name in self.locals or name in self.variables:
            # A kernel would read an arbitrary value from an unset variable. In unreachable code any type is right.
            if name not in (self.variables if self.assigned is None else self.assigned):
                remedy = advice.OUTSIDE if name in self.names else "assign it on every path to this line"
                raise self.fail(node, f"variable {name!r} may have no value here; {remedy}")
            return Node("var", self.variables[name], data=name)
        if name not in self.names:
            raise self.fail(node, f"unknown name {name!r}{advice.of_name(name, self.program.params, self.usable())}")
        value = self.names[name]
        if isinstance(value, ParamRef):
            return self.parameter(node, value.name)
        if isinstance(value, Duration):
            return self.units(node, value)
        if isinstance(value, Constant):
            self.own(node, value)
            values = self.program.constants[value]
            if isinstance(values, bytes):
                return self.literal(node, values)
            return Node("constant", TableKind(value, FLOAT if values.dtype == np.float64 else INT), data=value)
        return self.literal(node, value)

    def attribute(self, node: ast.Attribute) -> Node:
        """Type a field of a row or window, or a parameter as `app.params.name`."""
        value = self.outer(node)
        if isinstance(value, ParamRef):
            return self.parameter(node, value.name)
        row = self.row(node.value)
        if row.kind == POST and node.attr == "accepted":
            return Node("accepted", BOOL)
        if isinstance(row.kind, WindowKind):
            return self.of_window(node, row)
        slot = self.field(node, row, node.attr)
        where = f"{row.kind.resolved.name}.{node.attr}"
        match slot.type:
            case Scalar() | Text():
                if isinstance(slot.type, Text) and row.op not in ("var", "windowkey", "queued"):
                    raise self.fail(node, f"read the text {where} from a variable that holds the row")
                value = Node("field", loaded(slot.type), [row], slot)
                if not slot.is_nullable:
                    return value
                return Node("present", value.kind, [value, self.validity(row, slot)], where, node.lineno)
            case Array(item):
                return Node("part", ArrayKind(item, slot.count, row.kind.writable, where), [row], slot)
            case _:
                if row.kind.role == "result":
                    raise self.fail(node, f"{where} is not available: txn.read returns only scalar fields")
                if row.kind.role == "joint" and not isinstance(slot.type, Ring):
                    reason = "a function over several rows cannot read a set, map, counter or top-k of them"
                    raise self.fail(node, f"{where} is not available: {reason}")
                return Node("part", BoxKind(slot.type, slot.count, row.kind.writable, where), [row], slot)

    def validity(self, row: Node, slot: Slot) -> Node:
        """Whether a field that may be null has a value."""
        return Node("field", BOOL, [row], row.kind.slots[VALID + slot.name])

    def nullable(self, node: ast.expr) -> tuple[Node, Node] | None:
        """The value of a field that may be null, whatever it is, and whether it has one; None of all else."""
        if not isinstance(node, ast.Attribute) or self.outer(node) is not None:
            return None
        row = self.row(node.value)
        if not isinstance(row.kind, RowKind) or not (slot := row.kind.slots.get(node.attr)) or not slot.is_nullable:
            return None
        present = self.expression(node)
        self.calm(node, present, f"the row of {present.data}, which may be null,")
        value, valid = present.args
        return value, valid

    def optional(self, node: ast.expr, scalar: Scalar | Text) -> tuple[Node, Node]:
        """A value for a field that may be null, whatever it is if it is null, and whether it has one."""
        if isinstance(node, ast.Constant) and node.value is None:
            return self.literal(node, b"" if isinstance(scalar, Text) else False), Node("const", BOOL, data=False)
        if isinstance(node, ast.IfExp):
            condition, sides = self.condition(node.test), [self.optional(n, scalar) for n in (node.body, node.orelse)]
            if any(valid.op != "const" or not valid.data for _, valid in sides):
                self.calm(node, condition, "the condition of a value that may be null")
                if condition.op == "const":
                    return sides[not condition.data]
                joined = self.joined(node, *(value.kind for value, _ in sides))
                value = Node("ifexp", joined, [condition, *(self.cast(value, joined) for value, _ in sides)])
                return value, Node("ifexp", BOOL, [condition, *(valid for _, valid in sides)])
        return self.nullable(node) or (self.expression(node), Node("const", BOOL, data=True))

    def row(self, node: ast.expr) -> Node:
        """The owner of a field.

        An operator can read a field of a queue's row, but not keep the row: a change of the queue would replace it.
        """
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            queue = self.expression(node.value)
            if isinstance(queue.kind, BoxKind) and isinstance(queue.kind.type, Queue):
                index = self.position(node.value, node.slice)
                kind = RowKind(self.program.records[queue.kind.type.item], "queued")
                return Node("queued", kind, [queue, index], line=node.lineno)
        return self.expression(node)

    def of_window(self, node: ast.Attribute, window: Node) -> Node:
        """Type `window.start`, `window.end` or `window.key`."""
        if node.attr == "key":
            return Node("windowkey", window.kind.key, [window])
        if node.attr not in ("start", "end"):
            raise self.fail(node, f"a window has no field {node.attr!r}; it has start, end and key")
        return Node(f"window{node.attr}", INT, [window])

    def field(self, node: ast.AST, row: Node, name: str) -> Slot:
        """Return the slot of a field that the row has in its role."""
        if isinstance(row.kind, WindowKind):
            raise self.fail(node, "cannot assign to a field of a window")
        if not isinstance(row.kind, RowKind):
            raise self.fail(node, f"{row.kind} has no field {name!r}{advice.of_methods(row.kind, METHODS)}")
        if row.kind.role == "place":
            raise self.fail(
                node,
                "cannot read a field of a table row here; pass the row to txn.require, txn.modify or txn.read",
            )
        if name == "seq" and row.kind.role == "event":
            return SEQ
        if name not in row.kind.slots:
            near, known = did_you_mean(name, row.kind.slots), ", ".join(row.kind.slots)
            raise self.fail(node, f"{row.kind.resolved.name} has no field {name!r}{near}; it has {known}")
        return row.kind.slots[name]

    def binary(self, node: ast.AST, op: ast.operator, left: Node, right: Node) -> Node:
        """Type an operation on two numbers, which are converted to the type of the result."""
        name = _BINARY.get(type(op))
        if name is None:
            raise self.foreign(node)
        if name == "add" and left.kind == right.kind == TEXT:
            return self.new_text("concat", [left, right])
        left, right = self.number(node, left), self.number(node, right)
        kind = join(left.kind, right.kind)
        if name in ("and", "or", "xor"):
            if kind == FLOAT:
                raise self.fail(node, "&, | and ^ do not work on a float; convert it with int(...)")
        elif name in ("shl", "shr"):
            if kind == FLOAT:
                raise self.fail(node, "<< and >> do not work on a float; convert it with int(...)")
            kind = INT
        elif name == "div":
            kind = FLOAT
        else:
            kind = join(INT, kind)
        return Node(name, kind, [self.cast(left, kind), self.cast(right, kind)])

    def logical(self, node: ast.AST, op: str, values: list[ast.expr]) -> Node:
        """Type `and` or `or`, which return one of their operands as Python does."""
        parts = [self.number(v, self.expression(v)) for v in values]
        joined = self.joined(node, *(p.kind for p in parts))
        return Node(op, joined, [self.cast(p, joined) for p in parts])

    def comparison(self, node: ast.Compare) -> Node:
        """Type a comparison, a chain of comparisons, or `in`."""
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
            contains = self.contains(node, node.left, node.comparators[0])
            return contains if isinstance(node.ops[0], ast.In) else Node("not", BOOL, [contains])
        match node.ops, node.comparators:
            case [ast.Is() | ast.IsNot() as test], [ast.Constant(value=None)]:
                if (field := self.nullable(node.left)) is None:
                    reason = "only fields declared with `| None` can be null"
                    raise self.fail(node, f"`{ast.unparse(node.left)}` is never None; {reason}")
                return field[1] if isinstance(test, ast.IsNot) else Node("not", BOOL, [field[1]])
        left, parts = self.expression(node.left), []
        for i, (op, following) in enumerate(zip(node.ops, node.comparators, strict=True)):
            sign = _COMPARE.get(type(op))
            if sign is None:
                raise self.foreign(node)
            right = self.expression(following)
            if i + 1 < len(node.ops):  # the chain evaluates its middle twice
                self.calm(node, right, "the middle of a < b < c")
            parts.append(self.compared(node, sign, left, right))
            left = right
        return parts[0] if len(parts) == 1 else Node("all", BOOL, parts)

    def contains(self, node: ast.AST, left: ast.expr, right: ast.expr) -> Node:
        """Type `value in container`, `part in text` or `value in (one, other, ...)`."""
        if isinstance(right, ast.Tuple) and right.elts:
            value, *options = (self.calm(node, self.expression(e), "`in` with a tuple") for e in (left, *right.elts))
            if value.kind == TEXT and all(option.kind == TEXT for option in options):
                return Node("among", BOOL, [value, *options])
            return Node("among", BOOL, [self.integer(node, e) for e in (value, *options)])
        box = self.calm(node, self.expression(right), "the container of `in`")
        value = self.expression(left)
        if box.kind == TEXT:
            return Node("contains", BOOL, [value if value.kind == TEXT else self.integer(node, value), box])
        if not isinstance(box.kind, BoxKind) or not isinstance(box.kind.type, Set | Map):
            raise self.fail(node, f"`in` works on a set, a map, a text or a tuple, not on {box.kind}")
        return Node("method", BOOL, [box, self.entry_key(node, value, box.kind)], "contains")

    def calm(self, node: ast.AST, part: Node, what: str) -> Node:
        """Reject a part whose evaluation may have an effect, where its number or order would not be Python's."""
        if any(map(_acts, within([part]))):
            raise self.fail(node, f"{what} cannot contain a call; assign its result to a variable first")
        return part

    def compared(self, node: ast.AST, sign: str, left: Node, right: Node) -> Node:
        """Type one comparison of two numbers or two texts."""
        is_text = left.kind == right.kind == TEXT
        if not is_text:
            left, right = self.number(node, left), self.number(node, right)
            kind = join(INT, join(left.kind, right.kind))
            left, right = self.cast(left, kind), self.cast(right, kind)
        if left.op == right.op == "const":
            return Node("const", BOOL, data=_DECIDE[sign](left.data, right.data))
        return Node("textcompare" if is_text else "compare", BOOL, [left, right], sign)

    def subscript(self, node: ast.Subscript) -> Node:
        """Type an item of an array, ring, constant or text, or a slice of a text."""
        owner = self.expression(node.value)
        if isinstance(node.slice, ast.Slice):
            if node.slice.step is not None:
                raise self.foreign(node)
            if owner.kind != TEXT:
                raise self.fail(node, f"slicing works only on a text, not on {owner.kind}")
            low, high = (
                self.integer(bound, self.expression(bound)) if bound else Node("const", INT, data=left_out)
                for bound, left_out in ((node.slice.lower, 0), (node.slice.upper, 1 << 62))
            )
            return Node("slice", TEXT, [owner, low, high])
        if isinstance(owner.kind, RowKind):
            raise self.fail(node, "read a field of a row by its name: row.field")
        if owner.kind == TEXT:
            return Node("textitem", INT, [owner, self.integer(node.slice, self.expression(node.slice))])
        index = self.position(node.value, node.slice)
        match owner.kind:
            case ArrayKind(item=item):
                return Node("item", loaded(item), [owner, index])
            case TableKind(item=item):
                return Node("constantitem", item, [owner, index])
            case BoxKind(type=Ring(item)):
                return Node("method", loaded(item), [owner, index], "item")
            case BoxKind(type=Queue()):
                raise self.fail(node, "read a row of a queue field by field: queue[i].field")
            case BoxKind(type=box):
                raise self.fail(node, f"cannot index {owner.kind}; use {advice.read_by(type(box))}")
        raise self.fail(node, f"cannot index {owner.kind}")

    def position(self, owner: ast.expr, position: ast.expr) -> Node:
        """Type an index of an array, a container or a constant, which counts from the start."""
        typed = self.integer(position, self.expression(position))
        if typed.op == "const" and typed.data < 0 and self.assigned is not None:
            instead = f"len({ast.unparse(owner)}) - {-typed.data}"
            raise self.fail(position, f"{typed.data} does not count from the end; write {instead}")
        return typed

    def call(self, node: ast.Call) -> Node:
        """Type a call of a method, of a function of the file, or of one of Python's functions."""
        if isinstance(node.func, ast.Attribute):
            return self.method(node)
        name = self.called(node)
        if (value := self.outer(node)) is not None:
            return self.units(node, value) if isinstance(value, Duration) else self.literal(node, value)
        if name not in self.names and advice.is_pythons(name):
            raise self.fail(node, f"cannot call {name}(){advice.of_call(name)}")
        if isinstance(self.names.get(name), Record):
            raise self.fail(node, f"cannot create {name}(...); call out.emit(field=value, ...)")
        if name not in self.names and not advice.of_arguments(name):
            raise self.fail(node, f"unknown function {name}(){advice.of_call(name, self.usable())}")
        self.positional(node)
        args = [self.expression(a) for a in node.args]
        return self.own_call(node, name, args) if name in self.names else self.python_call(node, name, args)

    def own_call(self, node: ast.Call, name: str, args: list[Node]) -> Node:
        """Type a call of a function of the file."""
        function, kinds = self.names[name], [a.kind for a in args]
        if isinstance(function, Text):
            raise self.fail(node, "text is a type; write str(number) for the decimal digits of an integer")
        if function is duration:
            raise self.fail(node, f'{name}() takes a text such as "1h30m"')
        if function is decimal:
            reason = f'{name}() takes a text and a scale, such as decimal("0.908", 3)'
            constants: list[Any] = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            try:
                decimal(*constants)
            except BadInput as error:
                reason = str(error) if len(constants) == len(node.args) == 2 else reason
            raise self.fail(node, reason)
        if not inspect.isfunction(function):
            raise self.fail(node, f"cannot call {name}{advice.of_value(function)}")
        if NONE in kinds:
            raise self.fail(node, f"an argument of {name}() is a call that returns nothing")
        # The reader follows the transaction through the calls to learn the order of its accesses.
        if kinds.count(PLAN) > 1:
            raise self.fail(node, f"{name}() can take the transaction only once")
        typed = self.program.function(function, kinds, self.output)
        return Node("call", typed.kind, args, typed)

    def length(self, value: Node) -> Node | None:
        """Type `len(value)`; None if the value has no length."""
        match value.kind:
            case ArrayKind(count=count):
                return Node("const", INT, data=count)
            case TableKind(constant=constant):
                return Node("const", INT, data=len(self.program.constants[constant]))
            case BoxKind():
                return Node("method", INT, [value], "length")
            case kind if kind == TEXT:
                return Node("textlength", INT, [value])
        return None

    def python_call(self, node: ast.Call, name: str, args: list[Node]) -> Node:
        """Type a call of one of Python's functions: len, min, max, abs, int, float, bool or str."""
        match name, args:
            case "len", [value]:
                if (length := self.length(value)) is not None:
                    if length.op == "const":
                        self.calm(node, value, "the array of len()")
                    return length
            case (("min" | "max"), [_, _, *_]):
                joined = self.joined(node, *(self.number(node, a).kind for a in args))
                return Node(name, joined, [self.cast(a, joined) for a in args])
            case "abs", [value]:
                kind = join(INT, self.number(node, value).kind)
                return Node("abs", kind, [self.cast(value, kind)])
            case (("int" | "float"), [value]) if value.kind == TEXT:
                self.program.makes_texts |= name == "float"  # the loop converts a copy
                return Node("parse", INT if name == "int" else FLOAT, [value])
            case "str", [value]:
                if value.kind != INT:
                    raise self.fail(node, f"str() takes one integer, not {value.kind}")
                return self.new_text("decimal", [value])
            case "int", [value]:
                value = self.number(node, value)
                return Node("truncate", INT, [value]) if value.kind == FLOAT else self.cast(value, INT)
            case "float", [value]:
                return self.cast(self.number(node, value), FLOAT)
            case "bool", [value]:
                return self.truth(node, value)
        raise self.fail(node, f"{name}() {advice.of_arguments(name)}")

    def positional(self, node: ast.Call) -> None:
        """Reject a call with keyword arguments or unpacking."""
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.fail(node, "pass arguments by position; operators do not support keyword arguments or *")

    def called(self, node: ast.Call) -> str:
        """The name of the called function, which is not a variable."""
        if not isinstance(node.func, ast.Name) or node.func.id in self.locals:
            raise self.fail(node, f"cannot call `{ast.unparse(node.func)}`, which is not a function")
        return node.func.id

    def method(self, node: ast.Call) -> Node:
        """Type a call of a method of a text, a container or a transaction."""
        assert isinstance(node.func, ast.Attribute)
        owner, name = self.expression(node.func.value), node.func.attr
        if owner.kind == OUT:
            reason = "returns no value" if name in ("emit", "drop") else "does not exist"
            raise self.fail(node, f"out.{name}(...) {reason}{advice.of_methods(owner.kind, METHODS)}")
        self.positional(node)
        if owner.kind in (PLAN, POST) and name in ("row", "result") and len(node.args) == 2:
            return self.place(node, owner, name)
        args = [self.expression(a) for a in node.args]
        if owner.kind == TEXT and (typed := self.text_method(node, name, owner, args)) is not None:
            return typed
        if isinstance(owner.kind, BoxKind):
            declared = owner.kind.type
            shape = METHODS[type(declared)].get(name)
            if shape and len(shape[0]) == len(args) and shape[0] != "r":
                if name not in READING:
                    self.changed(node, owner.kind)
                value = declared.item if isinstance(declared, Ring) else getattr(declared, "value", i64)
                accept: dict[str, Callable[..., Node]] = {
                    "i": self.integer,
                    "k": functools.partial(self.entry_key, box=owner.kind),
                    "v": functools.partial(self.accepted, scalar=value, where=owner.kind.where),
                }
                values = [accept[parameter](node, a) for a, parameter in zip(args, shape[0], strict=True)]
                if name == "get" and value == boolean:  # the default is a boolean too
                    values[1] = self.truth(node, values[1])
                of_key = TEXT if isinstance(_key_type(declared), Text) else INT
                kind = {"none": NONE, "bool": BOOL, "int": INT, "k": of_key}.get(shape[1]) or loaded(value)
                return Node("method", kind, [owner, *values], name)
        reason = f"{owner.kind} has no method {name} with {len(args)} argument{'s' * (len(args) != 1)}"
        raise self.fail(node, reason + advice.of_methods(owner.kind, METHODS))

    def text_method(self, node: ast.Call, name: str, owner: Node, args: list[Node]) -> Node | None:
        """Type a call of a method of a text; None if a text has no such method, or it takes other arguments."""
        start = self.integer(node, args.pop()) if name == "find" and len(args) == 2 else Node("const", INT, data=0)
        takes, kind = _TEXT_METHODS.get(name, ("?", NONE))
        if kind == NONE or len(args) != len(takes) or (takes == "t" and args[0].kind != TEXT):
            return None
        if name == "find":
            part = args[0] if args[0].kind == TEXT else self.integer(node, args[0])
            return Node("find", INT, [owner, part, start])
        return self.new_text(name, [owner]) if name in ("lower", "upper") else Node(name, kind, [owner, *args])

    def new_text(self, op: str, args: list[Node], data: bytes | None = None) -> Node:
        """A text that lies neither in an event nor in a state."""
        self.program.makes_texts = True
        return Node(op, TEXT, args, data)

    def entry_key(self, node: ast.AST, value: Node, box: BoxKind) -> Node:
        """Return the value if it can be a key of a set, map or counter."""
        if not isinstance(_key_type(box.type), Text):
            return self.integer(node, value)
        if value.kind != TEXT:
            raise self.fail(node, f"{value.kind} is no key of {box.where}, whose keys are texts")
        return value

    def changed(self, node: ast.AST, box: BoxKind) -> None:
        """Reject a change of a container in a read-only row."""
        if not box.writable:
            raise self.fail(node, f"cannot change {box.where}: the row is read-only here")

    def place(self, node: ast.Call, owner: Node, name: str) -> Node:
        """Type `txn.row(table, key)` or `txn.result(table, i)`."""
        table = self.outer(node.args[0])
        if not isinstance(table, Table):
            raise self.fail(node, f"the first argument of txn.{name} must be a table of the application")
        self.own(node, table)
        resolved = self.program.records[table.row]
        if (owner.kind == PLAN) != (name == "row"):
            where, instead = (
                ("before the transaction", "txn.result(table, i)")
                if name == "row"
                else ("after the transaction", "txn.row(table, key)")
            )
            raise self.fail(node, f"txn.{name} is available only {where}; write {instead} here")
        role = "place" if name == "row" else "result"
        value = self.expression(node.args[1])
        index = self.key(node, table, value) if name == "row" else self.integer(node, value)
        return Node(name, RowKind(resolved, role, False, table), [index], table)

    def key(self, node: ast.Call, table: Table, value: Node) -> Node:
        """A key of a table, which has the type that the table declares."""
        indexed = self.program.tables[table.index].index
        if indexed is not None and isinstance(indexed.key, Text):
            if value.kind != TEXT:
                raise self.fail(node, f"the keys of table {table.name} are texts, not {value.kind}")
            return value
        key = self.integer(node, value)
        if indexed is None or indexed.key.width == 8:
            return key
        return Node("fit", INT, [key], (indexed.key, f"the key of table {table.name}"), node.lineno)

    # --- conversions -------------------------------------------------------------------------------------------------

    def joined(self, node: ast.AST, *kinds: Any) -> Any:
        """The one type that all of these types fit in."""
        kind = functools.reduce(join, kinds)
        if kind is None:
            types = " in one place and ".join(dict.fromkeys(map(str, kinds)))
            raise self.fail(node, f"this value is {types} in another; it must have one type")
        if kind in (OUT, PLAN, POST) or isinstance(kind, KeysKind | WindowKind):
            raise self.fail(node, f"cannot assign, choose or return {kind}; use the argument by its own name")
        return kind

    def cast(self, value: Node, kind: Any) -> Node:
        """`value` converted to the type that `joined` returned."""
        if value.kind == kind:
            return value
        if value.op == "const":
            return Node("const", kind, data=(float if kind == FLOAT else int)(value.data), line=value.line)
        return Node("cast", kind, [value], line=value.line)

    def number(self, node: ast.AST, value: Node) -> Node:
        """Return the value if it is a number."""
        if value.kind == TEXT:
            raise self.fail(node, f"a text is not a number; {advice.OF_TEXT}")
        if value.kind not in NUMBERS:
            raise self.fail(node, f"{value.kind} is not a number")
        return value

    def integer(self, node: ast.AST, value: Node) -> Node:
        """Return the value as an integer, if it is one or a boolean."""
        if value.kind not in (BOOL, INT):
            remedy = "; convert it with int(...)" if value.kind == FLOAT else ""
            raise self.fail(node, f"{value.kind} is not an integer{remedy}")
        return self.cast(value, INT)

    def truth(self, node: ast.AST, value: Node) -> Node:
        """Return a number as a boolean: whether it is not zero."""
        value = self.number(node, value)
        if value.op == "const":
            return Node("const", BOOL, data=bool(value.data))
        return value if value.kind == BOOL else Node("truth", BOOL, [value], line=value.line)

    def condition(self, node: ast.expr) -> Node:
        """Type an expression as a boolean."""
        return self.truth(node, self.expression(node))

    def accepted(self, node: ast.AST, value: Node, scalar: Scalar | Text, where: str) -> Node:
        """`value` with the type that the field loads as; its range is not checked here."""
        if isinstance(scalar, Text):
            if value.kind != TEXT:
                raise self.fail(node, f"cannot store {value.kind} in {where}, which holds a text")
            return value
        if value.kind not in NUMBERS or (value.kind == FLOAT and not scalar.is_float):
            if value.kind == NONE:
                raise self.fail(node, f"cannot store this call in {where}: the function returns nothing")
            remedy = "; convert it with int(...)" if value.kind == FLOAT else ""
            raise self.fail(node, f"cannot store {value.kind} in {where}, which holds {scalar.declared}{remedy}")
        return value if scalar.name == "boolean" else self.cast(value, loaded(scalar))

    def fit(self, node: ast.AST, value: Node, scalar: Scalar | Text, where: str) -> Node:
        """`value` converted to the type of the field; a value that does not fit is an error at run time."""
        scale = scalar.scale if isinstance(scalar, Scalar) else None
        for name, kind in () if scale is None else _copied(value):
            if kind.scale not in (None, scale):
                reason = f"{name} is {kind.declared}, but {where} is Decimal[{scale}]"
                raise self.fail(node, f"{reason}; multiply or divide its units by a power of 10")
        value = self.accepted(node, value, scalar, where)
        if (
            isinstance(scalar, Text)
            or scalar.is_float
            or scalar.width == 8
            or (scalar.name == "boolean" and value.kind == BOOL)
        ):
            return value
        return Node("fit", loaded(scalar), [value], (scalar, where), line=value.line)
