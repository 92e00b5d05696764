"""A function of an application: its parameters, and what names mean in it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from streaming_core.errors import BadInput
from streaming_core.language.application import Table
from streaming_core.language.lookup import Constant
from streaming_core.language.record import Record
from streaming_core.language.source import Source, named
from streaming_core.language.typed import advice
from streaming_core.language.typed.bound import Bound


class Scope(Source):
    """One function at one combination of argument types.

    Attributes:
        variables: The types of its local names, as far as known.
        assigned: The names that have a value at the current statement on every path; None if it is unreachable.

    Raises:
        BadInput: The source cannot be read, or it is not a plain function of that many arguments.
    """

    def __init__(self, program: Bound, function: Callable, arguments: tuple, output: Record | None):
        super().__init__(function)
        self.program, self.output = program, output
        a = self.definition.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.defaults or a.posonlyargs:
            raise self.fail(self.definition, "operators take plain positional arguments; remove defaults, * and **")
        names = [x.arg for x in a.args]
        if len(names) != len(arguments):
            takes = f"takes {len(names)} argument{'s' * (len(names) != 1)}"
            kinds = ", ".join(map(str, arguments))
            raise self.fail(self.definition, f"{takes}, but the call passes {len(arguments)}: {kinds}")
        # The oracle and the kernel compiler add names with an underscore when they rewrite an operator.
        if reserved := sorted(name for name in self.locals if name.startswith("_") and name != "_"):
            raise self.fail(self.definition, f"the name {reserved[0]} is reserved; remove the leading underscore")
        self.parameters = list(zip(names, arguments, strict=True))
        self.variables: dict[str, Any] = dict(self.parameters)
        self.assigned: set[str] | None = set(names)

    def fail(self, node: ast.AST, why: str) -> BadInput:
        """The error for a piece of source: one line that cites file and line."""
        return BadInput(f"{named(self.function, getattr(node, 'lineno', None))}: {why}")

    def foreign(self, node: ast.AST) -> BadInput:
        """The error for source that operators do not support; quotes it and names the alternative."""
        source = ast.unparse(node).partition("\n")[0]
        return self.fail(node, f"`{source}`: {advice.of_node(node)}")

    def usable(self) -> set[str]:
        """The names that the function can use."""
        return self.locals | {name for name in self.names if not name.startswith("_")}

    def own(self, node: ast.AST, declared: Table | Constant) -> None:
        """Reject a table or constant of another application."""
        app = self.program.app
        if declared not in (app.tables if isinstance(declared, Table) else app.constants):
            raise self.fail(node, f"{declared.name} belongs to another application than {app.name}")
