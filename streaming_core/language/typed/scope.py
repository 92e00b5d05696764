"""A function of an application: its source, its parameters, and what names mean in it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from streaming_core.errors import BadInput
from streaming_core.language.application import App
from streaming_core.language.record import Record
from streaming_core.language.typed.bound import Bound


class Scope:
    """One function at one combination of argument types. `variables`: the types of its local names, as far as known.

    Raises:
        BadInput: its source cannot be read, or it is no plain function of that many arguments.
    """

    def __init__(self, program: Bound, function: Callable, arguments: tuple, output: Record | None):
        self.program, self.function, self.output = program, function, output
        try:
            lines, first = inspect.getsourcelines(function)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, SyntaxError, TypeError) as error:
            raise BadInput(f"operator {function.__name__}: its source cannot be read: {error}") from None
        ast.increment_lineno(tree, first - 1)
        self.file = inspect.getsourcefile(function) or "<operator>"
        definition = tree.body[0]
        if not isinstance(definition, ast.FunctionDef):
            raise BadInput(f"operator {function.__name__}: must be a plain def, not a lambda")
        self.definition = definition
        a = definition.args
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

    def fail(self, node: ast.AST, why: str) -> BadInput:
        """The one line a user gets."""
        return BadInput(f"operator {self.function.__name__} ({self.file}:{getattr(node, 'lineno', '?')}): {why}")

    def outer(self, node: ast.expr) -> Any:
        """The Python object a name outside the function, or `app.params`, stands for."""
        if isinstance(node, ast.Name) and node.id not in self.locals:
            return self.scope.get(node.id)
        if isinstance(node, ast.Attribute) and node.attr == "params" and isinstance(self.outer(node.value), App):
            return self.outer(node.value).params
        return None
