"""A function of an application: its parameters, and what names mean in it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from streaming_core.errors import BadInput
from streaming_core.language.application import Constant, Table
from streaming_core.language.record import Record
from streaming_core.language.source import Source, named
from streaming_core.language.typed import advice
from streaming_core.language.typed.bound import Bound


class Scope(Source):
    """One function at one combination of argument types. `variables`: the types of its local names, as far as known;
    `assigned`: those that have a value where the reader is, whichever way it was reached (None: it is not reached).

    Raises:
        BadInput: its source cannot be read, or it is no plain function of that many arguments.
    """

    def __init__(self, program: Bound, function: Callable, arguments: tuple, output: Record | None):
        super().__init__(function)
        self.program, self.output = program, output
        a = self.definition.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.defaults or a.posonlyargs:
            raise self.fail(self.definition, "an operator takes plain positional arguments, without defaults or stars")
        names = [x.arg for x in a.args]
        if len(names) != len(arguments):
            raise self.fail(self.definition, f"takes {len(names)} arguments, is given {len(arguments)}")
        # Whoever prints or rewrites an operator has names of his own.
        if reserved := sorted(name for name in self.locals if name.startswith("_") and name != "_"):
            raise self.fail(self.definition, f"the name {reserved[0]} is reserved: it begins with an underscore")
        self.parameters = list(zip(names, arguments, strict=True))
        self.variables: dict[str, Any] = dict(self.parameters)
        self.assigned: set[str] | None = set(names)

    def fail(self, node: ast.AST, why: str) -> BadInput:
        """The one line a user gets."""
        return BadInput(f"{named(self.function, getattr(node, 'lineno', None))}: {why}")

    def foreign(self, node: ast.AST) -> BadInput:
        """The refusal of what the language has not, in the words of the application."""
        said = f"`{ast.unparse(node).partition(chr(10))[0]}` is not part of the operator language"
        return self.fail(node, said + advice.of_node(node))

    def own(self, node: ast.AST, declared: Table | Constant) -> None:
        """Refuses a table or constant of another application."""
        app = self.program.app
        if declared not in (app.tables if isinstance(declared, Table) else app.constants):
            raise self.fail(node, f"{declared.name} is not of application {app.name}")
