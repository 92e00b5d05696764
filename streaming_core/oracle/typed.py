"""The front half of the oracle: an operator function, read from its source, as a typed tree.

Every expression gets its static type (integer, float, boolean, text, row, array, container) and every conversion that
the language implies becomes a node of its own, so that the interpreter and the compiled loop, which print this tree in
two ways, cannot disagree about what an operator means. Shares nothing with the translation the runtime's kernels get.

A variable has one type in a function: the join of everything assigned to it (boolean < integer < float).
"""

from __future__ import annotations

import ast
import inspect
import operator
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streaming_core.api.app import App, Constant, Operator, ParamRef, Params, Table, Transaction
from streaming_core.api.record import Array, Counter, Map, Record, Resolved, Ring, Scalar, Set, Slot, Text, TopK, u32
from streaming_core.errors import BadInput

# --- types -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A type without parts."""

    name: str

    def __str__(self) -> str:
        return self.name


INT, FLOAT, BOOL, TEXT = Kind("integer"), Kind("float"), Kind("boolean"), Kind("text")
NONE, OUT, PLAN, POST = Kind("nothing"), Kind("output"), Kind("transaction"), Kind("outcome of a transaction")
NUMBERS = (BOOL, INT, FLOAT)


@dataclass(frozen=True)
class RowKind:
    """A row. `role`: event (header, read-only), state, table (inside conditions and modifications), joint (one of
    several of a condition: no growing containers), place (what `txn.row` names: no access to fields) or result (of a
    `txn.read`: no containers)."""

    resolved: Resolved
    role: str
    writable: bool = False
    table: Table | None = None

    def __str__(self) -> str:
        return f"row of {self.resolved.name}"

    @property
    def slots(self) -> dict[str, Slot]:
        """Field layout in this role."""
        return (self.resolved.event if self.role == "event" else self.resolved.state)[0]


@dataclass(frozen=True)
class ArrayKind:
    """An array field of a row."""

    item: Scalar
    count: int
    writable: bool
    where: str

    def __str__(self) -> str:
        return f"array of {self.item.name}"


@dataclass(frozen=True)
class BoxKind:
    """A container field of a row."""

    type: Any
    count: int
    writable: bool
    where: str

    def __str__(self) -> str:
        return type(self.type).__name__.lower()


@dataclass(frozen=True)
class TableKind:
    """A side table made by `@app.constant`."""

    constant: Constant
    item: Kind

    def __str__(self) -> str:
        return "constant"


def loaded(scalar: Scalar) -> Kind:
    """What an operator sees of a scalar."""
    return FLOAT if scalar.is_float else BOOL if scalar.name == "boolean" else INT


# --- the tree --------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Node:
    """An expression or statement: operation, type, operands, and whatever else the operation needs."""

    op: str
    kind: Any
    args: list[Any] = field(default_factory=list)
    data: Any = None
    line: int = 0


@dataclass(eq=False)
class Function:
    """One function at one combination of argument types."""

    name: str
    file: str
    line: int
    parameters: list[tuple[str, Any]]
    body: list[Node] = field(default_factory=list)
    kind: Any = None
    variables: dict[str, Any] = field(default_factory=dict)


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
_METHODS: dict[type, dict[str, tuple[str, str]]] = {
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
_READING = frozenset({"get", "at", "key_at", "value_at", "score_at"})


def _join(one: Any, other: Any) -> Any:
    if one is None or one == other:
        return other
    if other is None:
        return one
    if one in NUMBERS and other in NUMBERS:
        return NUMBERS[max(NUMBERS.index(one), NUMBERS.index(other))]
    return Kind("conflict")


class Program:
    """The functions of one bound application, typed on demand.

    Args:
        app: the application.
        params: its bound parameters.

    Raises:
        BadInput: (from any method) the function is not part of the language; the line says where and why.
    """

    def __init__(self, app: App, params: dict[str, Any]):
        self.app, self.params = app, params
        self._resolved: dict[Record, Resolved] = {}
        self._constants: dict[Constant, np.ndarray] = {}
        self._functions: dict[tuple, Function | None] = {}

    def resolved(self, declaration: Record) -> Resolved:
        """The record with its sizes; one object per record."""
        if declaration not in self._resolved:
            self._resolved[declaration] = declaration.resolve(self.params)
        return self._resolved[declaration]

    def size(self, table: Table) -> int:
        """Rows of a table."""
        size = self.params[table.size] if isinstance(table.size, str) else table.size
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= 1 << 31:
            raise BadInput(f"app {self.app.name}: table {table.name}: size {size!r} must lie in 1..2^31")
        return size

    def initial(self, table: Table) -> dict[str, np.ndarray]:
        """Initial columns of a table's scalar and array fields (absent: zero)."""
        size, values = self.size(table), {}
        given = table.init(np.arange(size, dtype=np.int64), dict(self.params)) if table.init else None
        for name, column in (given or {}).items():
            slot = self.resolved(table.row).state[0].get(name)
            if slot is None or not isinstance(slot.type, Scalar | Array):
                raise BadInput(
                    f"app {self.app.name}: table {table.name}: init gives {name!r}, which cannot be initialised"
                )
            item = slot.type.item if isinstance(slot.type, Array) else slot.type
            wide = np.asarray(column)
            if wide.ndim < (1 if isinstance(slot.type, Scalar) else 2):
                wide = np.broadcast_to(wide, (size,) if isinstance(slot.type, Scalar) else (size, slot.count))
            if not item.is_float and wide.size and not (item.low <= wide.min() and wide.max() <= item.high):
                raise BadInput(f"app {self.app.name}: table {table.name}: initial {name} does not fit {item.name}")
            values[name] = np.ascontiguousarray(wide.astype(item.dtype))
        return values

    def constant(self, constant: Constant) -> np.ndarray:
        """A side table's values (int64 or float64)."""
        if constant not in self._constants:
            values = np.ascontiguousarray(constant.build(dict(self.params)))
            if values.ndim != 1 or values.dtype not in (np.int64, np.float64):
                raise BadInput(f"app {self.app.name}: constant {constant.name} must be a 1-D int64 or float64 array")
            self._constants[constant] = values
        return self._constants[constant]

    def roles(self) -> list[Callable]:
        """The functions that are declared to be an operator's."""
        return [function for operator in self.app.operators for function in operator.functions.values()]

    def operator(self, declared: Operator, role: str) -> Function:
        """The typed function of an operator: role map, process, flush, plan or post."""
        function = declared.functions[role]
        event = RowKind(self.resolved(declared.input), "event")
        output = declared.output
        match role:
            case "map":
                work = [RowKind(self.resolved(declared.scratch), "state", True)] if declared.scratch else []
                arguments: list[Any] = [event, *work, OUT]
            case "process":
                arguments = [event, RowKind(self.resolved(declared.state), "state", True), OUT]
            case "flush":
                arguments = [RowKind(self.resolved(declared.state), "state", True), OUT]
            case "plan":
                arguments, output = [event, PLAN], None
            case "post":
                arguments = [event, POST, OUT]
            case _:
                raise BadInput(f"operator {declared.name}: {role} is not supported")
        found = self.function(function, arguments, output)
        if found.kind not in (None, NONE):
            raise BadInput(f"operator {declared.name} ({found.file}:{found.line}): an operator returns nothing")
        return found

    def function(self, function: Callable, arguments: Iterable[Any], output: Record | None = None) -> Function:
        """`function` at these argument types. `output`: the record that its `out.emit` makes."""
        arguments = tuple(arguments)
        key = (function, arguments, output)
        if key not in self._functions:
            self._functions[key] = None  # under way: meeting it again is recursion
            self._functions[key] = _Reader(self, function, arguments, output).read()
        found = self._functions[key]
        if found is None:
            raise BadInput(f"operator {function.__name__}: recursion is not supported")
        return found


class _Reader:
    """Reads one function at one combination of argument types."""

    def __init__(self, program: Program, function: Callable, arguments: tuple, output: Record | None):
        self.program, self.function, self.output = program, function, output
        try:
            lines, first = inspect.getsourcelines(function)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, SyntaxError, TypeError) as error:
            raise BadInput(f"operator {function.__name__}: its source cannot be read: {error}") from None
        ast.increment_lineno(tree, first - 1)
        self.definition = tree.body[0]
        self.file = inspect.getsourcefile(function) or "<operator>"
        if not isinstance(self.definition, ast.FunctionDef):
            raise BadInput(f"operator {function.__name__}: must be a plain def, not a lambda")
        a = self.definition.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.defaults or a.posonlyargs:
            raise self.fail(self.definition, "an operator takes plain positional arguments")
        names = [x.arg for x in a.args]
        if len(names) != len(arguments):
            raise self.fail(self.definition, f"takes {len(names)} arguments, is given {len(arguments)}")
        self.parameters = list(zip(names, arguments, strict=True))
        self.scope = dict(function.__globals__)
        if function.__closure__:
            self.scope |= {
                n: c.cell_contents for n, c in zip(function.__code__.co_freevars, function.__closure__, strict=True)
            }
        self.variables: dict[str, Any] = dict(self.parameters)
        self.locals = set(function.__code__.co_varnames)
        self.returned: Any = None
        self.temporaries = 0

    def fail(self, node: ast.AST, why: str) -> BadInput:
        """The one line a user gets."""
        return BadInput(f"operator {self.function.__name__} ({self.file}:{getattr(node, 'lineno', '?')}): {why}")

    def read(self) -> Function:
        """Types the function: variables' types grow until nothing changes."""
        while True:
            before, returned = dict(self.variables), self.returned
            self.temporaries = 0
            body = self.block(self.definition.body)
            if self.variables == before and self.returned == returned:
                break
        for name, kind in self.variables.items():
            if kind is None or (kind.__class__ is Kind and kind.name == "conflict"):
                raise self.fail(self.definition, f"variable {name!r} holds values of types that do not go together")
        value = self.returned
        if value is not None and value.__class__ is Kind and value.name == "conflict":
            raise self.fail(self.definition, "returns values of types that do not go together")
        if value not in (None, NONE) and not _ends(body):
            raise self.fail(self.definition, "returns a value on some ways through it and nothing on others")
        return Function(
            self.function.__name__,
            self.file,
            self.definition.lineno,
            self.parameters,
            body,
            value or NONE,
            self.variables,
        )

    # --- statements --------------------------------------------------------------------------------------------------

    def block(self, statements: list[ast.stmt]) -> list[Node]:
        out: list[Node] = []
        for statement in statements:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                if isinstance(statement.value.value, str):
                    continue
                raise self.fail(statement, "this statement does nothing")
            made = self.statement(statement)
            for node in made:
                node.line = node.line or statement.lineno
            out += made
        return out

    def statement(self, node: ast.stmt) -> list[Node]:
        match node:
            case ast.Pass():
                return [Node("pass", NONE)]
            case ast.Break():
                return [Node("break", NONE)]
            case ast.Continue():
                return [Node("continue", NONE)]
            case ast.Return(value=None):
                self.returned = _join(self.returned, NONE)
                return [Node("return", NONE)]
            case ast.Return(value=value):
                found = self.expression(value)
                self.returned = _join(self.returned, found.kind)
                return [Node("return", NONE, [self.cast(node, found, self.returned)])]
            case ast.Assign(targets=[target], value=value):
                return [self.store(node, target, self.expression(value))]
            case ast.AnnAssign(target=target, value=value) if value is not None:
                return [self.store(node, target, self.expression(value))]
            case ast.AugAssign(target=target, op=op, value=value):
                load = ast.parse(ast.unparse(target), mode="eval").body
                for part in ast.walk(load):
                    ast.copy_location(part, node)
                whole = ast.copy_location(ast.BinOp(load, op, value), node)
                return [self.store(node, target, self.expression(whole))]
            case ast.If(test=test, body=body, orelse=orelse):
                return [Node("if", NONE, [self.condition(test), self.block(body), self.block(orelse)])]
            case ast.While(test=test, body=body, orelse=[]):
                return [Node("while", NONE, [self.condition(test), self.block(body)])]
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range")) as call, orelse=[]):
                bounds = [self.integer(a, self.expression(a)) for a in call.args]
                if not 1 <= len(bounds) <= 3 or call.keywords:
                    raise self.fail(node, "range takes one to three integers")
                self.variables[name] = _join(self.variables.get(name), INT)
                return [Node("for", NONE, [bounds, self.block(node.body)], name)]
            case ast.Expr(value=ast.Call() as call):
                return self.effect(call)
        raise self.fail(node, f"{type(node).__name__} is not part of the operator language here")

    def store(self, node: ast.stmt, target: ast.expr, value: Node) -> Node:
        match target:
            case ast.Name(id=name):
                if value.kind is None:
                    return Node("pass", NONE)
                if value.kind == NONE:
                    raise self.fail(node, "there is no value to assign")
                self.variables[name] = joined = _join(self.variables.get(name), value.kind)
                return Node("assign", NONE, [self.cast(node, value, joined)], name)
            case ast.Attribute(value=owner, attr=name):
                row = self.expression(owner)
                if row.kind is None or value.kind is None:
                    return Node("pass", NONE)
                slot = self.field(node, row, name)
                if not isinstance(slot.type, Scalar):
                    raise self.fail(node, f"{row.kind.resolved.name}.{name}: only scalar fields can be assigned to")
                if not row.kind.writable:
                    raise self.fail(node, f"{row.kind.resolved.name}.{name}: this row is read-only here")
                where = f"{row.kind.resolved.name}.{name}"
                return Node("setfield", NONE, [row, self.fit(node, value, slot.type, where)], slot)
            case ast.Subscript(value=owner, slice=index) if not isinstance(index, ast.Slice):
                array = self.expression(owner)
                position = self.integer(index, self.expression(index))
                if array.kind is None or value.kind is None:
                    return Node("pass", NONE)
                if not isinstance(array.kind, ArrayKind) or not array.kind.writable:
                    raise self.fail(node, "only items of writable arrays can be assigned to")
                fitted = self.fit(node, value, array.kind.item, array.kind.where)
                return Node("setitem", NONE, [array, position, fitted])
        raise self.fail(node, "this cannot be assigned to")

    def effect(self, call: ast.Call) -> list[Node]:
        """A call whose value is not used."""
        if isinstance(call.func, ast.Attribute):
            name = call.func.attr
            owner = self.expression(call.func.value)
            if owner.kind == OUT and name == "emit":
                return [self.emit(call)]
            if owner.kind in (OUT, PLAN) and name == "drop" and not call.args and not call.keywords:
                if self.program.app.kind == "transaction" and self.function not in self.program.roles():
                    raise self.fail(call, "drop belongs to the transaction's own functions, not to what they call")
                self.returned = _join(self.returned, NONE)
                return [Node("drop", NONE), Node("return", NONE)]
            if owner.kind == PLAN:
                return [self.access(call, name)]
        return [Node("effect", NONE, [self.expression(call)])]

    def emit(self, call: ast.Call) -> Node:
        if self.output is None:
            raise self.fail(call, "this function has no output to emit to")
        if call.args or any(k.arg is None for k in call.keywords):
            raise self.fail(call, "emit takes every field by name")
        output = self.program.resolved(self.output)
        given = [k.arg for k in call.keywords]
        if sorted(given) != sorted(self.output.fields):
            raise self.fail(call, f"emit of {self.output.name} needs exactly: {', '.join(self.output.fields)}")
        values = []
        # Written order decides nothing but which of two errors is the first; the fields' order is the kernels' too.
        for name, slot in output.event[0].items():
            value = self.expression(next(k.value for k in call.keywords if k.arg == name))
            where = f"{output.name}.{name}"
            if isinstance(slot.type, Scalar):
                value = self.fit(call, value, slot.type, where)
            elif isinstance(slot.type, Array):
                same = isinstance(value.kind, ArrayKind) and (value.kind.item, value.kind.count) == (
                    slot.type.item,
                    slot.count,
                )
                if not same and value.kind is not None:
                    raise self.fail(call, f"{where}: a {value.kind} cannot be emitted there")
            elif not isinstance(slot.type, Text) or value.kind not in (TEXT, None):
                raise self.fail(call, f"{where}: a {value.kind} cannot be emitted there")
            values.append(value)
        return Node("emit", NONE, values, output)

    def access(self, call: ast.Call, name: str) -> Node:
        """`txn.require`, `txn.modify`, `txn.read` in a plan."""
        if call.keywords:
            raise self.fail(call, "calls take positional arguments")
        request = next((k for _, k in self.parameters if isinstance(k, RowKind) and k.role == "event"), None)
        if request is None and name != "read":
            raise self.fail(call, f"a function that calls txn.{name} takes the event too")

        def place(node: ast.expr) -> Node:
            row = self.expression(node)
            if row.kind is not None and not (isinstance(row.kind, RowKind) and row.kind.role == "place"):
                raise self.fail(call, f"txn.{name} takes rows named by txn.row")
            return row

        match name, call.args:
            case "require", [condition, *places]:
                rows = [self.expression(p) for p in places]
                extra = [rows.pop()] if rows and rows[-1].kind in (INT, BOOL) else []
                rows = [place(p) for p in places[: len(rows)]]
                if any(r.kind is None for r in rows):
                    return Node("pass", NONE)
                if extra and not rows:
                    raise self.fail(call, "txn.require takes rows before the integer")
                extra = self.argument(call, extra)
                role = "table" if len(rows) == 1 else "joint"
                kinds = [RowKind(r.kind.resolved, role, False, r.kind.table) for r in rows]
                kinds += [request, *(e.kind for e in extra)]
                function = self.program.function(self.named(condition, "require"), kinds)
                if function.kind not in NUMBERS:
                    raise self.fail(call, f"condition {function.name} returns {function.kind}, not a truth value")
                return Node("require", NONE, rows, (function, extra))
            case "modify", [where, change, *extra] if len(extra) <= 1:
                row = place(where)
                given = self.argument(call, [self.expression(e) for e in extra])
                if row.kind is None or any(g.kind is None for g in given):
                    return Node("pass", NONE)
                kind = RowKind(row.kind.resolved, "table", True, row.kind.table)
                kinds = [kind, request, *(g.kind for g in given)]
                return Node("modify", NONE, [row, *given], self.program.function(self.named(change, "modify"), kinds))
            case "read", [where]:
                return Node("read", NONE, [place(where)])
        raise self.fail(call, f"txn.{name} is not known, or its arguments are not")

    def argument(self, call: ast.Call, given: list[Node]) -> list[Node]:
        """The integer behind a row or function, if there is one."""
        whole = [self.integer(call, value) for value in given]
        word = call.func.attr
        return [
            v if v.kind is None else Node("fit", INT, [v], (u32, f"the argument of txn.{word}"), call.lineno)
            for v in whole
        ]

    def named(self, node: ast.expr, what: str) -> Callable:
        function = self.scope.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(function, Transaction) or not inspect.isfunction(function):
            raise self.fail(node, f"{what} takes a plain function of the application")
        return function

    # --- expressions -------------------------------------------------------------------------------------------------

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
                value = self.condition(operand)
                return Node("const", BOOL, data=not value.data) if value.op == "const" else Node("not", BOOL, [value])
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if not isinstance(value, bool):
                return self.literal(node, -value)
            case ast.UnaryOp(op=op, operand=operand):
                value = self.number(node, self.expression(operand))
                if isinstance(op, ast.Invert):
                    if value.kind == BOOL:
                        raise self.fail(node, "~ of a boolean is -1 or -2 in one world and `not` in another: say `not`")
                    return Node("invert", INT, [self.integer(node, value)])
                wide = value.kind and _join(INT, value.kind)
                value = self.cast(node, value, wide)
                return value if isinstance(op, ast.UAdd) else Node("neg", wide, [value])
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

    def outer(self, node: ast.expr) -> Any:
        """The Python object a name outside the function, or `app.params`, stands for."""
        if isinstance(node, ast.Name) and node.id not in self.locals:
            return self.scope.get(node.id)
        if isinstance(node, ast.Attribute) and node.attr == "params" and isinstance(self.outer(node.value), App):
            return self.outer(node.value).params
        return None

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
        kind = _join(left.kind, right.kind)
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
            kind = _join(INT, kind)
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
        kind = _join(INT, _join(left.kind, right.kind))
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
                kind = _join(INT, self.number(node, value).kind)
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
            shape = _METHODS[type(declared)].get(name)
            if shape and len(shape[0]) == len(args):
                if name not in _READING and not owner.kind.writable:
                    raise self.fail(node, f"{owner.kind.where}: this row is read-only here")
                value = declared.item if isinstance(declared, Ring) else getattr(declared, "value", None)
                given = [
                    self.integer(node, a) if wanted == "i" else self.accepted(node, a, value, owner.kind.where)
                    for a, wanted in zip(args, shape[0], strict=True)
                ]
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
            kind = _join(kind, part.kind)
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


SEQ = Slot("seq", Scalar("i64", np.dtype("<i8"), -(1 << 63), (1 << 63) - 1), 0, 1, 8)


def _ends(body: list[Node]) -> bool:
    """Whether no way through these statements falls off their end."""
    for node in body:
        if node.op == "return":
            return True
        if node.op == "if" and _ends(node.args[1]) and _ends(node.args[2]):
            return True
        if node.op == "while" and node.args[0].op == "const" and node.args[0].data and not _breaks(node.args[1]):
            return True
    return False


def _breaks(body: list[Node]) -> bool:
    return any(n.op == "break" or (n.op == "if" and (_breaks(n.args[1]) or _breaks(n.args[2]))) for n in body)
