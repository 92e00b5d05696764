"""The operator language: plain Python functions, checked and made ready for the compiler.

`Translator` takes an operator function, checks that it keeps to the language, and returns a function of the same name
and line numbers in which everything that needs a meaning of its own is a call of a *word* (see kernels/words.py):

    row.field = v      -> set_field(row, "field", v)         stores that lose bits are errors
    a // b             -> floordiv(a, b)                     INT_MIN // -1 wraps around
    a << b, a >> b     -> shift_left(a, b), shift_right      counts outside 0..63 are errors
    int(x), float(x)   -> to_integer(x), to_float(x)         outside 64 bits is an error
    out.drop()         -> drop(out); return
    t[a:b]             -> text_slice(t, a, b)
    x in s             -> contains(s, x)
    out.emit(f=v, ...) -> emit(out, (v, ...))                in the order of the output record's fields
    txn.row(T, key)    -> txn_row(txn, <index of T>, key)    likewise require, modify, read, result, drop
    txn.require(f)     -> txn_hold(txn, f(txn_request(txn))) a condition on the event alone
    params.window      -> the value the application is bound with

What is bookkeeping stands elsewhere: tables and constants, made with NumPy before the first event (tables.py: a table's
`init` is no operator, it takes all row numbers as an array and gives columns), and that there is one NaN (record.py: it
loses sign and payload where it is read, stored or emitted).

The oracle gives the same source its meaning by itself (oracle/interpreter.py) and shares none of this.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from streaming_core.errors import BadInput
from streaming_core.language import tables
from streaming_core.language.application import App, Constant, ParamRef, Params, Table, Transaction
from streaming_core.language.record import Record

_STATEMENTS = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If, ast.While, ast.For, ast.Break, ast.Continue, ast.Pass,
    ast.Return, ast.Expr,
)  # fmt: skip
_EXPRESSIONS = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Attribute, ast.Subscript, ast.Name,
    ast.Constant, ast.Slice, ast.keyword, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
    ast.Tuple,
)  # fmt: skip
_BUILTINS = frozenset({"len", "range", "min", "max", "abs", "int", "float", "bool", "True", "False"})
_FAR = 1 << 62  # an omitted upper slice bound


def source_of(function: Callable) -> tuple[ast.FunctionDef, str]:
    """The function's definition with true line numbers, and its file.

    Raises:
        BadInput: the source cannot be read, or it is no plain `def`.
    """
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError) as error:
        raise BadInput(f"operator {function.__name__}: its source cannot be read: {error}") from None
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise BadInput(f"operator {function.__name__}: must be a plain def, not a lambda")
    ast.increment_lineno(tree, first - 1)
    definition.decorator_list = []
    return definition, inspect.getsourcefile(function) or "<operator>"


def passes(plan: Callable) -> tuple[str, ...]:
    """How often a transaction's plan has to be gone through to carry it out at once, and for what each time.

    A dropped event's conditions are never evaluated, and conditions read the state before the event: so what a plan
    does not do in this order on every path, or cannot be seen from its source to do, takes one more pass.
    """
    order = _Order()
    order.function(plan, 1, 0)
    if order.drops_late:
        return ("drop", "check", "act")
    return ("drop check", "act") if order.checks_late else ("drop check act",)


class _Order:
    """Walks a plan's paths and those of the functions it hands its `txn` to, with what may have been done before."""

    CHECKED, ACTED = 1, 2

    def __init__(self) -> None:
        self.drops_late = self.checks_late = False

    def function(self, function: Callable, position: int, done: int) -> int:
        """Walks a function whose argument at `position` is `txn`; returns what may be done behind it."""
        definition, _ = source_of(function)
        ends = [0]
        after = self._block(definition.body, (function, definition.args.args[position].arg), done, ends)
        return (after or 0) | ends[0]

    def _block(self, statements: list[ast.stmt], scope: tuple, done: int, ends: list[int]) -> int | None:
        """What may be done behind the statements; None when none of their paths goes on."""
        for statement in statements:
            match statement:
                case ast.If():
                    done = self._calls(statement.test, scope, done)
                    paths = [self._block(part, scope, done, ends) for part in (statement.body, statement.orelse)]
                    if paths == [None, None]:
                        return None
                    done = (paths[0] or 0) | (paths[1] or 0)
                case ast.For() | ast.While():
                    head = statement.iter if isinstance(statement, ast.For) else statement.test
                    for _ in range(2):  # what one turn does, the next one's statements follow
                        done = self._calls(head, scope, done)
                        done |= self._block(statement.body, scope, done, ends) or 0
                case ast.Return():
                    ends[0] |= done
                    return None
                case _:
                    done = self._calls(statement, scope, done)
        return done

    def _calls(self, node: ast.AST, scope: tuple, done: int) -> int:
        function, txn = scope
        for call in ast.walk(node):
            if not isinstance(call, ast.Call):
                continue
            if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == txn:
                match call.func.attr:
                    case "drop":
                        self.drops_late |= done != 0
                    case "require":
                        self.checks_late |= bool(done & self.ACTED)
                        done |= self.CHECKED
                    case "modify" | "read":
                        done |= self.ACTED
            elif txn in (passed := [ast.unparse(a) for a in call.args]):
                called = function.__globals__.get(call.func.id) if isinstance(call.func, ast.Name) else None
                if inspect.isfunction(called):
                    done = self.function(called, passed.index(txn), done)
                else:
                    self.drops_late = True
        return done


class Translator:
    """Translates the functions of one bound application.

    `modifications` collects (function, its index) of `txn.modify`, `conditions` those of `txn.require`; plans refer to
    them by index. `words` maps a word's name to what it means on the side that compiles.
    """

    def __init__(self, app: App, params: dict[str, Any], words: dict[str, Any], wrap: Callable[[Callable], Any]):
        self.app, self.params, self.words, self.wrap = app, params, words, wrap
        self.modifications: list[Callable] = []
        self.conditions: list[Callable] = []
        self.constants: dict[Constant, np.ndarray] = {}
        self._done: dict[tuple[Callable, str | None], Any] = {}

    def translate(self, function: Callable, output: Record | None = None) -> Any:
        """`function` in terms of words, wrapped by `wrap` (an njit, say). `output`: the record its `out` emits."""
        key = (function, output.name if output else None)
        if key not in self._done:
            self._done[key] = None  # a second visit while under way is recursion
            self._done[key] = self.wrap(self._rewrite(function, output))
        if self._done[key] is None:
            raise BadInput(f"operator {function.__name__}: recursion is not supported")
        return self._done[key]

    def index_of(self, function: Callable, kind: str) -> int:
        """Index of a modification or condition, registering it on first sight."""
        known = self.modifications if kind == "modify" else self.conditions
        if function not in known:
            known.append(function)
        return known.index(function)

    def constant(self, constant: Constant) -> np.ndarray:
        """A side table's values."""
        if constant not in self.constants:
            self.constants[constant] = tables.constant(self.app, constant, self.params)
        return self.constants[constant]

    def _rewrite(self, function: Callable, output: Record | None) -> Callable:
        definition, file = source_of(function)
        rewriter = _Rewriter(self, function, output, file)
        definition = rewriter.visit(definition)
        tree = ast.Module([definition], [])
        ast.fix_missing_locations(tree)
        namespace: dict[str, Any] = {**self.words, **rewriter.globals, "__name__": function.__module__}
        exec(compile(tree, file, "exec"), namespace)
        return namespace[definition.name]


class _Rewriter(ast.NodeTransformer):
    def __init__(self, translator: Translator, function: Callable, output: Record | None, file: str):
        self.translator, self.function, self.output, self.file = translator, function, output, file
        self.scope = {**function.__globals__}
        if function.__closure__:
            self.scope |= dict(
                zip(function.__code__.co_freevars, (c.cell_contents for c in function.__closure__), strict=True)
            )
        self.locals = set(function.__code__.co_varnames)
        self.globals: dict[str, Any] = {}

    def fail(self, node: ast.AST, why: str) -> BadInput:
        """The one line a user gets."""
        return BadInput(f"operator {self.function.__name__} ({self.file}:{getattr(node, 'lineno', '?')}): {why}")

    def word(self, node: ast.AST, name: str, *args: ast.expr) -> ast.Call:
        return ast.copy_location(ast.Call(ast.Name(f"_{name}", ast.Load()), list(args), []), node)

    def number(self, node: ast.AST, value: Any) -> ast.expr:
        if isinstance(value, bool | int | float | np.integer | np.floating):
            value = value.item() if isinstance(value, np.generic) else value
            if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
                raise self.fail(node, f"{value} does not fit 64 bits")
            return ast.copy_location(ast.Constant(value), node)
        raise self.fail(node, f"a value of type {type(value).__name__} cannot be used in an operator")

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.stmt) and not isinstance(node, (*_STATEMENTS, ast.FunctionDef)):
            raise self.fail(node, f"{type(node).__name__} is not part of the operator language")
        if isinstance(node, ast.expr) and not isinstance(node, _EXPRESSIONS):
            raise self.fail(node, f"{type(node).__name__} is not part of the operator language")
        return super().visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        a = node.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.defaults or a.posonlyargs:
            raise self.fail(node, "an operator takes plain positional arguments")
        for argument in a.args:
            argument.annotation = None
        node.returns = None
        if isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant):
            node.body = node.body[1:] or [ast.copy_location(ast.Pass(), node)]
        visited = [self.visit(s) for s in node.body]  # a drop becomes two statements
        node.body = [s for one in visited for s in (one if isinstance(one, list) else [one])]
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        call = node.iter
        if node.orelse or not (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"
        ):
            raise self.fail(node, "a for loop runs over range(...)")
        if not isinstance(node.target, ast.Name):
            raise self.fail(node, "a for loop has one variable")
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> Any:
        self.generic_visit(node)  # changes it in place
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "_drop":
            return [node, ast.copy_location(ast.Return(None), node)]  # nothing of a dropped event happens after it
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return self.number(node, node.value)

    def visit_Tuple(self, node: ast.Tuple) -> ast.AST:
        raise self.fail(node, "tuples are not part of the operator language")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Store) or node.id in self.locals:
            return node
        if node.id not in self.scope:
            if node.id in _BUILTINS:
                return node
            raise self.fail(node, f"name {node.id!r} is not known here")
        value = self.scope[node.id]
        if isinstance(value, Constant):
            self.globals[node.id] = self.translator.constant(value)
            return node
        if isinstance(value, ParamRef):
            return self.number(node, self._param(node, value))
        return self.number(node, value)

    def _param(self, node: ast.AST, reference: ParamRef) -> Any:
        value = self.translator.params[reference.name]
        if isinstance(value, str):
            raise self.fail(node, f"parameter {reference.name} is text and cannot be used in an operator")
        return value

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id not in self.locals:
            owner = self.scope.get(node.value.id)
            owner = owner.params if isinstance(owner, App) and node.attr != "params" else owner
            if isinstance(owner, Params):
                try:
                    reference = getattr(owner, node.attr)
                except AttributeError as error:
                    raise self.fail(node, str(error)) from None
                return self.number(node, self._param(node, reference))
        if (
            isinstance(node.value, ast.Attribute)
            and node.value.attr == "params"
            and isinstance(node.value.value, ast.Name)
            and isinstance(self.scope.get(node.value.value.id), App)
        ):
            reference = getattr(self.scope[node.value.value.id].params, node.attr, None)
            if reference is None:
                raise self.fail(node, f"no parameter {node.attr!r}")
            return self.number(node, self._param(node, reference))
        node.value = self.visit(node.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if len(node.targets) != 1:
            raise self.fail(node, "one assignment at a time")
        return self._store(node, node.targets[0], self.visit(node.value))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            raise self.fail(node, "a declaration without a value")
        return self._store(node, node.target, self.visit(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        load = ast.parse(ast.unparse(node.target), mode="eval").body
        for part in ast.walk(load):
            ast.copy_location(part, node)
        value = self.visit(ast.copy_location(ast.BinOp(load, node.op, node.value), node))
        return self._store(node, node.target, value)

    def _store(self, node: ast.stmt, target: ast.expr, value: ast.expr) -> ast.stmt:
        if isinstance(target, ast.Name):
            return ast.copy_location(ast.Assign([target], value), node)
        if isinstance(target, ast.Attribute):
            name = ast.copy_location(ast.Constant(target.attr), node)
            call = self.word(node, "set_field", self.visit(target.value), name, value)
            return ast.copy_location(ast.Expr(call), node)
        if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Slice):
            call = self.word(node, "set_item", self.visit(target.value), self.visit(target.slice), value)
            return ast.copy_location(ast.Expr(call), node)
        raise self.fail(node, "this cannot be assigned to")

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        left, right = self.visit(node.left), self.visit(node.right)
        match node.op:
            case ast.FloorDiv():
                return self.word(node, "floordiv", left, right)
            case ast.Mod():
                return self.word(node, "modulo", left, right)
            case ast.LShift():
                return self.word(node, "shift_left", left, right)
            case ast.RShift():
                return self.word(node, "shift_right", left, right)
            case ast.Pow() | ast.MatMult():
                raise self.fail(node, "** and @ are not part of the operator language")
        return ast.copy_location(ast.BinOp(left, node.op, right), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            value = node.operand.value
            return self.number(node, -value if isinstance(value, int | float) else value)
        if isinstance(node.op, ast.Invert):
            return self.word(node, "invert", self.visit(node.operand))
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            raise self.fail(node, "`is` is not part of the operator language")
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            if len(node.ops) != 1:
                raise self.fail(node, "`in` stands alone")
            call = self.word(node, "contains", self.visit(node.comparators[0]), self.visit(node.left))
            return call if isinstance(node.ops[0], ast.In) else ast.copy_location(ast.UnaryOp(ast.Not(), call), node)
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if isinstance(node.slice, ast.Slice):
            if node.slice.step is not None:
                raise self.fail(node, "slices have no step")
            low = self.visit(node.slice.lower) if node.slice.lower else ast.copy_location(ast.Constant(0), node)
            high = self.visit(node.slice.upper) if node.slice.upper else ast.copy_location(ast.Constant(_FAR), node)
            return self.word(node, "text_slice", self.visit(node.value), low, high)
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Attribute):
            return self._method(node)
        if not isinstance(node.func, ast.Name):
            raise self.fail(node, "this cannot be called")
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.fail(node, "calls take positional arguments")
        name = node.func.id
        args = [self.visit(a) for a in node.args]
        if name in self.locals:
            raise self.fail(node, f"{name} is not a function")
        if name in self.scope:
            function = self.scope[name]
            if not inspect.isfunction(function):
                raise self.fail(node, f"{name} cannot be called in an operator")
            self.globals[f"_f_{name}"] = self.translator.translate(function, self.output)
            return ast.copy_location(ast.Call(ast.Name(f"_f_{name}", ast.Load()), args, []), node)
        if name in ("int", "float"):
            return self.word(node, "to_integer" if name == "int" else "to_float", *args)
        if name not in _BUILTINS:
            raise self.fail(node, f"{name} is not known here")
        return ast.copy_location(ast.Call(node.func, args, []), node)

    def _method(self, node: ast.Call) -> ast.AST:
        assert isinstance(node.func, ast.Attribute)
        owner, name = node.func.value, node.func.attr
        if name == "emit" and isinstance(owner, ast.Name) and owner.id in self.locals:
            return self._emit(node, owner)
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise self.fail(node, "calls take positional arguments")
        if name == "drop" and not node.args:
            app = self.translator.app
            if app.kind == "transaction" and self.function not in app.operators[1].functions.values():
                raise self.fail(node, "drop belongs to the transaction's own functions, not to what they call")
            return self.word(node, "drop", self.visit(owner))
        if name == "row" and len(node.args) == 2:
            return self.word(node, "txn_row", self.visit(owner), self._table(node.args[0]), self.visit(node.args[1]))
        if name == "result" and len(node.args) == 2:
            return self.word(node, "txn_result", self.visit(owner), self._table(node.args[0]), self.visit(node.args[1]))
        if name == "modify" and len(node.args) in (2, 3):
            index = self._function(node.args[1], "modify")
            argument = self.visit(node.args[2]) if len(node.args) == 3 else ast.copy_location(ast.Constant(0), node)
            return self.word(node, "txn_modify", self.visit(owner), self.visit(node.args[0]), index, argument)
        if name == "require" and len(node.args) == 1:
            name = f"_f_{self._plain(node.args[0], 'require').__name__}"
            self.globals[name] = self.translator.translate(self._plain(node.args[0], "require"), self.output)
            request = self.word(node, "txn_request", self.visit(owner))
            held = ast.copy_location(ast.Call(ast.Name(name, ast.Load()), [request], []), node)
            return self.word(node, "txn_hold", self.visit(owner), held)
        if name == "require" and len(node.args) >= 2:
            index = self._function(node.args[0], "require")
            rows = ast.copy_location(ast.Tuple([self.visit(a) for a in node.args[1:]], ast.Load()), node)
            return self.word(node, "txn_require", self.visit(owner), index, rows)
        if name == "read" and len(node.args) == 1:
            return self.word(node, "txn_read", self.visit(owner), self.visit(node.args[0]))
        func = ast.copy_location(ast.Attribute(self.visit(owner), name, ast.Load()), node)
        return ast.copy_location(ast.Call(func, [self.visit(a) for a in node.args], []), node)

    def _emit(self, node: ast.Call, owner: ast.Name) -> ast.AST:
        if self.output is None:
            raise self.fail(node, "this function has no output to emit to")
        if node.args or any(k.arg is None for k in node.keywords):
            raise self.fail(node, "emit takes every field by name")
        given = {k.arg: k.value for k in node.keywords}
        wanted = list(self.output.fields)
        if set(given) != set(wanted):
            missing, unknown = set(wanted) - set(given), set(given) - set(wanted)
            what = [f"lacks {', '.join(sorted(missing))}"] if missing else []
            what += [f"has unknown {', '.join(sorted(map(str, unknown)))}"] if unknown else []
            raise self.fail(node, f"emit of {self.output.name} {' and '.join(what)}")
        values = ast.Tuple([self.visit(given[f]) for f in wanted], ast.Load())
        return self.word(node, "emit", owner, ast.copy_location(values, node))

    def _table(self, node: ast.expr) -> ast.expr:
        table = self.scope.get(node.id) if isinstance(node, ast.Name) else None
        if not isinstance(table, Table):
            raise self.fail(node, "the first argument must be a table of the application")
        return ast.copy_location(ast.Constant(table.index), node)

    def _plain(self, node: ast.expr, kind: str) -> Callable:
        function = self.scope.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(function, Transaction) or not inspect.isfunction(function):
            raise self.fail(node, f"{kind} takes a plain function of the application")
        return function

    def _function(self, node: ast.expr, kind: str) -> ast.expr:
        return ast.copy_location(ast.Constant(self.translator.index_of(self._plain(node, kind), kind)), node)
