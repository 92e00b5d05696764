"""Expressions of the language and their types; every conversion that the language implies becomes a node."""

from __future__ import annotations

import ast
import functools
import inspect
import operator
from typing import Any

import numpy as np

from streaming_core.language.application import Constant, Table
from streaming_core.language.parameters import ParamRef
from streaming_core.language.record import (
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

# Methods of containers: argument types and result ("k"/"v": the key's or value's type as loaded; "r": a row, whose
# fields are given by name).
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
    Queue: {"append": ("r", "none"), "popleft": ("", "none"), "clear": ("", "none")},
}
# What changes no container: the methods, and what `len`, `in` and `[i]` are read as.
READING = frozenset({"get", "at", "key_at", "value_at", "score_at", "length", "contains", "item"})


def _acts(node: Node) -> bool:
    return node.op == "call" or (node.op == "method" and node.data not in READING)


class Expressions(Scope):
    """What a function's expressions may be, and of which type they are."""

    def expression(self, node: ast.expr) -> Node:
        """A typed expression."""
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
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                given = self.expression(operand)
                if given.kind == BOOL:
                    raise self.fail(node, "~ of a boolean is -1 or -2 in one world and `not` in another: say `not`")
                return Node("invert", INT, [self.integer(node, given)])
            case ast.UnaryOp(op=op, operand=operand):
                given = self.number(node, self.expression(operand))
                given = self.cast(given, join(INT, given.kind))
                return given if isinstance(op, ast.UAdd) else Node("neg", given.kind, [given])
            case ast.BoolOp(op=op, values=values):
                return self.logical(node, "all" if isinstance(op, ast.And) else "any", values)
            case ast.Compare():
                return self.comparison(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                condition, one, other = self.condition(test), self.expression(body), self.expression(orelse)
                joined = self.joined(node, one.kind, other.kind)
                if condition.op == "const":  # a parameter decided it
                    return self.cast(one if condition.data else other, joined)
                return Node("ifexp", joined, [condition, self.cast(one, joined), self.cast(other, joined)])
            case ast.Subscript():
                return self.subscript(node)
            case ast.Call():
                return self.call(node)
        raise self.foreign(node)

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
        said = f"a value of type {type(value).__name__} cannot be used in an operator"
        raise self.fail(node, said + advice.of_value(value))

    def parameter(self, node: ast.AST, name: str) -> Node:
        if name not in self.program.params:
            raise self.fail(node, f"no parameter {name!r}; known: {', '.join(self.program.params)}")
        value = self.program.params[name]
        if isinstance(value, str):
            raise self.fail(node, f"parameter {name} is text and cannot be used in an operator")
        return self.literal(node, value)

    def name(self, node: ast.Name, name: str) -> Node:
        if name in self.locals:
            # What kernels found in a variable without a value would be anything. Where nobody comes, any type will do.
            if name not in (self.variables if self.assigned is None else self.assigned):
                said = f": {advice.OUTSIDE}" if name in self.names else ""
                raise self.fail(node, f"variable {name!r} may have no value yet{said}")
            return Node("var", self.variables[name], data=name)
        if name not in self.names:
            raise self.fail(node, f"name {name!r} is not known here{advice.of_name(name, self.program.params)}")
        value = self.names[name]
        if isinstance(value, ParamRef):
            return self.parameter(node, value.name)
        if isinstance(value, Constant):
            self.own(node, value)
            values = self.program.constant(value)
            return Node("constant", TableKind(value, FLOAT if values.dtype == np.float64 else INT), data=value)
        return self.literal(node, value)

    def attribute(self, node: ast.Attribute) -> Node:
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
            case Scalar():
                return Node("field", loaded(slot.type), [row], slot)
            case Text():
                if row.op not in ("var", "windowkey"):
                    raise self.fail(node, f"{where}: text is read from a row that has a name")
                return Node("field", TEXT, [row], slot)
            case Array(item):
                return Node("part", ArrayKind(item, slot.count, row.kind.writable, where), [row], slot)
            case _:
                if row.kind.role == "result":
                    raise self.fail(node, f"{where}: a read returns scalars, never a container")
                if row.kind.role == "joint" and not isinstance(slot.type, Ring):
                    said = "no set, map, counter or top-k is seen where a condition or modification reads several rows"
                    raise self.fail(node, f"{where}: {said}")
                return Node("part", BoxKind(slot.type, slot.count, row.kind.writable, where), [row], slot)

    def row(self, node: ast.expr) -> Node:
        """What a field is asked of. A row of a queue is nothing but that: what is kept of it would be another row, or
        none, once the queue has changed."""
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            queue = self.expression(node.value)
            if isinstance(queue.kind, BoxKind) and isinstance(queue.kind.type, Queue):
                index = self.integer(node, self.expression(node.slice))
                kind = RowKind(self.program.resolved(queue.kind.type.item), "queued")
                return Node("queued", kind, [queue, index], line=node.lineno)
        return self.expression(node)

    def of_window(self, node: ast.Attribute, window: Node) -> Node:
        if node.attr == "key":
            return Node("windowkey", window.kind.key, [window])
        if node.attr not in ("start", "end"):
            raise self.fail(node, f"a window has start, end and key, no {node.attr!r}")
        return Node(f"window{node.attr}", INT, [window])

    def field(self, node: ast.AST, row: Node, name: str) -> Slot:
        if not isinstance(row.kind, RowKind):
            raise self.fail(node, f"{row.kind} has no field {name!r}{advice.of_methods(row.kind, METHODS)}")
        if row.kind.role == "place":
            raise self.fail(node, "fields of table rows are seen by conditions and modifications only")
        if name == "seq" and row.kind.role == "event":
            return SEQ
        if name not in row.kind.slots:
            known = ", ".join(row.kind.slots)
            raise self.fail(node, f"{row.kind.resolved.name} has no field {name!r}; it has {known}")
        return row.kind.slots[name]

    def binary(self, node: ast.AST, op: ast.operator, left: Node, right: Node) -> Node:
        name = _BINARY.get(type(op))
        if name is None:
            raise self.foreign(node)
        left, right = self.number(node, left), self.number(node, right)
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
        return Node(name, kind, [self.cast(left, kind), self.cast(right, kind)])

    def logical(self, node: ast.AST, op: str, values: list[ast.expr]) -> Node:
        parts = [self.number(v, self.expression(v)) for v in values]
        joined = self.joined(node, *(p.kind for p in parts))
        return Node(op, joined, [self.cast(p, joined) for p in parts])

    def comparison(self, node: ast.Compare) -> Node:
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn):
            box = self.expression(node.comparators[0])
            value = self.integer(node, self.expression(node.left))
            if not isinstance(box.kind, BoxKind) or not isinstance(box.kind.type, Set | Map):
                raise self.fail(node, "`in` asks a set or a map")
            found = Node("method", BOOL, [box, value], "contains")
            return found if isinstance(node.ops[0], ast.In) else Node("not", BOOL, [found])
        left, parts = self.expression(node.left), []
        for i, (op, following) in enumerate(zip(node.ops, node.comparators, strict=True)):
            sign = _COMPARE.get(type(op))
            if sign is None:
                raise self.foreign(node)
            right = self.expression(following)
            # Evaluated once or twice, the middle of a chain is the same: nothing in it does anything.
            if i + 1 < len(node.ops) and any(map(_acts, within([right]))):
                raise self.fail(node, "nothing is called in the middle of a < b < c that may change something")
            parts.append(self.compared(node, sign, left, right))
            left = right
        return parts[0] if len(parts) == 1 else Node("all", BOOL, parts)

    def compared(self, node: ast.AST, sign: str, left: Node, right: Node) -> Node:
        if left.kind == TEXT and right.kind == TEXT and sign in ("==", "!="):
            equal = Node("textequal", BOOL, [left, right])
            return equal if sign == "==" else Node("not", BOOL, [equal])
        left, right = self.number(node, left), self.number(node, right)
        kind = join(INT, join(left.kind, right.kind))
        left, right = self.cast(left, kind), self.cast(right, kind)
        if left.op == right.op == "const":
            return Node("const", BOOL, data=_DECIDE[sign](left.data, right.data))
        return Node("compare", BOOL, [left, right], sign)

    def subscript(self, node: ast.Subscript) -> Node:
        owner = self.expression(node.value)
        if isinstance(node.slice, ast.Slice):
            if node.slice.step is not None:
                raise self.foreign(node)
            if owner.kind != TEXT:
                raise self.fail(node, "only text can be sliced")
            low, high = (
                self.integer(node, self.expression(bound)) if bound else Node("const", INT, data=left_out)
                for bound, left_out in ((node.slice.lower, 0), (node.slice.upper, 1 << 62))
            )
            return Node("slice", TEXT, [owner, low, high])
        if isinstance(owner.kind, RowKind):
            raise self.fail(node, "a field is read by its name: row.field")
        index = self.integer(node, self.expression(node.slice))
        match owner.kind:
            case ArrayKind(item=item):
                return Node("item", loaded(item), [owner, index])
            case TableKind(item=item):
                return Node("constantitem", item, [owner, index])
            case BoxKind(type=Ring(item)):
                return Node("method", loaded(item), [owner, index], "item")
            case BoxKind(type=Queue()):
                raise self.fail(node, "a row of a queue is read by its fields: queue[i].field")
            case kind if kind == TEXT:
                return Node("textitem", INT, [owner, index])
            case BoxKind(type=box):
                raise self.fail(node, f"{owner.kind} has no items: it is read by {advice.read_by(type(box))}")
        raise self.fail(node, f"{owner.kind} has no items")

    def call(self, node: ast.Call) -> Node:
        if isinstance(node.func, ast.Attribute):
            return self.method(node)
        name = self.called(node)
        if name not in self.names and advice.is_pythons(name):
            raise self.fail(node, f"{name}() cannot be called in an operator{advice.of_call(name)}")
        if isinstance(self.names.get(name), Record):
            raise self.fail(node, f"{name}(...) is no value: out.emit(field=value, ...) puts a row out")
        self.positional(node)
        args = [self.expression(a) for a in node.args]
        kinds = [a.kind for a in args]
        if name in self.names:
            function = self.names[name]
            if not inspect.isfunction(function):
                raise self.fail(node, f"{name} cannot be called in an operator{advice.of_value(function)}")
            # The order of what a plan does is read from where its transaction goes.
            if NONE in kinds or kinds.count(PLAN) > 1:
                raise self.fail(node, f"{name} is given nothing, or the transaction twice")
            found = self.program.function(function, kinds, self.output)
            return Node("call", found.kind, args, found)
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
                joined = self.joined(node, *(self.number(node, a).kind for a in args))
                return Node(name, joined, [self.cast(a, joined) for a in args])
            case "abs", [value]:
                kind = join(INT, self.number(node, value).kind)
                return Node("abs", kind, [self.cast(value, kind)])
            case "int", [value]:
                value = self.number(node, value)
                return Node("truncate", INT, [value]) if value.kind == FLOAT else self.cast(value, INT)
            case "float", [value]:
                return self.cast(self.number(node, value), FLOAT)
            case "bool", [value]:
                return self.truth(node, value)
        raise self.fail(node, f"{name} is not known here, or its arguments are not{advice.of_call(name)}")

    def positional(self, node: ast.Call) -> None:
        """Refuses a call that names its arguments, or unpacks them."""
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.fail(node, "calls take positional arguments: no names, no stars")

    def called(self, node: ast.Call) -> str:
        """The name of what is called, which is no variable."""
        if not isinstance(node.func, ast.Name) or node.func.id in self.locals:
            raise self.fail(node, f"`{ast.unparse(node.func)}` is not a function")
        return node.func.id

    def method(self, node: ast.Call) -> Node:
        assert isinstance(node.func, ast.Attribute)
        owner, name = self.expression(node.func.value), node.func.attr
        if owner.kind == OUT:
            raise self.fail(node, f"out.{name}(...) is no value{advice.of_methods(owner.kind, METHODS)}")
        self.positional(node)
        if owner.kind in (PLAN, POST) and name in ("row", "result") and len(node.args) == 2:
            return self.place(node, owner, name)
        args = [self.expression(a) for a in node.args]
        if owner.kind == TEXT and name == "find" and len(args) == 2:
            return Node("find", INT, [owner, *(self.integer(node, a) for a in args)])
        if isinstance(owner.kind, BoxKind):
            declared = owner.kind.type
            shape = METHODS[type(declared)].get(name)
            if shape and len(shape[0]) == len(args) and shape[0] != "r":
                if name not in READING:
                    self.changed(node, owner.kind)
                value = declared.item if isinstance(declared, Ring) else getattr(declared, "value", i64)
                given = [
                    self.integer(node, a) if wanted == "i" else self.accepted(node, a, value, owner.kind.where)
                    for a, wanted in zip(args, shape[0], strict=True)
                ]
                if name == "get" and value == boolean:  # what is not there is a truth value too
                    given[1] = self.truth(node, given[1])
                kind = {"none": NONE, "bool": BOOL, "int": INT}.get(shape[1]) or loaded(value)
                return Node("method", kind, [owner, *given], name)
        said = f"{owner.kind} has no {name} with {len(args)} argument{'s' * (len(args) != 1)}"
        raise self.fail(node, said + advice.of_methods(owner.kind, METHODS))

    def changed(self, node: ast.AST, box: BoxKind) -> None:
        """Refuses to change a container of a row that is only read."""
        if not box.writable:
            raise self.fail(node, f"{box.where}: this row is read-only here")

    def place(self, node: ast.Call, owner: Node, name: str) -> Node:
        table = self.outer(node.args[0])
        if not isinstance(table, Table):
            raise self.fail(node, "the first argument must be a table of the application")
        self.own(node, table)
        index = self.integer(node, self.expression(node.args[1]))
        resolved = self.program.resolved(table.row)
        if (owner.kind == PLAN) != (name == "row"):
            raise self.fail(node, "txn.row belongs to the transaction, txn.result to what comes after it")
        role = "place" if name == "row" else "result"
        return Node(name, RowKind(resolved, role, False, table), [index], table)

    # --- conversions -------------------------------------------------------------------------------------------------

    def joined(self, node: ast.AST, *kinds: Any) -> Any:
        """The type of what is any of these."""
        kind = functools.reduce(join, kinds)
        if kind is None:
            raise self.fail(node, f"{' and '.join(dict.fromkeys(map(str, kinds)))} cannot be one value")
        if kind in (OUT, PLAN, POST) or isinstance(kind, KeysKind | WindowKind):
            raise self.fail(node, f"{kind} goes by one name, and is not kept, chosen or handed back")
        return kind

    def cast(self, value: Node, kind: Any) -> Node:
        """`value` as what it was joined to be."""
        if value.kind == kind:
            return value
        if value.op == "const":
            return Node("const", kind, data=(float if kind == FLOAT else int)(value.data), line=value.line)
        return Node("cast", kind, [value], line=value.line)

    def number(self, node: ast.AST, value: Node) -> Node:
        if value.kind == TEXT:
            raise self.fail(node, f"a text is not a number: {advice.OF_TEXT}")
        if value.kind not in NUMBERS:
            raise self.fail(node, f"{value.kind} is not a number")
        return value

    def integer(self, node: ast.AST, value: Node) -> Node:
        if value.kind not in (BOOL, INT):
            raise self.fail(node, f"{value.kind} is not an integer")
        return self.cast(value, INT)

    def truth(self, node: ast.AST, value: Node) -> Node:
        value = self.number(node, value)
        if value.op == "const":
            return Node("const", BOOL, data=bool(value.data))
        return value if value.kind == BOOL else Node("truth", BOOL, [value], line=value.line)

    def condition(self, node: ast.expr) -> Node:
        return self.truth(node, self.expression(node))

    def accepted(self, node: ast.AST, value: Node, scalar: Scalar, where: str) -> Node:
        """`value` with the type that the field loads as; its range is not checked here."""
        if value.kind not in NUMBERS or (value.kind == FLOAT and not scalar.is_float):
            said = ": what is called returns none" if value.kind == NONE else ""
            raise self.fail(node, f"{where}: {value.kind} cannot be stored there{said}")
        return value if scalar.name == "boolean" else self.cast(value, loaded(scalar))

    def fit(self, node: ast.AST, value: Node, scalar: Scalar, where: str) -> Node:
        """`value` as the field can hold it: a value that does not fit is an error when it happens."""
        value = self.accepted(node, value, scalar, where)
        if scalar.is_float or scalar.width == 8 or (scalar.name == "boolean" and value.kind == BOOL):
            return value
        return Node("fit", loaded(scalar), [value], (scalar, where), line=value.line)
