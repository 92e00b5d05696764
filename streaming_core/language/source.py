"""An operator function as text: its source, and the objects that its outer names stand for.

The typed reader and the kernel compiler both start here. It is bookkeeping, so they may share it. Each of them finds
the meaning of the source by itself.
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
            A ParamRef for a parameter, in either spelling; None if the expression is not an outer name.
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
        return None


def place(file: str, line: object) -> str:
    """`file.py:line`, the form that every error uses."""
    return f"{os.path.basename(file)}:{line}"


def named(function: Callable, line: int | None = None) -> str:
    """`operator name (file.py:line)` for this line of a function, or for its first."""
    code = function.__code__
    return f"operator {function.__name__} ({place(code.co_filename, line or code.co_firstlineno)})"
