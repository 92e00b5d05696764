"""The dialect that numba compiles: an operator function, rewritten.

`Translator` takes an operator function and returns one with the same name and line numbers. Operations with a meaning
of their own become calls of *words* (see kernels/vocabulary.py):

    row.field = v      -> set_field(v, row, "field")         stores that lose bits are errors
    a // b             -> floordiv(a, b)                     INT_MIN // -1 wraps around
    a << b, a >> b     -> shift_left(a, b), shift_right      counts outside 0..63 are errors
    int(x), float(x)   -> to_integer(x), to_float(x)         outside 64 bits is an error
    out.drop()         -> drop(out); return
    "WA", b"WA"        -> text("WA")                     its bytes as characters
    t[a:b]             -> text_slice(t, a, b)
    out.emit(row, ...) -> out.emit(f=row.f, ..., ...)
    for row in q: ...  -> for i in range(len(q)): ...        with q[i] for row
    for x in t.split() -> while ...: x = text_part(...)  likewise with a separator
    str(n)             -> decimal(n)
    x.f is None        -> not valid(x, "f")
    row.f = None       -> set_optional(zero(row, "f"), False, row, "f")   likewise of a field or an `if` with one
    x in s             -> contains(x, s)
    x in (a, b)        -> among(x, a, b)
    out.emit(f=v, ...) -> _f = v; ...; emit(out, (_f, ...))  in the order of the output record's fields
    keys.add(f=v, ...) -> _f = v; ...; emit(keys, (_f, ...)) in the order of the key record's fields
    q.append(f=v, ...) -> queue_append(q, "f ...", (v, ...)) in the order of the source
    txn.row(T, key)    -> txn_row(txn, <index of T>, key)    likewise require, modify, read, result, drop
    txn.require(f)     -> txn_hold(txn, f(txn_request(txn))) a condition on the event alone
    params.window      -> the value that the application is bound with
    for ... if ...     -> a vectorised search, where a loop over a queue acts on few rows (scan.py)

It rejects nothing: the kernel compiler learns only that the language accepted the application
(language/acceptance.py). Both sides share the source text and the meaning of outer names (source.py), tables and
constants (tables.py), and the one NaN (record.py). This side, or numba, works out types, conversions and the order of
a plan anew.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Container
from typing import Any

import numpy as np

from streaming_core.kernels import scan
from streaming_core.language.bound import BoundApp
from streaming_core.language.extent import Duration, units
from streaming_core.language.lookup import Constant
from streaming_core.language.parameters import ParamRef
from streaming_core.language.record import VALID, Nullable, Record
from streaming_core.language.source import Source, by_position, is_over_rows, text_bytes, whole_row

_OPERATIONS = {ast.FloorDiv: "floordiv", ast.Mod: "modulo", ast.LShift: "shift_left", ast.RShift: "shift_right"}
_FAR = 1 << 62  # an omitted upper slice bound


class Translator:
    """Translates the functions of one bound application.

    Args:
        program: The bound application.
        words: Words by name, as the compiler implements them.
        wrap: Wraps each translated function, with njit for example.

    Attributes:
        modifications: Functions of `txn.modify`; plans refer to them by index.
        conditions: Functions of `txn.require`, likewise.
    """

    def __init__(self, program: BoundApp, words: dict[str, Any], wrap: Callable[[Callable], Any]):
        self.program, self.words, self.wrap = program, words, wrap
        self.modifications: list[Callable] = []
        self.conditions: list[Callable] = []
        self._done: dict[tuple[Callable, Record | None], Any] = {}

    def translate(self, function: Callable, output: Record | None = None) -> Any:
        """Rewrite a function in words, and wrap it.

        Args:
            function: The function.
            output: The record that its last argument emits; None if it emits nothing.
        """
        key = (function, output)
        if key not in self._done:
            self._done[key] = self.wrap(_Rewriter(self, function, output).rewritten())
        return self._done[key]

    def index_of(self, function: Callable, known: list[Callable]) -> int:
        """Return the index of a modification or condition; register a new one."""
        if function not in known:
            known.append(function)
        return known.index(function)


class _Rewriter(ast.NodeTransformer):
    """Rewrites one function of the language; nodes without a word stay unchanged."""

    def __init__(self, translator: Translator, function: Callable, output: Record | None):
        self.translator, self.output, self.source = translator, output, Source(function)
        self.scans = self.splits = 0
        self.nullable = translator.program.nullable
        self.before: list[ast.stmt] = []  # assignments that precede the present statement
        self.variables = 0
        self.globals: dict[str, Any] = {**translator.words, "__name__": function.__module__}

    def rewritten(self) -> Callable:
        """Return the function, compiled by Python."""
        definition = self.visit(self.source.definition)
        tree = ast.fix_missing_locations(ast.Module([definition], []))
        exec(compile(tree, self.source.file, "exec"), self.globals)
        return self.globals[definition.name]

    def visit(self, node: ast.AST) -> Any:
        """Rewrite a node; the new one keeps its line and column."""
        new_node = super().visit(node)
        if isinstance(new_node, ast.AST) and new_node is not node and hasattr(node, "lineno"):
            ast.copy_location(new_node, node)
        return new_node

    def word(self, name: str, *args: ast.expr) -> ast.Call:
        """Return a call of a word."""
        return ast.Call(ast.Name(f"_{name}", ast.Load()), list(args), [])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Return the function without annotations."""
        for argument in node.args.args:
            argument.annotation = None
        node.returns = None
        return self.generic_visit(node)

    # --- names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Return the number that an outer name stands for; register the values of a constant."""
        value = self.source.outer(node)
        if isinstance(value, Constant):
            values = self.translator.program.constants[value]
            if isinstance(values, bytes):
                return self.number(values)
            self.globals[node.id] = values
            return node
        return node if value is None else self.number(value)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Return the value of a parameter as a constant; rewrite the owner of any other attribute."""
        value = self.source.outer(node)
        return self.generic_visit(node) if value is None else self.number(value)

    def number(self, value: Any) -> ast.expr:
        """Return the constant that a name outside the function stands for."""
        program = self.translator.program
        value = program.params[value.name] if isinstance(value, ParamRef) else value
        value = units(value, program.app) if isinstance(value, Duration) else value
        return self.visit_Constant(ast.Constant(value.item() if isinstance(value, np.generic) else value))

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        """Return the constant, or the word for a text."""
        if not isinstance(node.value, str | bytes):
            return node
        return self.word("text", ast.Constant(text_bytes(node.value).decode("latin-1")))

    # --- statements

    def visit_Expr(self, node: ast.Expr) -> Any:
        """Return the statement; a `return` follows a drop."""
        self.generic_visit(node)  # changes it in place
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "_drop":
            return [node, ast.copy_location(ast.Return(None), node)]  # a dropped event has no further effect
        return self._preceded(node)

    def _variable(self, value: ast.expr) -> ast.Name:
        """Assign a value to a new variable before the present statement; returns the variable."""
        self.variables += 1
        name = f"_variable_{self.variables}"
        self.before.append(ast.Assign([ast.Name(name, ast.Store())], value))
        return ast.Name(name, ast.Load())

    def _preceded(self, statement: ast.stmt) -> list[ast.stmt]:
        statements, self.before = [*self.before, statement], []
        return statements

    def visit_Assign(self, node: ast.Assign) -> Any:
        """Return a store: of a variable, or by the word for a field or an item."""
        return self._stored(node.targets[0], node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        """Return a store without the annotation."""
        return self._stored(node.target, node)

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        """Return a store of the operation's value; an index has its value once, before the operands."""
        target = node.target
        if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Name | ast.Constant):
            target.slice = self._variable(self.visit(target.slice))
        load = copy.deepcopy(target)
        load.ctx = ast.Load()
        store = self._store(target, self.visit(ast.BinOp(load, node.op, node.value)))
        return self._located(self._preceded(store), node)

    def _located(self, statements: list[ast.stmt], node: ast.stmt) -> list[ast.stmt]:
        return [ast.fix_missing_locations(ast.copy_location(statement, node)) for statement in statements]

    def _stored(self, target: ast.expr, node: ast.Assign | ast.AnnAssign) -> Any:
        """Return a store; of a field that may be null, that of its value and its validity."""
        value = node.value
        assert value is not None
        if not isinstance(target, ast.Attribute) or target.attr not in self.nullable:
            return self._store(target, self.visit(value))
        if isinstance(value, ast.IfExp):  # evaluated once, and before the store
            value.test = self._variable(self.visit(value.test))
        parts = self._optional(value, target.value, target.attr)
        return self._located(self._preceded(ast.Expr(self.word("set_optional", *parts, *self._place(target)))), node)

    def _place(self, field: ast.Attribute) -> tuple[ast.expr, ast.expr]:
        """Return the owner of a field, and its name."""
        return self.visit(copy.deepcopy(field.value)), ast.Constant(field.attr)

    def _optional(self, value: ast.expr, owner: ast.expr, field: str) -> tuple[ast.expr, ast.expr]:
        """Return a value for a field of an owner, whatever it is if it is null, and whether it has one."""
        match value:
            case ast.Constant(value=None):
                return self.word("zero", self.visit(copy.deepcopy(owner)), ast.Constant(field)), ast.Constant(False)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                sides = [self._optional(side, owner, field) for side in (body, orelse)]
                if not all(isinstance(valid, ast.Constant) and valid.value for _, valid in sides):
                    chosen, valid = (
                        ast.IfExp(self.visit(copy.deepcopy(test)), sides[0][i], sides[1][i]) for i in range(2)
                    )
                    return chosen, valid
                return ast.IfExp(self.visit(test), sides[0][0], sides[1][0]), ast.Constant(True)
            case ast.Attribute(attr=name) if name in self.nullable and self.source.outer(value) is None:
                return self.word("raw", *self._place(value)), self.word("valid", *self._place(value))
        return self.visit(value), ast.Constant(True)

    def _values(self, owner: ast.expr, call: ast.Call, nullable: Container[str]) -> dict[str, ast.expr]:
        """Return the values of a call's keywords; behind that of a field that may be null, whether it has one."""
        values: dict[str, ast.expr] = {}
        for keyword in call.keywords:
            assert keyword.arg is not None
            if keyword.arg in nullable:
                values[keyword.arg], values[VALID + keyword.arg] = self._optional(keyword.value, owner, keyword.arg)
            else:
                values[keyword.arg] = self.visit(keyword.value)
        return values

    def _store(self, target: ast.expr, value: ast.expr) -> ast.stmt:
        match target:
            case ast.Attribute(attr=name) if name in self.nullable:
                return ast.Expr(self.word("set_optional", value, ast.Constant(True), *self._place(target)))
            case ast.Attribute(value=owner, attr=name):
                return ast.Expr(self.word("set_field", value, self.visit(owner), ast.Constant(name)))
            case ast.Subscript(value=owner, slice=index):
                return ast.Expr(self.word("set_item", value, self.visit(owner), self.visit(index)))
        return ast.Assign([target], value)

    def visit_For(self, node: ast.For) -> Any:
        """Return the loop; a scan becomes a search in chunks (scan.py)."""
        if isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Attribute):
            return self._split(node, node.iter, node.iter.func.value)
        if is_over_rows(node):
            node = by_position(node)
        match = None if self._fails(node.body[0]) else scan.matched(node)
        if match is None:
            return self.generic_visit(node)
        self.scans += 1
        return [self.visit(statement) for statement in scan.rewritten(match, self.scans, node)]

    def _fails(self, body: ast.stmt) -> bool:
        """Whether the condition of a scan can read a null, which fails."""
        parts = ast.walk(body.test) if isinstance(body, ast.If) else ()
        return any(isinstance(part, ast.Attribute) and part.attr in self.nullable for part in parts)

    def _split(self, node: ast.For, call: ast.Call, owner: ast.expr) -> list[ast.stmt]:
        """Return a loop over the parts of a text, which begin at `at` and end at `end`."""
        self.splits += 1
        names = (f"_{name}_{self.splits}" for name in ("text", "at", "end"))
        text, at, end = (ast.Name(name, ast.Load()) for name in names)

        def assigned(target: ast.expr, value: ast.expr) -> ast.stmt:
            assert isinstance(target, ast.Name)
            return ast.Assign([ast.Name(target.id, ast.Store())], value)

        if call.args:
            separator: Any = self.visit(call.args[0])  # the word for a text of one byte
            byte = ast.Constant(ord(separator.args[0].value))
            begin: ast.expr = ast.Constant(0)
            sign: ast.cmpop = ast.LtE()
            stop = self.word("part_end", text, byte, at)
            following: ast.expr = ast.BinOp(end, ast.Add(), ast.Constant(1))
        else:
            begin, sign, stop = self.word("blank_end", text, ast.Constant(0)), ast.Lt(), self.word("word_end", text, at)
            following = self.word("blank_end", text, end)
        turn = [assigned(end, stop), assigned(node.target, self.word("text_part", text, at, end))]
        turn.append(assigned(at, following))
        for statement in node.body:
            visited = self.visit(statement)
            turn += visited if isinstance(visited, list) else [visited]
        length = ast.Call(ast.Name("len", ast.Load()), [text], [])
        loop = ast.While(ast.Compare(at, [sign], [length]), turn, [])
        return [assigned(text, self.visit(owner)), assigned(at, begin), loop]

    # --- expressions

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Return the operation, or the word for a division or shift."""
        self.generic_visit(node)
        name = _OPERATIONS.get(type(node.op))
        return self.word(name, node.left, node.right) if name else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Return a negative constant for a negated number, and the word for `~`."""
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return ast.Constant(-value)  # -2^63 is a number of the language: 2^63 is not
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return self.word("invert", self.visit(operand))
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Return the comparison, or the word for `in` or `is None`."""
        if isinstance(node.ops[0], ast.Is | ast.IsNot):
            assert isinstance(node.left, ast.Attribute)
            valid = self.word("valid", self.visit(node.left.value), ast.Constant(node.left.attr))
            return valid if isinstance(node.ops[0], ast.IsNot) else ast.UnaryOp(ast.Not(), valid)
        self.generic_visit(node)
        if not isinstance(node.ops[0], ast.In | ast.NotIn):
            return node
        [container] = node.comparators
        if isinstance(container, ast.Tuple):
            call = self.word("among", node.left, *container.elts)
        else:
            call = self.word("contains", node.left, container)
        return call if isinstance(node.ops[0], ast.In) else ast.UnaryOp(ast.Not(), call)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Return the subscript, or the word for a slice of text."""
        self.generic_visit(node)
        if not isinstance(node.slice, ast.Slice):
            return node
        low, high = node.slice.lower or ast.Constant(0), node.slice.upper or ast.Constant(_FAR)
        return self.word("text_slice", node.value, low, high)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Return a call of a translated function, of a word, or of a built-in."""
        if isinstance(node.func, ast.Attribute):
            return self._method(node, node.func)
        assert isinstance(node.func, ast.Name)
        if (value := self.source.outer(node)) is not None:
            return self.number(value)
        name, args = node.func.id, [self.visit(a) for a in node.args]
        if name in self.source.names:
            return self._called(node.func, *args)
        if name in ("int", "float"):
            return self.word("to_integer" if name == "int" else "to_float", *args)
        if name == "str":
            return self.word("decimal", *args)
        return ast.Call(node.func, args, [])

    def _method(self, node: ast.Call, method: ast.Attribute) -> ast.AST:
        owner, name = self.visit(method.value), method.attr
        if name == "emit" and node.args:
            assert self.output is not None
            node = whole_row(node, list(self.output.fields))
        match name, node.args:
            case (("emit" | "add"), []):  # keys.add has keywords: the add of a set takes its item by position
                assert self.output is not None
                kinds = self.output.fields
                nullable = {name for name, kind in kinds.items() if isinstance(kind, Nullable)}
                values = self._values(method.value, node, nullable)
                fields = [name for field in kinds for name in (field, VALID + field) if name in values]
                if list(values) != fields:
                    values = {name: self._variable(value) for name, value in values.items()}
                return self.word("emit", owner, ast.Tuple([values[field] for field in fields], ast.Load()))
            case "append", []:
                values = self._values(method.value, node, self.nullable)
                row = ast.Tuple(list(values.values()), ast.Load())
                return self.word("queue_append", owner, ast.Constant(" ".join(values)), row)
            case "drop", []:
                return self.word("drop", owner)
            case (("row" | "result"), [table, index]):
                number = ast.Constant(self.source.outer(table).index)
                return self.word(f"txn_{name}", owner, number, self.visit(index))
            case "modify", [row, function, *extra]:
                index = self._index(function, self.translator.modifications)
                return self.word("txn_modify", owner, self.visit(row), index, self._row(extra))
            case "require", [condition]:
                return self.word("txn_hold", owner, self._called(condition, self.word("txn_request", owner)))
            case "require", [condition, *rows]:
                index = self._index(condition, self.translator.conditions)
                return self.word("txn_require", owner, index, self._row(rows))
            case "read", [row]:
                return self.word("txn_read", owner, self.visit(row))
        return ast.Call(ast.Attribute(owner, name, ast.Load()), [self.visit(a) for a in node.args], [])

    def _row(self, values: list[ast.expr]) -> ast.expr:
        return ast.Tuple([self.visit(value) for value in values], ast.Load())

    def _called(self, function: ast.expr, *args: ast.expr) -> ast.Call:
        """Return a call of another function of the application, which this translates, too."""
        name = f"_f_{ast.unparse(function)}"
        self.globals[name] = self.translator.translate(self.source.outer(function), self.output)
        return ast.Call(ast.Name(name, ast.Load()), list(args), [])

    def _index(self, function: ast.expr, known: list[Callable]) -> ast.expr:
        return ast.Constant(self.translator.index_of(self.source.outer(function), known))
