"""Expressions of the language and their types; every conversion that the language implies becomes a node."""

from __future__ import annotations

import ast
import inspect
import operator
from typing import Any

import numpy as np

from streaming_core.language.application import App, Constant, ParamRef, Params, Table
from streaming_core.language.record import Array, Counter, Map, Ring, Scalar, Set, Slot, Text, TopK, boolean, i64
from streaming_core.language.typed.kinds import (
    BOOL,
    FLOAT,
    INT,
    NONE,
    NUMBERS,
    PLAN,
    POST,
    TEXT,
    ArrayKind,
    BoxKind,
    Kind,
    RowKind,
    TableKind,
    join,
    loaded,
)
from streaming_core.language.typed.scope import Scope
from streaming_core.language.typed.tree import Node

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

# Methods of containers: argument types and result ("k"/"v": the key's or value's type as loaded).
METHODS: dict[type, dict[str, tuple[str, str]]] = {
    Ring: {"append": ("v", "none"), "clear": ("", "none")},
    Set: {"add": ("i", "bool"), "at": ("i", "int"), "clear": ("", "none")},
    Map: {
        "get": ("iv", "v"),
        "put": ("iv", "none"),
        "key_at": ("i", "int"),
        "value_at": ("i", "v"),
        "clear": ("", "none"),
    },
    Counter: {
        "add": ("ii", "int"),
        "get": ("i", "int"),
        "key_at": ("i", "int"),
        "value_at": ("i", "int"),
        "clear": ("", "none"),
    },
    TopK: {"offer": ("ii", "none"), "key_at": ("i", "int"), "score_at": ("i", "int"), "clear": ("", "none")},
}
# What changes no container: the methods, and what `len`, `in` and `[i]` are read as.
READING = frozenset({"get", "at", "key_at", "value_at", "score_at", "length", "contains", "item"})


class Expressions(Scope):
    """What a function's expressions mean. A type is None while a variable that it depends on has none yet."""

    temporaries = 0  # names that were made up so far

    def expression(self, node: ast.expr) -> Node:
        """A typed expression; kind None while a variable it needs is not yet typed."""
        made = self._expression(node)
        made.line = made.line or node.lineno
        return made

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
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                asked = self.condition(operand)
                return Node("const", BOOL, data=not asked.data) if asked.op == "const" else Node("not", BOOL, [asked])
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as n)) if type(n) is not bool:
                return self.literal(node, -n)
            case ast.UnaryOp(op=op, operand=operand):
                given = self.number(node, self.expression(operand))
                if isinstance(op, ast.Invert):
                    if given.kind == BOOL:
                        raise self.fail(node, "~ of a boolean is -1 or -2 in one world and `not` in another: say `not`")
                    return Node("invert", INT, [self.integer(node, given)])
                wide = given.kind and join(INT, given.kind)
                given = self.cast(node, given, wide)
                return given if isinstance(op, ast.UAdd) else Node("neg", wide, [given])
            case ast.BoolOp(op=op, values=values):
                return self.logical(node, "all" if isinstance(op, ast.And) else "any", values)
            case ast.Compare():
                return self.comparison(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                condition, one, other = self.condition(test), self.expression(body), self.expression(orelse)
                joined = self.joined(node, [one, other])
                if condition.op == "const":  # a parameter decided it
                    return self.cast(node, one if condition.data else other, joined)
                return Node("ifexp", joined, [condition, self.cast(node, one, joined), self.cast(node, other, joined)])
            case ast.Subscript():
                return self.subscript(node)
            case ast.Call():
                return self.call(node)
        raise self.fail(node, f"{type(node).__name__} is not part of the operator language here")

    def literal(self, node: ast.AST, value: Any) -> Node:
        value = value.item() if isinstance(value, np.generic) else value
        if isinstance(value, bool):
            return Node("const", BOOL, data=value)
        if isinstance(value, int):
            if not -(1 << 63) <= value < 1 << 63:
                raise self.fail(node, f"{value} does not fit 64 bits")
            return Node("const", INT, data=value)
        if isinstance(value, float):
            return Node("const", FLOAT, data=value)
        raise self.fail(node, f"a value of type {type(value).__name__} cannot be used in an operator")

    def parameter(self, node: ast.AST, reference: ParamRef) -> Node:
        value = self.program.params[reference.name]
        if isinstance(value, str):
            raise self.fail(node, f"parameter {reference.name} is text and cannot be used in an operator")
        return self.literal(node, value)

    def name(self, node: ast.Name, name: str) -> Node:
        if name in self.locals:
            return Node("var", self.variables.get(name), data=name)
        if name not in self.scope:
            raise self.fail(node, f"name {name!r} is not known here")
        value = self.scope[name]
        if isinstance(value, ParamRef):
            return self.parameter(node, value)
        if isinstance(value, Constant):
            values = self.program.constant(value)
            return Node("constant", TableKind(value, FLOAT if values.dtype == np.float64 else INT), data=value)
        return self.literal(node, value)

    def attribute(self, node: ast.Attribute) -> Node:
        value = self.outer(node.value)
        if isinstance(value, App) and node.attr in value.declared:
            return self.parameter(node, ParamRef(node.attr))
        if isinstance(value, Params):
            try:
                return self.parameter(node, getattr(value, node.attr))
            except AttributeError as error:
                raise self.fail(node, str(error)) from None
        row = self.expression(node.value)
        if row.kind is None:
            return Node("var", None)
        if row.kind == POST and node.attr == "accepted":
            return Node("accepted", BOOL)
        slot = self.field(node, row, node.attr)
        where = f"{row.kind.resolved.name}.{node.attr}"
        match slot.type:
            case Scalar():
                return Node("field", loaded(slot.type), [row], slot)
            case Text():
                return Node("field", TEXT, [row], slot)
            case Array(item):
                return Node("part", ArrayKind(item, slot.count, row.kind.writable, where), [row], slot)
            case _:
                if row.kind.role == "result":
                    raise self.fail(node, f"{where}: a read returns scalars, never a container")
                if row.kind.role == "joint" and not isinstance(slot.type, Ring):
                    raise self.fail(node, f"{where}: a condition over several rows sees no set, map, counter or top-k")
                return Node("part", BoxKind(slot.type, slot.count, row.kind.writable, where), [row], slot)

    def field(self, node: ast.AST, row: Node, name: str) -> Slot:
        if not isinstance(row.kind, RowKind):
            raise self.fail(node, f"a {row.kind} has no field {name!r}")
        if row.kind.role == "place":
            raise self.fail(node, "fields of table rows are seen by conditions and modifications only")
        if name == "seq" and row.kind.role == "event":
            return SEQ
        if name not in row.kind.slots:
            raise self.fail(node, f"{row.kind.resolved.name} has no field {name!r}")
        return row.kind.slots[name]

    def binary(self, node: ast.AST, op: ast.operator, left: Node, right: Node) -> Node:
        name = _BINARY.get(type(op))
        if name is None:
            raise self.fail(node, "** and @ are not part of the operator language")
        left, right = self.number(node, left), self.number(node, right)
        if left.kind is None or right.kind is None:
            return Node("var", None)
        kind = join(left.kind, right.kind)
        if name in ("and", "or", "xor"):
            if kind == FLOAT:
                raise self.fail(node, "bits of a float cannot be combined")
        elif name in ("shl", "shr"):
            if kind == FLOAT:
                raise self.fail(node, "floats cannot be shifted")
            kind = INT
        elif name == "div":
            kind = FLOAT
        else:
            kind = join(INT, kind)
        return Node(name, kind, [self.cast(node, left, kind), self.cast(node, right, kind)])

    def logical(self, node: ast.AST, op: str, values: list[ast.expr]) -> Node:
        parts = [self.number(v, self.expression(v)) for v in values]
        joined = self.joined(node, parts)
        return Node(op, joined, [self.cast(node, p, joined) for p in parts])

    def comparison(self, node: ast.Compare) -> Node:
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            if len(node.ops) != 1:
                raise self.fail(node, "`in` stands alone")
            box = self.expression(node.comparators[0])
            value = self.integer(node, self.expression(node.left))
            if box.kind is None:
                return Node("var", None)
            if not isinstance(box.kind, BoxKind) or not isinstance(box.kind.type, Set | Map):
                raise self.fail(node, "`in` asks a set or a map")
            found = Node("method", BOOL, [box, value], "contains")
            return found if isinstance(node.ops[0], ast.In) else Node("not", BOOL, [found])
        left, parts = self.expression(node.left), []
        for i, (op, following) in enumerate(zip(node.ops, node.comparators, strict=True)):
            sign = _COMPARE.get(type(op))
            if sign is None:
                raise self.fail(node, "`is` is not part of the operator language")
            right = self.expression(following)
            again = right
            if i + 1 < len(node.ops):  # the middle of a chain is evaluated once
                self.temporaries += 1
                name = f"_c{self.temporaries}"
                self.variables[name] = right.kind
                again = Node("var", right.kind, data=name)
                right = Node("let", right.kind, [right], name)
            parts.append(self.compared(node, sign, left, right))
            left = again
        return parts[0] if len(parts) == 1 else Node("all", BOOL, parts)

    def compared(self, node: ast.AST, sign: str, left: Node, right: Node) -> Node:
        if left.kind is None or right.kind is None:
            return Node("var", BOOL)
        if left.kind == TEXT and right.kind == TEXT and sign in ("==", "!="):
            equal = Node("textequal", BOOL, [left, right])
            return equal if sign == "==" else Node("not", BOOL, [equal])
        left, right = self.number(node, left), self.number(node, right)
        kind = join(INT, join(left.kind, right.kind))
        left, right = self.cast(node, left, kind), self.cast(node, right, kind)
        if left.op == right.op == "const":
            return Node("const", BOOL, data=_DECIDE[sign](left.data, right.data))
        return Node("compare", BOOL, [left, right], sign)

    def subscript(self, node: ast.Subscript) -> Node:
        owner = self.expression(node.value)
        if isinstance(node.slice, ast.Slice):
            if node.slice.step is not None:
                raise self.fail(node, "slices have no step")
            low = (
                self.integer(node, self.expression(node.slice.lower))
                if node.slice.lower
                else Node("const", INT, data=0)
            )
            high = self.integer(node, self.expression(node.slice.upper)) if node.slice.upper else None
            if owner.kind not in (TEXT, None):
                raise self.fail(node, "only text can be sliced")
            if high is None:
                high = Node("const", INT, data=1 << 62)
            return Node("slice", TEXT if owner.kind else None, [owner, low, high])
        index = self.integer(node, self.expression(node.slice))
        match owner.kind:
            case None:
                return Node("var", None)
            case ArrayKind(item=item):
                return Node("item", loaded(item), [owner, index])
            case TableKind(item=item):
                return Node("constantitem", item, [owner, index])
            case BoxKind(type=Ring(item)):
                return Node("method", loaded(item), [owner, index], "item")
            case kind if kind == TEXT:
                return Node("textitem", INT, [owner, index])
        raise self.fail(node, f"a {owner.kind} has no items")

    def call(self, node: ast.Call) -> Node:
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.fail(node, "calls take positional arguments")
        if isinstance(node.func, ast.Attribute):
            return self.method(node)
        if not isinstance(node.func, ast.Name):
            raise self.fail(node, "this cannot be called")
        name = node.func.id
        if name in self.locals:
            raise self.fail(node, f"{name} is not a function")
        if name in self.scope:
            function = self.scope[name]
            if not inspect.isfunction(function):
                raise self.fail(node, f"{name} cannot be called in an operator")
            args = [self.expression(a) for a in node.args]
            if any(a.kind is None for a in args):
                return Node("var", None)
            found = self.program.function(function, [a.kind for a in args], self.output)
            return Node("call", found.kind, args, found)
        args = [self.expression(a) for a in node.args]
        if any(a.kind is None for a in args):
            return Node("var", None if name not in ("len", "int") else INT)
        match name, args:
            case "len", [value]:
                match value.kind:
                    case ArrayKind(count=count):
                        return Node("const", INT, data=count)
                    case TableKind(constant=constant):
                        return Node("const", INT, data=len(self.program.constant(constant)))
                    case BoxKind():
                        return Node("method", INT, [value], "length")
                    case kind if kind == TEXT:
                        return Node("textlength", INT, [value])
            case (("min" | "max"), [_, _, *_]):
                joined = self.joined(node, [self.number(node, a) for a in args])
                return Node(name, joined, [self.cast(node, a, joined) for a in args])
            case "abs", [value]:
                kind = join(INT, self.number(node, value).kind)
                return Node("abs", kind, [self.cast(node, value, kind)])
            case "int", [value]:
                value = self.number(node, value)
                return Node("truncate", INT, [value]) if value.kind == FLOAT else self.cast(node, value, INT)
            case "float", [value]:
                return self.cast(node, self.number(node, value), FLOAT)
            case "bool", [value]:
                return self.truth(node, value)
        raise self.fail(node, f"{name} is not known here, or its arguments are not")

    def method(self, node: ast.Call) -> Node:
        assert isinstance(node.func, ast.Attribute)
        owner, name = self.expression(node.func.value), node.func.attr
        if owner.kind in (PLAN, POST) and name in ("row", "result") and len(node.args) == 2:
            return self.place(node, owner, name)
        args = [self.expression(a) for a in node.args]
        if owner.kind is None or any(a.kind is None for a in args):
            return Node("var", None)
        if owner.kind == TEXT and name == "find" and len(args) == 2:
            return Node("find", INT, [owner, *(self.integer(node, a) for a in args)])
        if isinstance(owner.kind, BoxKind):
            declared = owner.kind.type
            shape = METHODS[type(declared)].get(name)
            if shape and len(shape[0]) == len(args):
                if name not in READING and not owner.kind.writable:
                    raise self.fail(node, f"{owner.kind.where}: this row is read-only here")
                value = declared.item if isinstance(declared, Ring) else getattr(declared, "value", i64)
                given = [
                    self.integer(node, a) if wanted == "i" else self.accepted(node, a, value, owner.kind.where)
                    for a, wanted in zip(args, shape[0], strict=True)
                ]
                if name == "get" and value == boolean:  # what is not there is a truth value too
                    given[1] = self.truth(node, given[1])
                kind = {"none": NONE, "bool": BOOL, "int": INT}.get(shape[1]) or loaded(value)
                return Node("method", kind, [owner, *given], name)
        raise self.fail(node, f"a {owner.kind} has no {name} with {len(args)} arguments")

    def place(self, node: ast.Call, owner: Node, name: str) -> Node:
        table = self.outer(node.args[0])
        if not isinstance(table, Table):
            raise self.fail(node, "the first argument must be a table of the application")
        index = self.integer(node, self.expression(node.args[1]))
        resolved = self.program.resolved(table.row)
        if (owner.kind == PLAN) != (name == "row"):
            raise self.fail(node, "txn.row belongs to the transaction, txn.result to what comes after it")
        role = "place" if name == "row" else "result"
        return Node(name, RowKind(resolved, role, False, table), [index], table)

    # --- conversions -------------------------------------------------------------------------------------------------

    def joined(self, node: ast.AST, parts: list[Node]) -> Any:
        kind = None
        for part in parts:
            kind = join(kind, part.kind)
        if kind is not None and kind.__class__ is Kind and kind.name == "conflict":
            raise self.fail(node, "values of types that do not go together")
        return kind

    def cast(self, node: ast.AST, value: Node, kind: Any) -> Node:
        if value.kind == kind or value.kind is None or kind is None:
            return value
        if value.kind not in NUMBERS or kind not in NUMBERS:
            return value  # a conflict, reported once all is known
        if NUMBERS.index(value.kind) > NUMBERS.index(kind):
            raise self.fail(node, f"a {value.kind} cannot be used as {kind}")
        if value.op == "const":
            return Node("const", kind, data=(float if kind == FLOAT else int)(value.data), line=value.line)
        return Node("cast", kind, [value], line=value.line)

    def number(self, node: ast.AST, value: Node) -> Node:
        if value.kind is not None and value.kind not in NUMBERS:
            raise self.fail(node, f"a {value.kind} is not a number")
        return value

    def integer(self, node: ast.AST, value: Node) -> Node:
        if value.kind == FLOAT or (value.kind is not None and value.kind not in NUMBERS):
            raise self.fail(node, f"a {value.kind} is not an integer")
        return self.cast(node, value, INT)

    def truth(self, node: ast.AST, value: Node) -> Node:
        value = self.number(node, value)
        if value.op == "const":
            return Node("const", BOOL, data=bool(value.data))
        return value if value.kind in (BOOL, None) else Node("truth", BOOL, [value], line=value.line)

    def condition(self, node: ast.expr) -> Node:
        return self.truth(node, self.expression(node))

    def accepted(self, node: ast.AST, value: Node, scalar: Scalar, where: str) -> Node:
        """`value` with the type that the field loads as; its range is not checked here."""
        if value.kind is not None and (value.kind not in NUMBERS or (value.kind == FLOAT and not scalar.is_float)):
            raise self.fail(node, f"{where}: a {value.kind} cannot be stored there")
        if scalar.name == "boolean":
            return value
        return self.cast(node, value, loaded(scalar))

    def fit(self, node: ast.AST, value: Node, scalar: Scalar, where: str) -> Node:
        """`value` as the field can hold it: a value that does not fit is an error when it happens."""
        value = self.accepted(node, value, scalar, where)
        if (
            value.kind is None
            or scalar.is_float
            or scalar.width == 8
            or (scalar.name == "boolean" and value.kind == BOOL)
        ):
            return value
        return Node("fit", loaded(scalar), [value], (scalar, where), line=value.line)
