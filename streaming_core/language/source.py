"""An operator function as it is written: its source, and what names outside it stand for.

Bookkeeping, and so one: the typed reader and the compiler of kernels both start from here. What the source means, each
finds out by itself.
"""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from collections.abc import Callable
from typing import Any

from streaming_core.errors import BadInput
from streaming_core.language.application import App
from streaming_core.language.parameters import ParamRef, Params


class Source:
    """A function: its `definition` without decorators and docstring, with its line numbers; the `file` it is in;
    `names`, what it finds under names that are not among its `locals`.

    Raises:
        BadInput: the source cannot be read, or it is no plain `def`.
    """

    def __init__(self, function: Callable):
        self.function = function
        try:
            lines, first = inspect.getsourcelines(function)
            [definition] = ast.parse(textwrap.dedent("".join(lines))).body
        except (OSError, SyntaxError, TypeError, ValueError) as error:
            raise BadInput(f"{named(function)}: its source cannot be read: {error}") from None
        if not isinstance(definition, ast.FunctionDef):
            what = "async def" if isinstance(definition, ast.AsyncFunctionDef) else "a lambda"
            raise BadInput(f"{named(function)}: must be a plain def, not {what}")
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
        """The Python object that a name outside the function stands for; a parameter, however it is said, is a
        ParamRef. None: the expression is something else."""
        match node:
            case ast.Name(id=name) if name not in self.locals:
                return self.names.get(name)
            case ast.Attribute(value=value, attr=name):
                owner = self.outer(value)
                if isinstance(owner, App) and name == "params":
                    return owner.params
                if isinstance(owner, Params) or (isinstance(owner, App) and name in owner.declared):
                    return ParamRef(name)
        return None


def place(file: str, line: object) -> str:
    """`file.py:line`, as every refusal and every failure has it."""
    return f"{os.path.basename(file)}:{line}"


def named(function: Callable, line: int | None = None) -> str:
    """`operator name (file.py:line)`: this line of a function, or its first."""
    code = function.__code__
    return f"operator {function.__name__} ({place(code.co_filename, line or code.co_firstlineno)})"
