"""An operator function as text: its source, and the objects that its outer names stand for.

The typed reader and the kernel compiler both start here. It is bookkeeping, so they may share it. Each of them finds
the meaning of the source by itself.
"""

from __future__ import annotations

import ast
import copy
import inspect
import os
import textwrap
from collections.abc import Callable
from typing import Any

from streaming_core.errors import BadInput
from streaming_core.language import generated
from streaming_core.language.application import App
from streaming_core.language.decimals import decimal
from streaming_core.language.extent import Duration, duration
from streaming_core.language.parameters import ParamRef, Params


class Source:
    """The source of a function.

    Attributes:
        definition: Its syntax tree without decorators and docstring, with the line numbers of the file.
        file: Its file.
        locals: Its arguments and variables.
        names: The objects that its other names stand for.

    Raises:
        BadInput: The source cannot be read, or is not a plain `def`.
    """

    def __init__(self, function: Callable):
        self.function = function
        try:
            lines, first = inspect.getsourcelines(function)
            [definition] = ast.parse(textwrap.dedent("".join(lines))).body
        except (OSError, SyntaxError, TypeError, ValueError) as error:
            raise BadInput(f"{named(function)}: cannot read its source: {error}") from None
        if not isinstance(definition, ast.FunctionDef):
            what = "async def" if isinstance(definition, ast.AsyncFunctionDef) else "a lambda"
            raise BadInput(f"{named(function)}: an operator must be a plain def, not {what}")
        ast.increment_lineno(definition, first - 1)
        definition.decorator_list = []
        if ast.get_docstring(definition, clean=False) is not None:
            definition.body = definition.body[1:] or [ast.copy_location(ast.Pass(), definition)]
        self.definition = definition
        self.file = inspect.getsourcefile(function) or "<operator>"
        self.locals = set(function.__code__.co_varnames)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self.names = {**function.__globals__, **{name: cell.cell_contents for name, cell in cells}}

    def outer(self, node: ast.AST) -> Any:
        """The Python object that an outer name stands for.

        Returns:
            A ParamRef for a parameter, in either spelling. A Duration for `duration("1h")`, too, and the units of
            `decimal("0.9", 2)`. None if the expression is not an outer name.
        """
        match node:
            case ast.Name(id=name) if name not in self.locals:
                return self.names.get(name)
            case ast.Attribute(value=value, attr=name):
                owner = self.outer(value)
                if isinstance(owner, App) and name == "params":
                    return owner.params
                if isinstance(owner, Params) or (isinstance(owner, App) and name in owner.declared):
                    return ParamRef(name)
            case ast.Call(func=ast.Name() as called, args=[ast.Constant(value=str(text))], keywords=[]):
                return Duration(text) if self.outer(called) is duration else None
            case ast.Call(
                func=ast.Name() as called, args=[ast.Constant(value=str(text)), ast.Constant(value=int(scale))]
            ):
                try:
                    return decimal(text, scale) if self.outer(called) is decimal and not node.keywords else None
                except BadInput:
                    return None  # whose reason the reader tells
        return None


def whole_row(call: ast.Call, fields: list[str]) -> ast.Call:
    """Return `out.emit(row, a=1)` with all fields by name: first those of the row, then the others as written."""
    [row], changed = call.args, {keyword.arg for keyword in call.keywords}
    values = [ast.keyword(name, ast.Attribute(row, name, ast.Load())) for name in fields if name not in changed]
    written = ast.Call(call.func, [], [*values, *call.keywords])
    for node in ast.walk(written):
        if "lineno" in node._attributes and not hasattr(node, "lineno"):
            ast.copy_location(node, call)
    return written


def is_over_rows(loop: ast.For) -> bool:
    """Whether a loop is `for row in queue:`, where the queue is a variable or a field."""
    return isinstance(loop.target, ast.Name) and isinstance(loop.iter, ast.Name | ast.Attribute)


def by_position(loop: ast.For) -> ast.For:
    """Return `for row in queue: ... row.a ...` as `for i in range(len(queue)): ... queue[i].a ...`."""
    assert isinstance(loop.target, ast.Name)
    index = f"_position_{loop.lineno}_{loop.col_offset}"
    call = ast.Call(ast.Name("len", ast.Load()), [loop.iter], [])
    body = [_Row(loop.target.id, loop.iter, index).visit(copy.deepcopy(statement)) for statement in loop.body]
    positions = ast.Call(ast.Name("range", ast.Load()), [call], [])
    written = ast.For(ast.Name(index, ast.Store()), positions, body, loop.orelse)
    for node in ast.walk(written):
        if "lineno" in node._attributes and not hasattr(node, "lineno"):
            ast.copy_location(node, loop)
    return written


class _Row(ast.NodeTransformer):
    """Replaces the variable of a loop over a queue by the row at a position."""

    def __init__(self, name: str, queue: ast.expr, index: str):
        self.name, self.queue, self.index = name, queue, index

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Return `queue[index]` for the variable."""
        if node.id != self.name or not isinstance(node.ctx, ast.Load):
            return node
        row = ast.Subscript(copy.deepcopy(self.queue), ast.Name(self.index, ast.Load()), ast.Load())
        for part in ast.walk(row):
            if "lineno" in part._attributes:
                ast.copy_location(part, node)
        return row


def text_bytes(value: str | bytes) -> bytes:
    """The bytes of a literal: of a string, those of its UTF-8."""
    return value.encode() if isinstance(value, str) else value


def place(file: str, line: object) -> str:
    """`file.py:line`, the form that every error uses."""
    return f"{os.path.basename(file)}:{line}"


def named(function: Callable, line: int | None = None) -> str:
    """`operator name (file.py:line)` of a line of a function, or its first; of a generated one, the declaration."""
    code = function.__code__
    where = generated.places.get(function) or place(code.co_filename, line or code.co_firstlineno)
    return f"operator {function.__name__} ({where})"
