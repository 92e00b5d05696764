"""Statements of the language: reads a function as a typed tree.

A variable has one type in a function: the join of everything assigned to it (boolean < integer < float).
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from streaming_core.language.application import Transaction
from streaming_core.language.record import Array, Scalar, Text, u32
from streaming_core.language.typed.expressions import Expressions
from streaming_core.language.typed.kinds import (
    BOOL,
    INT,
    NONE,
    NUMBERS,
    OUT,
    PLAN,
    TEXT,
    ArrayKind,
    Kind,
    RowKind,
    join,
)
from streaming_core.language.typed.tree import Function, Node


class Reader(Expressions):
    """Reads one function at one combination of argument types."""

    returned: Any = None  # the type of what it returns, as far as known

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
                self.returned = join(self.returned, NONE)
                return [Node("return", NONE)]
            case ast.Return(value=ast.expr() as value):
                found = self.expression(value)
                self.returned = join(self.returned, found.kind)
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
                self.variables[name] = join(self.variables.get(name), INT)
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
                self.variables[name] = joined = join(self.variables.get(name), value.kind)
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
                self.returned = join(self.returned, NONE)
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
        given = [k.arg for k in call.keywords if k.arg is not None]
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
                kinds: list[Any] = [RowKind(r.kind.resolved, role, False, r.kind.table) for r in rows]
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
        assert isinstance(call.func, ast.Attribute)  # txn.require, txn.modify
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
